"""The undo of a cutover, and of a fail back: every step that the marker names, as often as it takes.

`attempt` runs a cutover so that whatever ends it, other than the switch, ends in the undo.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from towpath.clients.mongo import write_block
from towpath.clients.mongo.client import Cluster
from towpath.config.events import CutoverNote
from towpath.cutover.events import Reporter
from towpath.cutover.sides import Sides, SwitchUnknown
from towpath.cutover.steps import relax_existing_schema, relax_schema, restore_schema
from towpath.cutover.writes import allow
from towpath.deploy import deployment
from towpath.errors import Overtaken, TowpathError
from towpath.session import Say, unsaid
from towpath.signals import Interrupts
from towpath.store.cutover import UNDER_WAY

T = TypeVar("T")


class NotUndone(TowpathError):
    """Some steps could not be undone; the message says what to run."""


@dataclass(frozen=True, slots=True)
class _Undo:
    """How to undo a step of the marker. `words` name what is undone, `by_hand` how to do it without Towpath."""

    step: str
    words: str
    run: Callable[[], object]
    by_hand: str = ""
    in_order: bool = True
    """Whether it runs only if every undo before it succeeded."""


def attempt(sides: Sides, reporter: Reporter, signals: Interrupts, body: Callable[[], T]) -> T:
    """Return what the body returns; when it raises, undo everything that was begun, and raise the same.

    `signals` must be handled, and raise in the body at most once: so a second one never interrupts the undo. Another
    command that has taken the cutover over undoes it instead. Raises `NotUndone`, `Overtaken` and `SwitchUnknown`.
    """
    is_left = False
    try:
        try:
            return body()
        except BaseException as error:
            signals.hold()
            _give_up(sides, reporter, error, signals)
            is_left = True
            raise
    except KeyboardInterrupt as error:  # the first signal may come before `hold`
        if not is_left:
            _give_up(sides, reporter, error, signals)
        raise


def _give_up(sides: Sides, reporter: Reporter, error: BaseException, signals: Interrupts) -> None:
    """Undo, unless that is for another command to do, nothing was begun, or it is unknown whether there was a switch.

    What was begun is what the destination has stored; only if it does not answer, what this command remembers.
    """
    if isinstance(error, Overtaken | SwitchUnknown):
        return
    if sides.marker is None:
        sides.withdraw()
        return
    sides.retake()
    if sides.marker.state in UNDER_WAY:
        undo(sides, reporter, "" if signals.came else f"towpath: {error}")


def undo(sides: Sides, reporter: Reporter, why: str = "") -> None:
    """Undo the steps that the marker names, the write block first, and report afterwards. Raises `NotUndone`.

    The caller has taken the marker, and holds signals. Nothing that is printed comes before: a reader of the output
    that sleeps would hold the undo up.
    """
    assert sides.marker is not None and sides.marker.state in UNDER_WAY
    _announce(sides.forward.say, why, "undoing the cutover; this cannot be interrupted")
    going_back = sides.marker.state == "back to the source"
    steps, done, failures = list(sides.marker.steps), list[str](), list[str]()
    for action in _fail_back_undos(sides) if going_back else _cutover_undos(sides):
        if action.step in steps and not (failures and action.in_order):
            if failure := _failure(action.run):
                failures.append(f"{action.words}: {failure}{action.by_hand}")
            else:
                steps.remove(action.step)
                done.append(action.words)
    if failure := _failure(lambda: sides.leave(steps)):
        failures.append(f"the cutover marker at the destination: {failure}")
    for words in done:
        reporter.report(CutoverNote(event="undone", words=f"undone: {words}"))
    for failure in failures:
        reporter.report(CutoverNote(event="left", words=f"not undone: {failure}"))
    if failures:
        raise NotUndone(
            f"not all could be undone; once that answers again: towpath cutover {sides.forward.file} --undo"
        )
    words = f"everything is as before: the {'destination' if going_back else 'source'} is primary"
    reporter.report(CutoverNote(event="undone", words=words))


def _failure(act: Callable[[], object]) -> str:
    """Why it failed; empty if it did not. Whatever it raises, what else can be undone has to be undone."""
    try:
        act()
    except Exception as error:  # noqa: BLE001
        return str(error) or type(error).__name__
    return ""


def _announce(say: Say, *messages: str) -> None:
    """Say something without waiting until it is written."""
    words = "\n".join(filter(None, messages))
    threading.Thread(target=say, args=(words,), name="announcement", daemon=True).start()


def _cutover_undos(sides: Sides) -> Iterator[_Undo]:
    """The reverse pipeline must be gone before the sink resumes, or changes would travel in a circle."""
    session, reverse = sides.forward, sides.reverse
    yield _allow(session.source, "source")
    if reverse is not None:
        yield _Undo("gentle", "the schema change of the source", lambda: restore_schema(reverse))
    yield _Undo("form", "the schema change of the destination", lambda: relax_schema(session))
    if reverse is not None:
        yield _Undo(
            "ready",
            "the reverse pipeline",
            lambda: deployment.remove(reverse, log=True, say=unsaid),
        )
    yield _Undo("sink", "the stop of the sink", lambda: session.connect.resume(session.pipeline.sink_connector))


def _fail_back_undos(sides: Sides) -> Iterator[_Undo]:
    reverse = sides.reverse
    assert reverse is not None
    yield _allow(reverse.source, "destination")
    yield _Undo("form", "the schema change of the source", lambda: relax_existing_schema(reverse))
    yield _Undo(
        "sink",
        "the stop of the reverse pipeline's sink",
        lambda: reverse.connect.resume(reverse.pipeline.sink_connector),
    )


def _allow(cluster: Cluster, side: str) -> _Undo:
    by_hand = f"; if the {side} still blocks writes, unblock it by hand: {write_block.MONGOSH_UNDO}"
    return _Undo("block", f"the write block of the {side}", lambda: allow(cluster), by_hand, False)
