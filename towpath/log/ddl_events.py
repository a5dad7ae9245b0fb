"""What was done at the source to collections as such, as MongoSource's own change stream has seen it.

Debezium emits none of it, so the log tells nothing of it either. The connector keeps it in its offsets.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

from towpath.cluster_time import ClusterTime, cluster_time

#: Documents went or came without a record.
DROP, RENAME = "drop", "rename"
#: The source's history was lost before it was looked at: anything may have been done before.
UNSEEN = "unseen"


@dataclass(frozen=True, slots=True)
class Ddl:
    """One thing done, at a time of the source; of several of the same kind to one collection the last."""

    time: ClusterTime
    kind: str
    """drop, rename, create, modify, createIndexes, dropIndexes, as the server calls them; or unseen."""
    namespace: str
    to: str
    """The new name of a renamed collection."""

    @property
    def mark(self) -> str:
        """Tells it from everything else that was ever done."""
        return " ".join((str(self.time), self.kind, self.namespace, self.to)).strip()

    @property
    def at(self) -> datetime:
        return datetime.fromtimestamp(self.time.seconds, UTC)

    @property
    def namespaces(self) -> tuple[str, ...]:
        return tuple(filter(None, (self.namespace, self.to)))

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "time": str(self.time), "at": self.at.isoformat()}


@dataclass(frozen=True, slots=True)
class Watched:
    """What one source connector has seen. `dropped` counts older ones that are no longer kept."""

    upto: ClusterTime
    found: tuple[Ddl, ...]
    dropped: int
    trouble: str
    """Why nothing is seen at present, in words; empty when that is not so."""


def watched(offset: Mapping[str, Any]) -> Watched:
    """From the connector's offset. Raises KeyError, TypeError or ValueError for what is none."""
    found = (
        Ddl(cluster_time(one["t"]), one["kind"], one["namespace"], one["to"]) for one in json.loads(offset["events"])
    )
    return Watched(cluster_time(offset["upto"]), tuple(found), int(offset["dropped"]), offset["trouble"])


def in_order(every: Iterable[Watched]) -> tuple[Ddl, ...]:
    """What all source connectors have seen, each once, the oldest first."""
    found = {one.mark: one for watched in every for one in watched.found}
    return tuple(sorted(found.values(), key=lambda one: one.time))
