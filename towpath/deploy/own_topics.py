"""Which topics were made for a pipeline, and not by someone else under a name that the pipeline would give."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from towpath.clients.connect.rest import Connect
from towpath.clients.kafka.topics import Topics
from towpath.config.pipeline import Pipeline
from towpath.config.text import first_few
from towpath.errors import MongoUnreachable, TowpathError
from towpath.log.topic_settings import pipeline_topics
from towpath.session import Session
from towpath.store import writers
from towpath.store.writers import Registration

_KNOWN_S = 10.0  # seconds until every broker must know of a topic that was created


@dataclass(frozen=True, slots=True)
class OwnTopics:
    """The topics with names of a pipeline: the `ids` of those made for it, by name, and the names of the `others`."""

    ids: Mapping[str, str] = field(default_factory=dict)
    others: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.ids)


NO_TOPICS = OwnTopics()


def own_topics(session: Session) -> OwnTopics:
    """As `known_topics`, asked of the servers. The destination may be lost."""
    pipeline, registration = session.pipeline, None
    try:
        with session.destination.briefly() as client:
            registration = writers.read_all(client).get(pipeline.name)
    except MongoUnreachable:
        pass
    return known_topics(pipeline, session.connect, session.topics, registration)


def known_topics(pipeline: Pipeline, connect: Connect, topics: Topics, registration: Registration | None) -> OwnTopics:
    """Which of the topics with names of the pipeline were made for it.

    Change topics are known from the registration, in which `deploy` stores their names before it creates them, and
    their ids afterwards; or from Connect, which knows what a source connector has written. Another program's topic may
    have such a name.
    """
    ids = topics.ids(pipeline_topics(pipeline, topics.all()))
    known = {name for connector in pipeline.source_connectors for name in connect.topics(connector)}
    known |= registration.creating if registration else set()
    registered = registration.topics if registration else frozenset()
    own = {
        name: ids[name]
        for name in sorted(ids)
        if not pipeline.is_change_topic(name) or name in known or ids[name] in registered
    }
    return OwnTopics(own, tuple(sorted(ids.keys() - own.keys())))


def created_ids(topics: Topics, names: Collection[str]) -> dict[str, str]:
    """The ids, by name, of topics that have just been created, of which each broker learns within a moment.

    Raises `TowpathError` if one is still unknown after 10 s.
    """
    until = time.monotonic() + _KNOWN_S
    while len(ids := topics.ids(names)) < len(names) and time.monotonic() < until:
        time.sleep(0.1)
    if missing := sorted(set(names) - ids.keys()):
        raise TowpathError(
            f"Kafka at {topics.bootstrap} created {first_few(missing, 3)}, and {_KNOWN_S:.0f} s later knows of none",
            "run `towpath deploy` again, which stores their ids",
        )
    return ids
