"""The steps of a cutover, in their order.

1. the newest records are verified; the reverse pipeline is created, but captures nothing yet
2. the writes to the source end
3. everything that was written is applied
4. the sink is stopped; capture goes on, so that the log stays whole; meanwhile what came since 1 is verified
5. the reverse pipeline captures what the destination takes from now on, also what a TTL index deletes there
6. the destination's schema is restored; the source gets the relaxed schema of a destination
7. the destination is primary

The marker at the destination names each step before it begins. Until the last step, `towpath.cutover.undo` takes back
every step that the marker names, also after a kill, and as often as it takes.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace

import pymongo

from towpath.clients.connect.control import wait_stopped
from towpath.clients.mongo.client import Cluster
from towpath.clients.mongo.replica_set import operation_time
from towpath.cutover import reverse_pipeline
from towpath.cutover.events import Reporter
from towpath.cutover.pause import IncrementalVerification, Pause, compare_quiet
from towpath.cutover.sides import Sides
from towpath.cutover.watches import LateWrites, kept_indexes
from towpath.cutover.writes import WriteStop, writes_through
from towpath.deploy.schema import apply
from towpath.deploy.schema import plan as schema_plan
from towpath.deploy.schema.plan import KeptIndexes, nothing_kept
from towpath.log import barrier
from towpath.session import Session, unsaid
from towpath.store.cutover import Cutover

SHORT_S, ROUNDS = 2.0, 5  # the pause begins once a comparison takes no longer than this, or after so many


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

    def write_stop(self, cluster: Cluster, side: str) -> WriteStop:
        return WriteStop(cluster, side, self.stop_with, self.blocks)


def before(sides: Sides, options: CutoverOptions, reporter: Reporter) -> IncrementalVerification:
    """What takes long and needs no pause. Neither side's documents or schema change."""
    session, verification = sides.forward, IncrementalVerification(sides.forward)
    with reporter.step("verifying what the newest records are about") as figures:
        figures["documents"] = verification.verify_newest(options.newest)
    if sides.reverse is not None:
        with reporter.step("making the way back ready"):
            reverse_pipeline.refuse_existing(sides.reverse)  # before the step begins, whose undo removes it
            sides.begin("ready")
            reverse_pipeline.make_ready(sides.reverse, options.timeout)
    catch_up(session, verification, options, reporter)
    return verification


def catch_up(
    session: Session, verification: IncrementalVerification, options: CutoverOptions, reporter: Reporter
) -> None:
    """Verify new records until few are left."""
    for _ in range(ROUNDS):
        with reporter.step("verifying what came since") as figures:
            figures["documents"] = verification.verify_new()
        if verification.duration_s < SHORT_S:
            break
    barrier.wait(session, options.timeout, session.say)


def cut_over(
    sides: Sides, options: CutoverOptions, verification: IncrementalVerification, reporter: Reporter
) -> tuple[Cutover, float]:
    """From the last write at the source on; return the marker that makes the destination primary, and the seconds.

    Raises when a check fails; the caller then has to undo the cutover.
    """
    session, pause = sides.forward, Pause(options.max_pause, reporter)
    with indexes_read(session, reporter) as kept, pause.enforced():
        pause.end_writes(sides, options.write_stop(session.source, "source"))
        with LateWrites(session.source, session.pipeline, "source", pause.end) as late_writes:
            with session.source.connected() as client:
                last_write = operation_time(client)
            settle(sides, session, options, verification, pause)
            _turn_round(sides, options, pause, kept)
            late_writes.catch_up()
    assert sides.marker is not None
    over = replace(sides.marker, state="over", moment=str(last_write), over=time.time(), blocked=options.blocks)
    return over, pause.seconds


@contextmanager
def indexes_read(session: Session, reporter: Reporter) -> Iterator[KeptIndexes]:
    """The indexes of both sides, and every connection that the pause needs: see `kept_indexes`."""
    with ExitStack() as stack:
        with reporter.step("reading the indexes of both sides"):
            kept = stack.enter_context(kept_indexes(session))
        yield kept


def _turn_round(sides: Sides, options: CutoverOptions, pause: Pause, kept: KeptIndexes) -> None:
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
        figures["commands"] = restore_schema(session, kept)
    if reverse is not None and (not options.blocks or writes_through(session.source)):
        with reporter.step("making the source a destination") as figures:
            sides.begin("gentle")
            figures["commands"] = relax_existing_schema(reverse, kept)


def settle(
    sides: Sides, session: Session, options: CutoverOptions, verification: IncrementalVerification, pause: Pause
) -> None:
    """Return once everything that was written is applied and verified; the sink is stopping then.

    Raises `CheckFailed`, `NotYet`.
    """
    reporter = pause.reporter
    with reporter.step("applying what is left"):
        barrier.wait(session, pause.remaining(options.timeout), unsaid)
    sides.begin("sink")
    session.connect.stop(session.pipeline.sink_connector)
    with reporter.step("verifying what came since") as figures:
        figures["documents"] = verification.verify_new()
    if options.quiet:
        with reporter.step("comparing both sides whole") as figures, pymongo.timeout(pause.remaining(pause.limit)):
            figures["documents"] = compare_quiet(session)


def restore_schema(session: Session, kept: KeptIndexes = nothing_kept) -> int:
    """Restore the source's schema at the destination; return the number of commands."""
    return _apply(session, schema_plan.plan(session, final=True, kept=kept))


def relax_existing_schema(session: Session, kept: KeptIndexes = nothing_kept) -> int:
    """Relax what would delete or reject documents at a destination with a schema of its own; the number of commands."""
    return _apply(session, schema_plan.plan_in_place(session, kept))


def relax_schema(session: Session) -> int:
    """Give the destination a relaxed schema, which accepts all replicated changes; return the number of commands."""
    return _apply(session, schema_plan.plan(session, overwrite=True))


def _apply(session: Session, plan: schema_plan.Plan) -> int:
    apply.run(session.destination, plan.steps)
    return len(plan.steps)
