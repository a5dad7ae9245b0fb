"""Reads the change topics with the consumer group of `towpath compact`, which shares the partitions among instances."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from contextlib import suppress

from confluent_kafka import OFFSET_BEGINNING, OFFSET_STORED, Consumer, KafkaException, TopicPartition

from towpath.errors import Refused, TopicError
from towpath.kafka.consume import is_record, place_of, poll
from towpath.kafka.topics import Place, Topics, interruptible
from towpath.log.unprotected import First, Part, figures
from towpath.pipeline import Pipeline

_TIMEOUT = 15.0  # seconds for one request to the brokers
_GROUP = {
    "auto.offset.reset": "earliest",
    "partition.assignment.strategy": "cooperative-sticky",
    "session.timeout.ms": 10_000,  # what a killed instance had is another's after this
}


class Reader:
    """What this instance knows of its partitions: those of others it does not read."""

    def __init__(self, pipeline: Pipeline, topics: Topics, *, from_beginning: bool) -> None:
        self.parts: dict[Place, Part] = {}
        self.records = 0
        self.joined = False
        """The group has given this instance its partitions once."""
        self._pipeline, self._topics, self._from_beginning = pipeline, topics, from_beginning
        self._begun: set[Place] = set()
        self._names: set[str] = set()
        self._paused = False
        self._consumer: Consumer = topics.consumer(**_GROUP, **{"group.id": pipeline.compaction_group})

    def close(self) -> None:
        self._consumer.close()  # gives the partitions back, which commits

    def refresh(self) -> None:
        """Take in topics that are new. Raises `Refused` when there are none."""
        pattern = self._pipeline.selection.topic_regex(self._pipeline.name)
        found = {name for name in self._topics.all() if re.fullmatch(pattern, name)}
        if not found:
            raise Refused(
                f"there are no topics of {self._pipeline.name} at {self._topics.bootstrap}; `towpath deploy` makes them"
            )
        if found != self._names:
            self._consumer.subscribe(
                sorted(found), on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._lost
            )
            self._names = found

    def ends(self) -> dict[Place, int]:
        """The present ends of this instance's partitions."""
        found = self._topics.all()
        mine = {topic for topic, _ in self.parts}
        every = self._topics.ends(found[name] for name in mine if name in found)
        return {place: end for place, (_, end) in every.items() if place in self.parts}

    def has_read(self, ends: Mapping[Place, int]) -> bool:
        """Whether what this instance still has of these is read up to there."""
        return all((self.parts[place].next or 0) >= end for place, end in ends.items() if place in self.parts)

    @property
    def dirty(self) -> int:
        return sum(len(part.dirty) for part in self.parts.values())

    @property
    def awaited(self) -> int:
        return sum(len(part.awaited) for part in self.parts.values())

    @property
    def oldest(self) -> First | None:
        found = [part.oldest for part in self.parts.values() if part.oldest]
        return min(found, key=lambda first: first.time_ms, default=None)

    def pause(self, *, paused: bool) -> None:
        """Read nothing, and stay in the group."""
        if paused != self._paused:
            places = [TopicPartition(*place) for place in self.parts]
            (self._consumer.pause if paused else self._consumer.resume)(places)
            self._paused = paused

    def read(self, seconds: float) -> None:
        """Read for so long. Raises `TopicError` for what the brokers refuse."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            with interruptible():  # partitions come and go in callbacks
                message = poll(self._consumer, left)
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
        """What is awaited is in the log, as the source connector has told, but was not read yet."""
        for part in self.parts.values():
            for key in part.awaited:
                part.dirty.pop(key, None)
            part.awaited.clear()

    def commit(self) -> None:
        """Record where another life has to begin. Raises `TopicError`."""
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
        with suppress(KafkaException):  # the client then begins at the committed offset, and the figures come anew
            committed = {(p.topic, p.partition): p for p in consumer.committed(new, timeout=_TIMEOUT)} if new else {}
        for one in new:
            place = one.topic, one.partition
            self.parts[place], one.offset = self._begin(place, committed.get(place))
        consumer.incremental_assign(new)
        if self._paused and new:
            consumer.pause(new)

    def _begin(self, place: Place, committed: TopicPartition | None) -> tuple[Part, int]:
        """What is known of a partition that this instance has now, and where it begins to read."""
        if self._from_beginning and place not in self._begun:
            self._begun.add(place)
            return Part(), OFFSET_BEGINNING
        if committed is None:
            return Part(), OFFSET_STORED
        known = figures(committed.metadata or "")
        part = Part(last_ms=known.last, quiet=known.quiet) if known else Part()
        return part, committed.offset if committed.offset >= 0 else OFFSET_BEGINNING

    def _revoked(self, consumer: Consumer, gone: list[TopicPartition]) -> None:
        left = {place: part for one in gone if (part := self.parts.pop(place := (one.topic, one.partition), None))}
        with suppress(KafkaException):  # who has them next then begins where the last commit was
            self._commit(left)
        consumer.incremental_unassign(gone)

    def _lost(self, consumer: Consumer, gone: list[TopicPartition]) -> None:
        for one in gone:
            self.parts.pop((one.topic, one.partition), None)
        consumer.incremental_unassign(gone)
