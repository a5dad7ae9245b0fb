"""Requests that librdkafka's client does not have, or with many partitions answers slowly, by kafka-python.

Its import takes 0.1 s: modules import this where they use it.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Self

from kafka import TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType, KafkaAdminClient
from kafka.protocol.consumer import FetchRequest, IsolationLevel

from towpath.clients.kafka.topics import Place, for_kafka_python
from towpath.config.logins import KafkaLogin

_TIMEOUT_MS = 10_000
_WHOLE_TOPICS = 11  # the last version of a fetch that names topics; later ones have their ids
#: A record batch (format 2): first offset, length behind that field, epoch, format, checksum, attributes, last offset
#: less the first, times, producer, sequence, number of records.
_BATCH = struct.Struct(">qiibIhiqqqhii")
_LENGTH_FIELD_ENDS = 12
_IS_MARKER = 0x20  # of the attributes
_ENOUGH = 2 * 78  # bytes: two markers of the end of a transaction


class Protocol(KafkaAdminClient):  # type: ignore[misc]
    """Methods raise kafka-python's `KafkaError`."""

    @classmethod
    def of(cls, bootstrap: str, login: KafkaLogin, timeout_ms: int = _TIMEOUT_MS) -> Self:
        timeouts = dict.fromkeys(("request_timeout_ms", "bootstrap_timeout_ms"), timeout_ms)
        return cls(bootstrap_servers=bootstrap, **timeouts, **for_kafka_python(login))

    def settings(self, names: Iterable[str], keys: Collection[str]) -> dict[str, dict[str, str]]:
        """Topic → those of these settings that are in force for it."""
        resources = [ConfigResource(ConfigResourceType.TOPIC, name, dict.fromkeys(keys)) for name in names]
        found: dict[str, dict[str, Any]] = self.describe_configs(resources, config_filter="all")["topic"]
        return {
            name: {key: entry["value"] for key, entry in settings.items() if entry["value"] is not None}
            for name, settings in found.items()
        }

    def without_records(self, window: Mapping[Place, tuple[int, int]]) -> set[Place]:
        """Partitions that certainly hold no record from an offset up to another one, but ends of transactions only."""
        found: set[Place] = set()
        for topic, partition, batches in self._manager.run(self._first_batches, window):
            if (topic, partition) in window and _are_markers(batches, *window[topic, partition]):
                found.add((topic, partition))
        return found

    async def _first_batches(self, window: Mapping[Place, tuple[int, int]]) -> list[tuple[str, int, bytes]]:
        """(topic, partition, what is stored from the first offset on), where the leader answers."""
        leaders = await self._async_get_leader_for_partitions([TopicPartition(*place) for place in window])
        found = []
        for leader, partitions in leaders.items():
            request = _fetch({(p.topic, p.partition): window[p.topic, p.partition][0] for p in partitions})
            response = await self._manager.send(request, node_id=leader)
            found += [
                (topic.topic, each.partition_index, each.records or b"")
                for topic in response.responses
                for each in topic.partitions
                if not each.error_code
            ]
        return found


def _fetch(offsets: Mapping[Place, int]) -> FetchRequest:
    by_topic: dict[str, list[Any]] = {}
    for (topic, partition), offset in offsets.items():
        by_topic.setdefault(topic, []).append(
            FetchRequest.FetchTopic.FetchPartition(
                partition=partition,
                current_leader_epoch=-1,
                fetch_offset=offset,
                last_fetched_epoch=-1,
                log_start_offset=-1,
                partition_max_bytes=_ENOUGH,
            )
        )
    return FetchRequest(
        replica_id=-1,
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=_ENOUGH * len(offsets),
        isolation_level=IsolationLevel.READ_UNCOMMITTED,
        session_id=0,
        session_epoch=-1,
        topics=[FetchRequest.FetchTopic(topic=topic, partitions=each) for topic, each in by_topic.items()],
        forgotten_topics_data=[],
        rack_id="",
        max_version=_WHOLE_TOPICS,
    )


def _are_markers(batches: bytes, start: int, end: int) -> bool:
    """Whether these batches, of which the last may be cut off, show that no record is in [start, end)."""
    at = 0
    while start < end:
        if len(batches) < at + _BATCH.size:
            return False
        first, length, _, form, _, attributes, last, *_, records = _BATCH.unpack_from(batches, at)
        if form != 2:
            return False
        if first < end and records and not attributes & _IS_MARKER:
            return False
        start, at = first + last + 1, at + _LENGTH_FIELD_ENDS + length
    return True
