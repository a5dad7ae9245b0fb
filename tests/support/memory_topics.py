"""Topics in memory, for what reads the log: transactions and their control records, retention, the brokers' times."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import KafkaError, Message, TopicPartition

from towpath.clients.kafka.topics import Place, Topic, Topics

#: Key and value of a record; its header has the cluster time `second:1`.
Made = tuple[bytes | None, bytes | None, int]


@dataclass
class _Partition:
    offsets: list[tuple[int, Message | None]] = field(default_factory=list)
    """Of each offset the broker's time, and its record: None if readers of committed records do not see one there."""
    first: int = 0
    stable: int | None = None
    """Where an open transaction begins."""

    @property
    def end(self) -> int:
        return len(self.offsets) if self.stable is None else self.stable


class MemoryTopics(Topics):
    """Stands for the topics of a cluster."""

    def __init__(self, **partitions: int) -> None:
        super().__init__("memory")
        self.settings: dict[str, dict[str, str]] = {}
        self.topic_ids: dict[str, str] = {}
        self.positions: dict[Place, int] = {}
        """What a consumer group has committed."""
        self.failure: Exception | None = None
        """Raised when the topics are listed."""
        self.knows_what_is_empty = False
        """As real brokers tell for many partitions."""
        self.made: list[MemoryConsumer] = []
        self._topics: dict[str, Topic] = {}
        self.stored: dict[Place, _Partition] = {}
        for name, count in partitions.items():
            self.make(name, count)

    def make(self, name: str, partitions: int = 1, **settings: str) -> str:
        self._topics[name] = Topic(name, partitions)
        self.settings[name] = settings
        self.stored |= {(name, number): _Partition() for number in range(partitions)}
        return name

    def write(
        self, topic: str, *records: Made, partition: int = 0, at_ms: int = 1_000, commit: bool | None = True
    ) -> None:
        """One transaction: its end has an offset as well. With `commit` None it stays open."""
        it = self.stored[topic, partition]
        begun = len(it.offsets)
        for key, value, second in records:
            headers = [("v", f"1 u {second}:1 {1_000 * second}".encode())]
            it.offsets.append(
                (at_ms, self.message(topic, partition, len(it.offsets), key, value, headers, at_ms))
                if commit is not False
                else (at_ms, None)
            )
        if commit is None:
            it.stable = begun
        else:
            it.offsets.append((at_ms, None))

    @staticmethod
    def message(
        topic: str, partition: int, offset: int, key: Any, value: Any, headers: Any = None, at_ms: int = 1_000
    ) -> Message:
        where: dict[str, Any] = {"topic": topic, "partition": partition, "offset": offset}
        return Message(**where, key=key, value=value, headers=headers, timestamp=(2, at_ms))

    def cut(self, topic: str, offset: int, partition: int = 0) -> None:
        """As retention does."""
        self.stored[topic, partition].first = offset

    def clean(self, topic: str, *offsets: int, partition: int = 0) -> None:
        """As the cleaner of a compacted topic does."""
        it = self.stored[topic, partition]
        for offset in offsets:
            it.offsets[offset] = it.offsets[offset][0], None

    # what `Topics` asks its servers

    def all(self) -> dict[str, Topic]:
        if self.failure is not None:
            raise self.failure
        return dict(self._topics)

    def ends(
        self, topics: Iterable[Topic], *, stable: bool = True, known: Mapping[Place, int] | None = None
    ) -> dict[Place, tuple[int, int]]:
        assert known is None
        return {
            (topic.name, number): (it.first, it.end if stable else len(it.offsets))
            for topic in topics
            for number in range(topic.partitions)
            if (it := self.stored[topic.name, number])
        }

    def written(self, topics: Iterable[Topic]) -> dict[Place, int]:
        return {place: end for place, (_, end) in self.ends(topics, stable=False).items()}

    def offsets_at(self, times_ms: Mapping[Place, int]) -> dict[Place, int]:
        return {place: self._at(self.stored[place], time_ms) for place, time_ms in times_ms.items()}

    @staticmethod
    def _at(it: _Partition, time_ms: int) -> int:
        return next((n for n, (at, _) in enumerate(it.offsets) if n >= it.first and n < it.end and at >= time_ms), -1)

    def settings_of_all(self, names: Iterable[str], keys: Collection[str]) -> dict[str, dict[str, str]]:
        return {name: {key: self.settings[name][key] for key in keys & self.settings[name].keys()} for name in names}

    def without_records(self, window: Mapping[Place, tuple[int, int]]) -> set[Place]:
        if not self.knows_what_is_empty:
            return set()
        found = {place: self.stored[place].offsets[start:end] for place, (start, end) in window.items()}
        return {place for place, offsets in found.items() if not any(message for _, message in offsets)}

    def ids(self, names: Iterable[str]) -> dict[str, str]:
        return {name: self.topic_ids.get(name, "id") for name in set(names) if name in self._topics}

    def committed(self, group: str) -> dict[Place, int]:
        assert group
        return self.positions

    def consumer(self, **settings: Any) -> Any:
        self.made.append(MemoryConsumer(self, settings.get("isolation.level") == "read_uncommitted"))
        return self.made[-1]

    @contextmanager
    def reader(self, **settings: Any) -> Iterator[Any]:
        yield self.consumer(**settings)


class MemoryConsumer:
    """Reads as librdkafka does, record by record from each partition in turn, and tells the end of each once."""

    def __init__(self, topics: MemoryTopics, sees_open: bool) -> None:
        self._topics, self._sees_open = topics, sees_open
        self._next: dict[Place, int] = {}
        self._told: dict[Place, int] = {}
        self.given = list[tuple[str, int, int]]()
        """Topic, partition and offset of each record that it has returned."""
        self.closed = False

    def assign(self, partitions: list[TopicPartition]) -> None:
        self._next.clear()
        self.incremental_assign(partitions)

    def incremental_assign(self, partitions: list[TopicPartition]) -> None:
        for one in partitions:
            place = one.topic, one.partition
            assert place not in self._next, "it is assigned already"
            assert one.offset >= self._topics.stored[place].first, "no such offset"
            self._next[place] = one.offset
            self._told.pop(place, None)

    def incremental_unassign(self, partitions: list[TopicPartition]) -> None:
        for one in partitions:
            del self._next[one.topic, one.partition]

    def consume(self, at_once: int, timeout: float) -> list[Message]:
        found: list[Message] = []
        progress = True
        while progress and len(found) < at_once:
            progress = False
            for place in list(self._next):
                if len(found) < at_once and (message := self._one(place)) is not None:
                    found.append(message)
                    progress = True
        return found

    def poll(self, timeout: float) -> Message | None:
        return next(iter(self.consume(1, timeout)), None)

    def close(self) -> None:
        self.closed = True

    def _one(self, place: Place) -> Message | None:
        it = self._topics.stored[place]
        end = len(it.offsets) if self._sees_open else it.end
        while self._next[place] < end:
            at = self._next[place]
            self._next[place] += 1
            if (message := it.offsets[at][1]) is not None:
                self.given.append((*place, at))
                return message
        if self._told.get(place) == end:
            return None
        self._told[place] = end
        error = KafkaError(KafkaError._PARTITION_EOF)
        return Message(topic=place[0], partition=place[1], offset=end, error=error)
