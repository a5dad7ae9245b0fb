"""Taking a cutover back: every step that was begun, by the marker; also after a kill, and as often as it takes."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from types import FrameType

import pymongo

from towpath.cutover.events import Telling
from towpath.cutover.sides import Sides
from towpath.cutover.steps import ease, put_right, soften
from towpath.cutover.write_stop import allow
from towpath.deploy import deployment
from towpath.errors import MongoUnreachable, Overtaken, TowpathError
from towpath.mongo import write_block
from towpath.pipeline import Pipeline
from towpath.session import ERRORS, Say

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
                    telling.tell("undone", f"undone: {way.words}")
                except ERRORS as error:
                    failed.append(f"{way.words}: {error}{way.by_hand}")
        try:
            sides.leave(left)
        except ERRORS as error:
            failed.append(f"the note at the destination of what was begun: {error}")
    for words in failed:
        telling.tell("left", f"not undone: {words}")
    if failed:
        raise NotUndone(f"not all could be undone; once that answers again: towpath cutover {sides.it.file} --undo")
    telling.tell("undone", f"everything is as before: the {'destination' if going_back else 'source'} is primary")


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
