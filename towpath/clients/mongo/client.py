"""Clients of the MongoDB clusters, and the basic queries: the replica set, the collections, the cluster time."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from traceback import walk_tb
from typing import Any

from bson import ObjectId
from dns.exception import DNSException
from pymongo import MongoClient
from pymongo.errors import ConfigurationError, ConnectionFailure, OperationFailure, PyMongoError
from pymongo.uri_parser import parse_uri

from towpath.clients.mongo.versions import OLDEST, imitation, series, short
from towpath.clients.tls import Trouble, Trust, trouble
from towpath.config.mongo_uri import without_credentials
from towpath.errors import MongoError, MongoUnreachable, Refused

Client = MongoClient[dict[str, Any]]

#: The destination of a replay, which is not in the pipeline file.
REPLAY_SIDE = "replay's destination"
# AuthenticationFailed, Unauthorized, UserNotFound in MongoDB's error_codes.yml
_UNAUTHENTICATED, _UNAUTHORISED, _NO_SUCH_USER = 18, 13, 11
#: Seconds for an answer that a healthy server gives at once.
ANSWER_S = 20.0
_OCCUPIED_MS = 100


@dataclass(frozen=True, slots=True)
class Collection:
    """One namespace of a cluster; `kind` is collection, view or timeseries."""

    namespace: str
    kind: str
    options: dict[str, Any]
    uuid: str
    """Hexadecimal; a recreated collection has another one. Empty for a view."""


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


def briefly(uri: str, side: str) -> AbstractContextManager[Client]:
    """As `connected`, with short timeouts, for queries that are repeated anyway."""
    return connected(uri, side, timeout=5, answer=ANSWER_S)


class _Clients:
    """Clients by URI and bounds, kept open until the last session ends."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sessions = 0
        self._open: dict[tuple[str, tuple[tuple[str, int], ...]], Client] = {}

    def begin(self) -> None:
        with self._lock:
            self._sessions += 1

    def end(self) -> None:
        with self._lock:
            self._sessions -= 1
            ended = [] if self._sessions else list(self._open.values())
            if ended:
                self._open.clear()
        for client in ended:
            client.close()

    @contextmanager
    def client(self, uri: str, bounds: Mapping[str, int]) -> Iterator[Client]:
        """The open client or a new one; outside of a session, it is closed at the end of the context."""
        key = uri, tuple(sorted(bounds.items()))
        options: dict[str, Any] = {**bounds, "appname": "towpath", "tz_aware": True}
        with self._lock:
            client = self._open.get(key) or MongoClient(uri, **options)
            if self._sessions:
                self._open[key] = client
        try:
            yield client
        finally:
            if client is not self._open.get(key):
                client.close()


_CLIENTS = _Clients()


@contextmanager
def kept_open() -> Iterator[None]:
    """A session, in which `connected` opens one client per URI, at its first use, and returns it from then on.

    All clients are closed when the last session ends. So the pause of a cutover opens no connection to a server that
    was used before.
    """
    _CLIENTS.begin()
    try:
        yield
    finally:
        _CLIENTS.end()


@contextmanager
def connected(uri: str, side: str, *, timeout: float = 10, answer: float | None = None) -> Iterator[Client]:
    """The session's client for the cluster on `side` (source, destination, or `REPLAY_SIDE`).

    `timeout`: seconds for server selection, unless the URI sets serverSelectionTimeoutMS. `answer`: seconds for each
    answer, unless the URI sets socketTimeoutMS or timeoutMS. Raises `MongoError`: `MongoUnreachable` where no server
    answered. If several contexts are open, each translates the errors of its own client only.
    """
    bound: dict[str, int] = {}
    if "serverselectiontimeoutms=" not in uri.lower():
        bound["serverSelectionTimeoutMS"] = int(timeout * 1000)
    if answer is not None and not re.search(r"[?&](socket)?timeoutms=", uri.lower()):
        bound["socketTimeoutMS"] = int(answer * 1000)
    _refuse_unescaped(uri, side)
    _refuse_files(uri, side)
    with ExitStack() as stack:
        try:
            client = stack.enter_context(_CLIENTS.client(uri, bound))
        except (ConfigurationError, ValueError, PyMongoError) as error:
            raise _unusable(error)(f"the URI of the {side} cannot be used: {error} ({_setting(side)})") from error
        try:
            yield client
        except (ConnectionFailure, OperationFailure, ConfigurationError) as error:  # the last: an unsupported version
            if _caller(error) not in (None, id(client)):
                raise
            raise _failure(uri, side, error) from error


def _caller(error: PyMongoError) -> int | None:
    """`id()` of the client whose call failed; None if unknown.

    Several clients can be open, and the driver's errors do not name theirs. But the driver's frames in the traceback
    hold it.
    """
    for frame, _ in walk_tb(error.__traceback__):
        if str(frame.f_globals.get("__name__")).startswith("pymongo."):
            for name in ("self", "client"):
                if isinstance(client := frame.f_locals.get(name), MongoClient):
                    return id(client)
    return None


def _failure(uri: str, side: str, error: PyMongoError) -> MongoError:
    """The error of a call: `MongoUnreachable` where no server answered, or not in time."""
    address = without_credentials(uri)
    if isinstance(error, ConfigurationError):
        supported = f"Towpath supports MongoDB {short(OLDEST)} and later ({_setting(side)})"
        advice = supported if "wire version" in str(error) else f"see {_setting(side)}"
        return _unusable(error)(f"the {side} at {address} cannot be used: {error}", advice, where=address)
    if isinstance(error, OperationFailure):
        kind = MongoUnreachable if error.timeout else MongoError
        return kind(*_refusal(side, address, error), where=address)
    parsed = _parsed(uri)
    members = [(host, port or 27017) for host, port in parsed.get("nodelist", [])]
    of_tls = trouble(members, _trust(parsed, uri))  # such a server answers
    cause = of_tls or Trouble(str(error).split(", Timeout:")[0], "is it running and the address right?")
    what, advice = f"cannot reach the {side} at {address}: {cause.what}", f"{cause.advice} ({_setting(side)})"
    return (MongoError if of_tls else MongoUnreachable)(what, advice, where=address)


def _unusable(error: Exception) -> type[MongoError]:
    """For a URI or a configuration. DNS knows no servers of a lost cluster, if its URI begins with mongodb+srv."""
    return MongoUnreachable if isinstance(error.__cause__, DNSException) else MongoError


def _refuse_unescaped(uri: str, side: str) -> None:
    """Raise `MongoError` for a user or password that is not escaped. A parser's message would show part of it."""
    login, mark, _ = uri.partition("://")[2].rpartition("@")
    if mark and (set(login) & set("/?#[]@") or login.count(":") > 1):
        raise MongoError(
            f"the URI of the {side} cannot be used: its user or password holds one of : / ? # [ ] @ as it is",
            f"write %3A %2F %3F %23 %5B %5D %40 ({_setting(side)})",
        )


def _refuse_files(uri: str, side: str) -> None:
    """Raise `MongoError` for PEM files that cannot be used."""
    cause = _trust(_parsed(uri), uri).unusable() if "tlsc" in uri.lower() else None
    if cause:
        raise MongoError(f"the URI of the {side} cannot be used: {cause.what}", f"{cause.advice} ({_setting(side)})")


def _parsed(uri: str) -> dict[str, Any]:
    try:
        return parse_uri(uri, validate=False)
    except (PyMongoError, ValueError):
        return {}  # the client reports it


def _trust(parsed: dict[str, Any], uri: str) -> Trust:
    options = {str(name).lower(): str(value) for name, value in parsed.get("options", {}).items()}
    given = {name for name, value in options.items() if value.lower() not in ("false", "")}
    return Trust(
        tls=bool(given & {"tls", "ssl", "tlscafile", "tlscertificatekeyfile"}) or uri.startswith("mongodb+srv"),
        ca=options.get("tlscafile", ""),
        key=options.get("tlscertificatekeyfile", ""),
        password=options.get("tlscertificatekeyfilepassword", ""),
        switch="tls=true in the URI",
        ca_option="tlsCAFile in the URI",
        key_option="tlsCertificateKeyFile in the URI",
        checks_host=not given & {"tlsallowinvalidhostnames", "tlsinsecure", "tlsallowinvalidcertificates"},
    )


def _setting(side: str) -> str:
    """The option or setting that names the cluster on this side."""
    return "--destination" if side == REPLAY_SIDE else f"[{side}] uri"


def _refusal(side: str, address: str, error: OperationFailure) -> tuple[str, str]:
    """(what happened, advice)"""
    message = (error.details or {}).get("errmsg", str(error))
    if error.code in (_UNAUTHENTICATED, _NO_SUCH_USER):
        return f"the {side} at {address} refuses the user or the password: {message}", f"see {_setting(side)}"
    if error.code == _UNAUTHORISED:
        missing = f"the user in {_setting(side)} may not do what is needed at {address}: {message}"
        return missing, "grant it the missing role"
    return f"the {side} at {address} refused: {message}", ""


@dataclass(frozen=True, slots=True)
class ReplicaSet:
    """The identity of a replica set, written as `name/host,host` into a connector's configuration.

    A standalone mongod, to which plain mode can write, has an empty name and one host.
    """

    name: str
    hosts: tuple[str, ...]
    process: ObjectId | None = field(default=None, compare=False)
    """The mongod that answered, under whatever address it was reached; no privilege is needed to ask for it."""

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
    return _with_name(replica_set(client, "source"), "source", "change streams", " ([source] uri)")


def destination_set(client: Client, *, transactions: bool) -> ReplicaSet:
    """The replica set of the destination.

    Raises `Refused` for a mongos and, if `transactions` are required, for a standalone.
    """
    destination = replica_set(client, "destination")
    advice = ', or set mode = "plain", which writes without them ([destination] uri)'
    return _with_name(destination, "destination", "transactions", advice) if transactions else destination


def replay_set(client: Client) -> ReplicaSet:
    """The replica set that a replay writes to. Raises `Refused` for a standalone and for a mongos."""
    return _with_name(replica_set(client, REPLAY_SIDE), REPLAY_SIDE, "transactions", "")


def _with_name(replica_set: ReplicaSet, side: str, lacks: str, advice: str) -> ReplicaSet:
    """The replica set, unless it is a standalone."""
    if replica_set.name:
        return replica_set
    raise Refused(
        f"the {side} is a standalone mongod, which has no {lacks}",
        f"start it with --replSet and initiate a replica set of one node{advice}",
    )


def replica_set(client: Client, side: str) -> ReplicaSet:
    """The replica set that answers on `side`.

    Raises `Refused` for a mongos, for a version that is not supported, and for what is not MongoDB.
    """
    hello = client.admin.command("hello")
    if service := imitation(host for host, _ in client.nodes):
        raise Refused(
            f"the {side} is {service}, which is not MongoDB: its change streams and reads differ, and it is not"
            " supported",
            f"name a MongoDB replica set ({_setting(side)})",
        )
    if hello.get("msg") == "isdbgrid":
        raise Refused(
            f"the {side} is a mongos: sharded clusters are not supported", f"name a replica set ({_setting(side)})"
        )
    version = client.server_info()["version"]
    known = series(tuple(map(int, version.split("-")[0].split("."))))
    if known.support == "not supported":
        raise Refused(
            f"the {side} is MongoDB {version}, which is not supported: {known.words}",
            f"upgrade it to MongoDB {short(OLDEST)} or later ({_setting(side)})",
        )
    process = hello.get("topologyVersion", {}).get("processId")
    if "setName" not in hello:
        host, port = client.address or ("", 0)
        return ReplicaSet("", (f"{host}:{port}",), process)
    return ReplicaSet(str(hello["setName"]), tuple(sorted(hello["hosts"])), process)


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


def clocks(client: Client) -> tuple[ClusterTime, float]:
    """(`operation_time`, the primary's wall clock in seconds since the epoch)"""
    hello = client.admin.command("hello")
    stamp = hello["operationTime"]
    return ClusterTime(stamp.time, stamp.inc), hello["localTime"].timestamp()


def add_note(client: Client) -> None:
    """Add an entry to the oplog that changes nothing, so that change streams pass the present time at once.

    A user without the privilege `appendOplogNote` waits for the server's own such entry, which comes every
    `periodicNoopIntervalSecs` (10 by default) where nobody writes.
    """
    with suppress(PyMongoError):
        client.admin.command("appendOplogNote", data={"from": "towpath"})


def passed_time(uri: str) -> ClusterTime:
    """The source's time now, which its change streams pass at once also where nobody writes."""
    with connected(uri, "source") as client:
        now = operation_time(client)
        add_note(client)
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
        return str((error.details or {}).get("errmsg", error))
    return ""
