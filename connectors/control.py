"""Connectors that are there: waited for, paused, resumed, restarted, removed."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Mapping

import tenacity
from pymongo.errors import PyMongoError

from connectors.rest import Connect, Connector
from towpath.bookkeeping import positions, verdict
from towpath.errors import ConnectError, NoSuchConnector, NotYet, TowpathError
from towpath.kafka.topics import Place, Topics
from towpath.mongo.client import connected
from towpath.pipeline import Pipeline

_PAUSE = 0.2  # seconds between two looks
_FAILED_FOR = 5.0  # seconds: a failure may be that of the tasks that a change is about to replace


def statuses(connect: Connect, names: Iterable[str]) -> list[Connector]:
    """The state of each connector; one that Connect does not know is MISSING."""
    return [_status(connect, name) for name in names]


def _status(connect: Connect, name: str) -> Connector:
    try:
        return connect.status(name)
    except NoSuchConnector:
        return Connector(name, "MISSING", "", ())


def require(connect: Connect, topics: Topics, pipeline: Pipeline) -> None:
    """Raise `NoSuchConnector` unless the pipeline has been deployed, `KafkaUnreachable` when no broker answers.

    Kafka is asked first: without it Connect lets every request wait for 90 s and then answers 500.
    """
    topics.brokers()
    for connector in statuses(connect, pipeline.connectors):
        if connector.state == "MISSING" and connect.config(connector.name) is None:
            raise NoSuchConnector(
                f"there is no connector {connector.name} at {connect.url}", advice="has the pipeline been deployed?"
            )


def wait_running(connect: Connect, pipeline: Pipeline, timeout: float, names: Iterable[str] | None = None) -> None:
    """Wait until all connectors, or those of these names, and their tasks are RUNNING; `timeout` in seconds.

    Raises `TowpathError` with the reason when one has failed and stays so, `NotYet` when the time is over.
    """
    end, well = time.monotonic() + timeout, time.monotonic()
    awaited = tuple(pipeline.connectors if names is None else names)
    while True:
        found = statuses(connect, awaited)
        failures = [f"{c.name} failed: {reason}" for c in found for reason in c.failures]
        well = well if failures else time.monotonic()
        if time.monotonic() > well + _FAILED_FOR:
            raise TowpathError("; ".join(failures))
        if all(connector.running for connector in found):
            return
        if time.monotonic() > end:
            words = ", ".join(f"{c.name} {c.state} with {len(c.tasks)} tasks" for c in found)
            raise NotYet(f"not running after {timeout:.0f} s: {words}")
        time.sleep(_PAUSE)


def wait_state(connect: Connect, name: str, state: str, timeout: float = 60) -> None:
    """Wait until a connector is in a state, and when that is STOPPED until its tasks are gone; `timeout` in seconds."""
    end = time.monotonic() + timeout
    while (found := _status(connect, name)).state != state or (state == "STOPPED" and found.tasks):
        if time.monotonic() > end:
            raise NotYet(f"{name} is {found.state} after {timeout:.0f} s, and {state} was asked for")
        time.sleep(_PAUSE)


def stop_sink(pipeline: Pipeline, connect: Connect) -> None:
    """Stop the pipeline's sink; once this returns, none of its tasks is left that Connect knows of."""
    connect.stop(pipeline.sink_connector)
    wait_state(connect, pipeline.sink_connector, "STOPPED")


def resume_sink(pipeline: Pipeline, connect: Connect, timeout: float) -> None:
    """Resume the pipeline's sink where its positions are, and wait until it runs; `timeout` in seconds."""
    connect.resume(pipeline.sink_connector)
    wait_running(connect, pipeline, timeout, [pipeline.sink_connector])


def remove(pipeline: Pipeline, connect: Connect, topics: Topics, *, log: bool, say: Callable[[str], None]) -> None:
    """Remove the connectors; with `log` also their positions, the topics with all records, and the secrets file.

    Without `log` the positions stay, so that a deployment of the same file goes on where this one ended. The sink
    goes first: a position that is forgotten must have nobody left who writes it.
    """
    names = dict.fromkeys((pipeline.sink_connector, *pipeline.source_connectors, pipeline.whole_source_connector))
    there = [name for name in names if connect.config(name) is not None]
    for name in there if log else ():
        connect.stop(name)
    for name in there:
        if log:
            wait_state(connect, name, "STOPPED")
            forget_offsets(connect, name)
        connect.delete(name)
        say(f"removed connector {name}" + (" and its position" if log else ""))
    if log:
        doomed = sorted(pipeline_topics(pipeline, topics))
        if pipeline.exactly_once or pipeline.dead_letter_topic in doomed:  # the file may have another mode by now
            _forget_at_destination(pipeline, say)
        else:
            _forget_verdict(pipeline, say)
        topics.delete(doomed)
        for name in doomed:
            say(f"deleted topic {name}")
        pipeline.secrets.unlink(missing_ok=True)


def _forget_at_destination(pipeline: Pipeline, say: Callable[[str], None]) -> None:
    with connected(pipeline.destination_uri, "destination") as client:
        count = positions.forget(client, pipeline)
    if count:
        say(f"removed the sink's positions at the destination ({count} documents in the database towpath)")


def _forget_verdict(pipeline: Pipeline, say: Callable[[str], None]) -> None:
    """All that the plain mode keeps there, where its user may write; it counts for no other pipeline."""
    try:
        with connected(pipeline.destination_uri, "destination", timeout=5) as client:
            verdict.forget(client, pipeline)
    except (TowpathError, PyMongoError) as error:
        say(f"the last verdict, if the destination holds it, is left there, and counts no longer: {error}")


#: A sink's consumers leave their group a while after its tasks have stopped; until then Connect answers 500.
_while_leaving = tenacity.retry(
    retry=tenacity.retry_if_exception(lambda error: isinstance(error, ConnectError) and error.status == 500),
    wait=tenacity.wait_fixed(0.2),
    stop=tenacity.stop_after_delay(60),
    reraise=True,
)


@_while_leaving
def forget_offsets(connect: Connect, name: str) -> None:
    """Forget a STOPPED connector's positions, if it has any.

    Connect answers 500 for ever about a source connector that was made STOPPED and never had a task.
    """
    if connect.offsets(name):
        connect.forget_offsets(name)


@_while_leaving
def move_offsets(connect: Connect, name: str, offsets: Mapping[Place, int]) -> None:
    """Have a STOPPED sink's consumers go on at these offsets."""
    connect.move_offsets(name, offsets)


def pipeline_topics(pipeline: Pipeline, topics: Topics) -> list[str]:
    """All topics that belong to the pipeline: changes, requests, dead letters, heartbeats."""
    pattern = pipeline.selection.topic_regex(pipeline.name)
    whole = f"__debezium-heartbeat.{pipeline.name}-whole"
    others = {pipeline.request_topic, pipeline.dead_letter_topic, whole, *pipeline.heartbeat_topics}
    return [name for name in topics.all() if name in others or re.fullmatch(pattern, name)]
