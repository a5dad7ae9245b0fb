"""Bring a pipeline's topics and connectors to what the pipeline file says, and nothing else; or remove them.

Deploying twice changes nothing. What would break the order of records or lose some of them is refused before
anything is touched (see `towpath.deploy.preconditions`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from pymongo.errors import PyMongoError

from connectors.control import forget_offsets, wait_stopped
from connectors.failures import code_of
from connectors.rest import Connect
from towpath.bookkeeping import positions, verdict
from towpath.deploy import credentials, preconditions
from towpath.deploy.inventory import Configurations, Inventory
from towpath.errors import ConnectError, TowpathError, Unresolved
from towpath.finding import require
from towpath.kafka.topics import Topic, Topics
from towpath.mongo.client import connected
from towpath.namespaces import topic_of
from towpath.pipeline import Pipeline
from towpath.topic_settings import (
    HEARTBEAT_SETTINGS,
    POLICY,
    change_settings,
    is_compacted,
    pipeline_topics,
    plain_settings,
    request_settings,
)

#: Settings that stand for something in the pipeline file.
_ADVICE = {
    "mongodb.connection.string": " ([source] uri; grant what `towpath check` finds missing)",
    "connection.uri": " ([destination] uri; grant what `towpath check` finds missing)",
}


@dataclass(frozen=True, slots=True)
class Change:
    """One step of a deployment: in words, and to be done."""

    words: str
    apply: Callable[[], object]


class Deployment:
    """A pipeline on its way to Kafka and Connect."""

    def __init__(self, inventory: Inventory) -> None:
        self.inventory, self.pipeline = inventory, inventory.pipeline
        self.connect, self.topics = inventory.connect, inventory.topics

    def plan(self) -> list[Change]:
        """All that has to be done, in order; empty when everything is as it should be. Raises `Refused`."""
        require((*preconditions.OF_SERVERS, *preconditions.OF_CHANGE), self.inventory)
        changes = [*self._topic_changes(self.inventory.existing), *self._secret_changes(self.inventory.present)]
        return changes + list(self._connector_changes(self.inventory.wanted, self.inventory.present))

    def _topic_changes(self, existing: Mapping[str, Topic]) -> Iterator[Change]:
        settings = change_settings(self.pipeline)
        names = {topic_of(self.pipeline.name, name) for name in self.inventory.namespaces}
        yield from self._single_changes(existing)
        for name in sorted(names | {topic.name for topic in self.inventory.log}):
            if name not in existing:
                yield self._create(name, self.pipeline.partitions, settings)
            else:
                yield from self._settings_change(name, self._safe(existing[name], settings))
        for name in self.pipeline.heartbeat_topics:
            if name not in existing:
                yield self._create(name, 1, HEARTBEAT_SETTINGS)

    def _safe(self, topic: Topic, settings: Mapping[str, str]) -> Mapping[str, str]:
        """The cleaner is let at a topic that holds records already by `towpath compact`, once their updates are
        followed by documents; it would drop older documents at once."""
        if not is_compacted(settings) or is_compacted(self.topics.settings(topic.name)):
            return settings
        if all(first == end for first, end in self.topics.ends([topic]).values()):
            return settings
        return {key: text for key, text in settings.items() if key != POLICY}

    def _single_changes(self, existing: Mapping[str, Topic]) -> Iterator[Change]:
        """The topics of one partition. They come first: that they are there tells the mode, whatever comes after."""
        pipeline = self.pipeline
        wanted = {
            **({pipeline.request_topic: request_settings(pipeline)} if pipeline.has_own_source else {}),
            **({pipeline.dead_letter_topic: plain_settings(pipeline)} if pipeline.exactly_once else {}),
        }
        for name, settings in wanted.items():
            if name not in existing:
                yield self._create(name, 1, settings)
            else:
                yield from self._settings_change(name, settings)

    def _create(self, name: str, partitions: int, settings: Mapping[str, str]) -> Change:
        factor = self.pipeline.replication_factor
        return Change(f"create topic {name}", partial(self.topics.create, name, partitions, factor, settings))

    def _settings_change(self, name: str, settings: Mapping[str, str]) -> Iterator[Change]:
        found = self.topics.settings(name)
        differing = {key: value for key, value in settings.items() if found.get(key) != value}
        if differing:
            words = ", ".join(f"{key}={value}" for key, value in differing.items())
            later = "" if POLICY in settings else f"; {POLICY} follows when `towpath compact` has been there"
            yield Change(f"set {words} on topic {name}{later}", partial(self.topics.alter, name, differing))

    def _secret_changes(self, present: Configurations) -> Iterator[Change]:
        """Workers read the file when a connector starts, so what runs is restarted after it changed."""
        text = credentials.properties(
            self.pipeline, self.inventory.source.replica_set.name, self.inventory.destination.replica_set.name
        )
        if credentials.differs(self.pipeline.secrets, text):
            yield Change(f"write {self.pipeline.secrets}", partial(credentials.write, self.pipeline.secrets, text))
            for name in (name for name, config in present.items() if config is not None):
                restart = partial(self.connect.restart, name, only_failed=False)
                yield Change(f"restart connector {name}, for the new address or password", restart)

    def _connector_changes(self, wanted: Configurations, present: Configurations) -> Iterator[Change]:
        for name, config in wanted.items():
            before, after = present[name], config or {}
            if before is None:
                held = name in self.inventory.held
                create = partial(put, self.connect, name, after, self.pipeline.secrets, held=held)
                yield Change(f"create connector {name}{', stopped' if held else ''}", create)
                continue
            keys = sorted(k for k in {*before, *after} - {"name"} if before.get(k) != after.get(k))
            if keys:
                words = f"update connector {name} ({', '.join(keys)})"
                yield Change(words, partial(put, self.connect, name, after, self.pipeline.secrets))


def put(
    connect: Connect,
    name: str,
    config: Mapping[str, str],
    secrets_file: Path,
    advice: Mapping[str, str] = _ADVICE,
    *,
    held: bool = False,
) -> None:
    """Create or change a connector; with `held` create it without starting it.

    Raises `ConnectError` with what Connect, the connector or its cluster refuses.

    `advice`: a setting of the connector → what its user can do.
    """
    try:
        for key, messages in connect.errors(name, config).items():
            what = f"Kafka Connect refuses {name}: {key}: {messages[0]}{advice.get(key, '')}"
            raise ConnectError(what, where=name, code=code_of(messages[0]))
        (connect.create_stopped if held else connect.put)(name, config)
    except Unresolved as error:
        raise Unresolved(
            error.what,
            "every worker must have the config provider `file` (FileConfigProvider; see allowed.paths)"
            f" and be able to read {secrets_file} ([connect] secrets)",
            where=error.where,
            status=error.status,
        ) from error


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
            wait_stopped(connect, name)
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
