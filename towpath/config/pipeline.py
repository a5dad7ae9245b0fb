"""The values of a pipeline: the checked content of its file, and the cluster times of its positions."""

from __future__ import annotations

import base64
import ssl
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

import bson

from towpath.clients.kafka.client import ANYBODY, KafkaClient
from towpath.config.namespaces import Renames, Selection, namespace_of
from towpath.config.tls import Trouble, Trust, trouble
from towpath.errors import TowpathError

#: How records are applied: exactly once, in transactions (MongoSink), or at least once (mongo-kafka's sink).
Mode = Literal["exactly-once", "plain"]
#: What makes the initial copy: MongoSource in ranges of `_id`, Debezium, or nothing.
CopyMethod = Literal["towpath", "debezium", "none"]
#: The order in which MongoSource reads a collection: `auto` chooses between the others for each collection.
CopyOrder = Literal["auto", "id", "natural"]
ReadPreference = Literal["primary", "primaryPreferred", "secondary", "secondaryPreferred", "nearest"]
#: What happens when the source drops a collection: it waits for a decision, or is done at once.
DropPolicy = Literal["hold", "apply"]
#: Who creates and changes the connectors: `towpath deploy`, or Strimzi's operator, which reverts what others change.
Owner = Literal["towpath", "strimzi"]


@dataclass(frozen=True, slots=True)
class Copy:
    """The initial copy of each collection. A rate of 0 means no limit."""

    method: CopyMethod
    threads: int
    read_preference: ReadPreference
    documents_per_second: int
    bytes_per_second: int
    order: CopyOrder = "auto"
    tasks: int = 1
    """How many tasks of the connector share it."""


@dataclass(frozen=True, slots=True)
class Compaction:
    """How Kafka's log cleaner compacts the log. It never drops records that are younger than the lag."""

    lag_ms: int
    """`min.compaction.lag.ms`: within it, every update must be followed by the whole document of its key."""
    delete_retention_ms: int
    """`delete.retention.ms`: how long a delete stays, at least, after the cleaner's first pass over it."""


@dataclass(frozen=True, slots=True)
class Listening:
    """Where the page, the API and the metrics are served, and to whom."""

    address: str
    """host:port"""
    token_file: Path | None = None
    """Holds the token that actions need, and at an address other than the loopback also every reader."""
    read_only: bool = False
    """No actions; everybody may read."""
    certificate: Path | None = None
    """PEM file; without one, HTTP without TLS."""
    key: Path | None = None
    """None: it is in the file of the certificate."""
    hosts: tuple[str, ...] = ()
    """Further names under which requests may address it."""


@dataclass(frozen=True, slots=True)
class RunOptions:
    """What `towpath run` does besides supervising the connectors."""

    compact: bool
    verify: bool
    repair: bool
    """Whether dead letters are re-read once the destination accepts them."""
    listening: Listening | None = None
    """None: nothing is served."""


@dataclass(frozen=True, slots=True, repr=False)
class ConnectLogin:
    """Credentials for Connect's REST API: user and password, and PEM files for TLS; empty where not needed."""

    user: str = ""
    password: str = ""
    ca: str = ""
    certificate: str = ""

    @property
    def basic(self) -> tuple[str, str] | None:
        return (self.user, self.password) if self.user else None

    def context(self) -> ssl.SSLContext | bool:
        """The TLS context that verifies the worker's certificate. Raises `OSError` for files that cannot be used."""
        return self._trust(tls=True).context() if self.ca or self.certificate else True

    def trouble(self, url: str) -> Trouble | None:
        """What is wrong with TLS at this URL."""
        parts = urlsplit(url)
        tls = parts.scheme == "https"
        return trouble([(parts.hostname or "", parts.port or (443 if tls else 80))], self._trust(tls=tls))

    def _trust(self, *, tls: bool) -> Trust:
        names = "[connect] ca", "[connect] certificate"
        return Trust(tls, self.ca, self.certificate, "", "https:// in [connect] url", *names)


NO_LOGIN = ConnectLogin()


@dataclass(frozen=True, slots=True)
class Ddl:
    """Schema changes at the source go through the log, and are made at the destination."""

    drop: DropPolicy


@dataclass(frozen=True, repr=False)
class Pipeline:
    """One pipeline. URIs may hold passwords: print `source_address` and `destination_address` instead."""

    name: str
    mode: Mode
    source_uri: str
    destination_uri: str
    include: tuple[str, ...]
    exclude: tuple[str, ...]
    renames: Renames
    whole_documents: tuple[str, ...]
    copy: Copy
    splice_cache: int
    """The most bytes of what MongoSource remembers of arrays, to send their changes as splices; 0: no splices."""
    bootstrap: str
    partitions: int
    replication_factor: int
    """-1 leaves it to the broker."""
    connect_url: str
    worker_bootstrap: str
    """Kafka's address as the Connect workers see it."""
    secrets: Path
    """The properties file, on the machines of the Connect workers, that holds both URIs."""
    write_concern: str
    """`1`, `majority`, `majority+journal`, …"""
    wtimeout_ms: int
    """How long a transaction waits for its write concern, in exactly-once mode."""
    tasks: int
    fold: bool
    """Whether the changes of one document in a batch become one write, in exactly-once mode."""
    batch_records: int
    """The most records in one transaction."""
    batch_bytes: int
    """The most bytes of records in one transaction."""
    retention_ms: int
    """-1 keeps the log forever."""
    compaction: Compaction | None
    """None for a log that keeps every record."""
    kafka_client: KafkaClient = ANYBODY
    """The login of all Kafka clients, including those that Connect creates for the connectors."""
    connect_login: ConnectLogin = NO_LOGIN
    """The login for Connect's REST API."""
    run: RunOptions = RunOptions(compact=False, verify=False, repair=True)
    ddl: Ddl | None = None
    """None: schema changes are reported and not replicated."""
    owner: Owner = "towpath"
    """Of the connectors."""

    @property
    def exactly_once(self) -> bool:
        return self.mode == "exactly-once"

    @property
    def has_operator(self) -> bool:
        """Whether an operator owns the connectors: what Towpath changes in them does not last."""
        return self.owner == "strimzi"

    @property
    def has_own_source(self) -> bool:
        """Whether MongoSource captures, which copies in ranges and re-reads on request; else stock Debezium does."""
        return self.exactly_once or self.copy.method == "towpath"

    @cached_property
    def selection(self) -> Selection:
        """Every namespace of the pipeline."""
        return Selection(self.include, self.exclude, lasting=self.ddl is not None)

    @cached_property
    def captured_by_update(self) -> Selection:
        """The namespaces whose updates travel as updates."""
        return replace(self.selection, exclude=self.exclude + self.whole_documents)

    @cached_property
    def captured_whole(self) -> Selection | None:
        """The namespaces whose updates travel as whole documents, looked up at the source; None if there are none."""
        return replace(self.selection, only=self.whole_documents) if self.whole_documents else None

    @property
    def source_connector(self) -> str:
        return f"{self.name}-source"

    @property
    def whole_source_connector(self) -> str:
        return f"{self.name}-source-whole"

    @property
    def source_connectors(self) -> tuple[str, ...]:
        return (self.source_connector, *((self.whole_source_connector,) if self.whole_documents else ()))

    def source_connector_of(self, namespace: str) -> str:
        """The source connector that captures a namespace of the pipeline."""
        whole = self.captured_whole is not None and self.captured_whole.matches(namespace)
        return self.whole_source_connector if whole else self.source_connector

    @property
    def sink_connector(self) -> str:
        return f"{self.name}-sink"

    @property
    def connectors(self) -> tuple[str, ...]:
        return (*self.source_connectors, self.sink_connector)

    @property
    def database(self) -> str:
        """The sink's setting `database`: one that the pipeline writes to.

        It has no effect on what is written, but mongo-kafka checks the user's privileges there, not on the namespaces
        that are written.
        """
        database, _, _ = self.renames.destination(self.include[0]).partition(".")
        return self.name if "*" in database else database

    @property
    def sink_group(self) -> str:
        """The sink's consumer group, as Connect names it."""
        return f"connect-{self.sink_connector}"

    @property
    def compaction_group(self) -> str:
        """The consumer group of `towpath compact`."""
        return f"{self.name}-compact"

    @property
    def dead_letter_topic(self) -> str:
        return f"{self.name}.dead-letters"

    @property
    def request_topic(self) -> str:
        """The topic of the re-read requests to MongoSource."""
        return f"{self.name}.requests"

    def is_change_topic(self, topic: str) -> bool:
        """Whether a topic holds the changes of a namespace of the pipeline."""
        return topic.startswith(f"{self.name}.") and self.selection.matches(namespace_of(self.name, topic))

    @property
    def heartbeat_topics(self) -> tuple[str, ...]:
        """Debezium's heartbeats: `__debezium-heartbeat.<topic.prefix of the connector>`."""
        return tuple(f"__debezium-heartbeat.{prefix}" for prefix in self.capture_prefixes)

    @property
    def capture_prefixes(self) -> tuple[str, ...]:
        """Debezium's `topic.prefix` of each source connector; its offsets are kept under it."""
        return (self.name, *((f"{self.name}-whole",) if self.whole_documents else ()))


@dataclass(frozen=True, slots=True, order=True)
class ClusterTime:
    """A MongoDB timestamp: seconds since the epoch, and an ordinal within that second."""

    seconds: int
    ordinal: int

    def __str__(self) -> str:
        return f"{self.seconds}:{self.ordinal}"


def cluster_time(text: str) -> ClusterTime:
    """Parse `seconds:ordinal`. Raises ValueError for anything else."""
    seconds, _, ordinal = text.partition(":")
    return ClusterTime(int(seconds), int(ordinal))


@dataclass(frozen=True, slots=True)
class SourcePosition:
    """What a source connector has committed. All events *before* `time` are in the log; some at `time` may not be."""

    time: ClusterTime
    snapshot_running: bool

    def has_passed(self, time: ClusterTime) -> bool:
        """Whether every change up to and including `time` is in the log.

        The events of one transaction share their cluster time, so only a later one proves that all are in the log.
        """
        return not self.snapshot_running and self.time > time


def resume_token_time(token: str) -> ClusterTime:
    """The cluster time in a resume token as Debezium stores it: base64 of the BSON `{_data: <hex>}`.

    The key string in `_data` begins with the type byte 0x82 and an eight-byte timestamp (MongoDB, key_string.h).
    """
    try:
        text = bson.decode(base64.b64decode(token))["_data"]
        kind, seconds, ordinal = struct.unpack(">BII", bytes.fromhex(text[:18]))
    except (ValueError, KeyError, TypeError, struct.error, bson.errors.BSONError) as error:
        raise TowpathError(f"the source connector committed a resume token that cannot be read: {token!r}") from error
    if kind != 0x82:
        raise TowpathError(f"the source connector committed a resume token without a cluster time: {token!r}")
    return ClusterTime(seconds, ordinal)


def source_position(offset: Mapping[str, Any]) -> SourcePosition:
    """The position in one offset of Debezium's MongoDB connector (`sec`, `ord`, `resume_token`, `initsync`)."""
    token = offset.get("resume_token")
    time = resume_token_time(token) if token else ClusterTime(int(offset["sec"]), int(offset["ord"]))
    return SourcePosition(time, snapshot_running=bool(offset.get("initsync")))


def debezium_position(offsets: Iterable[tuple[Mapping[str, Any], Mapping[str, Any]]]) -> SourcePosition | None:
    """The stream's position among a source connector's (partition, offset): the one whose partition has a `server_id`.

    None before anything was captured, and during the initial copy in ranges.
    """
    return next((source_position(offset) for partition, offset in offsets if "server_id" in partition), None)
