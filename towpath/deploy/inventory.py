"""What exists of a pipeline, on both clusters, in Kafka and in Connect. Each query is sent once, at its first use."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, TypeVar

from towpath.clients.connect.control import statuses
from towpath.clients.kafka.topics import Topic
from towpath.clients.mongo.client import Client, Cluster
from towpath.clients.mongo.privileges import Privileges, if_allowed, privileges
from towpath.clients.mongo.replica_set import Collection as CollectionInfo
from towpath.clients.mongo.replica_set import ReplicaSet, collections, destination_set, source_set
from towpath.deploy.configs import DDL_REPLAY, definitions
from towpath.deploy.own_topics import known_topics
from towpath.errors import NoSuchConnector, TowpathError
from towpath.history.resnapshot import KEYS
from towpath.session import Session
from towpath.store import writers
from towpath.store.writers import Registration
from towpath_verifier import feature_version

#: Keys in the configuration of a source and of a sink connector that name its replica set.
SOURCE_SET, DESTINATION_SET = "towpath.source", "towpath.destination"

Configurations = Mapping[str, dict[str, str] | None]
Answer = TypeVar("Answer")


class Side:
    """What is asked of one cluster. Every query raises `MongoError` when the cluster does not answer, or refuses."""

    def __init__(self, side: str, cluster: Cluster, replica_set: Callable[[Client], ReplicaSet]) -> None:
        """`replica_set` reads the replica set, and raises `Refused` for a cluster that this side does not support."""
        self.side, self.cluster, self._replica_set = side, cluster, replica_set
        self._answers: dict[Callable[[Client], Any], Any] = {}

    def ask(self, query: Callable[[Client], Answer]) -> Answer:
        """The answer to a query, which is sent once and then cached."""
        if query not in self._answers:
            with self.cluster.connected() as client:
                self._answers[query] = query(client)
        answer: Answer = self._answers[query]
        return answer

    @property
    def replica_set(self) -> ReplicaSet:
        return self.ask(self._replica_set)

    @property
    def version(self) -> tuple[int, ...]:
        """Of the server that answered: (major, minor, patch)."""
        return self.ask(_version)

    @property
    def level(self) -> tuple[int, ...]:
        """What decides what the servers can do: see `towpath.mongo.versions`."""
        return self.ask(feature_version)

    @property
    def privileges(self) -> Privileges | None:
        """Those of the user; None without access control."""
        return self.ask(privileges)


def _version(client: Client) -> tuple[int, ...]:
    return tuple(client.server_info()["versionArray"][:3])


@dataclass(frozen=True, slots=True)
class Extent:
    """A collection of the source, and how large it is. Sizes are None where the user may not read `$collStats`."""

    namespace: str
    destination: str
    """Its namespace there."""
    documents: int
    bytes: int | None
    """Of the documents, as BSON."""
    storage: int | None
    """On disk, compressed."""
    indexes: int
    index_bytes: int | None

    @property
    def average(self) -> int | None:
        """Bytes of a document."""
        return None if self.bytes is None else round(self.bytes / max(self.documents, 1))


class Inventory:
    """Everything that preconditions need to know. A property raises an error when its server does not answer."""

    def __init__(
        self,
        session: Session,
        *,
        allow_missing: bool = False,
        create_stopped: Collection[str] = (),
    ) -> None:
        """`allow_missing` accepts patterns that match no collection yet.

        `create_stopped`: names of the connectors that are created but not started.
        """
        self.session = session
        self.pipeline, self.connect, self.topics = session.pipeline, session.connect, session.topics
        self.allow_missing, self.create_stopped = allow_missing, create_stopped
        self.unreachable: Mapping[str, TowpathError] = {}
        """Servers that do not answer, or refuse, by the subject of their findings; they get no more requests."""
        self._broker_settings: dict[int, Mapping[str, str]] = {}
        self.source = Side("source", session.source, source_set)
        destination = partial(destination_set, transactions=self.pipeline.exactly_once)
        self.destination = Side("destination", session.destination, destination)

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
    def filled(self) -> frozenset[str]:
        """The `namespaces` that hold documents."""
        return frozenset(name for name in self.namespaces if self.source.ask(partial(_holds_documents, name)))

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

    @cached_property
    def registered(self) -> Mapping[str, Registration]:
        """Who is registered at the destination as its writer, by name."""
        return self.destination.ask(writers.read_all)

    @cached_property
    def brokers(self) -> tuple[int, ...]:
        return tuple(self.topics.brokers())

    @cached_property
    def kafka_cluster(self) -> str:
        return self.topics.cluster()

    @cached_property
    def existing(self) -> Mapping[str, Topic]:
        """All topics. Kafka is queried before Connect: without Kafka, each request to Connect takes 90 s."""
        return self.topics.all()

    @cached_property
    def log(self) -> tuple[Topic, ...]:
        """The pipeline's change topics, by name."""
        return tuple(topic for name, topic in sorted(self.existing.items()) if self.pipeline.is_change_topic(name))

    @cached_property
    def foreign(self) -> tuple[str, ...]:
        """The change topics that are not known to be made for the pipeline, by name."""
        return known_topics(self.pipeline, self.connect, self.topics, self.registered.get(self.pipeline.name)).others

    @cached_property
    def plugins(self) -> Mapping[str, str]:
        return self.connect.plugins()

    @cached_property
    def configurations(self) -> Mapping[str, dict[str, str]]:
        """All connectors of the Connect cluster: name → configuration."""
        configs = {name: self.connect.config(name) for name in self.connect.names()}
        return {name: config for name, config in configs.items() if config is not None}

    @cached_property
    def deployed(self) -> Configurations:
        """The pipeline's connectors as Connect has them; None for a missing one.

        This includes the connector for whole documents, which the file may no longer need.
        """
        names = dict.fromkeys((*self.pipeline.connectors, self.pipeline.whole_source_connector))
        return {name: self.connect.config(name) for name in names}

    @cached_property
    def desired(self) -> Mapping[str, dict[str, str]]:
        """The pipeline's connectors as the file defines them, with the settings of a resnapshot or a rebuild."""
        configs = definitions(self.pipeline)
        for name, config in configs.items():
            is_sink = name == self.pipeline.sink_connector
            key, cluster = (DESTINATION_SET, self.destination) if is_sink else (SOURCE_SET, self.source)
            config[key] = str(cluster.replica_set)
            config.update(
                {key: text for key, text in (self.deployed[name] or {}).items() if key in (*KEYS, DDL_REPLAY)}
            )
        return configs

    @property
    def is_deployed(self) -> bool:
        return self.deployed[self.pipeline.sink_connector] is not None

    @cached_property
    def is_stopped(self) -> bool:
        """Whether nothing is replicated: the sink, or all sources, are stopped or are not to be started."""
        connectors = statuses(self.connect, self.pipeline.connectors)
        stopped = {status.name for status in connectors if status.state == "STOPPED"} | set(self.create_stopped)
        return self.pipeline.sink_connector in stopped or stopped.issuperset(self.pipeline.source_connectors)

    def broker_settings(self, broker: int) -> Mapping[str, str]:
        if broker not in self._broker_settings:
            self._broker_settings[broker] = self.topics.broker_settings(broker)
        return self._broker_settings[broker]

    def has_position(self, connector: str) -> bool:
        try:
            return bool(self.connect.offsets(connector))
        except NoSuchConnector:
            return False


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


def _holds_documents(namespace: str, client: Client) -> bool:
    database, collection = namespace.split(".", 1)
    return client[database][collection].find_one({}, {"_id": 1}) is not None
