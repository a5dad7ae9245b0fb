"""What exists of a pipeline, on both clusters, in Kafka and in Connect: each query is sent once, at its first use.

All rules of a command read the same facts, and the command continues with them. A query that has failed fails again
without being sent, and a server that does not answer gets no more queries.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, TypeVar

from towpath.clients.connect.control import statuses
from towpath.clients.kafka.topics import Place, Topic
from towpath.clients.mongo.client import Client, Cluster
from towpath.clients.mongo.privileges import Privileges, if_allowed, privileges
from towpath.clients.mongo.replica_set import Collection as CollectionInfo
from towpath.clients.mongo.replica_set import ReplicaSet, collections, destination_set, source_set
from towpath.errors import (
    ConnectError,
    ConnectUnreachable,
    KafkaRefused,
    KafkaUnreachable,
    MongoUnreachable,
    NoSuchConnector,
    TowpathError,
)
from towpath.log import field_rules
from towpath.log.definitions import (
    DDL_REPLAY,
    DESTINATION_SET,
    RULES,
    SETTINGS,
    SOURCE_SET,
    definitions,
    is_compacted,
    pipeline_topics,
    timeout_settings,
    topic_groups,
)
from towpath.log.lag import peek
from towpath.log.source_offsets import source_state
from towpath.session import Session
from towpath.store import credentials, writers
from towpath.store.writers import Registration

#: Keys in a source connector's configuration that a resnapshot sets, and a deployment does not change.
RESNAPSHOT, RESNAPSHOT_ONLY = "towpath.resnapshot", "towpath.resnapshot.only"
_KEPT = (RESNAPSHOT, RESNAPSHOT_ONLY, DDL_REPLAY)

Configurations = Mapping[str, dict[str, str] | None]
Answer = TypeVar("Answer")
_NO_KAFKA = (KafkaUnreachable, KafkaRefused)
_AWAY = (MongoUnreachable, ConnectUnreachable, *_NO_KAFKA)


class Once:
    """Answers of servers by the query, and the failures: of queries, and of servers that do not answer."""

    def __init__(self) -> None:
        self.unreachable: dict[str, TowpathError] = {}
        """Servers that do not answer, or refuse, by the subject of their findings; they get no more requests."""
        self._answers: dict[object, Any] = {}
        self._failures: dict[object, TowpathError] = {}

    def once(self, server: str, key: object, query: Callable[[], Answer]) -> Answer:
        """The answer to a query. Raises what it has raised before, or the failure of its server."""
        if failure := self.unreachable.get(server) or self._failures.get(key):
            raise failure
        if key not in self._answers:
            try:
                self._answers[key] = query()
            except TowpathError as failure:
                self._failures[key] = failure
                if isinstance(failure, _AWAY):
                    away = "kafka" if isinstance(failure, _NO_KAFKA) else server
                    self.unreachable.setdefault(away, failure)
                raise
        answer: Answer = self._answers[key]
        return answer


class Side:
    """What is asked of one cluster. Every query raises `MongoError` when the cluster does not answer, or refuses."""

    def __init__(
        self, side: str, cluster: Cluster, replica_set: Callable[[Client], ReplicaSet], once: Once | None = None
    ) -> None:
        """`replica_set` reads the replica set, and raises `Refused` for a cluster that this side does not support."""
        self.side, self.cluster, self._replica_set, self._once = side, cluster, replica_set, once or Once()

    def ask(self, query: Callable[[Client], Answer]) -> Answer:
        """The answer to a query, which is sent once and then cached."""

        def send() -> Answer:
            with self.cluster.connected() as client:
                return query(client)

        return self._once.once(self.side, (self.side, query), send)

    @property
    def replica_set(self) -> ReplicaSet:
        return self.ask(self._replica_set)

    @property
    def version(self) -> tuple[int, ...]:
        """Of the server that answered: (major, minor, patch)."""
        return self.replica_set.version

    @property
    def compatibility(self) -> str | None:
        """The feature compatibility version; None if the user may not read it."""
        return self.ask(_compatibility)

    @property
    def level(self) -> tuple[int, ...]:
        """What decides what the servers can do: see `towpath.clients.mongo.versions`."""
        text = self.compatibility
        return self.version[:2] if text is None else tuple(map(int, text.split(".")[:2]))

    @property
    def privileges(self) -> Privileges | None:
        """Those of the user; None without access control."""
        return self.ask(privileges)


def _compatibility(client: Client) -> str | None:
    answer = if_allowed(lambda: client.admin.command("getParameter", 1, featureCompatibilityVersion=1))
    return None if answer is None else str(answer["featureCompatibilityVersion"]["version"])


@dataclass(frozen=True, slots=True)
class Extent:
    """A collection of the source, and how large it is. Sizes are None where the user may not read `$collStats`."""

    namespace: str
    destination_namespace: str
    documents: int
    bytes: int | None
    """Of the documents, as BSON."""
    storage_bytes: int | None
    """On disk, compressed."""
    indexes: int
    index_bytes: int | None

    @property
    def average_bytes(self) -> int | None:
        """Of a document."""
        return None if self.bytes is None else round(self.bytes / max(self.documents, 1))


@dataclass(frozen=True, slots=True)
class OwnTopics:
    """The topics with names of a pipeline: the `ids` of those made for it, by name, and the names of the `others`."""

    ids: Mapping[str, str]
    others: tuple[str, ...] = ()


class Facts(Once):
    """Everything that the rules of a pipeline read. A fact raises an error when its server does not answer."""

    def __init__(
        self,
        session: Session,
        *,
        allow_missing: bool = False,
        accept_rules: bool = False,
        create_stopped: Collection[str] = (),
        topics_command: str = "towpath topics PIPELINE",
    ) -> None:
        """`allow_missing` accepts patterns that match no collection yet, `accept_rules` other rules than before.

        `create_stopped`: names of the connectors that are created but not started. `topics_command` prints the topics
        that someone else is to create.
        """
        super().__init__()
        self.session = session
        self.pipeline, self.connect, self.topics = session.pipeline, session.connect, session.topics
        self.allow_missing, self.accept_rules, self.create_stopped = allow_missing, accept_rules, create_stopped
        self.topics_command = topics_command
        self.source = Side("source", session.source, source_set, self)
        destination = partial(destination_set, transactions=self.pipeline.exactly_once)
        self.destination = Side("destination", session.destination, destination, self)

    def probe(self) -> None:
        """Find out which servers can be read: all in parallel, because each may take 10 s to be given up."""
        probes: dict[str, Callable[[], object]] = {
            "source": lambda: self.source.replica_set,
            "destination": lambda: self.destination.replica_set,
            "kafka": lambda: self.brokers,
            "connect": lambda: self.worker,
        }

        def failure(probe: Callable[[], object]) -> TowpathError | None:
            try:
                probe()
            except TowpathError as error:
                return error
            return None

        with ThreadPoolExecutor(len(probes)) as pool:
            failures = dict(zip(probes, pool.map(failure, probes.values()), strict=True))
        self.unreachable = {subject: error for subject, error in failures.items() if error is not None}

    @cached_property
    def collections(self) -> tuple[CollectionInfo, ...]:
        """The source's collections and views that [collections] selects, by name."""
        matches = self.pipeline.selection.matches
        selected = (collection for collection in self.source.ask(collections) if matches(collection.namespace))
        return tuple(sorted(selected, key=lambda collection: collection.namespace))

    @cached_property
    def namespaces(self) -> tuple[str, ...]:
        """The namespaces that are replicated: no views."""
        return tuple(collection.namespace for collection in self.collections if collection.kind != "view")

    @cached_property
    def extents(self) -> Mapping[str, Extent]:
        """The `collections` that are neither views nor time series, by name."""
        names = [collection.namespace for collection in self.collections if collection.kind == "collection"]
        rename = self.pipeline.renamed
        return {name: self.source.ask(partial(_extent, name, rename(name))) for name in names}

    @cached_property
    def targets(self) -> tuple[str, ...]:
        """The destination's names of `namespaces`."""
        return tuple(sorted({self.pipeline.renamed(name) for name in self.namespaces}))

    @cached_property
    def target_collections(self) -> tuple[CollectionInfo, ...]:
        """The `targets` that exist at the destination."""
        targets = frozenset(self.targets)
        databases = sorted({name.partition(".")[0] for name in targets})
        existing = self.destination.ask(partial(collections, databases=databases))
        return tuple(collection for collection in existing if collection.namespace in targets)

    @property
    def registered(self) -> Mapping[str, Registration]:
        """Who is registered at the destination as its writer, by name."""
        return self.destination.ask(writers.read_all)

    @property
    def _kafka(self) -> tuple[list[int], str, dict[str, Topic]]:
        return self.once("kafka", "overview", self.topics.overview)

    @property
    def brokers(self) -> list[int]:
        return self._kafka[0]

    @property
    def kafka_cluster(self) -> str:
        """The id of the Kafka cluster."""
        return self._kafka[1]

    @cached_property
    def existing(self) -> Mapping[str, Topic]:
        """All topics."""
        return self._kafka[2]

    @cached_property
    def log(self) -> tuple[Topic, ...]:
        """The pipeline's change topics, by name."""
        return tuple(topic for name, topic in sorted(self.existing.items()) if self.pipeline.is_change_topic(name))

    @cached_property
    def ends(self) -> dict[Place, tuple[int, int]]:
        """The first and the next offset of each partition of the log."""
        return self.once("kafka", "ends", lambda: self.topics.ends(self.log))

    @cached_property
    def written(self) -> frozenset[str]:
        """The change topics that hold, or held, records, committed or not."""
        return self._written("written", self.log)

    @cached_property
    def used(self) -> frozenset[str]:
        """As `written`, of the topics with the pipeline's names for requests, dead letters and heartbeats."""
        others = {name for group in topic_groups(self.pipeline, ()) for name in group.names}
        return self._written("used", [self.existing[name] for name in sorted(others.intersection(self.existing))])

    def _written(self, key: str, topics: Sequence[Topic]) -> frozenset[str]:
        ends = self.once("kafka", key, lambda: self.topics.written(topics))
        return frozenset(name for (name, _), end in ends.items() if end > 0)

    def captured(self, topics: frozenset[str]) -> frozenset[str]:
        """The change topics among these that hold a committed record, or held one that retention has deleted.

        `io.towpath.source.CapturedLog` has the same rule in the source connector.
        """

        def read() -> frozenset[str]:
            ends = {place: window for place, window in self.ends.items() if place[0] in topics}
            held = peek(self.topics, ends, limit=0)
            return frozenset(place[0] for place, (first, _) in ends.items() if first > 0 or held[place].records)

        return self.once("kafka", ("captured", topics), read)

    @cached_property
    def topic_settings(self) -> Mapping[str, Mapping[str, str]]:
        """The settings of the existing topics that a deployment judges."""
        own = (self.pipeline.request_topic, self.pipeline.dead_letter_topic)
        names = [topic.name for topic in self.log] + [name for name in own if name in self.existing]
        return self.once("kafka", "settings", lambda: self.topics.settings_of_all(names, SETTINGS))

    @cached_property
    def uncompacted(self) -> tuple[Topic, ...]:
        """The change topics in which the cleaner would drop whole documents at once: they hold records already.

        `towpath compact` first has a whole document follow each update.
        """
        topics = [topic for topic in self.log if not is_compacted(self.topic_settings[topic.name])]
        ends = self.ends.items() if topics else ()
        held = {name for (name, _), (first, end) in ends if first != end}
        return tuple(topic for topic in topics if topic.name in held)

    @cached_property
    def unread(self) -> frozenset[str]:
        """The compacted change topics with records that the cleaner may drop, and `towpath compact` has not read.

        A topic that was compacted from the beginning has none before its first records are as old as the lag.
        """

        def read() -> frozenset[str]:
            compacted = {topic.name for topic in self.log if is_compacted(self.topic_settings[topic.name])}
            ends = self.ends.items() if compacted else ()
            held = {place: first for place, (first, end) in ends if place[0] in compacted and first != end}
            unread = held.keys() - self.topics.committed(self.pipeline.compaction_group).keys() if held else ()
            since_ms = int(time.time() * 1000) - self.pipeline.log.compaction_lag
            young = self.topics.offsets_at(dict.fromkeys(unread, since_ms))
            return frozenset(place[0] for place, offset in young.items() if offset != held[place])

        return self.once("kafka", "unread", read)

    def broker_settings(self, broker: int) -> Mapping[str, str]:
        return self.once("kafka", ("broker", broker), partial(self.topics.broker_settings, broker))

    @cached_property
    def own_topics(self) -> OwnTopics:
        """Which of the topics with names of the pipeline were made for it.

        They are known from the registration, in which `deploy` stores their names before it creates them, and their
        ids afterwards; or from Connect, which knows what a source connector has written. Another program's topic may
        have such a name. The destination may be lost.
        """
        pipeline, registration = self.pipeline, self.registration
        ids = self.once("kafka", "ids", lambda: self.topics.ids(pipeline_topics(pipeline, self.existing)))
        connectors = [name for name in pipeline.source_connectors if not is_foreign(self, name)]
        known = self._ask_connect("topics", lambda: {name for one in connectors for name in self.connect.topics(one)})
        deployed = [name for name, config in self.deployed.items() if config and not is_foreign(self, name)]
        if registration:
            begun = registration.creating
            if begun and not set(deployed).intersection(connectors):  # who wrote there was someone else
                begun -= self.written | self.used
            known = known | begun | {name for name in ids if ids[name] in registration.topics}
        if deployed and (registration is None or pipeline.kafka.topics == "exist"):  # no ids are stored of the others
            known = known | {name for name in ids if not pipeline.is_change_topic(name)}
        own = {name: ids[name] for name in sorted(ids) if name in known}
        return OwnTopics(own, tuple(sorted(ids.keys() - own.keys())))

    @property
    def registration(self) -> Registration | None:
        """The pipeline's, if there is one and the destination answers."""
        try:
            return self.registered.get(self.pipeline.name)
        except MongoUnreachable:
            return None

    @property
    def worker(self) -> tuple[str, str]:
        """(version, id of the Kafka cluster) of the worker that answers for Connect."""
        return self.once("connect", "worker", self.connect.worker)

    def _ask_connect(self, key: str, query: Callable[[], Answer]) -> Answer:
        """Kafka is asked before: without it, each request to Connect takes 90 s."""
        _ = self.existing
        return self.once("connect", key, query)

    @cached_property
    def plugins(self) -> Mapping[str, str]:
        return self._ask_connect("plugins", self.connect.plugins)

    @cached_property
    def configurations(self) -> Mapping[str, dict[str, str]]:
        """All connectors of the Connect cluster: name → configuration."""
        return self._ask_connect("configurations", self.connect.configs)

    @cached_property
    def deployed(self) -> Configurations:
        """The pipeline's connectors as Connect has them; None for a missing one.

        This includes the connector for whole documents, which the file may no longer need.
        """
        names = dict.fromkeys((*self.pipeline.connectors, self.pipeline.whole_source_connector))
        return {name: self.configurations.get(name) for name in names}

    @cached_property
    def desired(self) -> Mapping[str, dict[str, str]]:
        """The pipeline's connectors as the file defines them, with the settings of a resnapshot or a rebuild."""
        configs = definitions(self.pipeline)
        for name, config in configs.items():
            is_sink = name == self.pipeline.sink_connector
            key, cluster = (DESTINATION_SET, self.destination) if is_sink else (SOURCE_SET, self.source)
            config[key] = str(cluster.replica_set)
            config.update({} if is_sink else timeout_settings(self.pipeline, len(self.namespaces)))
            config.update({key: text for key, text in (self.deployed[name] or {}).items() if key in _KEPT})
        return configs

    @property
    def secrets(self) -> str:
        """The text of the secrets file, as `deploy` writes it."""
        return credentials.properties(self.pipeline, self.source.replica_set.name, self.destination.replica_set.name)

    @property
    def has_connect(self) -> bool:
        """Whether Connect can be asked, as far as is known."""
        return self.unreachable.keys().isdisjoint(("kafka", "connect"))

    @property
    def is_deployed(self) -> bool:
        return self.deployed[self.pipeline.sink_connector] is not None

    def state(self, connector: str) -> str:
        """As Connect reports it; MISSING where it does not know the connector."""
        return self.once("connect", ("state", connector), lambda: statuses(self.connect, [connector])[0].state)

    @cached_property
    def is_stopped(self) -> bool:
        """Whether nothing is replicated: the sink, or all sources, are stopped or are not to be started."""
        stopped = {name for name in self.pipeline.connectors if self.state(name) == "STOPPED"}
        stopped |= set(self.create_stopped)
        return self.pipeline.sink_connector in stopped or stopped.issuperset(self.pipeline.source_connectors)

    @cached_property
    def with_other_rules(self) -> Mapping[str, list[str]]:
        """Source connector → the collections that it has captured so far under rules that leave something else.

        Nothing of a connector whose offsets cannot be read with its present login: its task will see it.
        """
        found: dict[str, list[str]] = {}
        for name in self.pipeline.source_connectors if self.pipeline.has_own_source else ():
            if not (self.pipeline.collections.rules or RULES in (self.deployed[name] or {})):
                continue
            try:
                state = source_state(self.offsets(name) or ())
            except ConnectUnreachable:
                raise
            except ConnectError:
                continue
            names = [each for each in self.namespaces if state.selection and re.fullmatch(state.selection, each)]
            if others := field_rules.changed(self.pipeline, state.rules, names):
                found[name] = others
        return found

    def offsets(self, connector: str) -> list[dict[str, Any]] | None:
        """What a connector has committed; None if there is no such connector."""

        def read() -> list[dict[str, Any]] | None:
            try:
                return self.connect.offsets(connector)
            except NoSuchConnector:
                return None

        return self.once("connect", ("offsets", connector), read)


def is_foreign(facts: Facts, name: str) -> bool:
    """Whether Connect has a connector of this name that uses no class of Towpath, as those of all modes do."""
    config = facts.deployed.get(name)
    return config is not None and not any("io.towpath." in text for text in config.values())


def _extent(namespace: str, destination: str, client: Client) -> Extent:
    database, name = namespace.split(".", 1)
    collection = client[database][name]
    answer = if_allowed(lambda: list(collection.aggregate([{"$collStats": {"storageStats": {}}}])))
    if not answer:
        count = if_allowed(collection.estimated_document_count) or 0
        return Extent(namespace, destination, count, None, None, 0, None)
    stats = answer[0]["storageStats"]
    sizes = (int(stats[key]) for key in ("count", "size", "storageSize", "nindexes", "totalIndexSize"))
    return Extent(namespace, destination, *sizes)
