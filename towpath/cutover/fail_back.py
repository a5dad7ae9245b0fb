"""Fail back: the steps of a cutover in the other direction. Then the source is primary and the pipeline goes on.

Capture of the source has never stopped, so its log also holds what the reverse pipeline wrote to the source. The
destination has all of that already, which is verified: the sink's positions move to the end of the log before the sink
resumes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from towpath.clients.connect import control
from towpath.cutover import reverse_pipeline
from towpath.cutover.events import Reporter
from towpath.cutover.pause import EchoVerification, IncrementalVerification, Pause
from towpath.cutover.sides import Sides
from towpath.cutover.steps import (
    CutoverOptions,
    catch_up,
    indexes_read,
    relax_existing_schema,
    relax_schema,
    restore_schema,
    settle,
)
from towpath.cutover.watches import LateWrites
from towpath.cutover.writes import allow, writes_through
from towpath.deploy import deployment
from towpath.deploy.schema.plan import KeptIndexes
from towpath.log import barrier
from towpath.session import unsaid
from towpath.store.cutover import Cutover


def open_source(sides: Sides, options: CutoverOptions, reporter: Reporter) -> None:
    """Unblock a source that blocks even Towpath's writes, and apply what waits in the log of the reverse pipeline."""
    reverse, source = sides.reverse, sides.forward.source
    assert reverse is not None and sides.marker is not None
    if not sides.marker.blocked or writes_through(source):
        return
    sides.confirm()
    allow(source)
    sides.mark(replace(sides.marker, blocked=False))
    sides.forward.say(
        "writes to the source are allowed again, so that the reverse pipeline can write there: make sure that nobody"
        " else does"
    )
    with reporter.step("applying what waited") as figures:
        figures["commands"] = relax_existing_schema(reverse)
        barrier.wait(reverse, options.timeout, sides.forward.say)


@dataclass(frozen=True, slots=True)
class Verifications:
    """Of what the reverse pipeline has applied, and of what came back through the log of the pipeline."""

    changes: IncrementalVerification
    echoes: EchoVerification


def before(sides: Sides, options: CutoverOptions, reporter: Reporter) -> Verifications:
    """Verify all changes since the cutover: the reverse pipeline's log begins there, when both sides were the same."""
    assert sides.reverse is not None
    verification = IncrementalVerification(sides.reverse)
    echoes = EchoVerification(sides.forward, sides.reverse)
    with reporter.step("verifying what was changed since the cutover") as figures:
        figures["documents"] = verification.verify_new()
    catch_up(sides.reverse, verification, options, reporter)
    barrier.wait_captured(sides.forward, options.timeout, sides.forward.say)
    with reporter.step("verifying what the source has captured") as figures:
        figures["documents"] = echoes.verify_new()
    return Verifications(verification, echoes)


def go_back(
    sides: Sides, options: CutoverOptions, verifications: Verifications, reporter: Reporter
) -> tuple[Cutover, float]:
    """From the last write at the destination on; return the marker that makes the source primary, and the seconds.

    Raises when a check fails; the caller then has to undo the fail back.
    """
    reverse, pause = sides.reverse, Pause(options.max_pause, reporter)
    assert reverse is not None and sides.marker is not None
    with indexes_read(reverse, reporter) as kept, pause.enforced():
        pause.end_writes(sides, options.write_stop(reverse.source, "destination"))
        with LateWrites(reverse.source, reverse.pipeline, "destination", pause.end) as late_writes:
            settle(sides, reverse, options, verifications.changes, pause)
            _turn_round(sides, options, verifications.echoes, pause, kept)
            late_writes.catch_up()
    return replace(sides.marker, state="returned"), pause.seconds


def open_primary(sides: Sides) -> None:
    """Allow the writes to the source, once the marker says that it is primary again. Can be repeated."""
    assert sides.marker is not None
    if sides.marker.blocked:
        sides.confirm()
        allow(sides.forward.source)


def _turn_round(
    sides: Sides, options: CutoverOptions, echoes: EchoVerification, pause: Pause, kept: KeptIndexes
) -> None:
    session, reverse, reporter = sides.forward, sides.reverse, pause.reporter
    assert reverse is not None
    with reporter.step("stopping the way back's sink"):
        control.wait_stopped(reverse.connect, reverse.pipeline.sink_connector)
    with reporter.step("moving the sink to the end of the log") as figures:
        barrier.wait_captured(session, pause.remaining(options.timeout), unsaid)
        ends = reverse_pipeline.written_ends(session, pause.remaining(options.timeout))
        figures["documents"] = echoes.verify_new()
        reverse_pipeline.skip_to_end(session, ends)
    with reporter.step("putting the source right") as figures:
        sides.begin("form")
        figures["commands"] = restore_schema(reverse, kept)


def finish(sides: Sides, options: CutoverOptions, reporter: Reporter) -> None:
    """The steps once the source is primary again: the pipeline goes on as before. Can be repeated."""
    session, reverse = sides.forward, sides.reverse
    assert reverse is not None and sides.marker is not None
    open_primary(sides)
    sides.confirm()
    if "block" in sides.marker.steps:
        allow(session.destination)
    with reporter.step("making the destination one again") as figures:
        figures["commands"] = relax_schema(session)
    with reporter.step("removing the way back"):
        deployment.remove(reverse, log=True, say=session.say)
    with reporter.step("resuming the pipeline"):
        session.connect.resume(session.pipeline.sink_connector)
        control.wait_running(session.connect, session.pipeline, options.timeout)
    sides.mark(None)
