"""The checks of a MongoDB cluster on either side: topology and versions."""

from __future__ import annotations

from collections.abc import Iterator

from towpath.checks.facts import Side
from towpath.checks.rule import Finding, error, ok, warning
from towpath.clients.mongo.client import Client
from towpath.clients.mongo.privileges import if_allowed
from towpath.clients.mongo.replica_set import ReplicaSet
from towpath.clients.mongo.versions import NEWEST, OLDEST, Version, series, short
from towpath.config.text import counted


def servers(cluster: Side) -> Iterator[Finding]:
    """The servers are supported, and their upgrades are finished."""
    yield from topology(cluster.replica_set, cluster.version, cluster.side, cluster.cluster.address)
    if cluster.ask(_is_shard):
        yield error(
            cluster.side,
            "is a shard of a sharded cluster: it has part of the documents, and chunks move in and out of it",
            "name a replica set that is not sharded; sharded clusters are not supported",
        )
    level = cluster.compatibility
    if level is None:
        yield ok(
            cluster.side,
            "feature compatibility version: not checked, because the user lacks the privilege getParameter"
            " (role clusterMonitor)",
        )
    else:
        yield from compatibility(level, cluster.side, cluster.version)


def _is_shard(client: Client) -> bool:
    """Whether the server is known to be one; not where the user may not read that."""
    identity = if_allowed(lambda: client.admin["system.version"].find_one({"_id": "shardIdentity"}))
    return identity is not None


def topology(replica_set: ReplicaSet, version: Version, side: str, address: str) -> Iterator[Finding]:
    members = counted(len(replica_set.hosts), "member")
    number = ".".join(map(str, version))
    kind = f"replica set {replica_set.name}, {members}" if replica_set.name else "a standalone mongod"
    yield ok(side, f"{address}: {kind}, MongoDB {number}")
    yield from untested(version, side)


def untested(version: Version, side: str) -> Iterator[Finding]:
    """A version that is not tested. `Side.replica_set` raises `Refused` for one that is not supported."""
    number = ".".join(map(str, version))
    if version[:2] > NEWEST:
        yield warning(
            side,
            f"MongoDB {number} is newer than all that is known to this version of Towpath",
            "upgrade Towpath, or try everything on a copy of the data first",
        )
    elif series(version).support == "expected":
        yield ok(side, f"MongoDB {number} is expected to work, and not tested")


def compatibility(text: str, side: str, version: Version) -> Iterator[Finding]:
    """Check the feature compatibility version `text` of servers of this `version`."""
    level = tuple(int(part) for part in text.split("."))
    command = f"db.adminCommand({{setFeatureCompatibilityVersion: {_target(version)}}})"
    if level < OLDEST:
        yield error(
            side,
            f"feature compatibility version {text} is not supported: the servers behave as MongoDB {text}",
            f"finish the upgrade: {command}",
        )
    elif text != short(version):
        yield warning(
            side,
            f"feature compatibility version {text} on servers {short(version)}: an upgrade is not finished",
            f"finish it: {command}; or take it into account when you compare both sides",
        )
    else:
        yield ok(side, f"feature compatibility version {text}")


def _target(version: Version) -> str:
    """The version to set, as arguments of the command, which needs a confirmation since 7.0."""
    text = f'"{short(version)}"'
    return f"{text}, confirm: true" if version >= (7, 0) else text
