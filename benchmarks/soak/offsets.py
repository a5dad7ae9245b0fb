"""How far the source connector is, read from Kafka itself: workers may be dead or asleep."""

from __future__ import annotations

import json
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from tests.support import progress
from tests.support.awaited import until
from tests.support.pipeline import Pipeline
from tests.support.progress import State
from tests.support.site import Site

_TOPIC = "connect-offsets"
_PATIENCE = 30.0  # seconds, in which a partition has another leader


class SourceOffsets:
    """What a pipeline's source connector has committed, as often as it is asked for."""

    def __init__(self, site: Site, pipeline: Pipeline) -> None:
        self._connector, self._request_topic = f"{pipeline.name}-source", f"{pipeline.name}.requests"
        self._known: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {}
        self._consumer = Consumer(
            {
                "bootstrap.servers": site.addresses.bootstrap,
                "group.id": "towpath-faults",
                "log_level": 0,
                "fetch.wait.max.ms": 10,
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
                "auto.offset.reset": "earliest",
            }
        )
        partitions = self._consumer.list_topics(_TOPIC, timeout=_PATIENCE).topics[_TOPIC].partitions
        self._next = dict.fromkeys(partitions, 0)

    def close(self) -> None:
        self._consumer.close()

    def state(self) -> State:
        return progress.state_of(self._read())

    def phase(self) -> tuple[str, int]:
        """The phase of the copy and its round; ("", 0) before there is one."""
        root = next((offset for partition, offset in self._read() if set(partition) == {"towpath"}), {})
        return root.get("phase", ""), int(root.get("round", 0))

    def requests_left(self) -> int:
        """How many requests to read again are not answered yet."""
        end = self.requests_end()
        found = next((offset for partition, offset in self._read() if "requests" in partition), None)
        return end - (int(found["next"]) if found else 0)

    def requests_end(self) -> int:
        """How many requests to read again there have been."""
        return until("end of the requests", self._bounds, _PATIENCE, 0.1)[1]

    def _bounds(self) -> tuple[int, int] | None:
        """Of the topic of requests; None while its broker is looked for again."""
        try:
            self._consumer.list_topics(self._request_topic, timeout=5)  # else it keeps asking a leader that has died
            return self._consumer.get_watermark_offsets(TopicPartition(self._request_topic, 0), timeout=5)
        except KafkaException:
            return None

    def _read(self) -> list[tuple[dict[str, Any], dict[str, Any]]]:
        self._consumer.assign([TopicPartition(_TOPIC, number, at) for number, at in self._next.items()])
        open_ends = set(self._next)
        while open_ends:
            message = self._consumer.poll(_PATIENCE)
            assert message is not None, f"no answer from Kafka for {_PATIENCE:.0f} s"
            error, partition = message.error(), message.partition() or 0
            if error is None:
                self._next[partition] = (message.offset() or 0) + 1
                self._take(message.key() or b"", message.value())
            elif error.code() == KafkaError._PARTITION_EOF:
                open_ends.discard(partition)
            else:
                assert error.retriable(), error.str()
        return list(self._known.values())

    def _take(self, key: bytes, value: bytes | None) -> None:
        connector, partition = json.loads(key)
        if connector != self._connector:
            return
        name = json.dumps(partition, sort_keys=True)
        if value is None:
            self._known.pop(name, None)
        else:
            self._known[name] = partition, json.loads(value)
