"""What is there of a pipeline: on both clusters, in Kafka and in Connect. Each thing is asked once, when needed."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from functools import cached_property, partial
from typing import Any, TypeVar

from connectors.configs import definitions
from connectors.control import statuses
from connectors.rest import Connect
from towpath.errors import NoSuchConnector, TowpathError
from towpath.kafka.topics import Topic, Topics
from towpath.mongo.client import Client, ReplicaSet, collections, connected, destination_set, source_set
from towpath.mongo.client import Collection as CollectionInfo
from towpath.mongo.privileges import Privileges, if_allowed, privileges
from towpath.pipeline import Pipeline
from towpath.resnapshot import KEYS

#: Keys in the configuration of a source and of a sink connector that say which replica set it works on.
SOURCE_SET, DESTINATION_SET = "towpath.source", "towpath.destination"

Configurations = Mapping[str, dict[str, str] | None]
Answer = TypeVar("Answer")


class Cluster:
    """One cluster of a pipeline. Every question raises `MongoUnreachable` when the cluster does not answer."""

    def __init__(self, uri: str, side: str, who: Callable[[Client], ReplicaSet]) -> None:
        """`who` asks for the replica set, and raises `Refused` for a cluster that cannot take this side."""
        self.uri, self.side, self._who = uri, side, who
        self._answers: dict[Callable[[Client], Any], Any] = {}

    def ask(self, question: Callable[[Client], Answer]) -> Answer:
        """The answer to a question. It is asked once; the next time its first answer is given."""
        if question not in self._answers:
            with connected(self.uri, self.side) as client:
                self._answers[question] = question(client)
        answer: Answer = self._answers[question]
        return answer

    @property
    def replica_set(self) -> ReplicaSet:
        return self.ask(self._who)

    @property
    def version(self) -> tuple[int, ...]:
        """Of the server that answered: (major, minor, patch)."""
        return self.ask(_version)

    @property
    def privileges(self) -> Privileges | None:
        """Those of the user; None without access control."""
        return self.ask(privileges)


def _version(client: Client) -> tuple[int, ...]:
    return tuple(client.server_info()["versionArray"][:3])


class Inventory:
    """Everything that preconditions ask about a pipeline. Properties raise when the server that they ask is away."""

    def __init__(
        self,
        pipeline: Pipeline,
        connect: Connect,
        topics: Topics,
        *,
        allow_missing: bool = False,
        held: Collection[str] = (),
    ) -> None:
        """`allow_missing` accepts patterns that match no collection yet; `held`: connectors to create, not to start."""
        self.pipeline, self.connect, self.topics = pipeline, connect, topics
        self.allow_missing, self.held = allow_missing, held
        self.away: Mapping[str, TowpathError] = {}
        """Servers that are known not to answer, by the subject of their findings; nothing else is asked of them."""
        self.source = Cluster(pipeline.source_uri, "source", source_set)
        transactions = pipeline.exactly_once
        self.destination = Cluster(
            pipeline.destination_uri, "destination", partial(destination_set, transactions=transactions)
        )

    @cached_property
    def collections(self) -> tuple[CollectionInfo, ...]:
        """The source's collections and views that [collections] takes in, by name."""
        matches = self.pipeline.selection.matches
        found = (one for one in self.source.ask(collections) if matches(one.namespace))
        return tuple(sorted(found, key=lambda one: one.namespace))

    @cached_property
    def namespaces(self) -> tuple[str, ...]:
        """Those that are replicated: no views."""
        return tuple(one.namespace for one in self.collections if one.kind != "view")

    @cached_property
    def filled(self) -> frozenset[str]:
        """Those of `namespaces` that hold documents."""
        return frozenset(name for name in self.namespaces if self.source.ask(partial(_holds_documents, name)))

    @cached_property
    def extents(self) -> Mapping[str, tuple[int, int]]:
        """Documents and bytes of each collection; the bytes are 0 where the user may not see them."""
        names = [one.namespace for one in self.collections if one.kind == "collection"]
        return {name: self.source.ask(partial(_extent, name)) for name in names}

    @cached_property
    def targets(self) -> tuple[str, ...]:
        """The destination's names of `namespaces`."""
        return tuple(sorted({self.pipeline.renames.destination(name) for name in self.namespaces}))

    @cached_property
    def target_collections(self) -> tuple[CollectionInfo, ...]:
        """What there is of `targets`."""
        databases = sorted({name.partition(".")[0] for name in self.targets})
        found = self.destination.ask(partial(collections, databases=databases))
        return tuple(one for one in found if one.namespace in self.targets)

    @cached_property
    def brokers(self) -> tuple[int, ...]:
        return tuple(self.topics.brokers())

    @cached_property
    def kafka_cluster(self) -> str:
        return self.topics.cluster()

    @cached_property
    def existing(self) -> Mapping[str, Topic]:
        """All topics. Kafka is asked before Connect: without Kafka, Connect lets every request wait for 90 s."""
        return self.topics.all()

    @cached_property
    def log(self) -> tuple[Topic, ...]:
        """The pipeline's change topics, by name."""
        pattern = self.pipeline.selection.topic_regex(self.pipeline.name)
        return tuple(topic for name, topic in sorted(self.existing.items()) if re.fullmatch(pattern, name))

    @cached_property
    def plugins(self) -> Mapping[str, str]:
        return self.connect.plugins()

    @cached_property
    def configurations(self) -> Mapping[str, dict[str, str]]:
        """Of all connectors that are there, by name."""
        found = {name: self.connect.config(name) for name in self.connect.names()}
        return {name: config for name, config in found.items() if config is not None}

    @cached_property
    def present(self) -> Configurations:
        """The pipeline's connectors, also one for whole documents that it no longer has; None for what is missing."""
        names = dict.fromkeys((*self.pipeline.connectors, self.pipeline.whole_source_connector))
        return {name: self.connect.config(name) for name in names}

    @cached_property
    def wanted(self) -> Mapping[str, dict[str, str]]:
        """The pipeline's connectors as the file wants them. A resnapshot that was asked for is not taken back."""
        found = definitions(self.pipeline)
        for name, config in found.items():
            is_sink = name == self.pipeline.sink_connector
            config[DESTINATION_SET if is_sink else SOURCE_SET] = str(
                (self.destination if is_sink else self.source).replica_set
            )
            config.update({key: text for key, text in (self.present[name] or {}).items() if key in KEYS})
        return found

    @property
    def is_deployed(self) -> bool:
        return self.present[self.pipeline.sink_connector] is not None

    @cached_property
    def is_held(self) -> bool:
        """Whether nothing gets from one side to the other, because it is not to be started, or was stopped."""
        stopped = {one.name for one in statuses(self.connect, self.pipeline.connectors) if one.state == "STOPPED"}
        held = stopped | set(self.held)
        return self.pipeline.sink_connector in held or held.issuperset(self.pipeline.source_connectors)

    def has_position(self, connector: str) -> bool:
        try:
            return bool(self.connect.offsets(connector))
        except NoSuchConnector:
            return False


def _extent(namespace: str, client: Client) -> tuple[int, int]:
    database, name = namespace.split(".", 1)
    collection = client[database][name]
    stats = if_allowed(lambda: list(collection.aggregate([{"$collStats": {"storageStats": {}}}])))
    if stats:
        return int(stats[0]["storageStats"]["count"]), int(stats[0]["storageStats"]["size"])
    return int(collection.estimated_document_count()), 0


def _holds_documents(namespace: str, client: Client) -> bool:
    database, collection = namespace.split(".", 1)
    return client[database][collection].find_one({}, {"_id": 1}) is not None
