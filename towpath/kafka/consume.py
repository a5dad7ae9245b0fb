"""Reading topics: a message, a range to the end that it had when it was asked for, or what comes from now on."""

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
_WAIT = 0.5  # seconds for the next message of what is followed


def place_of(message: Message) -> Place:
    return str(message.topic()), message.partition() or 0


def is_record(message: Message) -> bool:
    """Whether it is a record; else it marks the end of its partition. Raises `TopicError` for what cannot be read."""
    error = message.error()
    if error is not None and error.code() != KafkaError._PARTITION_EOF:
        topic, partition = place_of(message)
        raise TopicError(f"cannot read {topic}, partition {partition}: {error.str()}")
    return error is None


def poll(consumer: Consumer, seconds: float) -> Message | None:
    """The next message, a record or the end of a partition; None when none comes in time. Raises `TopicError`."""
    message = consumer.poll(seconds)
    if message is not None:
        is_record(message)
    return message


def follow(consumer: Consumer, starts: Mapping[Place, int]) -> Iterator[Message]:
    """Every record from these offsets on, without an end. Raises `TopicError`."""
    consumer.assign([TopicPartition(*place, offset) for place, offset in starts.items()])
    while True:
        message = poll(consumer, _WAIT)
        if message is not None and is_record(message):
            yield message


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
            place, has_value = place_of(message), is_record(message)
            if place not in unread:
                continue
            end, offset = window[place][1], message.offset() or 0
            if has_value and offset < end:
                yield place, message
            if not has_value or offset + 1 >= end:
                over.add(place)
        if over:
            consumer.incremental_unassign([TopicPartition(*place) for place in over])
            unread -= over
        if batch:
            patience = time.monotonic() + _PATIENCE  # now, because what was handed on may have taken long


def _silence(unread: set[Place]) -> str:
    some = ", ".join(f"{topic}, partition {partition}" for topic, partition in sorted(unread)[:3])
    return f"no answer from Kafka for {_PATIENCE:.0f} s when reading {some}"
