"""The records of a pipeline's topics, read as any consumer would: committed ones only."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

from confluent_kafka import (
    TIMESTAMP_LOG_APPEND_TIME,
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaError,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient

from tests.support.awaited import patient

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

    @property
    def contract(self) -> dict[str, bytes]:
        """The parts of the header `v`: version, operation, cluster time, wall clock."""
        return dict(zip(("v", "op", "t", "at"), self.headers["v"].split(b" ")[:4], strict=True))

    @property
    def row_follows(self) -> bool:
        return self.headers["v"].split(b" ")[4:] == [b"row-follows"]


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


class Progress:
    """How far a consumer group has come, over all partitions."""

    def __init__(self, bootstrap: str, group: str) -> None:
        self._admin = AdminClient({"bootstrap.servers": bootstrap})
        self._group = group

    def applied(self) -> int:
        wanted = [ConsumerGroupTopicPartitions(self._group)]
        found = self._admin.list_consumer_group_offsets(wanted)[self._group].result(_PATIENCE)
        return sum(max(0, place.offset) for place in found.topic_partitions or ())

    def wait_for(self, more: int, timeout: float = 120) -> None:
        """Wait until it has come this much further; `timeout` in seconds."""
        timeout = patient(timeout)
        start, end = self.applied(), time.monotonic() + timeout
        while (now := self.applied()) < start + more:
            assert time.monotonic() < end, (
                f"{self._group} came from {start} to {now} within {timeout:.0f} s, not {more} further"
            )
            time.sleep(0.2)
