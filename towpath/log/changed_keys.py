"""Which documents changed, by the log: the newest records of the change topics, or all from given offsets on.

"Newest" goes by the brokers' time of the records, over all partitions together. Only keys are kept, a stretch of
the log at a time, so that memory does not grow with what is asked for. No reader here joins a consumer group.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from hashlib import blake2b

from confluent_kafka import Consumer, Message, TopicPartition

from towpath.errors import TowpathError
from towpath.kafka.consume import Window, batch, is_record, messages, place_of
from towpath.kafka.topics import Place, Topic, Topics
from towpath.log.lag import pipeline_ends
from towpath.log.records import is_key
from towpath.namespaces import namespace_of
from towpath.pipeline import Pipeline

_STRETCH = 100_000  # offsets that are read at a time, over all partitions
_REMEMBERED = 1_000_000  # keys of a partition until they are forgotten, so that a document may come twice


@dataclass(frozen=True, slots=True)
class Touched:
    """A document of the source that a record is about; `key` is the BSON of `{_id: …}` in its canonical form."""

    namespace: str
    key: bytes


def last(pipeline: Pipeline, topics: Topics, count: int) -> Iterator[Touched]:
    """The documents that the newest `count` records are about, each once, newest first within a partition.

    Records of the same millisecond as the oldest of these count as well. Fewer when the log holds fewer.
    """
    reader = _Reader(pipeline, topics)
    left: Window = pipeline_ends(pipeline, topics)
    while left and count > reader.records:
        window = _newest(topics, left, count - reader.records)
        yield from reader.touched(window)
        left = {place: (left[place][0], start) for place, (start, _) in window.items() if left[place][0] < start}


def since(pipeline: Pipeline, topics: Topics, time_ms: int) -> Iterator[Touched]:
    """The documents that records from a moment on are about (ms since the epoch, the brokers' clock), each once."""
    ends = pipeline_ends(pipeline, topics)
    return _Reader(pipeline, topics).touched(_from(topics, ends, time_ms))


def after(pipeline: Pipeline, topics: Topics, positions: Mapping[Place, int]) -> Iterator[Touched]:
    """The documents that records from these positions on are about, each once; from the first where there is none."""
    window = {
        place: (max(first, positions.get(place, first)), end)
        for place, (first, end) in pipeline_ends(pipeline, topics).items()
    }
    return _Reader(pipeline, topics).touched(window)


def _newest(topics: Topics, within: Window, count: int) -> Window:
    """The shortest time up to now that has at least so many offsets: of each partition what belongs to it.

    Offsets of control records count here, so that there may be fewer records in it.
    """
    now, back = int(time.time() * 1000) + 60_000, 60_000  # a broker's clock may be ahead

    def enough(moment: int) -> Window | None:
        window = _from(topics, within, moment)
        return window if sum(end - start for start, end in window.values()) >= count else None

    while (found := enough(now - back)) is None:
        if back > now:
            return within
        back *= 2
    return _narrowed(now - back, now, found, enough)


def _narrowed(early: int, late: int, found: Window, enough: Callable[[int], Window | None]) -> Window:
    """`found` is what `enough` gives for `early`; at `late` there is not enough."""
    while late - early > 1:
        middle = (early + late) // 2
        window = enough(middle)
        if window is None:
            late = middle
        else:
            early, found = middle, window
    return found


def _from(topics: Topics, within: Window, time_ms: int) -> Window:
    """What is at or after a moment in these windows."""
    partitions: dict[str, int] = {}
    for topic, partition in within:
        partitions[topic] = max(partitions.get(topic, 0), partition + 1)
    firsts = topics.offsets_at([Topic(name, count) for name, count in partitions.items()], max(0, time_ms))
    return {
        place: (max(start, min(end, firsts[place] if firsts[place] >= 0 else end)), end)
        for place, (start, end) in within.items()
    }


class _Reader:
    """Reads windows of the log backwards, stretch by stretch; `records` counts what it has read."""

    def __init__(self, pipeline: Pipeline, topics: Topics) -> None:
        self.records = 0
        self._pipeline = pipeline
        self._topics = topics
        self._seen: dict[Place, set[bytes]] = {}

    def touched(self, window: Window) -> Iterator[Touched]:
        left = {place: bounds for place, bounds in window.items() if bounds[0] < bounds[1]}
        with self._topics.reader() as consumer:
            while left:
                size = max(1_000, _STRETCH // len(left))
                stretch = {place: (max(start, end - size), end) for place, (start, end) in left.items()}
                for place, keys in _keys(consumer, stretch).items():
                    yield from self._new(place, keys)
                left = {place: (left[place][0], at) for place, (at, _) in stretch.items() if left[place][0] < at}

    def _new(self, place: Place, keys: list[bytes]) -> Iterator[Touched]:
        self.records += len(keys)
        seen, namespace = self._seen.setdefault(place, set()), namespace_of(self._pipeline.name, place[0])
        for key in reversed(keys):
            digest = blake2b(key, digest_size=16).digest()
            if digest not in seen and is_key(key):
                if len(seen) >= _REMEMBERED:
                    seen.clear()
                seen.add(digest)
                yield Touched(namespace, key)


def _keys(consumer: Consumer, stretch: Window) -> dict[Place, list[bytes]]:
    """The keys of all records in a stretch, in the log's order."""
    found: dict[Place, list[bytes]] = {place: [] for place in stretch}
    for place, message in messages(consumer, stretch):
        key = message.key()
        if isinstance(key, bytes):
            found[place].append(key)
    return found


def ids(pipeline: Pipeline, topics: Topics, count: int | None, age: timedelta | None) -> Iterator[tuple[str, bytes]]:
    """(Source namespace, BSON of `{_id: …}`) of each document that the newest records of the log are about.

    Exactly one of `count`, of records, and `age`, the time up to now, is given.
    """
    if count is not None:
        yield from _ids(last(pipeline, topics, count))
    elif age is not None:
        yield from _ids(since(pipeline, topics, int((time.time() - age.total_seconds()) * 1000)))
    else:
        raise ValueError("say how many records, or since when")


def ids_after(pipeline: Pipeline, topics: Topics, positions: Mapping[Place, int]) -> Iterator[tuple[str, bytes]]:
    """As `ids`, of the records from these positions on."""
    yield from _ids(after(pipeline, topics, positions))


def _ids(found: Iterator[Touched]) -> Iterator[tuple[str, bytes]]:
    for touched in found:
        yield touched.namespace, touched.key


_REFRESH = 5.0  # seconds between two looks at which topics there are, and where they end


@dataclass(frozen=True, slots=True)
class Behind:
    """What is in the log and not followed yet: records (control records count), and the seconds since the newest
    record that was."""

    records: int
    seconds: float


class Following:
    """A reader of all change topics of a pipeline; topics that come later are read from their beginning.

    While Kafka does not answer there is nothing to read, and it goes on where it was once it does.
    """

    def __init__(self, pipeline: Pipeline, topics: Topics, starts: Mapping[Place, int]) -> None:
        """`starts`: the next offset of each partition that is there already."""
        self.records = 0
        self.trouble = ""
        """Why Kafka did not answer when it was asked last; empty when it did."""
        self._pipeline, self._topics = pipeline, topics
        self._next: dict[Place, int] = {}
        self._ends: dict[Place, int] = {}
        self._newest_ms: int | None = None
        self._looked = 0.0
        self._consumer = topics.consumer()
        try:
            self._assign(starts)
        except BaseException:
            self._consumer.close()
            raise

    def close(self) -> None:
        self._consumer.close()

    def __enter__(self) -> Following:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def take(self, seconds: float, most: int) -> list[Touched]:
        """The documents that records of the next so many seconds are about, each once; `most` of them at most, about.

        Returns sooner when there are so many.
        """
        self._refresh()
        found: dict[Touched, None] = {}
        until = time.monotonic() + seconds
        while len(found) < most and (left := until - time.monotonic()) > 0:
            for message in batch(self._consumer, min(left, 0.2)):
                touched = self._touched(message)
                if touched is not None:
                    found[touched] = None
        return list(found)

    @property
    def places(self) -> dict[Place, int]:
        """The next offset of each partition."""
        return dict(self._next)

    def behind(self) -> Behind:
        records = sum(max(0, end - self._next.get(place, end)) for place, end in self._ends.items())
        waited = 0.0 if self._newest_ms is None else max(0.0, time.time() - self._newest_ms / 1000)
        return Behind(records, waited if records else 0.0)

    def _touched(self, message: Message) -> Touched | None:
        place, offset = place_of(message), message.offset() or 0
        if not is_record(message):
            self._next[place] = max(self._next[place], offset)
            return None
        self._next[place] = offset + 1
        self._newest_ms = message.timestamp()[1]
        self.records += 1
        key = message.key()
        return Touched(namespace_of(self._pipeline.name, place[0]), key) if is_key(key) else None

    def _refresh(self) -> None:
        if time.monotonic() - self._looked > _REFRESH:
            try:
                self._assign({})
                self.trouble = ""
            except TowpathError as error:
                self.trouble, self._looked = str(error), time.monotonic()

    def _assign(self, starts: Mapping[Place, int]) -> None:
        found = pipeline_ends(self._pipeline, self._topics)
        self._ends = {place: end for place, (_, end) in found.items()}
        new = {place: starts.get(place, first) for place, (first, _) in found.items() if place not in self._next}
        if new:
            self._next |= new
            self._consumer.incremental_assign([TopicPartition(*place, start) for place, start in new.items()])
        self._looked = time.monotonic()
