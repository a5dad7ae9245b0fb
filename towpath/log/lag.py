"""The lag between the log and the destination, and the open transactions that can delay it.

Offsets alone do not show the lag: with exactly-once producers every transaction ends in a control record, so that a
sink that has applied everything stays one offset behind the end. Where a gap remains, the log is read to see whether
it holds records.

A reader of committed records stops before an open transaction. The coordinator ends a transaction, or aborts it after
`transaction.timeout.ms` (see `transaction_timeout`). Brokers (4.3.1 among them) can lose the end (KAFKA-20734): a
broker that is fenced, because it was unresponsive or killed, mistakes a partition without leader for a deleted one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from towpath.clients.kafka.consume import NOTHING, Silence, Window, messages
from towpath.clients.kafka.topics import Place, Topic, Topics
from towpath.clients.mongo.client import ANSWER_S
from towpath.config.pipeline import Pipeline
from towpath.errors import NotYet, TopicError
from towpath.log.definitions import transaction_timeout
from towpath.log.records import source_milliseconds
from towpath.session import Session
from towpath.store.positions import positions

#: Records are counted in gaps of up to this many offsets; larger gaps are reported as the difference of offsets.
COUNTED = 2_000
#: Up to this many bytes of a gap are read; the rest is reported as the difference of offsets.
_COUNTED_BYTES = 2 << 20
#: Read little ahead, and do not wait for an empty response. Brokers send a record larger than a fetch alone (KIP-74).
_PEEKING = {
    "fetch.message.max.bytes": 64 * 1024,
    "queued.min.messages": 1,
    "queued.max.messages.kbytes": 1024,
    "fetch.wait.max.ms": 10,
    "fetch.queue.backoff.ms": 10,  # pause when the queue (one message) is full; a second by default
}


@dataclass(frozen=True, slots=True)
class Lag:
    """Records in the log that are not applied, or not read, and their age in seconds."""

    records: int
    seconds: float


def pipeline_ends(pipeline: Pipeline, topics: Topics, *, stable: bool = True) -> dict[Place, tuple[int, int]]:
    """(topic, partition) → (first offset, end) of every change topic of the pipeline; `stable` as in `Topics.ends`."""
    return topics.ends(change_topics(pipeline, topics.all()), stable=stable)


def pipeline_written(pipeline: Pipeline, topics: Topics) -> dict[Place, int]:
    """(topic, partition) → the end of all that was written, of every change topic of the pipeline."""
    return topics.written(change_topics(pipeline, topics.all()))


def change_topics(pipeline: Pipeline, existing: Mapping[str, Topic]) -> list[Topic]:
    """Every change topic of the pipeline."""
    return [topic for name, topic in existing.items() if pipeline.is_change_topic(name)]


@contextmanager
def applied(session: Session) -> Iterator[Callable[[], dict[Place, int]]]:
    """A function that reads (topic, partition) → the offset up to which the sink has written; call it repeatedly.

    In exactly-once mode it reads the positions that the destination stores together with the documents, as a majority
    of its members has them: a failover could take back others. In plain mode it reads the offsets that the sink's
    consumers commit. Raises `MongoUnreachable` when the destination is unreachable.
    """
    pipeline = session.pipeline
    if not pipeline.exactly_once:
        yield lambda: session.topics.committed(pipeline.sink_group)
        return
    with session.destination.connected(answer=ANSWER_S) as client:
        yield lambda: {place: one.offset for place, one in positions(client, pipeline, durable=True).items()}


def gaps(ends: Window, done: Mapping[Place, int]) -> dict[Place, tuple[int, int]]:
    """Partitions that are not applied up to their end: (topic, partition) → (from, end)."""
    starts = {place: max(first, done.get(place, first)) for place, (first, _) in ends.items()}
    return {place: (starts[place], end) for place, (_, end) in ends.items() if starts[place] < end}


def measure(
    topics: Topics,
    ends: Window,
    done: Mapping[Place, int],
    now: Callable[[], float] = time.time,
) -> Lag:
    """The lag between the applied positions `done` and the ends of the log, and the age of the oldest record in it.

    Raises `TopicError` when the log cannot be read. `now` returns the source's wall clock in seconds since the epoch;
    it is called only when there is a lag.
    """
    contents = peek(topics, gaps(ends, done), limit=COUNTED).values()
    oldest = [gap.oldest_ms for gap in contents if gap.oldest_ms is not None]
    age = now() - min(oldest) / 1000 if oldest else 0.0
    return Lag(sum(gap.records for gap in contents), max(0.0, age))


@dataclass(frozen=True, slots=True)
class GapContents:
    """The number of records in a partition's gap, and the source's wall clock of the first (ms since the epoch)."""

    records: int = 0
    oldest_ms: int | None = None
    size: int = 0
    """Bytes read."""


def peek(topics: Topics, open_gaps: Window, limit: int) -> dict[Place, GapContents]:
    """Count the records in each gap [from, end) of up to `limit` offsets.

    Of a larger gap only the first record is read; the rest is reported as the difference of offsets.
    """
    contents, enough = {place: GapContents() for place in open_gaps}, set[Place]()
    empty = topics.without_records(open_gaps)
    open_gaps = {place: gap for place, gap in open_gaps.items() if place not in empty}
    if not open_gaps:
        return contents
    with topics.reader(**_PEEKING) as consumer:
        for place, message in messages(consumer, open_gaps, at_once=1, enough=enough):
            before, offset, (start, end) = contents[place], message.offset() or 0, open_gaps[place]
            size = before.size + len(message.key() or b"") + len(message.value() or b"")
            records = before.records + 1
            if end - start > limit or size > _COUNTED_BYTES:
                records = before.records + end - offset
                enough.add(place)
            contents[place] = GapContents(records, before.oldest_ms or source_milliseconds(message), size)
    return contents


#: Of the source's transactions: one that is open for longer has not ended in time.
TIMEOUTS = 2
_RECHECK = 3.0  # seconds in which Kafka Connect ends a transaction in progress
_SILENCE = 10.0  # seconds until an unresponsive broker is given up


def unread(written: Mapping[Place, int], ends: Window) -> dict[Place, int]:
    """Partition → the first offset that cannot be read yet, of its first open transaction."""
    return {place: ends[place][1] for place, end in written.items() if place in ends and ends[place][1] < end}


#: Of each partition: the first offset, and the end.
Ends = dict[Place, tuple[int, int]]


def committed_ends(
    topics: Topics,
    log: Collection[Topic],
    until: Callable[[Callable[[], Ends]], Ends],
    before: Window = NOTHING,
) -> Ends:
    """The first offsets and stable ends of topics, once all that is in them at the call is before the ends.

    Brokers learn one after another that a transaction was committed: its records may still be unreadable after the
    source's position, which was committed with them, can be read. `until` calls what it is given again while that
    raises `NotYet`, for an open transaction. A partition without new records is as `before`.
    """
    written = topics.written(log)
    same = {place: before[place] for place, end in written.items() if place in before and before[place][1] == end}
    newer = [topic for topic in log if any((topic.name, number) not in same for number in range(topic.partitions))]

    def committed() -> Ends:
        ends = same | topics.ends(newer)
        for topic, partition in unread(written, ends):
            raise NotYet(f"a transaction on {topic}, partition {partition}, has not ended", where=topic)
        return ends

    return until(committed)


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """The first open transaction of a partition: its first offset, and its age in seconds."""

    place: Place
    offset: int
    seconds: float


def open_transactions(
    pipeline: Pipeline,
    topics: Topics,
    ends: Window,
    longest: float | None = None,
    written: Mapping[Place, int] | None = None,
) -> list[OpenTransaction]:
    """The transactions that began more than `longest` seconds ago by the brokers' clock, the oldest first; by default,
    more than twice as long as they may take.

    `ends` are stable; `written` are the ends of all that was written, which are read if not given.
    """
    written = pipeline_written(pipeline, topics) if written is None else written
    if longest is None:
        collections = sum(map(pipeline.is_change_topic, {topic for topic, _ in written}))
        longest = TIMEOUTS * transaction_timeout(pipeline, collections)
    begun, now = unread(written, ends), time.time()
    transactions = (OpenTransaction(place, begun[place], now - at) for place, at in _written_at(topics, begun).items())
    return sorted((each for each in transactions if each.seconds > longest), key=lambda each: -each.seconds)


def refuse_hanging_transactions(
    pipeline: Pipeline,
    topics: Topics,
    ends: Window,
    longest: float | None = None,
    written: Mapping[Place, int] | None = None,
) -> None:
    """Raise `TopicError` for transactions that stay open in a second reading (our clock may be wrong)."""
    hanging = open_transactions(pipeline, topics, ends, longest, written)
    if hanging:
        time.sleep(_RECHECK)
        later = open_transactions(pipeline, topics, pipeline_ends(pipeline, topics), longest)
        still_open = {(transaction.place, transaction.offset) for transaction in later}
        hanging = [transaction for transaction in hanging if (transaction.place, transaction.offset) in still_open]
    if hanging:
        first = hanging[0]
        topic, partition = first.place
        more = f", and {len(hanging) - 1} more" if len(hanging) > 1 else ""
        raise TopicError(
            f"{topic}, partition {partition}{more}: a transaction that began {first.seconds:,.0f} s ago, at offset"
            f" {first.offset}, has not ended, and nothing behind it is read: Kafka seems to have lost its end",
            "`towpath restart` ends it as had been decided, and so does `towpath run`",
        )


def _written_at(topics: Topics, begun: Mapping[Place, int]) -> dict[Place, float]:
    """When the record at each offset was written, in seconds since the epoch, without deleted records."""
    if not begun:
        return {}
    times: dict[Place, float] = {}
    window = {place: (offset, offset + 1) for place, offset in begun.items()}
    settings = {"isolation.level": "read_uncommitted", "queued.min.messages": 1}
    with topics.reader(**settings) as consumer, suppress(Silence):
        for place, message in messages(consumer, window, at_once=1, patience=_SILENCE):
            times[place] = message.timestamp()[1] / 1000
    return times
