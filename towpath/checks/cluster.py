"""The checks of a MongoDB cluster on either side: topology and versions."""

from __future__ import annotations

from collections.abc import Iterator

from towpath.checks.facts import Side
from towpath.checks.rule import Finding, error, ok, warning
from towpath.clients.mongo.client import Client
from towpath.clients.mongo.privileges import if_allowed
from towpath.clients.mongo.versions import NEWEST, OLDEST, Version, series, short
from towpath.config.text import counted


def servers(cluster: Side) -> Iterator[Finding]:
    """The servers are supported, and their upgrades are finished."""
    replica_set = cluster.replica_set
    members = counted(len(replica_set.hosts), "member")
    kind = f"replica set {replica_set.name}, {members}" if replica_set.name else "a standalone mongod"
    yield ok(f"{cluster.cluster.address}: {kind}, MongoDB {'.'.join(map(str, cluster.version))}")
    yield from untested(cluster.version)
    if cluster.ask(_shard_identity) is not None:
        yield error(
            "is a shard of a sharded cluster: it has part of the documents, and chunks move in and out of it",
            "name a replica set that is not sharded; sharded clusters are not supported",
        )
    if cluster.compatibility is None:
        yield ok(
            "feature compatibility version: not checked, because the user lacks the privilege getParameter"
            " (role clusterMonitor)",
        )
    else:
        yield compatibility(cluster.compatibility, cluster.version)


def _shard_identity(client: Client) -> object:
    """What a shard has; None for others, and where the user may not read it."""
    return if_allowed(lambda: client.admin["system.version"].find_one({"_id": "shardIdentity"}))


def untested(version: Version) -> Iterator[Finding]:
    """A version that is not tested. `Side.replica_set` raises `Refused` for one that is not supported."""
    number = ".".join(map(str, version))
    if version[:2] > NEWEST:
        yield warning(
            f"MongoDB {number} is newer than all that is known to this version of Towpath",
            "upgrade Towpath, or try everything on a copy of the data first",
        )
    elif series(version).support == "expected":
        yield ok(f"MongoDB {number} is expected to work, and not tested")


def compatibility(text: str, version: Version) -> Finding:
    """Judge the feature compatibility version `text` of servers of this `version`."""
    confirmed = ", confirm: true" if version >= (7, 0) else ""
    command = f'db.adminCommand({{setFeatureCompatibilityVersion: "{short(version)}"{confirmed}}})'
    if tuple(map(int, text.split("."))) < OLDEST:
        return error(
            f"feature compatibility version {text} is not supported: the servers behave as MongoDB {text}",
            f"finish the upgrade: {command}",
        )
    if text != short(version):
        return warning(
            f"feature compatibility version {text} on servers {short(version)}: an upgrade is not finished",
            f"finish it: {command}; or take it into account when you compare both sides",
        )
    return ok(f"feature compatibility version {text}")
