"""Which versions of MongoDB are supported, and from which version on a server can do what.

A server's `level` is its featureCompatibilityVersion, which decides what it can do, or its version where the user may
not read that.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

Version = tuple[int, ...]
Support = Literal["tested", "expected", "not supported"]

#: Change streams that report creations, indexes and options (`showExpandedEvents`).
EXPANDED_EVENTS: Version = (6, 0)
#: `collMod` with `prepareUnique` and `unique`.
UNIQUE_IN_PLACE: Version = (6, 0)
#: The command setUserWriteBlockMode.
WRITE_BLOCK: Version = (6, 0)
#: Change events whose `disambiguatedPaths` distinguish the field `a.b` from `b` inside `a`, without being asked to.
DISTINCT_PATHS: Version = (8, 2)


@dataclass(frozen=True, slots=True)
class Series:
    """The releases of one version, such as 6.0. `words`: what was tested, or why it is not supported."""

    version: Version
    support: Support
    words: str

    @property
    def name(self) -> str:
        return short(self.version)


SERIES = (
    Series(
        (4, 4),
        "not supported",
        "it reads a snapshot in transactions only, so that neither the initial copy nor `verify` would know the time of"
        " what they read",
    ),
    Series((5, 0), "tested", "5.0.4, as source and destination, with less than 6.0"),
    Series((6, 0), "tested", "6.0.5 by all tests; 6.0.27 as source and destination"),
    Series((7, 0), "expected", "by its release notes"),
    Series((8, 0), "expected", "by its release notes"),
    Series((8, 2), "expected", "by its release notes"),
    Series((9, 0), "expected", "by its release notes, from 9.0.2 on"),
)
#: Releases with a change stream reader that the next release disables (SERVER-134970, SERVER-135099).
UNRELIABLE_STREAMS: tuple[Version, ...] = ((9, 0, 0), (9, 0, 1))
OLDEST: Version = next(series.version for series in SERIES if series.support != "not supported")
NEWEST: Version = SERIES[-1].version


def series(version: Version) -> Series:
    """That of a version. Rapid releases, such as 7.2, are expected to work like the series before them."""
    if version[:2] < OLDEST:
        return Series(version[:2], "not supported", SERIES[0].words)
    before = max((known for known in SERIES if known.version <= version[:2]), key=lambda known: known.version)
    if before.version == version[:2]:
        return before
    return Series(version[:2], "expected", f"not one of the versions {short(OLDEST)} to {short(NEWEST)} that are known")


def short(version: Version) -> str:
    return ".".join(map(str, version[:2]))


#: End of a host's name → the service, which speaks MongoDB's protocol and is not MongoDB.
_OTHERS = {
    ".docdb.amazonaws.com": "Amazon DocumentDB",
    ".docdb-elastic.amazonaws.com": "Amazon DocumentDB",
    ".cosmos.azure.com": "Azure Cosmos DB",
    ".cosmos.azure.cn": "Azure Cosmos DB",
}


def imitation(hosts: Iterable[str]) -> str:
    """The service behind one of these hosts that is not MongoDB; empty if none is known to be."""
    names = [host.lower() for host in hosts]
    return next((service for end, service in _OTHERS.items() if any(name.endswith(end) for name in names)), "")
