"""The result of a replay or a rebuild, as text and as JSON."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from towpath.events import Replayed
from towpath.log.dead_letters import DeadLetter
from towpath.log.integrity import BrokenKey, Headless, LogCheck
from towpath.log.records import readable
from towpath.pipeline import ClusterTime
from towpath.replay.plan import format_time
from towpath.replay.sink_run import SinkRun
from towpath.text import counted, duration, utc

_SHOWN, _IN_JSON = 20, 1_000  # items in text and in JSON


@dataclass(frozen=True, slots=True)
class Verdict:
    """The fields from `check` on say why the destination is not whole."""

    name: str
    records: int
    """How many were applied."""
    counted: bool
    """Whether the tasks counted the records; else they are counted in offsets, with transaction markers."""
    documents: Mapping[str, int]
    """At the destination now: namespace → number of documents."""
    seconds: float
    until: ClusterTime | None
    following: bool
    resumed: bool
    """Whether this run continued an earlier one; `seconds` then counts from its start."""
    letters: str
    """The topic of the dead letters."""
    check: LogCheck | None
    """What the log lacked at the start; None when it was whole."""
    uncopied: bool
    """Whether the log has no initial copy."""
    refused: Sequence[DeadLetter]
    deleted: Sequence[str]
    """Descriptions of what retention deleted from the log meanwhile."""
    earliest: ClusterTime | None
    """The earliest point in time that can be rebuilt now, if it is later than `until`."""

    @classmethod
    def of(
        cls,
        run: SinkRun,
        check: LogCheck | None,
        *,
        resumed: bool,
        records: int | None = None,
        until: ClusterTime | None = None,
        following: bool = False,
        earliest: ClusterTime | None = None,
    ) -> Verdict:
        """`records`: as the tasks count them."""
        return cls(
            name=run.name,
            records=run.start.offsets if records is None else records,
            counted=records is not None,
            documents=run.documents(),
            seconds=time.time() - run.start.began,
            until=until,
            following=following,
            resumed=resumed,
            letters=run.sink.dead_letter_topic,
            check=check,
            uncopied=run.session.pipeline.copy.method == "none",
            refused=run.dead_letters(),
            deleted=run.deleted_heads(),
            earliest=earliest,
        )

    @property
    def is_whole(self) -> bool:
        return not (self.check or self.uncopied or self.refused or self.deleted or self.earliest)

    @property
    def event(self) -> Replayed:
        return Replayed(
            done=self.name,
            whole=self.is_whole,
            records=self.records,
            documents=self.documents,
            seconds=round(self.seconds, 1),
            until=str(self.until) if self.until else None,
            following=self.following,
            refused=len(self.refused),
            dead_letters=[
                {"namespace": letter.namespace, "key": _key(letter.key), "code": letter.code, "reason": letter.reason}
                for letter in self.refused[:_IN_JSON]
            ],
            dead_letter_topic=self.letters if self.refused else None,
            uncopied=self.uncopied,
            missing=missing_json(self.check),
            deleted_meanwhile=self.deleted,
            earliest=str(self.earliest) if self.earliest else None,
        )

    def lines(self) -> Iterator[str]:
        documents = f"{sum(self.documents.values()):,} documents in {counted(len(self.documents), 'namespace')}"
        rate = f"{self.records / max(self.seconds, 0.001):,.0f} a second"
        follows = ", and follows from now on" if self.following else ""
        until = f", as of {format_time(self.until)}" if self.until else ""
        about = "" if self.counted else "about "
        took = f"{about}{self.records:,} records in {duration(self.seconds)}, {rate}"
        if self.resumed:
            took = f"{about}{self.records:,} records since it started {duration(self.seconds)} ago"
        yield f"{self.name}: applied {took}; {documents}{until}{follows}"
        if self.uncopied:
            yield 'missing  what the source held when the log began ([capture] copy = "none")'
        yield from missing_lines(self.check)
        for head in self.deleted:
            yield f"deleted by retention meanwhile, and perhaps not applied: {head}"
        if self.earliest and self.until:
            yield (
                f"Kafka has compacted the log past {format_time(self.until)} meanwhile, so documents may be missing;"
                f" the earliest point in time that can be rebuilt now is {format_time(self.earliest)}"
            )
        yield from self._letters()
        if not self.is_whole:
            yield f"{self.name}: not whole"

    def _letters(self) -> Iterator[str]:
        for letter in self.refused[:_SHOWN]:
            code = f" ({letter.code})" if letter.code else ""
            yield f"refused  {letter.namespace} {_key(letter.key)}: {letter.reason}{code}"
        more = len(self.refused) - _SHOWN
        if more > 0:
            yield f"         and {more:,} more"
        if self.refused:
            yield f"{len(self.refused):,} records that the destination refused are in the topic {self.letters}"


def missing_lines(check: LogCheck | None) -> Iterator[str]:
    """What the log lacks to rebuild everything, as lines of text."""
    if check is None:
        return
    for partition in check.headless:
        yield f"missing  {_headless(partition)}"
    for (topic, number), reason in check.cut_short.items():
        yield f"missing  {topic}, partition {number}: {reason}"
    for key in check.broken[:_SHOWN]:
        yield f"missing  {key.namespace} {_key(key.key)}: updates without their document, from {_place(key)} on"
    by_namespace = Counter(key.namespace for key in check.broken)
    if len(check.broken) > _SHOWN:
        yield f"         and {len(check.broken) - _SHOWN:,} more documents"
    for namespace, count in sorted(by_namespace.items()):
        yield f"{namespace}: {count:,} documents cannot be rebuilt: the log has their updates, but not the documents"


def missing_json(check: LogCheck | None) -> list[dict[str, Any]]:
    """The same as JSON: what is gone from topics, and documents that cannot be rebuilt."""
    if check is None:
        return []
    return [
        *(
            {name: getattr(item, name) for name in ("namespace", "partition", "first_offset", "first_time_ms")}
            for item in check.headless
        ),
        *(
            {"topic": topic, "partition": number, "reason": reason}
            for (topic, number), reason in check.cut_short.items()
        ),
        *(
            {"namespace": item.namespace, "partition": item.partition, "offset": item.offset, "key": _key(item.key)}
            for item in check.broken
        ),
    ]


def _headless(partition: Headless) -> str:
    gone = "everything so far"
    if partition.first_time_ms is not None:
        gone = f"what came in before {utc(partition.first_time_ms / 1000)}"
    last = partition.first_offset - 1
    return (
        f"{partition.namespace}, partition {partition.partition}: retention has deleted {gone} (offsets up to {last:,})"
    )


def _place(key: BrokenKey) -> str:
    return f"{key.partition}:{key.offset}"


def _key(raw: bytes | None) -> str:
    """The `_id` as Extended JSON, or the bytes in hexadecimal."""
    return readable(raw or b"", canonical=False) or ""
