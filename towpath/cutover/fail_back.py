"""Fail back: the steps of a cutover in the other direction. Then the source is primary and the pipeline goes on.

Capture of the source has never stopped, so its log also holds what the reverse pipeline wrote to the source. The
destination has all of that already: the sink's positions move to the end of the log before the sink resumes.
"""

from __future__ import annotations

from dataclasses import replace

import pymongo

from connectors import control
from towpath import barrier
from towpath.cutover import reverse_pipeline
from towpath.cutover.events import Reporter
from towpath.cutover.pause import IncrementalVerification, Pause
from towpath.cutover.sides import Sides
from towpath.cutover.steps import (
    SWITCH_S,
    CutoverOptions,
    catch_up,
    relax_existing_schema,
    relax_schema,
    restore_schema,
    settle,
)
from towpath.cutover.writes import LateWrites, allow, writes_through
from towpath.deploy import deployment
from towpath.mongo.client import connected
from towpath.session import unsaid


def open_source(sides: Sides, options: CutoverOptions, reporter: Reporter) -> None:
    """Unblock a source that blocks even Towpath's writes, and apply what waits in the log of the reverse pipeline."""
    reverse, uri = sides.reverse, sides.forward.pipeline.source_uri
    assert reverse is not None and sides.marker is not None
    if not sides.marker.blocked or writes_through(uri, "source"):
        return
    allow(uri, "source")
    sides.mark(replace(sides.marker, blocked=False))
    sides.forward.say(
        "writes to the source are allowed again, so that the reverse pipeline can write there: make sure that nobody"
        " else does"
    )
    with reporter.step("applying what waited") as figures:
        figures["commands"] = relax_existing_schema(reverse.pipeline)
        barrier.wait(reverse.pipeline, reverse.connect, reverse.topics, options.timeout, sides.forward.say)


def before(sides: Sides, options: CutoverOptions, reporter: Reporter) -> IncrementalVerification:
    """Verify all changes since the cutover: the reverse pipeline's log begins there, when both sides were the same."""
    assert sides.reverse is not None
    verification = IncrementalVerification(sides.reverse)
    with reporter.step("verifying what was changed since the cutover") as figures:
        figures["documents"] = verification.verify_new()
    catch_up(sides.reverse, "destination", verification, options, reporter)
    barrier.wait_captured(sides.forward.pipeline, sides.forward.connect, options.timeout, sides.forward.say)
    return verification


def go_back(sides: Sides, options: CutoverOptions, verification: IncrementalVerification, reporter: Reporter) -> float:
    """From the last write at the destination to the source as primary; return the seconds of that pause.

    Raises when a check fails; the caller then has to undo the fail back.
    """
    reverse, session, pause = sides.reverse, sides.forward, Pause(options.max_pause, reporter)
    assert reverse is not None and sides.marker is not None
    with pause.enforced():
        pause.end_writes(sides, options.write_stop(reverse.pipeline.source_uri, "destination"))
        with (
            connected(reverse.pipeline.source_uri, "destination") as destination,
            LateWrites(destination, reverse.pipeline, "destination", pause.end) as late_writes,
        ):
            settle(sides, reverse, options, verification, pause)
            _turn_round(sides, options, pause)
            late_writes.catch_up()
    if sides.marker.blocked:
        allow(session.pipeline.source_uri, "source")
    with pymongo.timeout(SWITCH_S):
        sides.mark(replace(sides.marker, state="returned"))
    return pause.seconds


def _turn_round(sides: Sides, options: CutoverOptions, pause: Pause) -> None:
    session, reverse, reporter = sides.forward, sides.reverse, pause.reporter
    assert reverse is not None
    with reporter.step("stopping the way back's sink"):
        control.wait_stopped(reverse.connect, reverse.pipeline.sink_connector)
    with reporter.step("moving the sink to the end of the log"):
        timeout = pause.remaining(options.timeout)
        barrier.wait_captured(session.pipeline, session.connect, timeout, unsaid)
        reverse_pipeline.skip_to_end(session)
    with reporter.step("putting the source right") as figures:
        sides.begin("form")
        figures["commands"] = restore_schema(reverse.pipeline)


def finish(sides: Sides, options: CutoverOptions, reporter: Reporter) -> None:
    """The steps once the source is primary again: the pipeline goes on as before. Can be repeated."""
    session, reverse = sides.forward, sides.reverse
    assert reverse is not None and sides.marker is not None
    if sides.marker.blocked:
        allow(session.pipeline.source_uri, "source")
    if "block" in sides.marker.steps:
        allow(session.pipeline.destination_uri, "destination")
    with reporter.step("making the destination one again") as figures:
        figures["commands"] = relax_schema(session.pipeline)
    with reporter.step("removing the way back"):
        deployment.remove(reverse.pipeline, reverse.connect, reverse.topics, log=True, say=session.say)
    with reporter.step("resuming the pipeline"):
        session.connect.resume(session.pipeline.sink_connector)
        control.wait_running(session.connect, session.pipeline, options.timeout)
    sides.mark(None)
