"""What a replay or a rebuild came to, in words and as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from towpath.events import Replayed
from towpath.log.dead_letters import DeadLetter
from towpath.log.integrity import BrokenKey, Headless, LogCheck
from towpath.log.records import readable
from towpath.pipeline import ClusterTime
from towpath.replay.preconditions import shown
from towpath.text import counted, duration, utc

_SHOWN, _TOLD = 20, 1_000  # to people, and as JSON


@dataclass(frozen=True, slots=True)
class Verdict:
    """`records` are those that were applied; what keeps the destination from being whole comes after `following`."""

    what: str
    records: int
    counted: bool
    """By the tasks; else by offsets, to which the marks of transactions belong."""
    documents: Mapping[str, int]
    """At the destination now: namespace → documents."""
    seconds: float
    until: ClusterTime | None
    following: bool
    check: LogCheck | None
    """What the log was found to lack before; None when it was whole."""
    resumed: bool
    """Whether it was there before, so that its seconds are since then."""
    uncopied: bool
    """Whether the log never had what the source held at its beginning."""
    refused: Sequence[DeadLetter]
    letters: str
    """The topic of the dead letters."""
    heads: Sequence[str] = ()
    """What the brokers deleted of the log meanwhile."""
    earliest: ClusterTime | None = None
    """The earliest moment that can be rebuilt, when that is later than the one asked for by now."""

    @property
    def is_whole(self) -> bool:
        return not (self.check or self.uncopied or self.refused or self.heads or self.earliest)

    @property
    def event(self) -> Replayed:
        return Replayed(
            done=self.what,
            whole=self.is_whole,
            records=self.records,
            documents=self.documents,
            seconds=round(self.seconds, 1),
            until=str(self.until) if self.until else None,
            following=self.following,
            refused=len(self.refused),
            dead_letters=[
                {"namespace": one.namespace, "key": _key(one.key), "code": one.code, "reason": one.reason}
                for one in self.refused[:_TOLD]
            ],
            dead_letter_topic=self.letters if self.refused else None,
            uncopied=self.uncopied,
            missing=missing(self.check),
            deleted_meanwhile=self.heads,
            earliest=str(self.earliest) if self.earliest else None,
        )

    def words(self) -> Iterator[str]:
        documents = f"{sum(self.documents.values()):,} documents in {counted(len(self.documents), 'namespace')}"
        rate = f"{self.records / max(self.seconds, 0.001):,.0f} a second"
        now = ", and follows from now on" if self.following else ""
        upto = f", as of {shown(self.until)}" if self.until else ""
        about = "" if self.counted else "about "
        took = f"{about}{self.records:,} records in {duration(self.seconds)}, {rate}"
        if self.resumed:
            took = f"{about}{self.records:,} records since it was begun {duration(self.seconds)} ago"
        yield f"{self.what}: applied {took}; {documents}{upto}{now}"
        if self.uncopied:
            yield 'missing  what the source held when the log began ([capture] copy = "none")'
        yield from lacking(self.check)
        for head in self.heads:
            yield f"deleted by retention meanwhile, and perhaps not applied: {head}"
        if self.earliest and self.until:
            yield (
                f"Kafka's cleaner has passed {shown(self.until)} meanwhile, so that what it took may be missing; the"
                f" earliest moment that can be rebuilt now is {shown(self.earliest)}"
            )
        yield from self._letters()
        if not self.is_whole:
            yield f"{self.what}: not whole"

    def _letters(self) -> Iterator[str]:
        for letter in self.refused[:_SHOWN]:
            code = f" ({letter.code})" if letter.code else ""
            yield f"refused  {letter.namespace} {_key(letter.key)}: {letter.reason}{code}"
        more = len(self.refused) - _SHOWN
        if more > 0:
            yield f"         and {more:,} more"
        if self.refused:
            yield f"{len(self.refused):,} records that the destination refused are in the topic {self.letters}"


def lacking(check: LogCheck | None) -> Iterator[str]:
    """What the log lacks to rebuild everything, for people."""
    if check is None:
        return
    for one in check.headless:
        yield f"missing  {_headless(one)}"
    for (topic, partition), words in check.cut_short.items():
        yield f"missing  {topic}, partition {partition}: {words}"
    for key in check.broken[:_SHOWN]:
        yield f"missing  {key.namespace} {_key(key.key)}: updates without their document, from {_place(key)} on"
    by_namespace = Counter(key.namespace for key in check.broken)
    if len(check.broken) > _SHOWN:
        yield f"         and {len(check.broken) - _SHOWN:,} more documents"
    for namespace, count in sorted(by_namespace.items()):
        yield f"{namespace}: {count:,} documents cannot be rebuilt: the log has updates of them, and not the documents"


def missing(check: LogCheck | None) -> list[dict[str, Any]]:
    """The same as JSON: what is gone of a topic, and documents that cannot be rebuilt."""
    if check is None:
        return []
    return [
        *(
            {
                "namespace": one.namespace,
                "partition": one.partition,
                "first_offset": one.first_offset,
                "first_time_ms": one.first_time_ms,
            }
            for one in check.headless
        ),
        *({"topic": topic, "partition": one, "reason": words} for (topic, one), words in check.cut_short.items()),
        *(
            {"namespace": one.namespace, "partition": one.partition, "offset": one.offset, "key": _key(one.key)}
            for one in check.broken
        ),
    ]


def _headless(one: Headless) -> str:
    gone = "everything so far"
    if one.first_time_ms is not None:
        gone = f"what came in before {utc(one.first_time_ms / 1000)}"
    last = one.first_offset - 1
    return f"{one.namespace}, partition {one.partition}: retention has deleted {gone} (offsets up to {last:,})"


def _place(key: BrokenKey) -> str:
    return f"{key.partition}:{key.offset}"


def _key(raw: bytes | None) -> str:
    """The `_id` as Extended JSON, or the bytes in hexadecimal."""
    return readable(raw or b"", canonical=False) or ""
