"""Follows the change topics from given offsets on, without a group: which documents are changed as time goes by."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

from confluent_kafka import KafkaError, Message, TopicPartition

from towpath.errors import TopicError, TowpathError
from towpath.kafka.topics import Place, Topics
from towpath.log.lag import pipeline_ends
from towpath.log.recent_keys import Touched
from towpath.log.records import is_key
from towpath.namespaces import namespace_of
from towpath.pipeline import Pipeline

_REFRESH = 5.0  # seconds between two looks at which topics there are, and where they end
_AT_ONCE = 1_000  # messages handed over by the client at a time
#: What the client tells of brokers that are away, or no longer lead a partition; it goes on by itself.
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


@dataclass(frozen=True, slots=True)
class Behind:
    """What is in the log and not followed yet: records (control records count), and the seconds since the newest
    record that was."""

    records: int
    seconds: float


class Following:
    """A reader of all change topics of a pipeline; topics that come later are read from their beginning.

    While Kafka does not answer there is nothing to read, and it goes on where it was once it does.
    """

    def __init__(self, pipeline: Pipeline, topics: Topics, starts: Mapping[Place, int]) -> None:
        """`starts`: the next offset of each partition that is there already."""
        self.records = 0
        self.trouble = ""
        """Why Kafka did not answer when it was asked last; empty when it did."""
        self._pipeline, self._topics = pipeline, topics
        self._next: dict[Place, int] = {}
        self._ends: dict[Place, int] = {}
        self._newest_ms: int | None = None
        self._looked = 0.0
        self._consumer = topics.consumer()
        try:
            self._assign(starts)
        except BaseException:
            self._consumer.close()
            raise

    def close(self) -> None:
        self._consumer.close()

    def __enter__(self) -> Following:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def take(self, seconds: float, most: int) -> list[Touched]:
        """The documents that records of the next so many seconds are about, each once; `most` of them at most, about.

        Returns sooner when there are so many.
        """
        self._refresh()
        found: dict[Touched, None] = {}
        until = time.monotonic() + seconds
        while len(found) < most and (left := until - time.monotonic()) > 0:
            for message in self._consumer.consume(_AT_ONCE, timeout=min(left, 0.2)):
                touched = self._touched(message)
                if touched is not None:
                    found[touched] = None
        return list(found)

    @property
    def places(self) -> dict[Place, int]:
        """The next offset of each partition."""
        return dict(self._next)

    def behind(self) -> Behind:
        records = sum(max(0, end - self._next.get(place, end)) for place, end in self._ends.items())
        waited = 0.0 if self._newest_ms is None else max(0.0, time.time() - self._newest_ms / 1000)
        return Behind(records, waited if records else 0.0)

    def _touched(self, message: Message) -> Touched | None:
        place, error = (str(message.topic()), message.partition() or 0), message.error()
        if error is not None:
            if error.code() == KafkaError._PARTITION_EOF:
                self._next[place] = max(self._next[place], message.offset() or 0)
            elif error.code() not in _PASSING:
                raise TopicError(f"cannot follow {place[0]}, partition {place[1]}: {error.str()}")
            return None
        self._next[place] = (message.offset() or 0) + 1
        self._newest_ms = message.timestamp()[1]
        self.records += 1
        key = message.key()
        return Touched(namespace_of(self._pipeline.name, place[0]), key) if is_key(key) else None

    def _refresh(self) -> None:
        if time.monotonic() - self._looked > _REFRESH:
            try:
                self._assign({})
                self.trouble = ""
            except TowpathError as error:
                self.trouble, self._looked = str(error), time.monotonic()

    def _assign(self, starts: Mapping[Place, int]) -> None:
        found = pipeline_ends(self._pipeline, self._topics)
        self._ends = {place: end for place, (_, end) in found.items()}
        new = {place: starts.get(place, first) for place, (first, _) in found.items() if place not in self._next}
        if new:
            self._next |= new
            self._consumer.incremental_assign([TopicPartition(*place, start) for place, start in new.items()])
        self._looked = time.monotonic()
