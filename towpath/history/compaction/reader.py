"""Reads the change topics in the consumer group of `towpath compact`, whose instances share the partitions."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress

from confluent_kafka import OFFSET_BEGINNING, OFFSET_STORED, Consumer, KafkaException, TopicPartition

from towpath.clients.kafka.consume import is_record, place_of, poll
from towpath.clients.kafka.topics import Place, Topics, interruptible
from towpath.config.pipeline import Pipeline
from towpath.errors import Refused, TopicError
from towpath.history.unprotected import First, Part, figures

_TIMEOUT = 15.0  # seconds for one request to the brokers
_GROUP = {
    "auto.offset.reset": "earliest",
    "partition.assignment.strategy": "cooperative-sticky",
    "session.timeout.ms": 10_000,  # after this, another instance gets the partitions of a killed one
}


class Reader:
    """Reads the partitions of this instance, and knows their unprotected updates."""

    def __init__(self, pipeline: Pipeline, topics: Topics, *, from_beginning: bool) -> None:
        self.parts: dict[Place, Part] = {}
        self.records = 0
        self.joined = False
        """Whether the group has assigned partitions to this instance at least once."""
        self._pipeline, self._topics, self._from_beginning = pipeline, topics, from_beginning
        self._begun: set[Place] = set()
        self._names: set[str] = set()
        self._paused = False
        self._consumer: Consumer = topics.consumer(**_GROUP, **{"group.id": pipeline.compaction_group})

    def close(self) -> None:
        self._consumer.close()  # revokes the partitions, which commits

    def refresh(self) -> None:
        """Subscribe to new topics. Raises `Refused` when the pipeline has no topics."""
        names = {name for name in self._topics.all() if self._pipeline.is_change_topic(name)}
        if not names:
            raise Refused(
                f"{self._pipeline.name} has no topics at {self._topics.bootstrap}; `towpath deploy` creates them"
            )
        if names != self._names:
            self._consumer.subscribe(
                sorted(names), on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._lost
            )
            self._names = names

    def ends(self) -> dict[Place, int]:
        """The current end offsets of this instance's partitions."""
        existing = self._topics.all()
        names = {topic for topic, _ in self.parts}
        ends = self._topics.ends(existing[name] for name in names if name in existing)
        return {place: end for place, (_, end) in ends.items() if place in self.parts}

    def has_read(self, ends: Mapping[Place, int]) -> bool:
        """Whether those of these partitions that this instance still has are read up to these offsets."""
        return all((self.parts[place].next or 0) >= end for place, end in ends.items() if place in self.parts)

    @property
    def dirty(self) -> int:
        return sum(len(part.dirty) for part in self.parts.values())

    @property
    def awaited(self) -> int:
        return sum(len(part.awaited) for part in self.parts.values())

    @property
    def oldest(self) -> First | None:
        oldest = [part.oldest for part in self.parts.values() if part.oldest]
        return min(oldest, key=lambda first: first.time_ms, default=None)

    def pause(self, *, paused: bool) -> None:
        """Pause or resume reading, and stay in the group."""
        if paused != self._paused:
            places = [TopicPartition(*place) for place in self.parts]
            (self._consumer.pause if paused else self._consumer.resume)(places)
            self._paused = paused

    def read(self, seconds: float) -> None:
        """Read for this time. Raises `TopicError` for errors from the brokers."""
        until = time.monotonic() + seconds
        while (remaining := until - time.monotonic()) > 0:
            with interruptible():  # callbacks assign and revoke partitions
                message = poll(self._consumer, remaining)
            if message is None:
                continue
            place = place_of(message)
            part, offset = self.parts.get(place), message.offset() or 0
            if part is not None and not is_record(message):
                part.reached(offset)
            elif part is not None:
                part.take(offset, message.timestamp()[1], message.key(), message.value())
                self.records += 1

    def trust(self) -> None:
        """Count all awaited documents as re-read: the source connector has answered, but they are not read yet."""
        for part in self.parts.values():
            for key in part.awaited:
                part.dirty.pop(key, None)
            part.awaited.clear()

    def commit(self) -> None:
        """Commit where the next start, or another instance, begins to read. Raises `TopicError`."""
        try:
            self._commit(self.parts)
        except KafkaException as error:
            raise TopicError(
                f"cannot commit the offsets of {self._pipeline.compaction_group} at {self._topics.bootstrap}:"
                f" {error.args[0].str()}"
            ) from error

    def _commit(self, parts: Mapping[Place, Part]) -> None:
        now = int(time.time() * 1000)
        offsets = [
            TopicPartition(*place, part.safe, part.figures(now).written())
            for place, part in parts.items()
            if part.safe is not None
        ]
        if offsets:
            self._consumer.commit(offsets=offsets, asynchronous=False)

    def _assigned(self, consumer: Consumer, new: list[TopicPartition]) -> None:
        self.joined = True
        committed: dict[Place, TopicPartition] = {}
        with suppress(KafkaException):  # the client then begins at the committed offset, without figures
            committed = {(p.topic, p.partition): p for p in consumer.committed(new, timeout=_TIMEOUT)} if new else {}
        for partition in new:
            place = partition.topic, partition.partition
            self.parts[place], partition.offset = self._begin(place, committed.get(place))
        consumer.incremental_assign(new)
        if self._paused and new:
            consumer.pause(new)

    def _begin(self, place: Place, committed: TopicPartition | None) -> tuple[Part, int]:
        """The state of an assigned partition, and the offset at which to begin reading it."""
        if self._from_beginning and place not in self._begun:
            self._begun.add(place)
            return Part(), OFFSET_BEGINNING
        if committed is None:
            return Part(), OFFSET_STORED
        known = figures(committed.metadata or "")
        part = Part(last_ms=known.last, quiet=known.quiet) if known else Part()
        return part, committed.offset if committed.offset >= 0 else OFFSET_BEGINNING

    def _revoked(self, consumer: Consumer, gone: list[TopicPartition]) -> None:
        places = [(partition.topic, partition.partition) for partition in gone]
        revoked = {place: part for place in places if (part := self.parts.pop(place, None))}
        with suppress(KafkaException):  # the next instance then begins at the last commit
            self._commit(revoked)
        consumer.incremental_unassign(gone)

    def _lost(self, consumer: Consumer, gone: list[TopicPartition]) -> None:
        for partition in gone:
            self.parts.pop((partition.topic, partition.partition), None)
        consumer.incremental_unassign(gone)
