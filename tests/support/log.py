"""The records of a pipeline's topics, read as any consumer would: committed ones only."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, Consumer, KafkaError, TopicPartition

_PATIENCE = 30  # seconds without an answer


@dataclass(frozen=True, slots=True)
class Logged:
    """A record as the broker hands it out."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: dict[str, bytes]
    appended: bool
    """The timestamp is the broker's (LogAppendTime)."""
    time_ms: int


def records(bootstrap: str, topic: str) -> list[Logged]:
    """Every committed record of a topic, partition by partition in order."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "towpath-tests",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
            "fetch.message.max.bytes": 20_000_000,
        }
    )
    try:
        found = consumer.list_topics(topic, timeout=_PATIENCE).topics[topic]
        assert found.error is None, f"no topic {topic}: {found.error}"
        consumer.assign([TopicPartition(topic, partition, 0) for partition in found.partitions])
        return sorted(_until_ends(consumer, set(found.partitions)), key=lambda one: (one.partition, one.offset))
    finally:
        consumer.close()


def _until_ends(consumer: Consumer, open_ends: set[int]) -> Iterator[Logged]:
    while open_ends:
        message = consumer.poll(_PATIENCE)
        assert message is not None, f"no answer from Kafka for {_PATIENCE} s"
        error = message.error()
        if error is not None:
            assert error.code() == KafkaError._PARTITION_EOF, error.str()
            open_ends.discard(message.partition() or 0)
            continue
        kind, time_ms = message.timestamp()
        headers: list[tuple[str, bytes]] = list(message.headers() or [])  # type: ignore[arg-type]
        yield Logged(
            str(message.topic()),
            message.partition() or 0,
            message.offset() or 0,
            message.key(),
            message.value(),
            dict(headers),
            kind == TIMESTAMP_LOG_APPEND_TIME,
            time_ms,
        )
