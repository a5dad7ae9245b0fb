"""What is asked of a MongoDB cluster on either side: topology, versions."""

from __future__ import annotations

from collections.abc import Iterator

from towpath.deploy.inventory import Cluster
from towpath.finding import Finding, error, ok, warning
from towpath.mongo.client import Client, ReplicaSet
from towpath.mongo.privileges import if_allowed
from towpath.mongo_uri import without_credentials
from towpath.text import counted

#: Change events have `wallTime`, the source's clock in every record, since this version.
OLDEST = (6, 0)
Version = tuple[int, ...]


def servers(cluster: Cluster) -> Iterator[Finding]:
    """What has to hold of the servers."""
    yield from topology(cluster.replica_set, cluster.version, cluster.side, cluster.uri)
    level = cluster.ask(_compatibility)
    if level is None:
        yield ok(
            cluster.side,
            "feature compatibility version: not checked, because the user lacks the privilege getParameter"
            " (role clusterMonitor)",
        )
    else:
        yield from judged(level, cluster.side, cluster.version)


def _compatibility(client: Client) -> str | None:
    answer = if_allowed(lambda: client.admin.command("getParameter", 1, featureCompatibilityVersion=1))
    return None if answer is None else str(answer["featureCompatibilityVersion"]["version"])


def topology(found: ReplicaSet, version: Version, side: str, uri: str) -> Iterator[Finding]:
    members = counted(len(found.hosts), "member")
    shown = ".".join(map(str, version))
    what = f"replica set {found.name}, {members}" if found.name else "a standalone mongod"
    yield ok(side, f"{without_credentials(uri)}: {what}, MongoDB {shown}")
    if version < OLDEST:
        yield error(
            side,
            f"MongoDB {shown}: its change events lack wallTime, the source's clock, which every record needs",
            "upgrade the servers to MongoDB 6.0 or later",
        )


def judged(text: str, side: str, version: Version) -> Iterator[Finding]:
    """What a feature compatibility version means; one behind the binaries is where an upgrade was not finished."""
    level = tuple(int(part) for part in text.split("."))
    if level < OLDEST:
        upgrade = "finish the upgrade" if version >= OLDEST else "upgrade the servers to MongoDB 6.0 or later, then"
        yield error(
            side,
            f"feature compatibility version {text}: change streams behave as in versions before 6.0",
            f"{upgrade}: db.adminCommand({{setFeatureCompatibilityVersion: {_wanted(version)}}})",
        )
    elif text != _short(version):
        yield warning(
            side,
            f"feature compatibility version {text} on servers {_short(version)}: an upgrade is not finished",
            f"finish it: db.adminCommand({{setFeatureCompatibilityVersion: {_wanted(version)}}}); or take it into"
            " account when you compare both sides",
        )
    else:
        yield ok(side, f"feature compatibility version {text}")


def _wanted(version: Version) -> str:
    """The version to set, as the command takes it: the servers' own, or the oldest that will do; since 7.0 it asks for
    a confirmation."""
    text = f'"{_short(version)}"' if version >= OLDEST else '"6.0"'
    return f"{text}, confirm: true" if version >= (7, 0) else text


def _short(version: Version) -> str:
    return ".".join(map(str, version[:2]))
