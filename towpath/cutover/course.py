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

from connectors import barrier, way_back
from connectors.clusters import connected, operation_time
from connectors.lifecycle import stop_sink
from connectors.spec import Pipeline
from towpath import making, preparing
from towpath.cutover import checked
from towpath.cutover.checked import Checked, Red
from towpath.cutover.gate import Limits
from towpath.cutover.sides import Sides
from towpath.cutover.stopping import Stopping, writes_through
from towpath.cutover.telling import Telling
from towpath.opened import Opened, say
from towpath.verify_namespaces import pairs
from verifier.hashes import Watch, watch
from verifier.reading import Client

SHORT_S, LOOKS = 2.0, 5  # the pause begins after a look at what came that took no longer, or after so many


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

    def stopping(self, uri: str, side: str) -> Stopping:
        return Stopping(uri, side, self.stop_with, self.blocks)


@dataclass(slots=True)
class Pause:
    """The time without writes."""

    _began: float = 0.0

    def end_writes(self, sides: Sides, stopping: Stopping, telling: Telling) -> None:
        """Writes may end at any moment of this; where people stop them by hand, when they say so."""
        if stopping.blocks:
            sides.begin("block")
        self._began = time.monotonic()
        stopping.stop(telling)
        if stopping.asks:
            self._began = time.monotonic()

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._began


def before(sides: Sides, asked: Asked, telling: Telling) -> Checked:
    """What takes long and needs no pause. Nothing is changed that matters."""
    it, looks = sides.it, Checked(sides.it)
    with telling.step("verifying what the newest records are about") as figures:
        figures["documents"] = looks.newest(asked.newest)
    if sides.back is not None:
        with telling.step("making the way back ready"):
            sides.begin("ready")
            way_back.make_ready(sides.back.pipeline, sides.back.connect, sides.back.topics, say, asked.timeout)
    catch_up(it, looks, asked, telling)
    return looks


def catch_up(it: Opened, looks: Checked, asked: Asked, telling: Telling) -> None:
    """Verify what came meanwhile, until there is little of it."""
    for _ in range(LOOKS):
        with telling.step("verifying what came since") as figures:
            figures["documents"] = looks.since()
        if looks.looked_s < SHORT_S:
            break
    barrier.wait(it.pipeline, it.connect, it.topics, asked.timeout, say)


def cut_over(sides: Sides, asked: Asked, looks: Checked, telling: Telling) -> float:
    """From the last write at the source to the destination being primary; seconds of that pause.

    Raises what speaks against it; then it is to be undone.
    """
    it, pause = sides.it, Pause()
    pause.end_writes(sides, asked.stopping(it.pipeline.source_uri, "source"), telling)
    with connected(it.pipeline.source_uri, "source") as source:
        seen = still(source, it.pipeline, "source")
        moment = operation_time(source)
        settle(it, asked, looks, telling)
        with telling.step("stopping the sink"):
            sides.begin("sink")
            stop_sink(it.pipeline, it.connect)
        if sides.back is not None:
            with telling.step("beginning the way back"):
                back = sides.back
                way_back.begin(back.pipeline, it.pipeline, back.connect, back.topics, asked.timeout)
        with telling.step("putting the destination right") as figures:
            sides.begin("form")
            figures["commands"] = put_right(it.pipeline)
        if sides.back is not None and (not asked.blocks or writes_through(it.pipeline.source_uri, "source")):
            with telling.step("making the source a destination") as figures:
                sides.begin("gentle")
                figures["commands"] = ease(sides.back.pipeline)
        refuse_writes(seen)
    assert sides.marker is not None
    sides.mark(replace(sides.marker, state="over", moment=str(moment), over=time.time(), blocked=asked.blocks))
    return pause.seconds


def still(client: Client, pipeline: Pipeline, side: str) -> Watch:
    """Sees from now on whether somebody writes on, to what the pipeline captures."""
    return watch(client, [pair.source for pair in pairs(pipeline, ())], side)


def refuse_writes(seen: Watch) -> None:
    """Raise `Red` where somebody wrote although the writes were said to have ended."""
    if written := seen.written():
        raise Red(
            f"writes went on although they were to have ended: {', '.join(sorted(written))} was written to at the"
            f" {seen.side}. Documents that expire count as well: then try again, or with --block-writes, under which"
            " none expires"
        )


def settle(it: Opened, asked: Asked, looks: Checked, telling: Telling) -> None:
    """Everything that was written is at the other side, and is the same there. Raises `Red`, `NotYet`."""
    with telling.step("applying what is left"):
        barrier.wait(it.pipeline, it.connect, it.topics, asked.timeout, lambda words: None)
    with telling.step("verifying what came since") as figures:
        figures["documents"] = looks.since()
    if asked.quiet:
        with telling.step("comparing both sides whole") as figures:
            figures["documents"] = checked.quiet(it)


def put_right(pipeline: Pipeline) -> int:
    """Give the destination the source's own form; the number of commands."""
    plan = preparing.plan(pipeline, final=True)
    making.run(pipeline, plan.steps)
    return len(plan.steps)


def ease(pipeline: Pipeline) -> int:
    """Stop what deletes or refuses at a destination that was there first; the number of commands."""
    plan = preparing.plan_in_place(pipeline)
    making.run(pipeline, plan.steps)
    return len(plan.steps)


def soften(pipeline: Pipeline) -> int:
    """Give the destination the form that takes replicated changes unharmed; the number of commands."""
    plan = preparing.plan(pipeline, overwrite=True)
    making.run(pipeline, plan.steps)
    return len(plan.steps)
