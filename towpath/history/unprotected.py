"""Which documents of a partition have updates in the log that no whole document follows; does no I/O.

Kafka's cleaner keeps only the last record of a key, which may be an update. The whole document or a delete has to
follow every update before the cleaner may reach it.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Any

from towpath.log.records import ends_documents, is_chunk, is_key, is_update


@dataclass(frozen=True, slots=True)
class First:
    """The first update of a key since its last whole document: its offset, and the brokers' time (ms)."""

    offset: int
    time_ms: int


@dataclass(frozen=True, slots=True)
class Summary:
    """The service's last state of a partition, stored as the metadata of its committed offset. Times are in ms."""

    at: int
    dirty: int
    oldest: int | None
    """The brokers' time of the oldest update that no document follows."""
    last: int | None
    """The brokers' time of the partition's last record."""
    quiet: bool
    """Whether that record was requested to close the segment before it, and none followed."""
    has_chunks: bool = False
    swept: int | None = None
    """When the chunks that no value needs were deleted last."""
    read: int | None = None
    """When this instance had read the partition to its end last; None while it has not. (`at` shows that it runs.)"""

    def written(self) -> str:
        return json.dumps(asdict(self), separators=(",", ":"))


def summary(metadata: str) -> Summary | None:
    """The summary in a committed offset's metadata; None when another client committed it."""
    try:
        fields: dict[str, Any] = json.loads(metadata)
        return Summary(**fields)
    except (ValueError, TypeError):
        return None


@dataclass(slots=True)
class Part:
    """The state of one partition up to the last record read."""

    next: int | None = None
    """The offset after the last record read; None until the brokers first answer."""
    dirty: dict[bytes, First] = field(default_factory=dict)
    """Keys with unprotected updates, in the order of their first updates."""
    awaited: set[bytes] = field(default_factory=set)
    """Requested documents that have not arrived yet."""
    last_ms: int | None = None
    quiet: bool = False
    nudge: bytes | None = None
    """The document requested to close the segment."""
    refused_ms: int | None = None
    """The time of the newest record when the source did not answer that request."""
    has_chunks: bool = False
    new_chunks: bool = False
    """Whether chunks came since a sweep began."""
    swept: int | None = None
    """When the chunks that no value needs were deleted last (ms)."""
    read_ms: int | None = None
    """When it was read to its end last."""

    def take(self, offset: int, time_ms: int, key: bytes | None, value: bytes | None) -> None:
        """Take in a record."""
        self.next, self.last_ms = offset + 1, time_ms
        if not is_key(key):
            if ends_documents(key, value):
                self.dirty.clear()
            if is_chunk(key):
                self.quiet = False
                self.new_chunks |= value is not None
                self.has_chunks |= self.new_chunks
            return
        self.quiet = False
        if is_update(value):
            self.dirty.setdefault(key, First(offset, time_ms))
            return
        self.dirty.pop(key, None)
        self.awaited.discard(key)
        if key == self.nudge:
            self.quiet, self.nudge = True, None

    def swept_at(self, time_ms: int, left: int) -> None:
        """Note that a sweep, which began with `new_chunks` unset, has left so many chunks."""
        self.has_chunks, self.swept = left > 0 or self.new_chunks, time_ms

    def reached(self, end: int, time_ms: int) -> None:
        """Note that all records before this offset, which was the end at this time, were read."""
        self.next, self.read_ms = max(self.next or 0, end), max(self.read_ms or 0, time_ms)

    @property
    def oldest(self) -> First | None:
        return next(iter(self.dirty.values()), None)

    @property
    def safe(self) -> int | None:
        """The offset at which a restarted service has to begin; None when unknown."""
        return self.oldest.offset if self.oldest else self.next

    def summary(self, now_ms: int) -> Summary:
        oldest = self.oldest.time_ms if self.oldest else None
        partition = self.last_ms, self.quiet, self.has_chunks, self.swept, self.read_ms
        return Summary(now_ms, len(self.dirty), oldest, *partition)
