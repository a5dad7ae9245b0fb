"""Reads stretches of topics to the end that they had when they were asked for."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from towpath.errors import TopicError
from towpath.kafka.topics import Place

#: Of each partition: the first offset and the one after the last.
Window = Mapping[Place, tuple[int, int]]

_AT_ONCE = 1_000  # messages handed over by the client at a time
_GATHERED = 0.05  # seconds for which the client waits until there are so many
_PATIENCE = 20.0  # seconds until a broker that sends nothing is given up


def messages(consumer: Consumer, window: Window) -> Iterator[tuple[Place, Message]]:
    """Every committed record in the windows, those of a partition in the log's order.

    `consumer` is one of `Topics.consumer`. Raises `TopicError` for what cannot be read, and for silence.
    """
    unread = {place for place, (start, end) in window.items() if start < end}
    if not unread:
        return
    consumer.assign([TopicPartition(*place, window[place][0]) for place in unread])
    patience = time.monotonic() + _PATIENCE
    while unread:
        batch = consumer.consume(_AT_ONCE, timeout=_GATHERED)
        if not batch and time.monotonic() > patience:
            raise TopicError(_silence(unread))
        over = set()
        for message in batch:
            place, is_record = _look(message)
            if place not in unread:
                continue
            end, offset = window[place][1], message.offset() or 0
            if is_record and offset < end:
                yield place, message
            if not is_record or offset + 1 >= end:
                over.add(place)
        if over:
            consumer.incremental_unassign([TopicPartition(*place) for place in over])
            unread -= over
        if batch:
            patience = time.monotonic() + _PATIENCE  # now, because what was handed on may have taken long


def _look(message: Message) -> tuple[Place, bool]:
    """Where it is, and whether it is a record; else it says that the partition ends there."""
    place, error = (str(message.topic()), message.partition() or 0), message.error()
    if error is not None and error.code() != KafkaError._PARTITION_EOF:
        raise TopicError(f"cannot read {place[0]}, partition {place[1]}: {error.str()}")
    return place, error is None


def _silence(unread: set[Place]) -> str:
    some = ", ".join(f"{topic}, partition {partition}" for topic, partition in sorted(unread)[:3])
    return f"no answer from Kafka for {_PATIENCE:.0f} s when reading {some}"
