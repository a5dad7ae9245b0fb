"""The checks of a MongoDB cluster on either side: topology and versions."""

from __future__ import annotations

from collections.abc import Iterator

from towpath.deploy.inventory import Cluster
from towpath.finding import Finding, error, ok, warning
from towpath.mongo.client import Client, ReplicaSet
from towpath.mongo.privileges import if_allowed
from towpath.mongo.uri import without_credentials
from towpath.text import counted

#: The first version whose change events have `wallTime`, from which every record has the source's clock.
OLDEST = (6, 0)
Version = tuple[int, ...]


def servers(cluster: Cluster) -> Iterator[Finding]:
    """The servers are supported, and their upgrades are finished."""
    yield from topology(cluster.replica_set, cluster.version, cluster.side, cluster.uri)
    level = cluster.ask(_compatibility)
    if level is None:
        yield ok(
            cluster.side,
            "feature compatibility version: not checked, because the user lacks the privilege getParameter"
            " (role clusterMonitor)",
        )
    else:
        yield from compatibility(level, cluster.side, cluster.version)


def _compatibility(client: Client) -> str | None:
    answer = if_allowed(lambda: client.admin.command("getParameter", 1, featureCompatibilityVersion=1))
    return None if answer is None else str(answer["featureCompatibilityVersion"]["version"])


def topology(replica_set: ReplicaSet, version: Version, side: str, uri: str) -> Iterator[Finding]:
    members = counted(len(replica_set.hosts), "member")
    number = ".".join(map(str, version))
    kind = f"replica set {replica_set.name}, {members}" if replica_set.name else "a standalone mongod"
    yield ok(side, f"{without_credentials(uri)}: {kind}, MongoDB {number}")
    if version < OLDEST:
        yield error(
            side,
            f"MongoDB {number}: its change events lack wallTime, the source's clock, which every record needs",
            "upgrade the servers to MongoDB 6.0 or later",
        )


def compatibility(text: str, side: str, version: Version) -> Iterator[Finding]:
    """Check the feature compatibility version `text` of servers of this `version`."""
    level = tuple(int(part) for part in text.split("."))
    if level < OLDEST:
        upgrade = "finish the upgrade" if version >= OLDEST else "upgrade the servers to MongoDB 6.0 or later, then"
        yield error(
            side,
            f"feature compatibility version {text}: change streams behave as in versions before 6.0",
            f"{upgrade}: db.adminCommand({{setFeatureCompatibilityVersion: {_target(version)}}})",
        )
    elif text != _short(version):
        yield warning(
            side,
            f"feature compatibility version {text} on servers {_short(version)}: an upgrade is not finished",
            f"finish it: db.adminCommand({{setFeatureCompatibilityVersion: {_target(version)}}}); or take it into"
            " account when you compare both sides",
        )
    else:
        yield ok(side, f"feature compatibility version {text}")


def _target(version: Version) -> str:
    """The version to set, as arguments of the command, which needs a confirmation since 7.0."""
    text = f'"{_short(version)}"' if version >= OLDEST else '"6.0"'
    return f"{text}, confirm: true" if version >= (7, 0) else text


def _short(version: Version) -> str:
    return ".".join(map(str, version[:2]))
