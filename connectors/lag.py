"""What is in the log and not yet at the destination.

Raw offsets cannot tell: with exactly-once producers every transaction ends in a control record, so that a sink
which applied everything stays one behind the end for ever. Where a gap is left, the log is read to see whether
there are records in it.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from connectors.errors import TopicError
from connectors.records import source_milliseconds
from connectors.spec import Pipeline
from connectors.topics import Topics

Place = tuple[str, int]

#: Up to this many offsets a gap is counted record by record; a larger one is given as the difference of offsets.
COUNTED = 2_000
_PATIENCE = 20.0  # seconds until a broker that sends nothing is given up


@dataclass(frozen=True, slots=True)
class Lag:
    """Records in the log that the sink has not applied, and the age of the oldest by the source's clock."""

    records: int
    seconds: float


def pipeline_ends(pipeline: Pipeline, topics: Topics) -> dict[Place, tuple[int, int]]:
    """(topic, partition) → (first offset, end) of every change topic of the pipeline."""
    pattern = pipeline.selection.topic_regex(pipeline.name)
    return topics.ends(topic for name, topic in topics.all().items() if re.fullmatch(pattern, name))


def applied(pipeline: Pipeline, topics: Topics) -> dict[Place, int]:
    """(topic, partition) → the offset up to which the sink has written to the destination."""
    return topics.committed(pipeline.sink_group)


def gaps(ends: Mapping[Place, tuple[int, int]], done: Mapping[Place, int]) -> dict[Place, tuple[int, int]]:
    """Partitions with something between what is done and the end: (topic, partition) → (from, end)."""
    starts = {place: max(first, done.get(place, first)) for place, (first, _) in ends.items()}
    return {place: (starts[place], end) for place, (_, end) in ends.items() if starts[place] < end}


def measure(pipeline: Pipeline, topics: Topics) -> Lag:
    open_gaps = gaps(pipeline_ends(pipeline, topics), applied(pipeline, topics))
    if not open_gaps:
        return Lag(0, 0.0)
    consumer = topics.consumer(**{"queued.min.messages": 1, "queued.max.messages.kbytes": 1024})
    try:
        return _measured(consumer, open_gaps)
    finally:
        consumer.close()


def _measured(consumer: Consumer, open_gaps: Mapping[Place, tuple[int, int]]) -> Lag:
    counted, oldest = 0, None
    for place, (start, end) in open_gaps.items():
        first, count = _records_between(consumer, place, start, end)
        counted += count
        at = source_milliseconds(first) if first else None
        oldest = at if oldest is None or (at is not None and at < oldest) else oldest
    return Lag(counted, max(0.0, time.time() - oldest / 1000) if oldest is not None else 0.0)


def has_records(consumer: Consumer, place: Place, start: int, end: int) -> bool:
    """Whether there is any record from `start` on and before `end`."""
    first, _ = _records_between(consumer, place, start, end, most=1)
    return first is not None


def _records_between(
    consumer: Consumer, place: Place, start: int, end: int, most: int = COUNTED
) -> tuple[Message | None, int]:
    """The first record in [start, end) of one partition, and how many there are."""
    consumer.assign([TopicPartition(*place, start)])
    first, count, patience = None, 0, time.monotonic() + _PATIENCE
    while True:
        message = consumer.poll(1.0)
        if message is None:
            if time.monotonic() > patience:
                raise TopicError(f"no answer when reading {place[0]}, partition {place[1]}, from offset {start}")
            continue
        error, offset = message.error(), message.offset() or 0
        if error is not None and error.code() != KafkaError._PARTITION_EOF:
            raise TopicError(f"cannot read {place[0]}, partition {place[1]}: {error.str()}")
        if error is not None or offset >= end:
            return first, count
        first, count = first or message, count + 1
        if end - start > COUNTED or count >= most:
            return first, end - offset if most > 1 else 1
