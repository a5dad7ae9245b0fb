"""The steps of a cutover, in their order, and their undo.

1. the newest records are verified; the reverse pipeline is created, but captures nothing yet
2. the writes to the source end
3. everything that was written is applied, and what came since 1 is verified
4. the sink is stopped; capture goes on, so that the log stays whole
5. the reverse pipeline captures what the destination takes from now on
6. the destination's schema is restored; the source gets the relaxed schema of a destination
7. the destination is primary

The marker at the destination names each step before it begins. Until the last step, `undo` takes back every step
that the marker names, also after a kill, and as often as it takes.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from types import FrameType

import pymongo

from connectors.control import stop_sink
from towpath import barrier
from towpath.cutover import reverse_pipeline
from towpath.cutover.events import Telling
from towpath.cutover.gate import Limits
from towpath.cutover.pause import Checked, Pause, compare_quiet
from towpath.cutover.sides import Sides
from towpath.cutover.writes import LateWrites, Stopping, allow, writes_through
from towpath.deploy import deployment
from towpath.errors import MongoUnreachable, Overtaken, TowpathError
from towpath.events import CutoverNote
from towpath.mongo import write_block
from towpath.mongo.client import connected, open_two_connections, operation_time
from towpath.pipeline import Pipeline
from towpath.schema import apply
from towpath.schema import plan as preparing
from towpath.session import ERRORS, Say, Session

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
    catch_up(it, "source", looks, asked, telling)
    return looks


def catch_up(it: Session, side: str, looks: Checked, asked: Asked, telling: Telling) -> None:
    """Verify what came meanwhile, until there is little of it. `side` is where the writes are to end.

    Afterwards every connection is open that the pause needs, also the one of the watch for late writes.
    """
    for _ in range(LOOKS):
        with telling.step("verifying what came since") as figures:
            figures["documents"] = looks.since()
        if looks.looked_s < SHORT_S:
            break
    with connected(it.pipeline.source_uri, side) as client:
        open_two_connections(client)
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
            figures["documents"] = compare_quiet(it)


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


_ASKED_S = 2.0  # writes wait meanwhile, and the destination may be what does not answer


class NotUndone(TowpathError):
    """Something could not be taken back; the message says what to run."""


@dataclass(frozen=True, slots=True)
class _Way:
    """How a step is taken back, in words that say what it does."""

    step: str
    words: str
    undo: Callable[[], object]
    by_hand: str = ""
    after_all: bool = True
    """Whether it waits for all before it to be taken back."""


@contextmanager
def undone(sides: Sides, telling: Telling) -> Iterator[None]:
    """Takes everything back when something is raised inside, unless another command is at it by now, which does.

    Raises `NotUndone` when that fails, and `Overtaken`.
    """
    try:
        yield
    except Overtaken:
        raise
    except BaseException as error:
        sides.it.say("" if isinstance(error, KeyboardInterrupt) else f"towpath: {error}")
        with suppress(MongoUnreachable), pymongo.timeout(_ASKED_S):  # nobody else can be at it then
            sides.mark(sides.marker)
        undo(sides, telling)
        raise


def undo(sides: Sides, telling: Telling) -> None:
    """Take back what the marker says was begun; writes are let through first. Raises `NotUndone`."""
    assert sides.marker is not None
    going_back = sides.marker.state == "back to the source"
    left, failed = list(sides.marker.steps), list[str]()
    with _undisturbed(sides.it.say):
        for way in _ways_back(sides) if going_back else _ways(sides):
            if way.step in left and not (failed and way.after_all):
                try:
                    way.undo()
                    left.remove(way.step)
                    telling.tell(CutoverNote(event="undone", words=f"undone: {way.words}"))
                except ERRORS as error:
                    failed.append(f"{way.words}: {error}{way.by_hand}")
        try:
            sides.leave(left)
        except ERRORS as error:
            failed.append(f"the note at the destination of what was begun: {error}")
    for words in failed:
        telling.tell(CutoverNote(event="left", words=f"not undone: {words}"))
    if failed:
        raise NotUndone(f"not all could be undone; once that answers again: towpath cutover {sides.it.file} --undo")
    words = f"everything is as before: the {'destination' if going_back else 'source'} is primary"
    telling.tell(CutoverNote(event="undone", words=words))


def _ways(sides: Sides) -> Iterator[_Way]:
    """What comes from the way back must be gone before the sink writes again, or changes would go round."""
    it, back = sides.it, sides.back
    yield _allow(it.pipeline, "source")
    if back is not None:
        yield _Way("gentle", "the form of the source", lambda: put_right(back.pipeline))
    yield _Way("form", "the form of the destination", lambda: soften(it.pipeline))
    if back is not None:
        yield _Way(
            "ready",
            "the way back",
            lambda: deployment.remove(back.pipeline, back.connect, back.topics, log=True, say=_nothing),
        )
    yield _Way("sink", "the stop of the sink", lambda: it.connect.resume(it.pipeline.sink_connector))


def _ways_back(sides: Sides) -> Iterator[_Way]:
    back = sides.back
    assert back is not None
    yield _allow(back.pipeline, "destination")
    yield _Way("form", "the form of the source", lambda: ease(back.pipeline))
    yield _Way("sink", "the stop of the way back's sink", lambda: back.connect.resume(back.pipeline.sink_connector))


def _allow(pipeline: Pipeline, side: str) -> _Way:
    by_hand = f"; if writes to the {side} are refused still, by hand: {write_block.MONGOSH_UNDO}"
    return _Way("block", f"the stop of writes to the {side}", lambda: allow(pipeline.source_uri, side), by_hand, False)


def _nothing(words: str) -> None:
    """Nobody needs to read each name that is removed."""


@contextmanager
def _undisturbed(say: Say) -> Iterator[None]:
    """A second Ctrl-C does not end this half-way."""

    def patience(number: int, frame: FrameType | None) -> None:
        say("what was begun is being taken back; that is not interrupted")

    numbers = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(number, patience) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)
