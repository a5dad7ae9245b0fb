"""Dead letters: records that the destination refused, set aside with the reason.

A dead letter is the record as it was, with headers that say where it came from (`topic`, `partition`, `offset`),
where it was to go (`namespace`) and what the server said (`code`, `reason`). One record can be there twice, when a
batch was tried again; topic, partition and offset tell.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Message

from towpath.errors import TopicError, TowpathError
from towpath.kafka import consume
from towpath.kafka.consume import Silence, messages
from towpath.kafka.topics import Topic, Topics
from towpath.log.records import Record, headers_of, readable, record
from towpath.pipeline import Pipeline

#: How much of the topic is read to tell the causes: its newest records, for so long.
NEWEST, _BYTES, _SECONDS = 1_000, 32 * 1024 * 1024, 3.0
#: Headers of Connect's own, for what never reached the sink: a value that could not be converted.
_CONNECT = {
    "topic": "__connect.errors.topic",
    "partition": "__connect.errors.partition",
    "offset": "__connect.errors.offset",
    "reason": "__connect.errors.exception.message",
}


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """`place` is topic, partition and offset of the record that was refused; `namespace` is at the destination."""

    place: tuple[str, int, int]
    namespace: str
    code: str
    reason: str
    record: Record | None
    """None when it does not keep the record contract; the raw key and value are here all the same."""
    key: bytes | None
    value: bytes | None
    at: int = 0
    """Its own offset in the topic of the dead letters."""

    def as_json(self, *, canonical: bool) -> dict[str, Any]:
        topic, partition, offset = self.place
        shown = self.record.as_json(canonical=canonical) if self.record else {}
        return {
            "namespace": self.namespace,
            "code": int(self.code) if re.fullmatch("-?[0-9]{1,10}", self.code) else None,
            "reason": self.reason,
            "topic": topic,
            "partition": partition,
            "offset": offset,
            "key": readable(self.key, canonical=canonical),
            "value": readable(self.value, canonical=canonical),
            **{name: shown.get(name) for name in ("kind", "op", "cluster_time", "at_ms")},
        }


@dataclass(frozen=True, slots=True)
class Cause:
    """How many records one reason has kept from one namespace."""

    namespace: str
    code: str
    reason: str
    records: int


@dataclass(frozen=True, slots=True)
class DeadLetters:
    """`count` is of distinct records when `complete`, else of all in the topic: then only the newest were read."""

    count: int
    complete: bool
    causes: tuple[Cause, ...]


def dead_letter(message: Message) -> DeadLetter:
    """The dead letter in a message; one that somebody else wrote is about itself."""
    found = {name: text.decode(errors="replace") for name, text in headers_of(message) if isinstance(text, bytes)}
    said = {ours: found.get(ours, found.get(theirs, "")) for ours, theirs in _CONNECT.items()}
    try:
        place = said["topic"], int(said["partition"]), int(said["offset"])
    except ValueError:
        place = str(message.topic()), message.partition() or 0, message.offset() or 0
        said["reason"] = "a record without the headers of a dead letter: nothing of Towpath's wrote it"
    return DeadLetter(
        place=place,
        namespace=found.get("namespace", ""),
        code=found.get("code", ""),
        reason=said["reason"],
        record=_record(message),
        key=message.key(),
        value=message.value(),
        at=message.offset() or 0,
    )


def _record(message: Message) -> Record | None:
    try:
        return record(message)
    except TowpathError:
        return None


def look(pipeline: Pipeline, topics: Topics, existing: dict[str, Topic]) -> DeadLetters:
    """Count the dead letters and tell their causes from the newest of them, the most frequent first."""
    topic = existing.get(pipeline.dead_letter_topic)
    if topic is None:
        return DeadLetters(0, True, ())
    ((place, (first, end)),) = list(topics.ends([topic]).items())[:1]
    start = max(first, end - NEWEST)
    found, finished = _newest(topics, place, start, end) if start < end else ({}, True)
    counted = Counter((letter.namespace, letter.code, letter.reason) for letter in found.values())
    complete = finished and start == first
    causes = tuple(Cause(*cause, number) for cause, number in counted.most_common())
    return DeadLetters(len(found) if complete else end - first, complete, causes)


def _newest(
    topics: Topics, place: tuple[str, int], start: int, end: int
) -> tuple[dict[tuple[str, int, int], DeadLetter], bool]:
    """Distinct dead letters from `start` on, and whether all up to `end` were read within the bounds."""
    found: dict[tuple[str, int, int], DeadLetter] = {}
    until, size = time.monotonic() + _SECONDS, 0
    with topics.reader(**{"fetch.wait.max.ms": 10}) as consumer, suppress(Silence):
        for _, message in messages(consumer, {place: (start, end)}, at_once=1, patience=_SECONDS):
            letter = dead_letter(message)
            found[letter.place] = letter
            size += len(message.value() or b"")
            if size >= _BYTES or time.monotonic() > until:
                return found, letter.at + 1 == end
        return found, True
    return found, False


def end(pipeline: Pipeline, topics: Topics) -> int:
    """The offset after the last dead letter; 0 while there is no such topic."""
    topic = topics.all().get(pipeline.dead_letter_topic)
    return 0 if topic is None else max(end for _, end in topics.ends([topic]).values())


def letters(pipeline: Pipeline, topics: Topics, *, follow: bool, start: int = 0) -> Iterator[DeadLetter]:
    """Every dead letter from the first at or after `start` on, as it lies in the topic; with `follow` also those that
    come in later. Raises `TopicError` for what cannot be read, and for silence before the end."""
    topic = topics.all().get(pipeline.dead_letter_topic)
    if topic is None:
        raise TopicError(
            f"no topic {pipeline.dead_letter_topic} at {topics.bootstrap}: dead letters are kept in"
            ' mode = "exactly-once", and `towpath deploy` makes their topic'
        )
    ((place, (first, end)),) = list(topics.ends([topic]).items())[:1]
    first = max(first, min(start, end))
    with topics.reader() as consumer:
        if not follow:
            yield from (dead_letter(message) for _, message in messages(consumer, {place: (first, end)}))
            return
        yield from (dead_letter(message) for message in consume.follow(consumer, {place: first}))
