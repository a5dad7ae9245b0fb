"""Dead letters: records that the destination rejected, kept in a separate topic with the reason.

A dead letter is the unchanged record, with headers for its origin (`topic`, `partition`, `offset`), its destination
(`namespace`) and the server's error (`code`, `reason`). A retried batch can write the same record twice; topic,
partition and offset identify it.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Message

from towpath.clients.kafka import consume
from towpath.clients.kafka.consume import Silence, messages
from towpath.clients.kafka.topics import Topic, Topics
from towpath.config.pipeline import Pipeline
from towpath.errors import TopicError, TowpathError
from towpath.log.records import Record, headers_of, readable, record

#: How much of the topic is read to find the causes: at most so many of its newest records, bytes and seconds.
NEWEST, _BYTES, _SECONDS = 1_000, 32 * 1024 * 1024, 3.0
#: So many records are returned with the causes, one of each of the most frequent causes among them.
EXAMPLES = 20
#: Connect's own headers, for records that never reached the sink because a converter failed.
_CONNECT = {
    "topic": "__connect.errors.topic",
    "partition": "__connect.errors.partition",
    "offset": "__connect.errors.offset",
    "reason": "__connect.errors.exception.message",
}


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """`place` is topic, partition and offset of the rejected record; `namespace` is the destination's."""

    place: tuple[str, int, int]
    namespace: str
    code: str
    reason: str
    record: Record | None
    """None when it breaks the record contract; `key` and `value` hold its bytes in any case."""
    key: bytes | None
    value: bytes | None
    at: int = 0
    """Its own offset in the dead-letter topic."""

    def as_json(self, *, canonical: bool) -> dict[str, Any]:
        topic, partition, offset = self.place
        fields = self.record.as_json(canonical=canonical) if self.record else {}
        return {
            "namespace": self.namespace,
            "code": int(self.code) if re.fullmatch("-?[0-9]{1,10}", self.code) else None,
            "reason": self.reason,
            "topic": topic,
            "partition": partition,
            "offset": offset,
            "key": readable(self.key, canonical=canonical),
            "value": readable(self.value, canonical=canonical),
            **{name: fields.get(name) for name in ("kind", "op", "cluster_time", "at_ms")},
        }


@dataclass(frozen=True, slots=True)
class Cause:
    """The number of dead letters of one namespace with one reason."""

    namespace: str
    code: str
    reason: str
    records: int


@dataclass(frozen=True, slots=True)
class DeadLetters:
    """`count` is the number of distinct records if `complete`; else only the newest were read, and duplicates count."""

    count: int
    complete: bool
    causes: tuple[Cause, ...]
    examples: tuple[DeadLetter, ...] = ()
    """The newest record of each of the most frequent causes, and others of the newest; the newest first."""


def dead_letter(message: Message) -> DeadLetter:
    """The dead letter in a message; a message without the headers counts as its own dead letter."""
    decoded = None
    with suppress(TowpathError):
        decoded = record(message)
    headers = {name: text.decode(errors="replace") for name, text in headers_of(message) if isinstance(text, bytes)}
    origin = {ours: headers.get(ours, headers.get(theirs, "")) for ours, theirs in _CONNECT.items()}
    try:
        place = origin["topic"], int(origin["partition"]), int(origin["offset"])
    except ValueError:
        place = str(message.topic()), message.partition() or 0, message.offset() or 0
        origin["reason"] = "a record without the headers of a dead letter: Towpath did not write it"
    return DeadLetter(
        place=place,
        namespace=headers.get("namespace", ""),
        code=headers.get("code", ""),
        reason=origin["reason"],
        record=decoded,
        key=message.key(),
        value=message.value(),
        at=message.offset() or 0,
    )


def summarize(pipeline: Pipeline, topics: Topics, existing: dict[str, Topic]) -> DeadLetters:
    """Count the dead letters, and find the causes of the newest ones, the most frequent first."""
    topic = existing.get(pipeline.dead_letter_topic)
    if topic is None:
        return DeadLetters(0, True, ())
    first, end = topics.ends([topic])[topic.name, 0]
    start = max(first, end - NEWEST)
    newest, finished = _newest(topics, topic.name, start, end)
    counted = Counter(map(_cause, newest.values()))
    complete = finished and start == first
    causes = tuple(Cause(*cause, number) for cause, number in counted.most_common())
    shown = examples(tuple(newest.values()), [cause for cause, _ in counted.most_common(EXAMPLES)])
    return DeadLetters(len(newest) if complete else end - first, complete, causes, shown)


def _cause(letter: DeadLetter) -> tuple[str, str, str]:
    return letter.namespace, letter.code, letter.reason


def examples(letters: Sequence[DeadLetter], causes: Sequence[tuple[str, str, str]]) -> tuple[DeadLetter, ...]:
    """At most `EXAMPLES` letters, the newest first: the newest of each of these causes, and the newest of the others.

    So a flood of one cause does not hide the documents of another. `letters` end with the newest.
    """
    newest_of = {_cause(letter): number for number, letter in enumerate(letters)}
    chosen = [newest_of[cause] for cause in causes]
    others = [number for number in reversed(range(len(letters))) if number not in chosen]
    return tuple(letters[number] for number in sorted([*chosen, *others][:EXAMPLES], reverse=True))


def _newest(topics: Topics, topic: str, start: int, end: int) -> tuple[dict[tuple[str, int, int], DeadLetter], bool]:
    """Distinct dead letters from `start` on, and whether the limits sufficed to read all of them up to `end`."""
    distinct: dict[tuple[str, int, int], DeadLetter] = {}
    if start == end:
        return distinct, True
    until, size = time.monotonic() + _SECONDS, 0
    with topics.reader(**{"fetch.wait.max.ms": 10}) as consumer, suppress(Silence):
        for _, message in messages(consumer, {(topic, 0): (start, end)}, at_once=1, patience=_SECONDS):
            letter = dead_letter(message)
            distinct[letter.place] = letter
            size += len(message.value() or b"")
            if size >= _BYTES or time.monotonic() > until:
                return distinct, letter.at + 1 == end
        return distinct, True
    return distinct, False


def end(pipeline: Pipeline, topics: Topics) -> int:
    """The offset after the last dead letter; 0 without a dead-letter topic."""
    topic = topics.all().get(pipeline.dead_letter_topic)
    return 0 if topic is None else topics.ends([topic])[topic.name, 0][1]


def letters(pipeline: Pipeline, topics: Topics, *, follow: bool, start: int = 0) -> Iterator[DeadLetter]:
    """Every dead letter at or after the offset `start`, in the topic's order; with `follow` also later ones.

    Raises `TopicError` when the topic cannot be read to its end.
    """
    topic = topics.all().get(pipeline.dead_letter_topic)
    if topic is None:
        raise TopicError(
            f"no topic {pipeline.dead_letter_topic} at {topics.bootstrap}: dead letters are kept in"
            ' mode = "exactly-once", and `towpath deploy` creates their topic'
        )
    place = topic.name, 0
    first, end = topics.ends([topic])[place]
    first = max(first, min(start, end))
    with topics.reader() as consumer:
        present = (message for _, message in messages(consumer, {place: (first, end)}))
        yield from map(dead_letter, consume.follow(consumer, {place: first}) if follow else present)
