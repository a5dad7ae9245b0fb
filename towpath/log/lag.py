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
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from towpath.bookkeeping.positions import positions
from towpath.errors import TopicError
from towpath.kafka.consume import Silence, messages
from towpath.kafka.topics import Place, Topic, Topics
from towpath.log.records import source_milliseconds
from towpath.mongo.client import ANSWER_S, connected
from towpath.pipeline import Pipeline

#: Up to this many offsets a gap is counted record by record; a larger one is given as the difference of offsets.
COUNTED = 2_000
#: Up to this many bytes of it are read for that; what then is left of it is given as the difference of offsets.
_COUNTED_BYTES = 2 << 20
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
    return topics.ends(change_topics(pipeline, topics.all()), stable=stable)


def change_topics(pipeline: Pipeline, existing: Mapping[str, Topic]) -> list[Topic]:
    """Every change topic of the pipeline."""
    pattern = pipeline.selection.topic_regex(pipeline.name)
    return [topic for name, topic in existing.items() if re.fullmatch(pattern, name)]


@contextmanager
def applied(pipeline: Pipeline, topics: Topics) -> Iterator[Callable[[], dict[Place, int]]]:
    """A look, to be taken as often as needed: (topic, partition) → the offset up to which the sink has written.

    In exactly-once mode the destination tells, where offsets are written together with the documents; in plain mode
    the offsets that the sink's consumers commit. Raises `MongoUnreachable` when the destination is.
    """
    if not pipeline.exactly_once:
        yield lambda: topics.committed(pipeline.sink_group)
        return
    with connected(pipeline.destination_uri, "destination", answer=ANSWER_S) as client:
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
    found, enough = {place: Peeked() for place in open_gaps}, set[Place]()
    if not open_gaps:
        return found
    with topics.reader(**_PEEKING) as consumer:
        for place, message in messages(consumer, open_gaps, at_once=1, enough=enough):
            before, offset, (start, end) = found[place], message.offset() or 0, open_gaps[place]
            size = before.size + len(message.key() or b"") + len(message.value() or b"")
            records = before.records + 1
            if end - start > most or size > _COUNTED_BYTES:
                records = before.records + end - offset
                enough.add(place)
            found[place] = Peeked(records, before.oldest_ms or source_milliseconds(message), size)
    return found


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
    pipeline: Pipeline, topics: Topics, ends: Ends, longest: float = LONGEST, written: Ends | None = None
) -> list[OpenTransaction]:
    """Those that began more than `longest` seconds ago by the brokers' clock, the oldest first.

    `ends`: stable ones; `written`: those of all that was written, where they are known.
    """
    written = pipeline_ends(pipeline, topics, stable=False) if written is None else written
    begun = {place: end for place, (_, end) in ends.items() if end < written.get(place, (0, 0))[1]}
    now = time.time()
    found = [OpenTransaction(place, begun[place], now - at) for place, at in _written_at(topics, begun).items()]
    return sorted((one for one in found if one.seconds > longest), key=lambda one: -one.seconds)


def refuse_hanging_transactions(
    pipeline: Pipeline, topics: Topics, ends: Ends, longest: float = LONGEST, written: Ends | None = None
) -> None:
    """Raise `TopicError` where there are any, also a moment later: this machine's clock need not be the brokers'."""
    found = open_transactions(pipeline, topics, ends, longest, written)
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
    if not begun:
        return {}
    found: dict[Place, float] = {}
    window = {place: (offset, offset + 1) for place, offset in begun.items()}
    settings = {"isolation.level": "read_uncommitted", "queued.min.messages": 1}
    with topics.reader(**settings) as consumer, suppress(Silence):
        for place, message in messages(consumer, window, at_once=1, patience=_SILENCE):
            found[place] = message.timestamp()[1] / 1000
    return found
