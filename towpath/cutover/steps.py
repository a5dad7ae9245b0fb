"""The steps of a cutover, in their order, and their undo.

1. the newest records are verified; the reverse pipeline is created, but captures nothing yet
2. the writes to the source end
3. everything that was written is applied
4. the sink is stopped; capture goes on, so that the log stays whole; meanwhile what came since 1 is verified
5. the reverse pipeline captures what the destination takes from now on, also what a TTL index deletes there
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

from connectors.control import wait_stopped
from towpath import barrier
from towpath.cutover import reverse_pipeline
from towpath.cutover.events import Reporter
from towpath.cutover.pause import IncrementalVerification, Pause, compare_quiet
from towpath.cutover.sides import Sides
from towpath.cutover.writes import LateWrites, WriteStop, allow, writes_through
from towpath.deploy import deployment
from towpath.errors import MongoError, Overtaken, TowpathError
from towpath.events import CutoverNote
from towpath.mongo import write_block
from towpath.mongo.client import connected, open_two_connections, operation_time
from towpath.pipeline import Pipeline
from towpath.schema import apply
from towpath.schema import plan as schema_plan
from towpath.session import Say, Session, unsaid
from towpath.trouble import ERRORS

SHORT_S, ROUNDS = 2.0, 5  # the pause begins once a comparison takes no longer than this, or after so many
SWITCH_S = 10.0  # seconds for the final write, which cannot be undone; without it the destination is not primary


@dataclass(frozen=True, slots=True)
class CutoverOptions:
    """The options of the command line."""

    max_lag: float
    """In seconds, with which a cutover may begin."""
    max_age: float
    """Of the last full verification, in seconds."""
    newest: int
    """Records of the log that are verified before the pause."""
    quiet: bool
    """Whether all documents are compared in the pause, by dbHash."""
    blocks: bool
    stop_with: str | None
    switch_with: str | None
    timeout: float
    """In seconds, for a step that waits."""
    max_pause: float
    """Longest pause in the writes, in seconds."""

    def write_stop(self, uri: str, side: str) -> WriteStop:
        return WriteStop(uri, side, self.stop_with, self.blocks)


def before(sides: Sides, options: CutoverOptions, reporter: Reporter) -> IncrementalVerification:
    """What takes long and needs no pause. Neither side's documents or schema change."""
    session, verification = sides.forward, IncrementalVerification(sides.forward)
    with reporter.step("verifying what the newest records are about") as figures:
        figures["documents"] = verification.verify_newest(options.newest)
    if sides.reverse is not None:
        with reporter.step("making the way back ready"):
            sides.begin("ready")
            reverse_pipeline.make_ready(sides.reverse, options.timeout)
    catch_up(session, "source", verification, options, reporter)
    return verification


def catch_up(
    session: Session, side: str, verification: IncrementalVerification, options: CutoverOptions, reporter: Reporter
) -> None:
    """Verify new records until few are left. `side` is where the writes will end.

    Afterwards every connection that the pause needs is open, also the second one that the watch for late writes takes.
    """
    for _ in range(ROUNDS):
        with reporter.step("verifying what came since") as figures:
            figures["documents"] = verification.verify_new()
        if verification.duration_s < SHORT_S:
            break
    with connected(session.pipeline.source_uri, side) as client:
        open_two_connections(client)
    barrier.wait(session.pipeline, session.connect, session.topics, options.timeout, session.say)


def cut_over(sides: Sides, options: CutoverOptions, verification: IncrementalVerification, reporter: Reporter) -> float:
    """From the last write at the source to the destination as primary; return the seconds of that pause.

    Raises when a check fails; the caller then has to undo the cutover.
    """
    session, pause = sides.forward, Pause(options.max_pause, reporter)
    with pause.enforced():
        pause.end_writes(sides, options.write_stop(session.pipeline.source_uri, "source"))
        with (
            connected(session.pipeline.source_uri, "source") as source,
            LateWrites(source, session.pipeline, "source", pause.end) as late_writes,
        ):
            last_write = operation_time(source)
            settle(sides, session, options, verification, pause)
            _turn_round(sides, options, pause)
            late_writes.catch_up()
    assert sides.marker is not None
    over = replace(sides.marker, state="over", moment=str(last_write), over=time.time(), blocked=options.blocks)
    with pymongo.timeout(SWITCH_S):
        sides.mark(over)
    return pause.seconds


def _turn_round(sides: Sides, options: CutoverOptions, pause: Pause) -> None:
    """Once the sink is stopped: start the reverse pipeline, and then swap the relaxed schema."""
    session, reverse, reporter = sides.forward, sides.reverse, pause.reporter
    with reporter.step("stopping the sink"):
        wait_stopped(session.connect, session.pipeline.sink_connector)
    if reverse is not None:
        with reporter.step("beginning the way back"):
            before = reverse_pipeline.begin(reverse, session.pipeline)
            reverse_pipeline.wait_begun(reverse, before, pause.remaining(options.timeout))
    with reporter.step("putting the destination right") as figures:
        sides.begin("form")
        figures["commands"] = restore_schema(session.pipeline)
    if reverse is not None and (not options.blocks or writes_through(session.pipeline.source_uri, "source")):
        with reporter.step("making the source a destination") as figures:
            sides.begin("gentle")
            figures["commands"] = relax_existing_schema(reverse.pipeline)


def settle(
    sides: Sides, session: Session, options: CutoverOptions, verification: IncrementalVerification, pause: Pause
) -> None:
    """Return once everything that was written is applied and verified; the sink is stopping then.

    Raises `CheckFailed`, `NotYet`.
    """
    reporter = pause.reporter
    with reporter.step("applying what is left"):
        barrier.wait(session.pipeline, session.connect, session.topics, pause.remaining(options.timeout), unsaid)
    sides.begin("sink")
    session.connect.stop(session.pipeline.sink_connector)
    with reporter.step("verifying what came since") as figures:
        figures["documents"] = verification.verify_new()
    if options.quiet:
        with reporter.step("comparing both sides whole") as figures, pymongo.timeout(pause.remaining(pause.limit)):
            figures["documents"] = compare_quiet(session)


def restore_schema(pipeline: Pipeline) -> int:
    """Restore the source's schema at the destination; return the number of commands."""
    return _apply(pipeline, schema_plan.plan(pipeline, final=True))


def relax_existing_schema(pipeline: Pipeline) -> int:
    """Relax what would delete or reject documents at a destination with a schema of its own; the number of commands."""
    return _apply(pipeline, schema_plan.plan_in_place(pipeline))


def relax_schema(pipeline: Pipeline) -> int:
    """Give the destination a relaxed schema, which accepts all replicated changes; return the number of commands."""
    return _apply(pipeline, schema_plan.plan(pipeline, overwrite=True))


def _apply(pipeline: Pipeline, plan: schema_plan.Plan) -> int:
    apply.run(pipeline, plan.steps)
    return len(plan.steps)


_RECLAIM_S = 2.0  # short: writes wait meanwhile, and the destination may be what does not answer


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


@contextmanager
def undone(sides: Sides, reporter: Reporter) -> Iterator[None]:
    """Undo everything when the body raises, unless another command has taken the cutover over: that one does it.

    Raises `NotUndone` when the undo fails, and `Overtaken`.
    """
    try:
        yield
    except Overtaken:
        raise
    except BaseException as error:
        sides.forward.say("" if isinstance(error, KeyboardInterrupt) else f"towpath: {error}")
        with suppress(MongoError), pymongo.timeout(_RECLAIM_S):
            sides.mark(sides.marker)  # raises Overtaken when another command has taken over
        undo(sides, reporter)
        raise


def undo(sides: Sides, reporter: Reporter) -> None:
    """Undo the steps that the marker names, the write block first. Raises `NotUndone`."""
    assert sides.marker is not None
    going_back = sides.marker.state == "back to the source"
    steps, failures = list(sides.marker.steps), list[str]()
    with _uninterrupted(sides.forward.say):
        for action in _fail_back_undos(sides) if going_back else _cutover_undos(sides):
            if action.step in steps and not (failures and action.in_order):
                try:
                    action.run()
                    steps.remove(action.step)
                    reporter.report(CutoverNote(event="undone", words=f"undone: {action.words}"))
                except ERRORS as error:
                    failures.append(f"{action.words}: {error}{action.by_hand}")
        try:
            sides.leave(steps)
        except ERRORS as error:
            failures.append(f"the cutover marker at the destination: {error}")
    for failure in failures:
        reporter.report(CutoverNote(event="left", words=f"not undone: {failure}"))
    if failures:
        raise NotUndone(
            f"not all could be undone; once that answers again: towpath cutover {sides.forward.file} --undo"
        )
    words = f"everything is as before: the {'destination' if going_back else 'source'} is primary"
    reporter.report(CutoverNote(event="undone", words=words))


def _cutover_undos(sides: Sides) -> Iterator[_Undo]:
    """The reverse pipeline must be gone before the sink resumes, or changes would travel in a circle."""
    session, reverse = sides.forward, sides.reverse
    yield _allow(session.pipeline, "source")
    if reverse is not None:
        yield _Undo("gentle", "the schema change of the source", lambda: restore_schema(reverse.pipeline))
    yield _Undo("form", "the schema change of the destination", lambda: relax_schema(session.pipeline))
    if reverse is not None:
        yield _Undo(
            "ready",
            "the reverse pipeline",
            lambda: deployment.remove(reverse.pipeline, reverse.connect, reverse.topics, log=True, say=unsaid),
        )
    yield _Undo("sink", "the stop of the sink", lambda: session.connect.resume(session.pipeline.sink_connector))


def _fail_back_undos(sides: Sides) -> Iterator[_Undo]:
    reverse = sides.reverse
    assert reverse is not None
    yield _allow(reverse.pipeline, "destination")
    yield _Undo("form", "the schema change of the source", lambda: relax_existing_schema(reverse.pipeline))
    yield _Undo(
        "sink",
        "the stop of the reverse pipeline's sink",
        lambda: reverse.connect.resume(reverse.pipeline.sink_connector),
    )


def _allow(pipeline: Pipeline, side: str) -> _Undo:
    by_hand = f"; if the {side} still blocks writes, unblock it by hand: {write_block.MONGOSH_UNDO}"
    return _Undo("block", f"the write block of the {side}", lambda: allow(pipeline.source_uri, side), by_hand, False)


@contextmanager
def _uninterrupted(say: Say) -> Iterator[None]:
    """A second Ctrl-C does not interrupt the body."""

    def refuse(number: int, frame: FrameType | None) -> None:
        say("undoing the cutover; this cannot be interrupted")

    previous = {number: signal.signal(number, refuse) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
