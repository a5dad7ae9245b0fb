"""`wait`: everything that was written to the source before the call is at the destination.

Not silence, but a proof in two steps, without a write to the source: the source's time at the call has passed
through the log, and then every partition of every topic is applied up to the end that it had at that moment.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from connectors.clusters import connected, operation_time
from connectors.connect import Connect, Connector
from connectors.errors import ConnectorsError, NoSuchConnector, NotYet
from connectors.lag import Place, applied, gaps, peek, pipeline_ends
from connectors.position import ClusterTime, SourcePosition, source_position
from connectors.spec import Pipeline
from connectors.topics import Topics

_PAUSE = 0.2  # seconds between two looks


def wait(pipeline: Pipeline, connect: Connect, topics: Topics, timeout: float, say: Callable[[str], None]) -> None:
    """Return once all that the source acknowledged before the call is at the destination.

    `timeout` is in seconds. Raises `NotYet` with the last state seen when it is over, `ConnectorsError` with the
    reason as soon as a connector has failed. `say` is told what is waited for, once per step.
    """
    deadline = time.monotonic() + timeout
    with connected(pipeline.source_uri, "source") as client:
        moment = operation_time(client)
    say(f"waiting until capture has passed {moment}, the source's time now")
    for name in pipeline.source_connectors:
        for position in _positions(connect, name):
            if position is not None and position.has_passed(moment):
                break
            _go_on(pipeline, connect, deadline, _capture_words(name, position, moment))
    ends = pipeline_ends(pipeline, topics)
    say(f"waiting until the sink has applied {len(ends)} partitions up to their present ends")
    _wait_applied(pipeline, connect, topics, ends, deadline)


def _positions(connect: Connect, name: str) -> Iterator[SourcePosition | None]:
    while True:
        yield committed_position(connect, name)


def committed_position(connect: Connect, name: str) -> SourcePosition | None:
    """How far a source connector has come; None before it committed anything."""
    offsets = connect.offsets(name)
    return source_position(offsets[0]["offset"]) if offsets else None


def _capture_words(name: str, position: SourcePosition | None, moment: ClusterTime) -> str:
    if position is None:
        return f"{name} has not captured anything yet"
    if position.snapshot_running:
        return f"{name} is still copying what was there at its start"
    return f"{name} has captured up to {position.time}, and {moment} was asked for"


def _wait_applied(
    pipeline: Pipeline, connect: Connect, topics: Topics, ends: dict[Place, tuple[int, int]], deadline: float
) -> None:
    looked_at: dict[Place, int] = {}
    while True:
        left = gaps(ends, applied(pipeline, topics))
        moved = {place: gap for place, gap in left.items() if looked_at.get(place) != gap[0]}
        for place, found in peek(topics, moved, most=0).items():
            looked_at[place] = left[place][0]
            if not found.records:  # control records only
                del ends[place], left[place]
        if not left:
            return
        (topic, partition), (start, end) = next(iter(left.items()))
        words = f"{pipeline.sink_connector} has applied {topic}, partition {partition}, up to {start} of {end}"
        _go_on(pipeline, connect, deadline, f"{words} ({len(left)} partitions are behind)")


def _go_on(pipeline: Pipeline, connect: Connect, deadline: float, last_seen: str) -> None:
    """Pause before the next look, unless a connector has failed or the time is over."""
    found = [_status(connect, name) for name in pipeline.connectors]
    for connector in found:
        if connector.failures:
            raise ConnectorsError(f"{connector.name} has failed: {'; '.join(connector.failures)}")
    if time.monotonic() > deadline:
        stopped = ", ".join(f"{c.name} is {c.state}" for c in found if c.state != "RUNNING")
        raise NotYet(f"not in step in time: {last_seen}{'; ' + stopped if stopped else ''}")
    time.sleep(_PAUSE)


def _status(connect: Connect, name: str) -> Connector:
    try:
        return connect.status(name)
    except NoSuchConnector as error:
        raise NoSuchConnector(
            f"there is no connector {name} at {connect.url}; `towpath deploy` the pipeline"
        ) from error
