"""How the copy of each collection goes: how much is in the log, how fast, how long still."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from pymongo import MongoClient

from towpath.log.source_offsets import CollectionCopy
from towpath.namespaces import topic_of


@dataclass(frozen=True, slots=True)
class Copied:
    """Of one collection: how many documents are in the log, and about how many the source holds.

    What is known of a copy by ranges only is None for Debezium's own copy.
    """

    namespace: str
    documents: int
    of: int
    bytes: int | None = None
    of_bytes: int | None = None
    ranges: int | None = None
    """None as well before they are cut."""
    ranges_done: int | None = None
    per_second: float = 0.0
    """Records into the log, over the last seconds."""
    retries: int = 0
    reason: str = ""
    """The last trouble, in words."""

    @property
    def seconds_left(self) -> float | None:
        """At the present rate; None when nothing moves, or it is not known how much there is."""
        if self.per_second <= 0 or (self.ranges is None and self.ranges_done is not None):
            return None
        return max(0, self.of - self.documents) / self.per_second

    @property
    def done(self) -> bool:
        return self.ranges is not None and self.ranges_done == self.ranges

    @property
    def begun(self) -> bool:
        return self.documents > 0 or bool(self.ranges)

    def as_json(self) -> dict[str, Any]:
        left = self.seconds_left
        return asdict(self) | {
            "per_second": round(self.per_second, 1),
            "seconds_left": None if left is None else round(left, 1),
        }


@dataclass(frozen=True, slots=True)
class Held:
    """A collection that is copied, and the cluster time that the stream has to pass until that is history."""

    namespace: str
    time: str


def copied_by_ranges(prefix: str, copies: Iterable[CollectionCopy], rates: Mapping[str, float]) -> tuple[Copied, ...]:
    """`rates`: topic → records a second."""
    return tuple(
        Copied(
            namespace=copy.namespace,
            documents=copy.rows,
            of=max(copy.documents, copy.rows),
            bytes=copy.bytes_read,
            of_bytes=max(copy.bytes, copy.bytes_read),
            ranges=copy.planned,
            ranges_done=copy.ranges_done,
            per_second=rates.get(topic_of(prefix, copy.namespace), 0.0),
            retries=copy.retries,
            reason=copy.reason,
        )
        for copy in copies
    )


def copied_by_debezium(
    client: MongoClient[dict[str, Any]], records: Mapping[str, int], rates: Mapping[str, float]
) -> tuple[Copied, ...]:
    """`records` and `rates`: namespace → records in the log, and a second. Debezium itself tells no progress."""
    found = []
    for namespace, documents in sorted(records.items()):
        database, collection = namespace.split(".", 1)
        of = client[database][collection].estimated_document_count()
        found.append(Copied(namespace, min(documents, of), of, per_second=rates.get(namespace, 0.0)))
    return tuple(found)


def held(copies: Iterable[CollectionCopy]) -> tuple[Held, ...]:
    return tuple(Held(copy.namespace, str(copy.time)) for copy in copies if copy.time is not None)
