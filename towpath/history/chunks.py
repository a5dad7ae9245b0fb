"""Deletes from a compacted log the chunks of values that a later record has replaced.

A value that is larger than a record may be is in chunks (`towpath.log.records.Chunks`). No later record has their keys,
so Kafka's cleaner would keep them forever. From time to time, `compact` reads a partition with chunks from its
beginning, and writes a tombstone for each chunk that no value needs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field

from confluent_kafka import Message

from towpath.clients.kafka.consume import messages
from towpath.clients.kafka.topics import Place, Topic, Topics
from towpath.config.pipeline import Log
from towpath.errors import TowpathError
from towpath.history.unprotected import Part
from towpath.log.records import Chunks, contract_headers, ends_documents, is_chunk, is_key, is_update

#: A chunk is judged once the partition has a committed record that is so much younger. Chunks and the record that names
#: them are in one transaction, and brokers allow none of more than 15 minutes (`transaction.max.timeout.ms`). So that
#: record has been read, if it was committed.
DECIDED_MS = 20 * 60_000


@dataclass(slots=True)
class Chunked:
    """The chunks in a partition, and the values that need them. Does no I/O."""

    chunks: dict[bytes, tuple[int, bytes]] = field(default_factory=dict)
    """Key of a chunk → the brokers' time of its record (ms), and the id of its value."""
    needed: dict[bytes, set[bytes]] = field(default_factory=dict)
    """Key of a document → the ids of its values in chunks, from the last whole document on."""
    last_ms: int = 0

    def take(self, time_ms: int, key: bytes | None, value: bytes | None) -> None:
        """Take in the next committed record of the partition."""
        self.last_ms = max(self.last_ms, time_ms)
        if is_chunk(key):
            if value is None:
                self.chunks.pop(key, None)
            elif id := Chunks.id_in(key):
                self.chunks[key] = time_ms, id
        elif ends_documents(key, value):
            self.needed.clear()
        elif is_key(key):
            if not is_update(value):
                self.needed.pop(key, None)
            if named := Chunks.named_in(value):
                self.needed.setdefault(key, set()).add(named.id)

    def unneeded(self, decided_ms: int = DECIDED_MS) -> list[bytes]:
        """The keys of chunks that no value needs, and no transaction that is not decided yet."""
        needed = set().union(*self.needed.values())
        return [
            key
            for key, (time_ms, id) in self.chunks.items()
            if time_ms + decided_ms <= self.last_ms and id not in needed
        ]


class Sweeper:
    """Deletes the chunks that no value needs, in the partitions of one instance of `compact`."""

    def __init__(
        self, topics: Topics, parts: Mapping[Place, Part], log: Log, report: Callable[[str], None], decided_ms: int
    ) -> None:
        self._topics, self._parts, self._log, self._report = topics, parts, log, report
        self._decided_ms = decided_ms

    def steps(self) -> Iterator[None]:
        """Sweep every partition that is due, the one that waits longest first; an error is reported, and ends none.

        Yields about once a second, so that the caller can read on.
        """
        while place := self._longest_unswept():
            part = self._parts[place]
            part.new_chunks, began, left = False, int(time.time() * 1000), 1
            try:
                left = yield from sweep(self._topics, place, self._decided_ms)
            except TowpathError as error:
                self._report(str(error))
            part.swept_at(began, left)
            yield

    def _longest_unswept(self) -> Place | None:
        now = int(time.time() * 1000)
        due = [place for place, part in self._parts.items() if is_due(part, self._log, now)]
        return min(due, key=lambda place: self._parts[place].swept or 0, default=None)


def is_due(part: Part, log: Log, now_ms: int) -> bool:
    """Whether a partition may have chunks that no value needs: it has some, and was not swept for two lags."""
    return part.has_chunks and now_ms - (part.swept or 0) > 2 * log.compaction_lag


def sweep(topics: Topics, place: Place, decided_ms: int = DECIDED_MS) -> Generator[None, None, int]:
    """Delete the chunks of one partition that no value needs, and return how many are left.

    Reads the whole partition, and yields about once a second. Raises `TopicError` when the brokers do not answer.
    """
    found, last, rested = Chunked(), None, time.monotonic()
    window = {place: topics.ends([Topic(place[0], place[1] + 1)])[place]}
    with closing(topics.consumer()) as consumer:
        for _, last in messages(consumer, window):
            found.take(last.timestamp()[1], last.key(), last.value())
            if time.monotonic() > rested + 1:
                yield
                rested = time.monotonic()
    unneeded = found.unneeded(decided_ms)
    if last is not None:
        _delete(topics, place, unneeded, last)
    return len(found.chunks) - len(unneeded)


def _delete(topics: Topics, place: Place, keys: Sequence[bytes], last: Message) -> None:
    """Write tombstones. They have the cluster time of the last record, since they are no change of the source."""
    header = " ".join((contract_headers(last) | {"op": "d", "at": str(int(time.time() * 1000))}).values())
    fields = {"partition": place[1], "headers": {"v": header}}
    topics.send(place[0], ({"key": key, **fields} for key in keys))
