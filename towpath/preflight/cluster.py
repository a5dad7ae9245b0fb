"""What is asked of a MongoDB cluster on either side: topology, versions, what its user may see."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeVar

from pymongo import MongoClient
from pymongo.errors import OperationFailure

from towpath.finding import Finding, error, ok, warning
from towpath.mongo.client import ReplicaSet
from towpath.mongo_uri import without_credentials
from towpath.text import counted

Client = MongoClient[dict[str, Any]]
Answer = TypeVar("Answer")

#: Change events have `wallTime`, the source's clock in every record, since this version.
OLDEST = (6, 0)
_UNAUTHORISED = 13  # Unauthorized in MongoDB's error_codes.yml


@dataclass(frozen=True, slots=True)
class Seen:
    """A replica set that answered, and the version of the server that did."""

    replica_set: ReplicaSet
    version: tuple[int, ...]


@dataclass(slots=True)
class Known:
    """What has been found out so far, for later looks; None, or no namespaces, where it was out of reach."""

    source: Seen | None = None
    destination: Seen | None = None
    namespaces: list[str] = field(default_factory=list)
    """The source's collections that belong to the pipeline."""
    kafka: str | None = None
    """The id of the Kafka cluster."""


def if_allowed(ask: Callable[[], Answer]) -> Answer | None:
    """The answer of a server, or None when the user may not ask that."""
    try:
        return ask()
    except OperationFailure as failure:
        if failure.code == _UNAUTHORISED:
            return None
        raise


def seen(client: Client, found: ReplicaSet) -> Seen:
    return Seen(found, tuple(client.server_info()["versionArray"][:3]))


def topology(found: Seen, side: str, uri: str) -> Iterator[Finding]:
    members = counted(len(found.replica_set.hosts), "member")
    version = ".".join(map(str, found.version))
    what = f"replica set {found.replica_set.name}, {members}" if found.replica_set.name else "a standalone mongod"
    yield ok(side, f"{without_credentials(uri)}: {what}, MongoDB {version}")
    if found.version < OLDEST:
        yield error(
            side,
            f"MongoDB {version}: its change events lack wallTime, the source's clock, which every record needs",
            "upgrade the servers to MongoDB 6.0 or later",
        )


def compatibility(client: Client, side: str, found: Seen) -> Iterator[Finding]:
    """A feature compatibility version behind the binaries is where an upgrade was not finished."""
    answer = if_allowed(lambda: client.admin.command("getParameter", 1, featureCompatibilityVersion=1))
    if answer is None:
        yield ok(
            side,
            "feature compatibility version: not checked, because the user lacks the privilege getParameter"
            " (role clusterMonitor)",
        )
        return
    yield from judged(str(answer["featureCompatibilityVersion"]["version"]), side, found)


def judged(text: str, side: str, found: Seen) -> Iterator[Finding]:
    """What a feature compatibility version means on these servers."""
    level = tuple(int(part) for part in text.split("."))
    if level < OLDEST:
        upgrade = (
            "finish the upgrade" if found.version >= OLDEST else "upgrade the servers to MongoDB 6.0 or later, then"
        )
        yield error(
            side,
            f"feature compatibility version {text}: change streams behave as in versions before 6.0",
            f"{upgrade}: db.adminCommand({{setFeatureCompatibilityVersion: {_wanted(found)}}})",
        )
    elif text != _short(found):
        yield warning(
            side,
            f"feature compatibility version {text} on servers {_short(found)}: an upgrade is not finished",
            f"finish it: db.adminCommand({{setFeatureCompatibilityVersion: {_wanted(found)}}}); or take it into account"
            " when you compare both sides",
        )
    else:
        yield ok(side, f"feature compatibility version {text}")


def _wanted(found: Seen) -> str:
    """The version to set, as the command takes it: the servers' own, or the oldest that will do; since 7.0 it asks for
    a confirmation."""
    version = f'"{_short(found)}"' if found.version >= OLDEST else '"6.0"'
    return f"{version}, confirm: true" if found.version >= (7, 0) else version


def _short(found: Seen) -> str:
    return ".".join(map(str, found.version[:2]))
