"""Whether the log can rebuild a destination: what is missing from it, and from which cluster time on it is exact.

A topic that was never compacted and begins at offset 0 is complete, and is not read. Every other topic is read twice:
the first pass gathers the keys that have updates, the second finds their documents. Topics are read one after another,
so that memory holds the keys of one topic.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from confluent_kafka import Consumer, Message

from towpath.clients.kafka.consume import Window, messages
from towpath.clients.kafka.topics import Place, Topics
from towpath.clients.mongo.client import ClusterTime, cluster_time
from towpath.config.namespaces import namespace_of
from towpath.config.pipeline import Pipeline
from towpath.errors import TopicError
from towpath.log.definitions import MARK, POLICY, is_compacted
from towpath.log.lag import pipeline_ends
from towpath.log.records import contract_headers, ends_documents, is_chunk, is_key, is_update

#: Called with the offsets read so far and in total.
ReportProgress = Callable[[int, int], None]

#: Why a part of the log is incomplete for a sink that took too long to read it.
OVERTAKEN = (
    "Kafka may have compacted it while it was read, for longer than min.compaction.lag.ms: documents that have changed"
    " since the beginning may be missing"
)
_REPORT_EVERY = 10_000  # records
#: Brokers delay an empty response, which marks a partition's end, for half a second by default.
_END_SOON = {"fetch.wait.max.ms": 20}


@dataclass(frozen=True, slots=True)
class Headless:
    """A partition whose beginning retention has deleted."""

    namespace: str
    topic: str
    partition: int
    first_offset: int
    """The first offset that the log still has."""
    first_time_ms: int | None
    """The brokers' time of the first remaining record; None when no record remains."""


@dataclass(frozen=True, slots=True)
class BrokenKey:
    """A document that cannot be rebuilt: the log has updates of it, but neither the whole document nor its delete."""

    namespace: str
    key: bytes
    """The canonical BSON of `{_id: …}`."""
    partition: int
    offset: int
    """The offset of its first update."""


@dataclass(frozen=True, slots=True)
class LogCheck:
    records: int
    """Records up to the end: counted where the log was read, else the difference of offsets (control records count)."""
    headless: tuple[Headless, ...]
    broken: tuple[BrokenKey, ...]
    earliest: ClusterTime | None
    """The earliest point in time at which the log reproduces the source's state; None when `copied` is unknown."""
    cut_short: Mapping[Place, str] = field(default_factory=dict)
    """Why partitions are incomplete although their offsets do not show it."""

    @property
    def is_whole(self) -> bool:
        return not self.headless and not self.broken and not self.cut_short


def check(
    pipeline: Pipeline,
    topics: Topics,
    namespaces: Collection[str] | None,
    copied: ClusterTime | None,
    report: ReportProgress,
    cleaned_ms: int = 0,
    applied: Mapping[Place, int] | None = None,
) -> LogCheck:
    """Check the topics of these namespaces (names at the source; None for all of the pipeline) up to their ends now.

    `copied` is the largest cluster time of the copies (`SourceState.copied`). `report` is not called when nothing has
    to be read. What was appended before `cleaned_ms` may be compacted, whatever lag compacted topics have now.
    With `applied`, what a sink has read is checked again: topics that are or were compacted, up to these offsets, or
    to their ends where none is given.
    """
    ends = {
        place: bounds
        for place, bounds in pipeline_ends(pipeline, topics).items()
        if namespaces is None or namespace_of(pipeline.name, place[0]) in namespaces
    }
    scans = _scans(topics, ends, cleaned_ms, applied)
    with topics.reader(**_END_SOON) as consumer:
        reading = _Reading(consumer, report, 2 * sum(scan.length for scan in scans))
        for _, of_topic in groupby(scans, lambda scan: scan.place[0]):
            reading.read([*of_topic])
    read = {scan.place for scan in scans}
    unread = sum(end - start for place, (start, end) in ends.items() if place not in read)
    names = {scan.place: namespace_of(pipeline.name, scan.place[0]) for scan in scans}
    return LogCheck(
        records=unread + sum(scan.records for scan in scans),
        headless=tuple(
            Headless(names[scan.place], *scan.place, scan.start, scan.first_ms) for scan in scans if scan.start > 0
        ),
        broken=tuple(
            BrokenKey(names[scan.place], key, scan.place[1], offset)
            for scan in scans
            for key, offset in scan.updated.items()
        ),
        earliest=None if copied is None else max([copied, *(scan.exact_from for scan in scans if scan.exact_from)]),
        cut_short={scan.place: OVERTAKEN for scan in scans if applied and scan.place in applied and scan.is_overtaken},
    )


def _scans(topics: Topics, ends: Window, cleaned_ms: int = 0, applied: Mapping[Place, int] | None = None) -> list[Scan]:
    """The partitions to read, by topic: those that have lost their beginning, and all of topics that are or were
    compacted; with `applied` only these.

    When compaction ends, `deploy` keeps the topic's compaction lag, which shows that it was compacted.
    """
    now_ms, names = int(time.time() * 1000), {topic for topic, _ in ends}
    settings = topics.settings_of_all(names, (MARK, POLICY))
    lags = {
        topic: int(of.get(MARK, 0)) for topic, of in settings.items() if int(of.get(MARK, 0)) > 0 or is_compacted(of)
    }
    times = {place: max(0, cleaned_ms, now_ms - lags[place[0]]) for place in ends if place[0] in lags}
    cuts = {
        place: Cut(times[place], offset if offset >= 0 else ends[place][1], is_compacted(settings[place[0]]))
        for place, offset in topics.offsets_at(times).items()
    }
    read = {
        place: (first, max(first, min(end, (applied or {}).get(place, end)))) for place, (first, end) in ends.items()
    }
    return [
        Scan(place, bounds, cuts.get(place))
        for place, bounds in sorted(read.items())
        if place in cuts or (bounds[0] > 0 and applied is None)
    ]


class _Reading:
    """Takes topics through both passes, and reports progress."""

    def __init__(self, consumer: Consumer, report: ReportProgress, total: int) -> None:
        self._consumer, self._report, self._total = consumer, report, total
        self._read = 0

    def read(self, scans: Sequence[Scan]) -> None:
        self._pass(scans, Scan.gather)
        for scan in scans:
            scan.gathered()
        with_updates = [scan for scan in scans if scan.has_updates]
        self._read += sum(scan.length for scan in scans if not scan.has_updates)
        self._pass(with_updates, Scan.resolve)

    def _pass(self, scans: Sequence[Scan], take: Callable[[Scan, Message], None]) -> None:
        by_place = {scan.place: scan for scan in scans}
        window = {scan.place: (scan.start, scan.end) for scan in scans}
        for number, (place, message) in enumerate(messages(self._consumer, window), 1):
            take(by_place[place], message)
            if number % _REPORT_EVERY == 0:
                self._report(self._read + sum(scan.next - scan.start for scan in scans), self._total)
        self._read += sum(scan.length for scan in scans)
        if self._total:
            self._report(self._read, self._total)


@dataclass(frozen=True, slots=True)
class Cut:
    """The cleaner may have processed what the brokers appended before `time_ms`: the offsets before `offset`."""

    time_ms: int
    offset: int
    moves: bool = True
    """Whether the topic is still compacted."""


@dataclass(frozen=True, slots=True)
class _Ended:
    """Documents that a schema change has ended, at this offset and cluster time."""

    at: int
    time: ClusterTime
    updated: dict[bytes, int]


class Scan:
    """One partition, and what the two passes over it find."""

    def __init__(self, place: Place, bounds: tuple[int, int], cut: Cut | None) -> None:
        self.place = place
        self.start, self.end = bounds
        self.records = 0
        self.next = self.start
        """The next offset of the current pass."""
        self.exact_from: ClusterTime | None = None
        """Before this time the partition lacks changes."""
        self.updated: dict[bytes, int] = {}
        """Key → offset of its first update; the second pass removes the keys whose document it finds."""
        self._ended: list[_Ended] = []
        """The same of documents that a schema change has ended; in the second pass, of those that it comes to."""
        self._cut = cut
        self._cut_at = 0 if cut is None else cut.offset
        self.first_ms: int | None = None
        """The brokers' time of the first record."""
        self._last_old: int | None = None
        self._first_young: int | None = None
        """The offsets on both sides of the cut."""
        self._old: Message | None = None
        self._young: Message | None = None
        """The same without chunks: their tombstones have an earlier cluster time than records before them."""

    @property
    def length(self) -> int:
        return self.end - self.start

    @property
    def has_updates(self) -> bool:
        return bool(self.updated or self._ended)

    @property
    def is_overtaken(self) -> bool:
        """Whether the cleaner may have removed a record of this part in favor of one after it: more than the control
        record of a transaction lies between."""
        return self._cut is not None and self._cut.moves and self._cut.offset - self.end > 1

    def gather(self, message: Message) -> None:
        """The first pass: keys with updates, and the records on both sides of the cut."""
        offset, key = message.offset() or 0, message.key()
        if self.first_ms is None:
            self.first_ms = message.timestamp()[1]
        if offset < self._cut_at:
            self._last_old, self._old = offset, self._old if is_chunk(key) else message
        elif self._young is None:
            self._first_young = offset if self._first_young is None else self._first_young
            self._young = None if is_chunk(key) else message
        self.records += 1
        self.next = offset + 1
        if is_key(key) and is_update(message.value()):
            self.updated.setdefault(key, offset)
        elif self.updated and ends_documents(key, message.value()):
            # nothing has to rebuild them, but for a point in time before it
            self._ended.append(_Ended(offset, _time(message), self.updated))
            self.updated = {}

    def gathered(self) -> None:
        """End the first pass."""
        if self._cut is not None and self.length:
            self.exact_from = self._cleaned_up_to(self._cut)
        self._old = self._young = None
        self.next = self.start

    def _cleaned_up_to(self, cut: Cut) -> ClusterTime | None:
        """The cluster time up to which the cleaner may have removed records.

        It removes a record only when a later one of its key also lies before the cut; only deletes go without one.
        Missing offsets at the cut may have been deletes, which are earlier than the next record.
        """
        last = self.start - 1 if self._last_old is None else self._last_old
        following = self.end if self._first_young is None else self._first_young
        if following - last - 1 <= 1:  # a control record also has an offset
            return None if self._old is None else _time(self._old)
        return ClusterTime(cut.time_ms // 1000 + 1, 0) if self._young is None else _time(self._young)

    def resolve(self, message: Message) -> None:
        """The second pass: the first whole document, or delete, of each key that has updates."""
        offset, key = message.offset() or 0, message.key()
        self.next = offset + 1
        while self._ended and offset >= self._ended[0].at:
            if (ended := self._ended.pop(0)).updated:  # before it, the log has only updates of these documents
                self._begin_exact(ended.time)
        updated = self._ended[0].updated if self._ended else self.updated
        update_at = updated.get(key) if isinstance(key, bytes) else None
        if update_at is None or is_update(message.value()):
            return
        if offset > update_at:  # before it, the log has only updates of the document
            self._begin_exact(_time(message))
        del updated[key]  # type: ignore[arg-type]  # an entry was found

    def _begin_exact(self, time: ClusterTime) -> None:
        self.exact_from = max(time, self.exact_from or time)


def _time(message: Message) -> ClusterTime:
    try:
        return cluster_time(contract_headers(message)["t"])
    except ValueError as error:
        where = f"{message.topic()}, partition {message.partition()}, offset {message.offset()}"
        raise TopicError(f"{where}: a record without a cluster time: Towpath did not write it") from error
