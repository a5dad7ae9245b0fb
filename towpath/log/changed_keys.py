"""Which documents changed, according to the log: its newest records, or all records from given offsets on.

"Newest" goes by the brokers' timestamps, over all partitions together. The readers keep only keys, of one section of
the log at a time, so that memory does not grow with the number of records. They join no consumer group.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from hashlib import blake2b
from typing import NamedTuple

from confluent_kafka import Consumer, Message, TopicPartition

from towpath.clients.kafka.consume import Window, batch, is_record, messages, place_of
from towpath.clients.kafka.topics import Place, Topics
from towpath.config.namespaces import namespace_of
from towpath.config.pipeline import Pipeline
from towpath.errors import TowpathError
from towpath.log.lag import pipeline_ends
from towpath.log.records import is_chunk, is_key

_SECTION = 100_000  # offsets to read at a time, over all partitions
_REMEMBERED = 1_000_000  # keys of a partition; with more, they are forgotten, and a document may come twice


class ChangedDocument(NamedTuple):
    """The source's document that a record is about; `key` is the canonical BSON of `{_id: …}`."""

    namespace: str
    key: bytes


def ids(
    pipeline: Pipeline, topics: Topics, count: int | None, since: float | None, ends: Window
) -> Iterator[ChangedDocument]:
    """The documents of the newest records before `ends`, each once, newest first within a partition.

    Give exactly one of `count` (records, and all others of the same millisecond as the oldest of them) and `since`
    (seconds since the epoch, by the brokers' clock). `ends`: partition → first offset and end.
    """
    reader, unread = _Reader(pipeline, topics), ends
    if since is not None:
        yield from reader.documents(_from(topics, unread, int(since * 1000)))
    elif count is None:
        raise ValueError("give a number of records, or a time")
    while unread and count is not None and count > reader.records:
        window = _newest(topics, unread, count - reader.records)
        yield from reader.documents(window)
        unread = {place: (unread[place][0], start) for place, (start, _) in window.items() if unread[place][0] < start}


def ids_after(
    pipeline: Pipeline, topics: Topics, positions: Mapping[Place, int], ends: Window
) -> Iterator[ChangedDocument]:
    """The documents of all records from these positions on, each once; partitions without one are read in full.

    `ends`: partition → first offset and end.
    """
    window = {place: (max(first, positions.get(place, first)), end) for place, (first, end) in ends.items()}
    yield from _Reader(pipeline, topics).documents(window)


def positions_at(pipeline: Pipeline, topics: Topics, seconds: float) -> dict[Place, int]:
    """Where the records begin that came at or after a time, by the brokers' clocks, in seconds since the epoch."""
    window = _from(topics, pipeline_ends(pipeline, topics), int(seconds * 1000))
    return {place: start for place, (start, _) in window.items()}


def _newest(topics: Topics, within: Window, count: int) -> Window:
    """The shortest time up to now that covers at least `count` offsets, as a window of each partition.

    Control records also have offsets, so that the window may hold fewer records.
    """
    now, back = int(time.time() * 1000) + 60_000, 60_000  # a broker's clock may be ahead

    def is_enough(back_ms: int) -> bool:
        return sum(end - start for start, end in _from(topics, within, now - back_ms).values()) >= count

    while not is_enough(back):
        if back > now:
            return within
        back *= 2
    return _from(topics, within, now - bisect_left(range(back), True, key=is_enough))


def _from(topics: Topics, within: Window, time_ms: int) -> Window:
    """The part of these windows at or after `time_ms`."""
    firsts = topics.offsets_at(dict.fromkeys(within, max(0, time_ms)))
    return {
        place: (max(start, min(end, firsts[place] if firsts[place] >= 0 else end)), end)
        for place, (start, end) in within.items()
    }


class _Reader:
    """Reads windows of the log backwards, section by section; `records` counts the records read."""

    def __init__(self, pipeline: Pipeline, topics: Topics) -> None:
        self.records = 0
        self._pipeline = pipeline
        self._topics = topics
        self._seen: dict[Place, set[bytes]] = {}

    def documents(self, window: Window) -> Iterator[ChangedDocument]:
        unread = {place: bounds for place, bounds in window.items() if bounds[0] < bounds[1]}
        with self._topics.reader() as consumer:
            while unread:
                size = max(1_000, _SECTION // len(unread))
                section = {place: (max(start, end - size), end) for place, (start, end) in unread.items()}
                for place, keys in _keys(consumer, section).items():
                    yield from self._new(place, keys)
                unread = {place: (unread[place][0], at) for place, (at, _) in section.items() if unread[place][0] < at}

    def _new(self, place: Place, keys: list[bytes]) -> Iterator[ChangedDocument]:
        self.records += len(keys)
        seen, namespace = self._seen.setdefault(place, set()), namespace_of(self._pipeline.name, place[0])
        for key in reversed(keys):
            digest = blake2b(key, digest_size=16).digest()
            if digest not in seen and is_key(key):
                if len(seen) >= _REMEMBERED:
                    seen.clear()
                seen.add(digest)
                yield ChangedDocument(namespace, key)


def _keys(consumer: Consumer, section: Window) -> dict[Place, list[bytes]]:
    """The keys of all records in a section but chunks, in the log's order."""
    keys: dict[Place, list[bytes]] = {place: [] for place in section}
    for place, message in messages(consumer, section):
        if isinstance(key := message.key(), bytes) and not is_chunk(key):
            keys[place].append(key)
    return keys


_REFRESH = 5.0  # seconds between two reads of the topics and their ends
_STUCK_S = 10.0  # seconds after which a partition of which nothing is applied makes room for others


class Unread(NamedTuple):
    """Records of the log that have not come yet (control records count), and how old the oldest of them is at most.

    That is the age of the last record that was read before it; None where none was. Both are None while the log's ends
    are not known.
    """

    records: int | None
    seconds: float | None


class _Waiting(NamedTuple):
    """A record that the sink has not applied yet; `at_ms` is the brokers' time."""

    offset: int
    at_ms: int
    document: ChangedDocument


class LogFollower:
    """Reads all change topics of a pipeline; topics created later are read from their beginning.

    While Kafka is unresponsive, it returns nothing; it continues at the same offsets afterwards.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        topics: Topics,
        starts: Mapping[Place, int],
        applied: Callable[[], Mapping[Place, int]] | None = None,
        selects: Callable[[str], bool] | None = None,
    ) -> None:
        """`starts`: the next offset of each partition that exists already.

        `applied`: up to where the sink has applied each partition. With it, documents come once their record is
        applied: before that, both sides may be equal because the sink lags, whatever it makes of the record.

        `selects`: whether a namespace is to be read; of others, the ends of the log are their places.
        """
        self.records = 0
        self.failure = ""
        """Why the last request to Kafka failed; empty when it succeeded."""
        self._pipeline, self._topics, self._applied, self._selects = pipeline, topics, applied, selects
        self._next: dict[Place, int] = {}
        """The next offset to read."""
        self._ends: dict[Place, int] = {}
        self._newest_ms: dict[Place, int] = {}
        """The brokers' time of the last record read."""
        self._waiting: dict[Place, deque[_Waiting]] = {}
        """What was read and has not come yet; no partition without records."""
        self._moved: dict[Place, float] = {}
        """Since when the first of these is the first."""
        self._held: set[Place] = set()
        """Partitions that are not read for now."""
        self._refreshed = 0.0
        self._consumer = topics.consumer()
        try:
            self._assign(starts)
        except BaseException:
            self._consumer.close()
            raise

    def __enter__(self) -> LogFollower:
        return self

    def __exit__(self, *error: object) -> None:
        self._consumer.close()

    def take(self, seconds: float, limit: int) -> list[ChangedDocument]:
        """The documents of the records that arrive in the next `seconds`, each once; returns early at about `limit`.

        With `applied`: of the records that have arrived by then, and are applied. It reads no more while `limit` are
        not; a partition of which nothing is applied for `_STUCK_S` then keeps only its share of half of them.
        """
        self.refresh()
        until, lags = time.monotonic() + seconds, bool(self._waiting)
        count = sum(map(len, self._waiting.values()))
        while count < limit and (remaining := until - time.monotonic()) > 0:
            count += sum(map(self._read, batch(self._consumer, min(remaining, 0.2))))
        if lags:
            time.sleep(max(0.0, until - time.monotonic()))
        documents = list(dict.fromkeys(self._come()))
        self._hold(limit)
        return documents

    @property
    def stuck(self) -> set[str]:
        """Topics with records of which none has been applied for `_STUCK_S`."""
        return {topic for topic, _ in self._stuck()}

    @property
    def places(self) -> dict[Place, int]:
        """The next offset of each partition: of the first record that has not come."""
        return self._next | {place: records[0].offset for place, records in self._waiting.items()}

    def unread(self) -> Unread:
        """What has not come; `take` and `refresh` read the ends of the log."""
        if self.failure:
            return Unread(None, None)
        places = self.places
        behind = {place: end - places[place] for place, end in self._ends.items() if end > places[place]}
        if not behind:
            return Unread(0, 0.0)
        seconds, oldest = None, self._newest_ms | {place: first[0].at_ms for place, first in self._waiting.items()}
        if behind.keys() <= oldest.keys():
            seconds = max(0.0, time.time() - min(oldest[place] for place in behind) / 1000)
        return Unread(sum(behind.values()), seconds)

    def _read(self, message: Message) -> bool:
        """Whether it is the record of a document, which waits then."""
        place, offset = place_of(message), message.offset() or 0
        if place in self._held:
            return False
        if not is_record(message):
            self._next[place] = max(self._next[place], offset)
            return False
        self._next[place] = offset + 1
        at_ms = self._newest_ms[place] = message.timestamp()[1]
        self.records += 1
        if not is_key(key := message.key()):
            return False
        document = ChangedDocument(namespace_of(self._pipeline.name, place[0]), key)
        if place not in self._waiting:
            self._waiting[place], self._moved[place] = deque(), time.monotonic()
        self._waiting[place].append(_Waiting(offset, at_ms, document))
        return True

    def _come(self) -> Iterator[ChangedDocument]:
        """The documents of the records that wait, and are applied."""
        applied = self._applied() if self._applied and self._waiting else {}
        for place, records in list(self._waiting.items()):
            while records and (self._applied is None or records[0].offset < applied.get(place, 0)):
                yield records.popleft().document
                self._moved[place] = time.monotonic()
            if not records:
                del self._waiting[place]

    def _stuck(self) -> Iterator[Place]:
        return (place for place in self._waiting if time.monotonic() - self._moved[place] > _STUCK_S)

    def _hold(self, limit: int) -> None:
        """If there is no room for others, keep few records of partitions that are stuck, and do not read these.

        They are read again, with what they gave up, once something of them is applied.
        """
        share = max(1, limit // 2 // max(1, len(self._next)))
        continued = {place for place in self._held if len(self._waiting.get(place, ())) < share}
        stuck = self._stuck() if sum(map(len, self._waiting.values())) >= limit else ()
        held = {place for place in stuck if len(self._waiting[place]) >= share} - self._held
        for place in held:
            while len(records := self._waiting[place]) > share:
                self._next[place] = records.pop().offset
                self.records -= 1
        if held:
            self._consumer.incremental_unassign([TopicPartition(*place) for place in held])
        if continued:
            self._consumer.incremental_assign([TopicPartition(*place, self._next[place]) for place in continued])
        self._held = (self._held | held) - continued

    def refresh(self, *, at_once: bool = False) -> None:
        """Read the topics and their ends, if the last time is some seconds ago, or `at_once`."""
        if at_once or time.monotonic() - self._refreshed > _REFRESH:
            try:
                self._assign({})
                self.failure = ""
            except TowpathError as error:
                self.failure, self._refreshed = str(error), time.monotonic()

    def _assign(self, starts: Mapping[Place, int]) -> None:
        ends = pipeline_ends(self._pipeline, self._topics)
        self._ends = {place: end for place, (_, end) in ends.items()}
        if self._selects:
            name, selected = self._pipeline.name, self._selects
            others = {place: end for place, (_, end) in ends.items() if not selected(namespace_of(name, place[0]))}
            self._next |= others
        new = {place: starts.get(place, first) for place, (first, _) in ends.items() if place not in self._next}
        if new:
            self._next |= new
            self._consumer.incremental_assign([TopicPartition(*place, start) for place, start in new.items()])
        self._refreshed = time.monotonic()
