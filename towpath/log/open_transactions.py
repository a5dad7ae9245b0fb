"""Transactions in the log that have no end: whoever reads committed records waits before them for ever.

A coordinator ends a transaction, or aborts it after `transaction.timeout.ms` (a minute in Kafka Connect). Brokers of
4.3.1, for one, can lose that end (KAFKA-20734): they take a partition that has no leader for the moment for a deleted
one. None of a broker's partitions has one while it is fenced, as it slept or was killed, but where replicas take over.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

from confluent_kafka import TopicPartition

from towpath.errors import TopicError
from towpath.kafka.consume import is_record, place_of, poll
from towpath.kafka.topics import Place, Topics
from towpath.log.lag import pipeline_ends
from towpath.pipeline import Pipeline

LONGEST = 120.0
"""Seconds that a transaction may take: twice what Kafka Connect's producers are given."""
Ends = Mapping[Place, tuple[int, int]]
"""As `pipeline_ends` gives them."""
_MOMENT = 3.0  # seconds, in which Kafka Connect ends a transaction that is under way
_PATIENCE = 10.0  # seconds until a broker that sends nothing is given up


@dataclass(frozen=True, slots=True)
class Unended:
    """The first transaction of a partition that has not ended, by its first offset, and for how many seconds."""

    place: Place
    offset: int
    seconds: float


def look(pipeline: Pipeline, topics: Topics, ends: Ends, longest: float = LONGEST) -> list[Unended]:
    """Those that began more than `longest` seconds ago by the brokers' clock, the oldest first; `ends`: stable ones."""
    written = pipeline_ends(pipeline, topics, stable=False)
    begun = {place: end for place, (_, end) in ends.items() if end < written.get(place, (0, 0))[1]}
    now = time.time()
    found = [Unended(place, begun[place], now - at) for place, at in _written_at(topics, begun).items()]
    return sorted((one for one in found if one.seconds > longest), key=lambda one: -one.seconds)


def refuse(pipeline: Pipeline, topics: Topics, ends: Ends, longest: float = LONGEST) -> None:
    """Raise `TopicError` where there are any, also a moment later: this machine's clock need not be the brokers'."""
    found = look(pipeline, topics, ends, longest)
    if found:
        time.sleep(_MOMENT)
        still = {(one.place, one.offset) for one in look(pipeline, topics, pipeline_ends(pipeline, topics), longest)}
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
        unread, end = set(begun), time.monotonic() + _PATIENCE
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
