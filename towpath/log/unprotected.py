"""Which documents of a partition have updates in the log that no whole document follows: pure bookkeeping.

Kafka's cleaner keeps the last record of a key, which may be an update. So every update has to be followed by the whole
document of its key, or by its delete, before the cleaner may touch it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

from bson.raw_bson import RawBSONDocument

from towpath.kafka.topics import Place
from towpath.log.records import NOT_BSON, is_key

#: A document in its partition, by its key.
Wanted = tuple[Place, bytes]

_AT_ONCE, _BYTES = 10_000, 8 << 20  # that are asked for and have not come yet
_ID = b"_id\0"


@dataclass(frozen=True, slots=True)
class First:
    """The first update of a document since its last whole one: where it is, and the brokers' time of it (ms)."""

    offset: int
    time_ms: int


@dataclass(frozen=True, slots=True)
class Figures:
    """What the service last knew of a partition; kept as the metadata of its committed offset. Times are in ms."""

    at: int
    dirty: int
    oldest: int | None
    """The brokers' time of the oldest update that no document follows."""
    last: int | None
    """The brokers' time of the partition's last record."""
    quiet: bool
    """That record was asked for to close the segment before it, and nothing came since."""

    def written(self) -> str:
        return json.dumps(asdict(self), separators=(",", ":"))


def figures(metadata: str) -> Figures | None:
    """The figures in a committed offset's metadata; None where somebody else committed."""
    try:
        found: dict[str, Any] = json.loads(metadata)
        return Figures(**found)
    except (ValueError, TypeError):
        return None


def is_update(value: bytes | None) -> bool:
    """Whether a record's value is neither a delete nor a document. A document has an `_id`, as a rule in front.

    What is no BSON is none either: it takes the place of the document in a compacted log, as an update does.
    """
    if value is None or value[5:9] == _ID:
        return False
    try:
        return "_id" not in RawBSONDocument(value)
    except NOT_BSON:
        return True


@dataclass(slots=True)
class Part:
    """One partition as far as it was read."""

    next: int | None = None
    """The offset after the last record that was read; None until the first answer of the brokers."""
    dirty: dict[bytes, First] = field(default_factory=dict)
    """In the order of their first updates."""
    awaited: set[bytes] = field(default_factory=set)
    """Documents that were asked for and have not come yet."""
    last_ms: int | None = None
    quiet: bool = False
    nudge: bytes | None = None
    """The document that was asked for to close the segment."""

    def take(self, offset: int, time_ms: int, key: bytes | None, value: bytes | None) -> None:
        """A record that was read."""
        self.next, self.last_ms = offset + 1, time_ms
        if not is_key(key):
            return  # nobody's of ours
        self.quiet = False
        if is_update(value):
            self.dirty.setdefault(key, First(offset, time_ms))
            return
        self.dirty.pop(key, None)
        self.awaited.discard(key)
        if key == self.nudge:
            self.quiet, self.nudge = True, None

    def reached(self, offset: int) -> None:
        """There is nothing more before this offset."""
        self.next = max(self.next or 0, offset)

    @property
    def oldest(self) -> First | None:
        return next(iter(self.dirty.values()), None)

    @property
    def safe(self) -> int | None:
        """Where another life has to begin to read; None while nothing is known."""
        return self.oldest.offset if self.oldest else self.next

    def figures(self, now_ms: int) -> Figures:
        oldest = self.oldest.time_ms if self.oldest else None
        return Figures(now_ms, len(self.dirty), oldest, self.last_ms, self.quiet)


def batches(wanted: Iterable[Wanted]) -> Iterator[list[Wanted]]:
    """What is asked for together."""
    batch: list[Wanted] = []
    size = 0
    for one in wanted:
        batch.append(one)
        size += len(one[1])
        if len(batch) == _AT_ONCE or size > _BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch
