"""Reading topics: one message, a range of offsets, or all records from an offset on without an end."""

from __future__ import annotations

import time
from collections.abc import Container, Iterator, Mapping

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from towpath.clients.kafka.topics import Place
from towpath.errors import TopicError

#: The first offset of each partition, and the one after the last.
Window = Mapping[Place, tuple[int, int]]
NOTHING: Window = {}

_AT_ONCE = 1_000  # messages that the client returns at a time
_GATHERED = 0.05  # seconds for which the client collects them
_PATIENCE = 20.0  # seconds until an unresponsive broker is given up
_WAIT = 0.5  # seconds to wait for the next message when following
#: Errors about brokers that are unavailable or no longer lead a partition; the client recovers automatically.
_PASSING = frozenset(
    {
        KafkaError._TRANSPORT,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._RESOLVE,
        KafkaError._TIMED_OUT,
        KafkaError._TIMED_OUT_QUEUE,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError.BROKER_NOT_AVAILABLE,
        KafkaError.REPLICA_NOT_AVAILABLE,
        KafkaError.NETWORK_EXCEPTION,
    }
)


class Silence(TopicError):
    """No broker answers in time."""


def place_of(message: Message) -> Place:
    return str(message.topic()), message.partition() or 0


def is_record(message: Message) -> bool:
    """Whether it is a record; else it marks the end of its partition."""
    return message.error() is None


def batch(consumer: Consumer, seconds: float, at_once: int = _AT_ONCE) -> list[Message]:
    """The next messages, records and ends of partitions, as soon as there are `at_once`; fewer after `seconds`.

    Raises `TopicError` when a partition cannot be read; ignores errors about brokers that are unavailable for now.
    """
    received = consumer.consume(at_once, timeout=seconds)
    return [message for message in received if message.error() is None or _is_readable(message)]


def poll(consumer: Consumer, seconds: float) -> Message | None:
    """As `batch`, the next message alone; None when none comes in time."""
    message = consumer.poll(seconds)
    return message if message is not None and _is_readable(message) else None


def _is_readable(message: Message) -> bool:
    error = message.error()
    if error is None or error.code() == KafkaError._PARTITION_EOF:
        return True
    if error.code() in _PASSING:
        return False
    topic, partition = place_of(message)
    raise TopicError(f"cannot read {topic}, partition {partition}: {error.str()}")


def follow(consumer: Consumer, starts: Mapping[Place, int]) -> Iterator[Message]:
    """Every record from these offsets on, without an end. Raises `TopicError`."""
    consumer.assign([TopicPartition(*place, offset) for place, offset in starts.items()])
    while True:
        message = poll(consumer, _WAIT)
        if message is not None and is_record(message):
            yield message


def messages(
    consumer: Consumer,
    window: Window,
    *,
    at_once: int = _AT_ONCE,
    patience: float | None = None,
    enough: Container[Place] = (),
) -> Iterator[tuple[Place, Message]]:
    """Every committed record in the windows, those of a partition in the log's order.

    `consumer` is one of `Topics.consumer`. Reading a partition ends once the caller adds it to `enough`.
    Raises `TopicError` when a partition cannot be read, and `Silence` when nothing comes for `patience` seconds.
    """
    unread = {place for place, (start, end) in window.items() if start < end}
    if not unread:
        return
    consumer.assign([TopicPartition(*place, window[place][0]) for place in unread])
    last, patience = time.monotonic(), _PATIENCE if patience is None else patience
    while unread:
        received = batch(consumer, _GATHERED, at_once)
        if not received and time.monotonic() > last + patience:
            some = ", ".join(f"{topic}, partition {partition}" for topic, partition in sorted(unread)[:3])
            raise Silence(f"no answer from Kafka for {patience:.0f} s when reading {some}")
        over = set()
        for message in received:
            place, has_value = place_of(message), is_record(message)
            if place not in unread or place in over:
                continue
            end, offset = window[place][1], message.offset() or 0
            if has_value and offset < end:
                yield place, message
            if not has_value or offset + 1 >= end or place in enough:
                over.add(place)
        if over:
            consumer.incremental_unassign([TopicPartition(*place) for place in over])
            unread -= over
        if received:
            last = time.monotonic()  # after the loop: the caller may have taken long
