"""The way back: the same steps from the other side, after which the source is primary and the pipeline goes on.

Capture of the source has gone on meanwhile, so that the log is whole: it holds what the way back wrote there. The
destination has all of that; so the sink's positions move to the log's ends before it goes on.
"""

from __future__ import annotations

from dataclasses import replace

import pymongo

from connectors import control
from connectors.control import stop_sink
from towpath import barrier
from towpath.cutover import reverse_pipeline
from towpath.cutover.events import Telling
from towpath.cutover.pause import Checked, Pause
from towpath.cutover.sides import Sides
from towpath.cutover.steps import SWITCH_S, Asked, catch_up, ease, put_right, settle, soften
from towpath.cutover.writes import LateWrites, allow, writes_through
from towpath.deploy import deployment
from towpath.mongo.client import connected


def open_source(sides: Sides, asked: Asked, telling: Telling) -> None:
    """Have the way back write to a source that refuses writes of its user as well, and apply what waited in the log."""
    back, uri = sides.back, sides.it.pipeline.source_uri
    assert back is not None and sides.marker is not None
    if not sides.marker.blocked or writes_through(uri, "source"):
        return
    allow(uri, "source")
    sides.mark(replace(sides.marker, blocked=False))
    sides.it.say(
        "writes to the source are allowed again, so that the way back can write there: see to it that nobody else does"
    )
    with telling.step("applying what waited") as figures:
        figures["commands"] = ease(back.pipeline)
        barrier.wait(back.pipeline, back.connect, back.topics, asked.timeout, sides.it.say)


def before(sides: Sides, asked: Asked, telling: Telling) -> Checked:
    """Verify all that was changed since the cutover: its log begins there, when both sides were the same."""
    assert sides.back is not None
    looks = Checked(sides.back)
    with telling.step("verifying what was changed since the cutover") as figures:
        figures["documents"] = looks.since()
    catch_up(sides.back, "destination", looks, asked, telling)
    barrier.wait_captured(sides.it.pipeline, sides.it.connect, asked.timeout, sides.it.say)
    return looks


def go_back(sides: Sides, asked: Asked, looks: Checked, telling: Telling) -> float:
    """From the last write at the destination to the source being primary; seconds of that pause.

    Raises what speaks against it; then it is to be undone.
    """
    back, session, pause = sides.back, sides.it, Pause(asked.max_pause, telling)
    assert back is not None and sides.marker is not None
    with pause.kept():
        pause.end_writes(sides, asked.stopping(back.pipeline.source_uri, "destination"))
        with (
            connected(back.pipeline.source_uri, "destination") as destination,
            LateWrites(destination, back.pipeline, "destination", pause.end) as late,
        ):
            settle(back, asked, looks, pause)
            _turn_round(sides, asked, pause)
            late.look()
    if sides.marker.blocked:
        allow(session.pipeline.source_uri, "source")
    with pymongo.timeout(SWITCH_S):
        sides.mark(replace(sides.marker, state="returned"))
    return pause.seconds


def _turn_round(sides: Sides, asked: Asked, pause: Pause) -> None:
    session, back, telling = sides.it, sides.back, pause.telling
    assert back is not None
    with telling.step("stopping the way back's sink"):
        sides.begin("sink")
        stop_sink(back.pipeline, back.connect)
    with telling.step("moving the sink to the end of the log"):
        barrier.wait_captured(session.pipeline, session.connect, pause.left(asked.timeout), lambda words: None)
        reverse_pipeline.skip_to_end(session.pipeline, session.connect, session.topics)
    with telling.step("putting the source right") as figures:
        sides.begin("form")
        figures["commands"] = put_right(back.pipeline)


def finish(sides: Sides, asked: Asked, telling: Telling) -> None:
    """What is left when the source is primary again: the pipeline goes on as before. May be repeated."""
    session, back = sides.it, sides.back
    assert back is not None and sides.marker is not None
    if sides.marker.blocked:
        allow(session.pipeline.source_uri, "source")
    if "block" in sides.marker.steps:
        allow(session.pipeline.destination_uri, "destination")
    with telling.step("making the destination one again") as figures:
        figures["commands"] = soften(session.pipeline)
    with telling.step("removing the way back"):
        deployment.remove(back.pipeline, back.connect, back.topics, log=True, say=session.say)
    with telling.step("resuming the pipeline"):
        session.connect.resume(session.pipeline.sink_connector)
        control.wait_running(session.connect, session.pipeline, asked.timeout)
    sides.mark(None)
