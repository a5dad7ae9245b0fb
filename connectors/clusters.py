"""What Towpath asks the two MongoDB clusters for: who they are, what they hold, what time it is there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from pymongo import MongoClient
from pymongo.errors import ConfigurationError, ConnectionFailure, OperationFailure, PyMongoError

from connectors.errors import MongoUnreachable, Refused
from connectors.position import ClusterTime
from connectors.secrets import without_credentials

_UNAUTHENTICATED, _UNAUTHORISED = 18, 13  # AuthenticationFailed, Unauthorized in MongoDB's error_codes.yml


@dataclass(frozen=True, slots=True)
class Collection:
    """One namespace of a cluster; `kind` is collection, view or timeseries."""

    namespace: str
    kind: str
    options: dict[str, Any]


@contextmanager
def connected(uri: str, side: str, *, timeout: float = 10) -> Iterator[MongoClient[dict[str, Any]]]:
    """A client of the cluster on one `side` (source, destination). Raises `MongoUnreachable` with words.

    `timeout` is in seconds and bounds the choice of a server.
    """
    address = without_credentials(uri)
    try:
        client: MongoClient[dict[str, Any]] = MongoClient(
            uri, serverSelectionTimeoutMS=int(timeout * 1000), appname="towpath", tz_aware=True
        )
    except (ConfigurationError, ValueError, PyMongoError) as error:
        raise MongoUnreachable(f"the URI of the {side} cannot be used: {error} ([{side}] uri)") from error
    with client:
        try:
            yield client
        except ConnectionFailure as error:
            found = str(error).split(", Timeout:")[0]
            raise MongoUnreachable(
                f"cannot reach the {side} at {address}: {found}; is it running and the address right? ([{side}] uri)"
            ) from error
        except OperationFailure as error:
            raise MongoUnreachable(_refusal(side, address, error)) from error


def _refusal(side: str, address: str, error: OperationFailure) -> str:
    words = (error.details or {}).get("errmsg", str(error))
    if error.code == _UNAUTHENTICATED:
        return f"the {side} at {address} refuses the user or the password: {words} ([{side}] uri)"
    if error.code == _UNAUTHORISED:
        return f"the user in [{side}] uri may not do what is needed at {address}: {words}; grant it the missing role"
    return f"the {side} at {address} refused: {words}"


def replica_set(client: MongoClient[dict[str, Any]], side: str) -> str:
    """The name of the replica set. Raises `Refused` for a standalone and for a mongos."""
    hello = client.admin.command("hello")
    if hello.get("msg") == "isdbgrid":
        raise Refused(f"the {side} is a mongos: sharded clusters are not supported; name a replica set ([{side}] uri)")
    if "setName" not in hello:
        raise Refused(
            f"the {side} is a standalone mongod, which has no change streams and no transactions; start it with"
            f" --replSet and initiate a replica set of one node ([{side}] uri)"
        )
    return str(hello["setName"])


def hosts(client: MongoClient[dict[str, Any]]) -> list[str]:
    """The members of the replica set, as they name themselves."""
    return sorted(client.admin.command("hello")["hosts"])


def collections(client: MongoClient[dict[str, Any]], databases: Iterable[str] | None = None) -> list[Collection]:
    """Every collection, view and time-series collection of these databases; of all but MongoDB's own if not given."""
    return [
        Collection(f"{database}.{found['name']}", found["type"], found.get("options", {}))
        for database in (client.list_database_names() if databases is None else databases)
        if database not in ("admin", "config", "local")
        for found in client[database].list_collections()
        if not found["name"].startswith("system.")
    ]


def operation_time(client: MongoClient[dict[str, Any]]) -> ClusterTime:
    """The time of the primary's newest operation: all writes acknowledged so far are at or before it."""
    stamp = client.admin.command("hello")["operationTime"]
    return ClusterTime(stamp.time, stamp.inc)
