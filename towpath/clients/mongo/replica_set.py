"""The basic queries of a cluster: the replica set, the collections, the cluster time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from bson import ObjectId
from bson.codec_options import CodecOptions
from bson.raw_bson import RawBSONDocument
from pymongo.errors import OperationFailure, PyMongoError

from towpath.clients.mongo.client import REPLAY, Client, Cluster, ClusterTime
from towpath.clients.mongo.versions import OLDEST, imitation, series, short
from towpath.errors import Refused
from towpath_verifier import brief

_OCCUPIED_MS = 100
#: Documents as their bytes.
RAW: CodecOptions[RawBSONDocument] = CodecOptions(document_class=RawBSONDocument)


@dataclass(frozen=True, slots=True)
class Collection:
    """One namespace of a cluster; `kind` is collection, view or timeseries."""

    namespace: str
    kind: str
    options: dict[str, Any]
    uuid: str
    """Hexadecimal; a recreated collection has another one. Empty for a view."""


@dataclass(frozen=True, slots=True)
class ReplicaSet:
    """The identity of a replica set, written as `name/host,host` into a connector's configuration.

    A standalone mongod, to which plain mode can write, has an empty name and one host.
    """

    name: str
    hosts: tuple[str, ...]
    process: ObjectId | None = field(default=None, compare=False)
    """The mongod that answered, under whatever address it was reached; no privilege is needed to ask for it."""
    version: tuple[int, ...] = field(default=(), compare=False)
    """Of that mongod: (major, minor, patch)."""

    def __str__(self) -> str:
        return f"{self.name}/{','.join(self.hosts)}"

    @classmethod
    def parse(cls, mark: str) -> ReplicaSet:
        name, _, members = mark.partition("/")
        return cls(name, tuple(members.split(",")))

    def is_same(self, other: ReplicaSet) -> bool:
        """Whether this is the same set, even if members were added or removed, or one is reached by another name."""
        if self.process and other.process and (self.process == other.process or not (self.name or other.name)):
            return self.process == other.process
        return self.name == other.name and bool(set(self.hosts) & set(other.hosts))


def source_set(client: Client) -> ReplicaSet:
    """The replica set of the source. Raises `Refused` for a standalone and for a mongos."""
    return replica_set(client, "source", needs="change streams", advice=" ([source] uri)")


def destination_set(client: Client, *, transactions: bool) -> ReplicaSet:
    """The replica set of the destination.

    Raises `Refused` for a mongos and, if `transactions` are required, for a standalone.
    """
    advice = ', or set mode = "plain", which writes without them ([destination] uri)'
    return replica_set(client, "destination", needs="transactions" if transactions else "", advice=advice)


def replay_set(client: Client) -> ReplicaSet:
    """The replica set that a replay writes to. Raises `Refused` for a standalone and for a mongos."""
    return replica_set(client, *REPLAY, needs="transactions")


def replica_set(client: Client, side: str, setting: str = "", *, needs: str = "", advice: str = "") -> ReplicaSet:
    """The replica set that answers on `side`; `setting` names it, `[side] uri` by default.

    Raises `Refused` for a mongos, for a version that is not supported, for what is not MongoDB, and for a standalone,
    which lacks it, if something is needed; `advice`: the end of what to do then.
    """
    setting, hello = setting or f"[{side}] uri", client.admin.command("hello")
    if service := imitation(host for host, _ in client.nodes):
        raise Refused(
            f"the {side} is {service}, which is not MongoDB: its change streams and reads differ, and it is not"
            " supported",
            f"name a MongoDB replica set ({setting})",
        )
    if hello.get("msg") == "isdbgrid":
        raise Refused(f"the {side} is a mongos: sharded clusters are not supported", f"name a replica set ({setting})")
    text = client.server_info()["version"]
    version = tuple(map(int, text.split("-")[0].split(".")))
    known = series(version)
    if known.support == "not supported":
        raise Refused(
            f"the {side} is MongoDB {text}, which is not supported: {known.words}",
            f"upgrade it to MongoDB {short(OLDEST)} or later ({setting})",
        )
    process = hello.get("topologyVersion", {}).get("processId")
    if "setName" not in hello:
        if needs:
            raise Refused(
                f"the {side} is a standalone mongod, which has no {needs}",
                f"start it with --replSet and initiate a replica set of one node{advice}",
            )
        host, port = client.address or ("", 0)
        return ReplicaSet("", (f"{host}:{port}",), process, version)
    return ReplicaSet(str(hello["setName"]), tuple(sorted(hello["hosts"])), process, version)


def collections(client: Client, databases: Iterable[str] | None = None) -> list[Collection]:
    """Every collection, view and time-series collection of these databases; by default of all but MongoDB's own."""
    return [
        Collection(
            f"{database}.{entry['name']}",
            entry["type"],
            entry.get("options", {}),
            bytes(entry.get("info", {}).get("uuid", b"")).hex(),
        )
        for database in (client.list_database_names() if databases is None else databases)
        if database not in ("admin", "config", "local")
        for entry in client[database].list_collections()
        if not entry["name"].startswith("system.")
    ]


def operation_time(client: Client) -> ClusterTime:
    """The cluster time of the primary's newest operation: all writes acknowledged so far are at or before it."""
    return clocks(client)[0]


def clocks(client: Client) -> tuple[ClusterTime, float, ReplicaSet]:
    """(`operation_time`, the primary's wall clock in seconds since the epoch, the replica set that answered)"""
    hello = client.admin.command("hello")
    stamp, members = hello["operationTime"], ReplicaSet(hello.get("setName", ""), tuple(hello.get("hosts", ())))
    return ClusterTime(stamp.time, stamp.inc), hello["localTime"].timestamp(), members


def passed_time(source: Cluster) -> ClusterTime:
    """The source's time now, which its change streams pass at once also where nothing writes.

    An entry in the oplog that changes nothing does that. A user without the privilege `appendOplogNote` waits for the
    server's own such entry, which comes every `periodicNoopIntervalSecs` (10 by default).
    """
    with source.connected() as client:
        now = operation_time(client)
        with suppress(PyMongoError):
            client.admin.command("appendOplogNote", data={"from": "towpath"})
        return now


def open_connections(client: Client, count: int) -> None:
    """Have the client hold this many connections to the primary, for threads that wait in change streams and another.

    Each `hello` that waits for a change of the topology occupies one; it needs no privilege.
    """
    waiting = {"topologyVersion": client.admin.command("hello")["topologyVersion"], "maxAwaitTimeMS": _OCCUPIED_MS}
    with ThreadPoolExecutor(count - 1) as pool:
        occupied = [pool.submit(lambda: client.admin.command("hello", **waiting)) for _ in range(count - 1)]
        while not all(each.done() for each in occupied):
            client.admin.command("ping")
        for each in occupied:
            each.result()


_INVALID_REGEX = 51091  # MongoDB's error code of a regular expression that it cannot compile


def holds_documents(
    client: Client, namespace: str, only: Mapping[str, Any] | None = None, max_ms: int | None = None
) -> bool:
    """Whether there is a document, or one that matches a filter. Nothing is decoded: an `_id` may be any.

    Raises the driver's `ExecutionTimeout` after `max_ms` milliseconds.
    """
    database, name = namespace.split(".", 1)
    collection = client[database].get_collection(name, codec_options=RAW)
    return collection.find_one(only or {}, {"_id": 1}, max_time_ms=max_ms) is not None


def regex_refusal(client: Client, expression: str) -> str:
    """Why the server cannot match names with an expression, such as its size when compiled; empty if it can.

    Only the server knows: its library limits the compiled form, 64 KB in MongoDB 6.0.
    """
    filtered = {"name": {"$regex": expression, "$options": "i"}}  # as Debezium asks
    try:
        client.admin.command("listDatabases", nameOnly=True, filter=filtered)
    except OperationFailure as error:
        if error.code != _INVALID_REGEX:
            raise
        return brief(error)
    return ""
