"""A pipeline is taken away: its connectors, and on request its positions, topics and secrets file."""

from __future__ import annotations

from collections.abc import Callable

from pymongo.errors import PyMongoError

from connectors.control import forget_offsets, wait_state
from connectors.rest import Connect
from towpath.bookkeeping import positions, verdict
from towpath.errors import TowpathError
from towpath.kafka.topics import Topics
from towpath.mongo.client import connected
from towpath.pipeline import Pipeline
from towpath.topic_settings import pipeline_topics


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
        doomed = sorted(pipeline_topics(pipeline, topics.all()))
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
