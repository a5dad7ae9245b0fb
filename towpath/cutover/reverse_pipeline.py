"""The reverse pipeline: a pipeline of the other direction, which begins when nobody writes.

To begin it, by whoever knows that nobody writes:

    make_ready             while all goes on: topics, the sink, which has nothing to do, the source connectors, STOPPED
    barrier.wait           of the pipeline: its sink has applied all
    control.stop_sink      of the pipeline; its capture goes on
    begin                  from here on, what is written at its destination is replicated to its source

To fail back, when nobody writes once more:

    barrier.wait           of the reverse pipeline: its sink has applied all
    deployment.remove      the reverse pipeline, with its log
    barrier.wait_captured  of the pipeline: what the reverse pipeline wrote is in its log as well
    skip_to_end            the pipeline's sink skips that, because it came from its destination
    control.resume_sink    of the pipeline

So the two sinks never write at the same time, and neither ever reads what the other wrote.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime

from connectors.control import forget_offsets, statuses, wait_running, wait_state
from connectors.rest import Connect
from towpath.bookkeeping import positions
from towpath.cluster_time import ClusterTime
from towpath.deploy.deployment import Change, Deployment
from towpath.deploy.inventory import look
from towpath.errors import NotYet, Refused, TowpathError
from towpath.kafka.topics import Topics
from towpath.log.lag import pipeline_ends
from towpath.log.source_offsets import read_state
from towpath.mongo.client import connected
from towpath.pipeline import Pipeline
from towpath.replay import rebuild_marker
from towpath.topic_settings import pipeline_topics

_PAUSE = 0.1  # seconds between two looks
_REMOVE = "`towpath remove --topics` with the file of the way back removes that; then begin again"


def plan(back: Pipeline, connect: Connect, topics: Topics) -> list[Change]:
    """What `make_ready` has to make.

    Raises `Refused` when there is anything of an earlier way back, whose position or records would be taken for this
    one's, and what a deployment raises.
    """
    there = [name for name in back.source_connectors if connect.config(name) is not None]
    for connector in statuses(connect, there):  # a status stays for a while when a connector is removed
        if connector.state not in ("MISSING", "STOPPED"):
            raise Refused(f"{connector.name} is {connector.state}: the way back is there already; {_REMOVE}")
    servers = look(back, allow_missing=True)
    _refuse_used(back, topics)
    return Deployment(back, servers, connect, topics, held=back.source_connectors).plan()


def make_ready(
    back: Pipeline, connect: Connect, topics: Topics, say: Callable[[str], None], timeout: float = 120
) -> None:
    """Make all that the way back needs, so that `begin` has nothing left to do but to start; again: what is missing.

    `timeout` is in seconds. Raises what `plan` raises.
    """
    for change in plan(back, connect, topics):
        say(change.words)
        change.apply()
    for name in back.source_connectors:
        wait_state(connect, name, "STOPPED")
        if connect.offsets(name):  # of a connector of this name that was removed without its log
            forget_offsets(connect, name)
            say(f"forgot the position of an earlier {name}")
    wait_running(connect, back, timeout, [back.sink_connector])


def begin(back: Pipeline, there: Pipeline, connect: Connect, topics: Topics, timeout: float) -> ClusterTime:
    """Start the capture of the way back that `make_ready` made; return its beginning, in its source's time.

    Everything written there after this returns comes back, and nothing of what the sink of the way `there` wrote,
    which must be STOPPED. Nobody may write meanwhile. `timeout` is in seconds. Raises `Refused` when it is not so, or
    something is there already that was captured before; `NotYet` and `TowpathError` when it does not begin.
    """
    refuse_unstopped(connect, [there.sink_connector, *back.source_connectors])
    for name in back.source_connectors:
        if connect.offsets(name):
            raise Refused(f"{name} has captured before, and would go on there, before this moment; {_REMOVE}")
    _refuse_used(back, topics)
    deadline = time.monotonic() + timeout
    for name in back.source_connectors:
        connect.resume(name)
    while (start := beginning(back, connect)) is None:
        found = statuses(connect, back.source_connectors)
        for connector in found:
            if connector.failures:
                raise TowpathError(f"{connector.name} has failed: {'; '.join(connector.failures)}")
        if time.monotonic() > deadline:
            words = ", ".join(f"{one.name} is {one.state} with {len(one.tasks)} tasks" for one in found)
            raise NotYet(f"the way back has not begun in time: {words}")
        time.sleep(_PAUSE)
    return start


def beginning(back: Pipeline, connect: Connect) -> ClusterTime | None:
    """Since when what is written at its source is captured; None until all of its source connectors have begun."""
    starts = [read_state(connect, name).start for name in back.source_connectors]
    known = [start for start in starts if start is not None]
    return min(known) if len(known) == len(starts) else None


def skip_to_end(pipeline: Pipeline, connect: Connect, topics: Topics) -> int:
    """Have the sink, which must be STOPPED, pass over all that is in the log; return the number of partitions.

    Nobody may write at the source, and capture must have passed all that was written there (`barrier.wait_captured`):
    what it captures later is applied. Ends are those of all that was written and not the stable ones, which may be in
    front of what was committed last. Raises `Refused`.
    """
    refuse_unmovable(pipeline, connect)
    now = datetime.now(UTC)
    ends = pipeline_ends(pipeline, topics, stable=False)
    with connected(pipeline.destination_uri, "destination") as client:
        positions.skip_to(client, pipeline, {place: end for place, (_, end) in ends.items()}, now)
    return len(ends)


def refuse_unmovable(pipeline: Pipeline, connect: Connect) -> None:
    """Raise `Refused` unless the sink can pass over what is in the log."""
    refuse_unstopped(connect, [pipeline.sink_connector])
    with connected(pipeline.destination_uri, "destination") as client:
        if rebuild_marker.marker(client, pipeline) is not None:
            raise Refused(
                f"{pipeline.name} is being rebuilt, and its sink has to apply the log from its beginning;"
                " `towpath replay --rebuild` ends that first"
            )


def refuse_unstopped(connect: Connect, names: Iterable[str]) -> None:
    """Raise `Refused` unless these connectors are there, and STOPPED without a task."""
    for connector in statuses(connect, names):
        if connector.state != "STOPPED" or connector.tasks:
            raise Refused(f"{connector.name} is {connector.state} with {len(connector.tasks)} tasks, and not STOPPED")


def _refuse_used(back: Pipeline, topics: Topics) -> None:
    """Raise `Refused` when the log holds records, or the sink positions: they are of an earlier way back."""
    existing = topics.all()
    mine = [existing[name] for name in pipeline_topics(back, topics.all()) if name not in back.heartbeat_topics]
    used = sorted({topic for (topic, _), (_, end) in topics.ends(mine, stable=False).items() if end > 0})
    if used:
        raise Refused(f"{', '.join(used[:3])} hold records of an earlier way back; {_REMOVE}")
    with connected(back.destination_uri, "destination") as client:
        if any(position.offset > 0 for position in positions.positions(client, back).values()):
            raise Refused(f"the sink {back.sink_connector} has positions of an earlier way back; {_REMOVE}")
