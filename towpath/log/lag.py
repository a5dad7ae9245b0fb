"""What is in the log and not yet at the destination, and the open transactions that may hold it up.

Raw offsets cannot tell the lag: with exactly-once producers every transaction ends in a control record, so a sink
that applied everything stays one behind the end for ever. Where a gap is left, the log is read to see whether
there are records in it.

A reader of committed records waits before an open transaction. A coordinator ends a transaction, or aborts it after
`transaction.timeout.ms` (a minute in Kafka Connect). Brokers, those of 4.3.1 for one, can lose that end (KAFKA-20734):
a broker that is fenced, because it was unresponsive or killed, takes a partition without leader for a deleted one.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace

from confluent_kafka import Message, TopicPartition

from towpath.bookkeeping.positions import positions
from towpath.errors import TopicError
from towpath.kafka.consume import is_record, place_of, poll
from towpath.kafka.topics import Place, Topics
from towpath.log.records import source_milliseconds
from towpath.mongo.client import ANSWER, connected
from towpath.pipeline import Pipeline

#: Up to this many offsets a gap is counted record by record; a larger one is given as the difference of offsets.
COUNTED = 2_000
#: Up to this many bytes of it are read for that; what then is left of it is given as the difference of offsets.
_COUNTED_BYTES = 2 << 20
_PATIENCE = 20.0  # seconds without a message until a broker is given up
#: Little is read ahead, and an answer without records is not waited for. A record that is larger than a fetch comes all
#: the same, alone (KIP-74).
_PEEKING = {
    "fetch.message.max.bytes": 64 * 1024,
    "queued.min.messages": 1,
    "queued.max.messages.kbytes": 1024,
    "fetch.wait.max.ms": 10,
    "fetch.queue.backoff.ms": 10,  # a full queue, of one message, is asked again after this; after a second by default
}


@dataclass(frozen=True, slots=True)
class Lag:
    """Records in the log that the sink has not applied, and the age of the oldest by the source's clock."""

    records: int
    seconds: float


def pipeline_ends(pipeline: Pipeline, topics: Topics, *, stable: bool = True) -> dict[Place, tuple[int, int]]:
    """(topic, partition) → (first offset, end) of every change topic of the pipeline; `stable` as in `Topics.ends`."""
    pattern = pipeline.selection.topic_regex(pipeline.name)
    return topics.ends((topic for name, topic in topics.all().items() if re.fullmatch(pattern, name)), stable=stable)


@contextmanager
def applied(pipeline: Pipeline, topics: Topics) -> Iterator[Callable[[], dict[Place, int]]]:
    """A look, to be taken as often as needed: (topic, partition) → the offset up to which the sink has written.

    In exactly-once mode the destination tells, where offsets are written together with the documents; in plain mode
    the offsets that the sink's consumers commit. Raises `MongoUnreachable` when the destination is.
    """
    if not pipeline.exactly_once:
        yield lambda: topics.committed(pipeline.sink_group)
        return
    with connected(pipeline.destination_uri, "destination", answer=ANSWER) as client:
        yield lambda: {place: found.offset for place, found in positions(client, pipeline).items()}


def gaps(ends: Mapping[Place, tuple[int, int]], done: Mapping[Place, int]) -> dict[Place, tuple[int, int]]:
    """Partitions with something between what is done and the end: (topic, partition) → (from, end)."""
    starts = {place: max(first, done.get(place, first)) for place, (first, _) in ends.items()}
    return {place: (starts[place], end) for place, (_, end) in ends.items() if starts[place] < end}


def measure(
    topics: Topics,
    ends: Mapping[Place, tuple[int, int]],
    done: Mapping[Place, int],
    now: Callable[[], float] = time.time,
) -> Lag:
    """The lag between the ends of the log and what is done. Raises `TopicError` when the log cannot be read.

    `now`: the source's wall clock in seconds since the epoch, which is asked only where there is a lag.
    """
    found = peek(topics, gaps(ends, done), most=COUNTED)
    oldest = [peeked.oldest_ms for peeked in found.values() if peeked.oldest_ms is not None]
    age = now() - min(oldest) / 1000 if oldest else 0.0
    return Lag(sum(peeked.records for peeked in found.values()), max(0.0, age))


@dataclass(frozen=True, slots=True)
class Peeked:
    """How many records a gap of one partition holds, and the source's wall clock of the first (ms since the epoch)."""

    records: int = 0
    oldest_ms: int | None = None
    size: int = 0
    """Bytes that were read of it."""


def peek(topics: Topics, open_gaps: Mapping[Place, tuple[int, int]], most: int) -> dict[Place, Peeked]:
    """Read each gap [from, end) up to `most` records; of a larger one only the first record, and the rest is given as
    the difference of its offsets."""
    found = {place: Peeked() for place in open_gaps}
    if not open_gaps:
        return found
    consumer = topics.consumer(**_PEEKING)
    try:
        consumer.assign([TopicPartition(*place, start) for place, (start, _) in open_gaps.items()])
        unread, patience = set(open_gaps), time.monotonic() + _PATIENCE
        while unread:
            message = poll(consumer, 0.5)
            if message is not None:
                patience = time.monotonic() + _PATIENCE
                place = place_of(message)
                if place in unread and _is_over(message, place, open_gaps[place], found, most):
                    unread.discard(place)
                    consumer.incremental_unassign([TopicPartition(*place)])  # nothing more of it is fetched
            elif time.monotonic() > patience:
                raise TopicError(f"no answer when reading {', '.join(topic for topic, _ in sorted(unread)[:3])}")
    finally:
        consumer.close()
    return found


def _is_over(message: Message, place: Place, gap: tuple[int, int], found: dict[Place, Peeked], most: int) -> bool:
    """Take in a message of a gap; whether no other is needed."""
    offset, (start, end) = message.offset() or 0, gap
    if not is_record(message) or offset >= end:
        return True
    before = found[place]
    size = before.size + len(message.key() or b"") + len(message.value() or b"")
    counted = Peeked(before.records + 1, before.oldest_ms or source_milliseconds(message), size)
    enough = end - start > most or size > _COUNTED_BYTES
    found[place] = replace(counted, records=before.records + end - offset) if enough else counted
    return enough or offset + 1 >= end


LONGEST = 120.0
"""Seconds that a transaction may take: twice what Kafka Connect's producers are given."""
Ends = Mapping[Place, tuple[int, int]]
"""As `pipeline_ends` gives them."""
_MOMENT = 3.0  # seconds, in which Kafka Connect ends a transaction that is under way
_SILENCE = 10.0  # seconds until a broker that sends nothing is given up


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """The first transaction of a partition that has not ended, by its first offset, and for how many seconds."""

    place: Place
    offset: int
    seconds: float


def open_transactions(
    pipeline: Pipeline, topics: Topics, ends: Ends, longest: float = LONGEST
) -> list[OpenTransaction]:
    """Those that began more than `longest` seconds ago by the brokers' clock, the oldest first; `ends`: stable ones."""
    written = pipeline_ends(pipeline, topics, stable=False)
    begun = {place: end for place, (_, end) in ends.items() if end < written.get(place, (0, 0))[1]}
    now = time.time()
    found = [OpenTransaction(place, begun[place], now - at) for place, at in _written_at(topics, begun).items()]
    return sorted((one for one in found if one.seconds > longest), key=lambda one: -one.seconds)


def refuse_hanging_transactions(pipeline: Pipeline, topics: Topics, ends: Ends, longest: float = LONGEST) -> None:
    """Raise `TopicError` where there are any, also a moment later: this machine's clock need not be the brokers'."""
    found = open_transactions(pipeline, topics, ends, longest)
    if found:
        time.sleep(_MOMENT)
        still = {
            (one.place, one.offset)
            for one in open_transactions(pipeline, topics, pipeline_ends(pipeline, topics), longest)
        }
        found = [one for one in found if (one.place, one.offset) in still]
    if found:
        (topic, partition), first = found[0].place, found[0]
        more = f", and {len(found) - 1} more" if len(found) > 1 else ""
        raise TopicError(
            f"{topic}, partition {partition}{more}: a transaction that began {first.seconds:,.0f} s ago, at offset"
            f" {first.offset}, has not ended, and nothing behind it is read: Kafka seems to have lost its end",
            "`towpath restart` ends it as had been decided, and so does `towpath run`",
        )


def _written_at(topics: Topics, begun: Mapping[Place, int]) -> dict[Place, float]:
    """When the record at an offset was written, in seconds since the epoch; not of those that have gone meanwhile."""
    found: dict[Place, float] = {}
    if not begun:
        return found
    consumer = topics.consumer(**{"isolation.level": "read_uncommitted", "queued.min.messages": 1})
    try:
        consumer.assign([TopicPartition(*place, offset) for place, offset in begun.items()])
        unread, end = set(begun), time.monotonic() + _SILENCE
        while unread and time.monotonic() < end:
            message = poll(consumer, 0.5)
            if message is None:
                continue
            place = place_of(message)
            if is_record(message) and place in unread:
                found[place] = message.timestamp()[1] / 1000
            unread.discard(place)
    finally:
        consumer.close()
    return found
