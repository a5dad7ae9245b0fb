"""Whether the log can rebuild a destination: what is missing of it, and from which moment on it is exact.

A topic that was never compacted and begins at offset 0 is whole as it is, and is not read. The others are: a first
pass gathers the keys that have updates, a second one finds their documents, a topic at a time, so that memory holds
the keys with updates of one topic.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from confluent_kafka import Consumer, Message

from towpath.errors import TopicError
from towpath.kafka.consume import Window, messages
from towpath.kafka.topics import Place, Topic, Topics
from towpath.log.lag import pipeline_ends
from towpath.log.records import headers_of, is_key
from towpath.log.unprotected import is_update
from towpath.namespaces import namespace_of
from towpath.pipeline import ClusterTime, Pipeline, cluster_time
from towpath.topic_settings import MARK, is_compacted

#: Told now and then how far the reading is: done, of how many.
Say = Callable[[int, int], None]

_SAID_EVERY = 10_000  # records
#: A partition's end is told by an answer without records, which brokers put off for half a second by default.
_AT_THE_END = {"fetch.wait.max.ms": 20}


@dataclass(frozen=True, slots=True)
class Headless:
    """A partition of which retention has deleted the beginning."""

    namespace: str
    topic: str
    partition: int
    first_offset: int
    """The first that is left."""
    first_time_ms: int | None
    """The brokers' time of the first record that is left; None when none is."""


@dataclass(frozen=True, slots=True)
class BrokenKey:
    """A document of which the log has updates, and neither the whole document nor its delete: not to be rebuilt."""

    namespace: str
    key: bytes
    """The BSON of `{_id: …}` in its canonical form."""
    partition: int
    offset: int
    """Of its first update."""


@dataclass(frozen=True, slots=True)
class LogCheck:
    records: int
    """Records up to the end: counted where the log was read, else by their offsets (control records count)."""
    headless: tuple[Headless, ...]
    broken: tuple[BrokenKey, ...]
    earliest: ClusterTime | None
    """The earliest moment for which applying all records up to it gives the source's state at it; None when it is not
    known, because it was not known what `copied` is."""
    cut_short: Mapping[Place, str] = field(default_factory=dict)
    """Partitions that do not hold all that was written to them, though their offsets do not show it; why, in words."""

    @property
    def is_whole(self) -> bool:
        return not self.headless and not self.broken and not self.cut_short


def check(
    pipeline: Pipeline,
    topics: Topics,
    namespaces: Collection[str] | None,
    copied: ClusterTime | None,
    say: Say,
) -> LogCheck:
    """Check the topics of these namespaces (names at the source; None for all of the pipeline) up to their ends now.

    `copied` is the largest cluster time of everything that was copied (`SourceState.copied`). `say` hears nothing when
    nothing has to be read.
    """
    ends = {
        place: bounds
        for place, bounds in pipeline_ends(pipeline, topics).items()
        if namespaces is None or namespace_of(pipeline.name, place[0]) in namespaces
    }
    scans = _scans(topics, ends)
    with topics.reader(**_AT_THE_END) as consumer:
        reading = _Reading(consumer, say, 2 * sum(scan.length for scan in scans))
        for topic in sorted({scan.place[0] for scan in scans}):
            reading.read([scan for scan in scans if scan.place[0] == topic])
    read = {scan.place for scan in scans}
    unread = sum(end - start for place, (start, end) in ends.items() if place not in read)
    return LogCheck(
        records=unread + sum(scan.records for scan in scans),
        headless=tuple(_headless(pipeline, scan) for scan in scans if scan.start > 0),
        broken=tuple(broken for scan in scans for broken in _broken(pipeline, scan)),
        earliest=None if copied is None else max([copied, *(scan.moment for scan in scans if scan.moment)]),
    )


def _headless(pipeline: Pipeline, scan: Scan) -> Headless:
    topic, partition = scan.place
    return Headless(namespace_of(pipeline.name, topic), topic, partition, scan.start, scan.first_ms)


def _broken(pipeline: Pipeline, scan: Scan) -> Iterator[BrokenKey]:
    topic, partition = scan.place
    for key, offset in scan.updated.items():
        yield BrokenKey(namespace_of(pipeline.name, topic), key, partition, offset)


def _scans(topics: Topics, ends: Window) -> list[Scan]:
    """What has to be read: partitions that have lost their beginning, and topics that are compacted or were.

    `deploy` leaves a topic's lag where it is when compaction ends, so that it tells.
    """
    now_ms = int(time.time() * 1000)
    found = []
    for topic in sorted({topic for topic, _ in ends}):
        mine = {place: bounds for place, bounds in ends.items() if place[0] == topic}
        settings = topics.settings(topic)
        lag_ms = int(settings.get(MARK, 0))
        if lag_ms > 0 or is_compacted(settings):
            moment_ms = max(0, now_ms - lag_ms)
            cuts = topics.offsets_at([Topic(topic, 1 + max(partition for _, partition in mine))], moment_ms)
            found += [Scan(place, bounds, Cut(moment_ms, cuts[place])) for place, bounds in mine.items()]
        else:
            found += [Scan(place, bounds, None) for place, bounds in mine.items() if bounds[0] > 0]
    return found


class _Reading:
    """Takes topics through both passes, and says how far it is."""

    def __init__(self, consumer: Consumer, say: Say, of: int) -> None:
        self._consumer, self._say, self._of = consumer, say, of
        self._done = 0

    def read(self, scans: Sequence[Scan]) -> None:
        self._pass(scans, Scan.gather)
        for scan in scans:
            scan.gathered()
        with_updates = [scan for scan in scans if scan.updated]
        self._done += sum(scan.length for scan in scans if not scan.updated)
        self._pass(with_updates, Scan.resolve)

    def _pass(self, scans: Sequence[Scan], take: Callable[[Scan, Message], None]) -> None:
        by_place = {scan.place: scan for scan in scans}
        window = {scan.place: (scan.start, scan.end) for scan in scans}
        for number, (place, message) in enumerate(messages(self._consumer, window), 1):
            take(by_place[place], message)
            if number % _SAID_EVERY == 0:
                self._say(self._done + sum(scan.next - scan.start for scan in scans), self._of)
        self._done += sum(scan.length for scan in scans)
        if self._of:
            self._say(self._done, self._of)


@dataclass(frozen=True, slots=True)
class Cut:
    """The cleaner may have been at what the brokers appended before `time_ms`: at offsets before `offset` (-1: all)."""

    time_ms: int
    offset: int


class Scan:
    """One partition: what the two passes over it find."""

    def __init__(self, place: Place, bounds: tuple[int, int], cut: Cut | None) -> None:
        self.place = place
        self.start, self.end = bounds
        self.records = 0
        self.next = self.start
        """The next offset of the pass that is under way."""
        self.moment: ClusterTime | None = None
        """Before it the partition does not tell all."""
        self.updated: dict[bytes, int] = {}
        """Key → offset of its first update; in the second pass only those whose document was not found yet."""
        self._cut = cut
        self._cut_at = 0 if cut is None else self.end if cut.offset < 0 else cut.offset
        self.first_ms: int | None = None
        """The brokers' time of the first record."""
        self._old: Message | None = None
        self._young: Message | None = None

    @property
    def length(self) -> int:
        return self.end - self.start

    def gather(self, message: Message) -> None:
        """The first pass: keys with updates, and the records on both sides of the cut."""
        offset = message.offset() or 0
        if self.first_ms is None:
            self.first_ms = message.timestamp()[1]
        if offset < self._cut_at:
            self._old = message
        elif self._young is None:
            self._young = message
        self.records += 1
        self.next = offset + 1
        key = message.key()
        if is_key(key) and is_update(message.value()):
            self.updated.setdefault(key, offset)

    def gathered(self) -> None:
        """The first pass is over."""
        if self._cut is not None and self.length:
            self.moment = self._cleaned_up_to(self._cut)
        self._old = self._young = None
        self.next = self.start

    def _cleaned_up_to(self, cut: Cut) -> ClusterTime | None:
        """No record that the cleaner dropped is later than this.

        What it drops has a later record of its key that is as old; only deletes are dropped without one. Where
        offsets are missing at the cut, deletes may have been there: the next record is later than they were.
        """
        last = self.start - 1 if self._old is None else self._old.offset() or 0
        following = self.end if self._young is None else self._young.offset() or 0
        if following - last - 1 <= 1:  # the end of a transaction has an offset as well
            return None if self._old is None else _time(self._old)
        return ClusterTime(cut.time_ms // 1000 + 1, 0) if self._young is None else _time(self._young)

    def resolve(self, message: Message) -> None:
        """The second pass: the first whole document, or delete, of each key that has updates."""
        offset, key = message.offset() or 0, message.key()
        self.next = offset + 1
        update_at = self.updated.get(key) if isinstance(key, bytes) else None
        if update_at is None or is_update(message.value()):
            return
        if offset > update_at:  # until then only an update tells of the document
            self.moment = max(_time(message), self.moment or _time(message))
        del self.updated[key]  # type: ignore[arg-type]  # it was in there


def _time(message: Message) -> ClusterTime:
    try:
        return cluster_time(dict(headers_of(message))["t"].decode())
    except (KeyError, ValueError, AttributeError) as error:
        raise TopicError(f"{_where(message)}: a record without a cluster time, so none of Towpath's") from error


def _where(message: Message) -> str:
    return f"{message.topic()}, partition {message.partition()}, offset {message.offset()}"
