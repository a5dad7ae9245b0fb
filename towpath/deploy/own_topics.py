"""Which topics were made for a pipeline, and not by someone else under a name that the pipeline would give."""

from __future__ import annotations

import time
from collections.abc import Collection
from dataclasses import dataclass

from connectors.rest import Connect
from towpath.bookkeeping import writers
from towpath.errors import MongoUnreachable
from towpath.kafka.topics import Topics
from towpath.mongo.client import connected
from towpath.pipeline import Pipeline
from towpath.topic_settings import pipeline_topics

_KNOWN_S = 10.0  # seconds until every broker must know of a topic that was created


@dataclass(frozen=True, slots=True)
class OwnTopics:
    """The topics with names of a pipeline: `names` and `ids` of those made for it, and the `others`, by name."""

    names: tuple[str, ...]
    ids: tuple[str, ...]
    others: tuple[str, ...]


NO_TOPICS = OwnTopics((), (), ())


def own_topics(pipeline: Pipeline, connect: Connect, topics: Topics) -> OwnTopics:
    """Which of the topics with names of the pipeline were made for it.

    Change topics are known by their ids, which `deploy` stores with the registration, or from Connect, which knows what
    a source connector has written. Another program's topic may have such a name. The destination may be lost.
    """
    existing = sorted(pipeline_topics(pipeline, topics.all()))
    ids, registered = topics.ids(existing), frozenset[str]()
    try:
        with connected(pipeline.destination_uri, "destination", timeout=5) as client:
            found = writers.read_all(client).get(pipeline.name)
            registered = found.topics if found else registered
    except MongoUnreachable:
        pass
    written = {name for connector in pipeline.source_connectors for name in connect.topics(connector)}
    own = [
        name
        for name in existing
        if not pipeline.is_change_topic(name) or name in written or ids.get(name) in registered
    ]
    return OwnTopics(
        tuple(own), tuple(ids[name] for name in own if name in ids), tuple(name for name in existing if name not in own)
    )


def created_ids(topics: Topics, names: Collection[str]) -> list[str]:
    """The ids of topics that have just been created, of which each broker learns within a moment."""
    until = time.monotonic() + _KNOWN_S
    while len(ids := topics.ids(names)) < len(names) and time.monotonic() < until:
        time.sleep(0.1)
    return list(ids.values())
