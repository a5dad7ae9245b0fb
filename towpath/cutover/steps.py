"""The steps of a cutover, in their order. Each is written down before it begins, and can be taken back until the last.

1. the newest records are verified, and the way back is made ready, all but its capture
2. the writes to the source end
3. everything that was written is applied, and what came since 1 is verified
4. the sink is stopped; capture goes on, so that the log stays whole
5. the way back captures what the destination takes from now on
6. the destination gets the form that the source has; the source that of a destination
7. the destination is primary
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

import pymongo

from connectors.control import stop_sink
from towpath import barrier
from towpath.cutover import comparison, reverse_pipeline
from towpath.cutover.comparison import Checked
from towpath.cutover.events import Telling
from towpath.cutover.gate import Limits
from towpath.cutover.late_writes import LateWrites
from towpath.cutover.pause import Pause
from towpath.cutover.sides import Sides
from towpath.cutover.write_stop import Stopping, writes_through
from towpath.mongo.client import connected, operation_time
from towpath.pipeline import Pipeline
from towpath.schema import apply
from towpath.schema import plan as preparing
from towpath.session import Session

SHORT_S, LOOKS = 2.0, 5  # the pause begins after a look at what came that took no longer, or after so many
SWITCH_S = 10.0  # seconds for the last word, which nobody takes back: a destination that is lost then is not primary


@dataclass(frozen=True, slots=True)
class Asked:
    """What the command line asks for."""

    limits: Limits
    newest: int
    """Records of the log that are verified before the pause."""
    quiet: bool
    """Whether all documents are compared in the pause, by the servers' hashes."""
    blocks: bool
    stop_with: str | None
    switch_with: str | None
    timeout: float
    """Seconds for a step that waits."""
    max_pause: float
    """Seconds that writes are held up, at most."""

    def stopping(self, uri: str, side: str) -> Stopping:
        return Stopping(uri, side, self.stop_with, self.blocks)


def before(sides: Sides, asked: Asked, telling: Telling) -> Checked:
    """What takes long and needs no pause. Nothing is changed that matters."""
    it, looks = sides.it, Checked(sides.it)
    with telling.step("verifying what the newest records are about") as figures:
        figures["documents"] = looks.newest(asked.newest)
    if sides.back is not None:
        with telling.step("making the way back ready"):
            sides.begin("ready")
            reverse_pipeline.make_ready(
                sides.back.pipeline, sides.back.connect, sides.back.topics, it.say, asked.timeout
            )
    catch_up(it, looks, asked, telling)
    return looks


def catch_up(it: Session, looks: Checked, asked: Asked, telling: Telling) -> None:
    """Verify what came meanwhile, until there is little of it."""
    for _ in range(LOOKS):
        with telling.step("verifying what came since") as figures:
            figures["documents"] = looks.since()
        if looks.looked_s < SHORT_S:
            break
    barrier.wait(it.pipeline, it.connect, it.topics, asked.timeout, it.say)


def cut_over(sides: Sides, asked: Asked, looks: Checked, telling: Telling) -> float:
    """From the last write at the source to the destination being primary; seconds of that pause.

    Raises what speaks against it; then it is to be undone.
    """
    it, pause = sides.it, Pause(asked.max_pause, telling)
    with pause.kept():
        pause.end_writes(sides, asked.stopping(it.pipeline.source_uri, "source"))
        with (
            connected(it.pipeline.source_uri, "source") as source,
            LateWrites(source, it.pipeline, "source", pause.end) as late,
        ):
            moment = operation_time(source)
            settle(it, asked, looks, pause)
            _turn_round(sides, asked, pause)
            late.look()
    assert sides.marker is not None
    over = replace(sides.marker, state="over", moment=str(moment), over=time.time(), blocked=asked.blocks)
    with pymongo.timeout(SWITCH_S):
        sides.mark(over)
    return pause.seconds


def _turn_round(sides: Sides, asked: Asked, pause: Pause) -> None:
    """Between two sides that are the same: the sink stops, the way back begins, the forms change sides."""
    it, back, telling = sides.it, sides.back, pause.telling
    with telling.step("stopping the sink"):
        sides.begin("sink")
        stop_sink(it.pipeline, it.connect)
    if back is not None:
        with telling.step("beginning the way back"):
            reverse_pipeline.begin(back.pipeline, it.pipeline, back.connect, back.topics, pause.left(asked.timeout))
    with telling.step("putting the destination right") as figures:
        sides.begin("form")
        figures["commands"] = put_right(it.pipeline)
    if back is not None and (not asked.blocks or writes_through(it.pipeline.source_uri, "source")):
        with telling.step("making the source a destination") as figures:
            sides.begin("gentle")
            figures["commands"] = ease(back.pipeline)


def settle(it: Session, asked: Asked, looks: Checked, pause: Pause) -> None:
    """Everything that was written is at the other side, and is the same there. Raises `Red`, `NotYet`."""
    telling = pause.telling
    with telling.step("applying what is left"):
        barrier.wait(it.pipeline, it.connect, it.topics, pause.left(asked.timeout), lambda words: None)
    with telling.step("verifying what came since") as figures:
        figures["documents"] = looks.since()
    if asked.quiet:
        with telling.step("comparing both sides whole") as figures, pymongo.timeout(pause.left(pause.limit)):
            figures["documents"] = comparison.quiet(it)


def put_right(pipeline: Pipeline) -> int:
    """Give the destination the source's own form; the number of commands."""
    plan = preparing.plan(pipeline, final=True)
    apply.run(pipeline, plan.steps)
    return len(plan.steps)


def ease(pipeline: Pipeline) -> int:
    """Stop what deletes or refuses at a destination that was there first; the number of commands."""
    plan = preparing.plan_in_place(pipeline)
    apply.run(pipeline, plan.steps)
    return len(plan.steps)


def soften(pipeline: Pipeline) -> int:
    """Give the destination the form that takes replicated changes unharmed; the number of commands."""
    plan = preparing.plan(pipeline, overwrite=True)
    apply.run(pipeline, plan.steps)
    return len(plan.steps)
