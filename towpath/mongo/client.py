"""What Towpath asks the two MongoDB clusters for: who they are, what they hold, what time it is there."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from traceback import walk_tb
from typing import Any

from pymongo import MongoClient
from pymongo.errors import ConfigurationError, ConnectionFailure, OperationFailure, PyMongoError
from pymongo.uri_parser import parse_uri

from towpath.errors import MongoUnreachable, Refused
from towpath.mongo_uri import without_credentials
from towpath.pipeline import ClusterTime
from towpath.tls import Trouble, Trust, trouble

Client = MongoClient[dict[str, Any]]

#: The side that a replay writes to, which is not in the pipeline file.
REPLAY_SIDE = "replay's destination"
# AuthenticationFailed, Unauthorized, UserNotFound in MongoDB's error_codes.yml
_UNAUTHENTICATED, _UNAUTHORISED, _NO_SUCH_USER = 18, 13, 11
#: Seconds for an answer to a question that a healthy server answers at once.
ANSWER = 20.0


@dataclass(frozen=True, slots=True)
class Collection:
    """One namespace of a cluster; `kind` is collection, view or timeseries."""

    namespace: str
    kind: str
    options: dict[str, Any]
    uuid: str
    """In hexadecimal digits, which a collection that is made anew does not have; empty for a view."""


def briefly(uri: str, side: str) -> AbstractContextManager[Client]:
    """As `connected`, for a look that comes by again: little is waited for, neither for a server nor for an answer."""
    return connected(uri, side, timeout=5, answer=ANSWER)


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
        """The one that is open already, or a new one; outside of a session it is closed at the end."""
        key = uri, tuple(sorted(bounds.items()))
        with self._lock:
            client = self._open.get(key) or _client(uri, bounds)
            if self._sessions:
                self._open[key] = client
        try:
            yield client
        finally:
            if client is not self._open.get(key):
                client.close()


def _client(uri: str, bounds: Mapping[str, int]) -> Client:
    options: dict[str, Any] = {**bounds, "appname": "towpath", "tz_aware": True}
    return MongoClient(uri, **options)


_CLIENTS = _Clients()


@contextmanager
def kept_open() -> Iterator[None]:
    """A session: inside, `connected` opens one client for a URI, at its first use, and hands it out again.

    All are closed when the last session ends. So nothing that happens in the pause of a cutover opens a connection to a
    server that was asked before.
    """
    _CLIENTS.begin()
    try:
        yield
    finally:
        _CLIENTS.end()


@contextmanager
def connected(uri: str, side: str, *, timeout: float = 10, answer: float | None = None) -> Iterator[Client]:
    """The session's client of the cluster on one `side` (source, destination, or a replay's).

    Several may be open at once: each translates the errors of its own client only. `timeout` is in seconds and bounds
    the choice of a server, unless the URI itself says serverSelectionTimeoutMS; `answer` bounds each answer, unless it
    says socketTimeoutMS or timeoutMS. Raises `MongoUnreachable`.
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
            raise MongoUnreachable(f"the URI of the {side} cannot be used: {error} ({_setting(side)})") from error
        try:
            yield client
        except (ConnectionFailure, OperationFailure) as error:
            if _caller(error) not in (None, id(client)):
                raise
            raise MongoUnreachable(*_failure(uri, side, error), where=without_credentials(uri)) from error


def _caller(error: PyMongoError) -> int | None:
    """`id()` of the client whose call failed: several can be open, and the driver's errors do not name theirs.

    The driver's own frames on the way of the error hold the client. None when none of them does.
    """
    for frame, _ in walk_tb(error.__traceback__):
        if str(frame.f_globals.get("__name__")).startswith("pymongo."):
            for name in ("self", "client"):
                if isinstance(found := frame.f_locals.get(name), MongoClient):
                    return id(found)
    return None


def _failure(uri: str, side: str, error: ConnectionFailure | OperationFailure) -> tuple[str, str]:
    """What was found, and what to do."""
    address = without_credentials(uri)
    if isinstance(error, OperationFailure):
        return _refusal(side, address, error)
    found = _trouble(uri) or Trouble(str(error).split(", Timeout:")[0], "is it running and the address right?")
    return f"cannot reach the {side} at {address}: {found.what}", f"{found.advice} ({_setting(side)})"


def _refuse_unescaped(uri: str, side: str) -> None:
    """Parsers tell what they stumble over, which can be a part of the password."""
    login, mark, _ = uri.partition("://")[2].rpartition("@")
    if mark and (set(login) & set("/?#[]@") or login.count(":") > 1):
        raise MongoUnreachable(
            f"the URI of the {side} cannot be used: its user or password holds one of : / ? # [ ] @ as it is",
            f"write %3A %2F %3F %23 %5B %5D %40 ({_setting(side)})",
        )


def _refuse_files(uri: str, side: str) -> None:
    """Raise `MongoUnreachable` for PEM files that cannot be used."""
    found = _trust(_options(uri), uri).unusable() if "tlsc" in uri.lower() else None
    if found:
        raise MongoUnreachable(
            f"the URI of the {side} cannot be used: {found.what}", f"{found.advice} ({_setting(side)})"
        )


def _trouble(uri: str) -> Trouble | None:
    """What is wrong with TLS between here and the members that the URI names."""
    told = _options(uri)
    return trouble([(host, port or 27017) for host, port in told.get("nodelist", [])], _trust(told, uri))


def _options(uri: str) -> dict[str, Any]:
    try:
        return parse_uri(uri, validate=False)
    except (PyMongoError, ValueError):
        return {}  # said by the client


def _trust(told: dict[str, Any], uri: str) -> Trust:
    options = {str(name).lower(): str(value) for name, value in told.get("options", {}).items()}
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
    """What names the cluster on this side."""
    return "--destination" if side == REPLAY_SIDE else f"[{side}] uri"


def _refusal(side: str, address: str, error: OperationFailure) -> tuple[str, str]:
    """What was found, and what to do."""
    words = (error.details or {}).get("errmsg", str(error))
    if error.code in (_UNAUTHENTICATED, _NO_SUCH_USER):
        return f"the {side} at {address} refuses the user or the password: {words}", f"see {_setting(side)}"
    if error.code == _UNAUTHORISED:
        found = f"the user in {_setting(side)} may not do what is needed at {address}: {words}"
        return found, "grant it the missing role"
    return f"the {side} at {address} refused: {words}", ""


@dataclass(frozen=True, slots=True)
class ReplicaSet:
    """Who a replica set is: written as `name/host,host` into a connector's configuration.

    A standalone mongod, to which the plain mode can write, has no name, and itself as its only host.
    """

    name: str
    hosts: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.name}/{','.join(self.hosts)}"

    @classmethod
    def parse(cls, mark: str) -> ReplicaSet:
        name, _, members = mark.partition("/")
        return cls(name, tuple(members.split(",")))

    def is_same(self, other: ReplicaSet) -> bool:
        """The same set, also when members came or went."""
        return self.name == other.name and bool(set(self.hosts) & set(other.hosts))


def source_set(client: Client) -> ReplicaSet:
    """The replica set of the source. Raises `Refused` for a standalone and for a mongos."""
    found = replica_set(client, "source")
    if not found.name:
        raise Refused(
            "the source is a standalone mongod, which has no change streams",
            "start it with --replSet and initiate a replica set of one node ([source] uri)",
        )
    return found


def destination_set(client: Client, *, transactions: bool) -> ReplicaSet:
    """The replica set of the destination. Raises `Refused` for a mongos, and for a standalone that has to have
    `transactions`."""
    found = replica_set(client, "destination")
    if transactions and not found.name:
        raise Refused(
            "the destination is a standalone mongod, which has no transactions",
            "start it with --replSet and initiate a"
            ' replica set of one node, or set mode = "plain", which writes without them ([destination] uri)',
        )
    return found


def replica_set(client: Client, side: str) -> ReplicaSet:
    """Who answers on a `side`. Raises `Refused` for a mongos."""
    hello = client.admin.command("hello")
    if hello.get("msg") == "isdbgrid":
        raise Refused(
            f"the {side} is a mongos: sharded clusters are not supported", f"name a replica set ({_setting(side)})"
        )
    if "setName" not in hello:
        host, port = client.address or ("", 0)
        return ReplicaSet("", (f"{host}:{port}",))
    return ReplicaSet(str(hello["setName"]), tuple(sorted(hello["hosts"])))


def replay_set(client: Client) -> ReplicaSet:
    """The replica set that a replay is to write to. Raises `Refused` for a standalone and for a mongos."""
    found = replica_set(client, REPLAY_SIDE)
    if not found.name:
        raise Refused(
            f"the {REPLAY_SIDE} is a standalone mongod, which has no transactions",
            "start it with --replSet and initiate a replica set of one node",
        )
    return found


def collections(client: Client, databases: Iterable[str] | None = None) -> list[Collection]:
    """Every collection, view and time-series collection of these databases; of all but MongoDB's own if not given."""
    return [
        Collection(
            f"{database}.{found['name']}",
            found["type"],
            found.get("options", {}),
            bytes(found.get("info", {}).get("uuid", b"")).hex(),
        )
        for database in (client.list_database_names() if databases is None else databases)
        if database not in ("admin", "config", "local")
        for found in client[database].list_collections()
        if not found["name"].startswith("system.")
    ]


def operation_time(client: Client) -> ClusterTime:
    """The time of the primary's newest operation: all writes acknowledged so far are at or before it."""
    return clocks(client)[0]


def clocks(client: Client) -> tuple[ClusterTime, float]:
    """The same, and the primary's wall clock in seconds since the epoch."""
    hello = client.admin.command("hello")
    stamp = hello["operationTime"]
    return ClusterTime(stamp.time, stamp.inc), hello["localTime"].timestamp()
