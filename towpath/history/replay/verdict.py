"""The result of a replay or a rebuild, as text and as JSON."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from towpath.clients.mongo.client import ClusterTime
from towpath.config.events import Replayed
from towpath.config.text import counted, duration, utc
from towpath.history.replay.plan import format_time
from towpath.history.replay.sink_run import SinkRun
from towpath.log.dead_letters import DeadLetter
from towpath.log.integrity import Headless, LogCheck
from towpath.log.records import readable

_SHOWN, _IN_JSON = 20, 1_000  # items in text and in JSON


@dataclass(frozen=True, slots=True)
class Verdict:
    """`event` has the figures; the rest is for its text."""

    event: Replayed
    seconds: float
    counted: bool
    """Whether the tasks counted the records; else they are counted in offsets, with transaction markers."""
    resumed: bool
    """Whether this run continued an earlier one; `seconds` then counts from its start."""
    check: LogCheck | None
    """What the log lacked at the start; None when it was whole."""
    refused: Sequence[DeadLetter]
    until: ClusterTime | None
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
        documents, seconds = run.documents(), time.time() - run.start.began
        uncopied = run.session.pipeline.copy_method == "none"
        refused, deleted = run.dead_letters(), run.deleted_heads()
        event = Replayed(
            done=run.name,
            whole=not (check or uncopied or refused or deleted or earliest),
            records=run.start.offsets if records is None else records,
            documents=documents,
            seconds=round(seconds, 1),
            until=str(until) if until else None,
            following=following,
            refused=len(refused),
            dead_letters=[
                {"namespace": letter.namespace, "key": _key(letter.key), "code": letter.code, "reason": letter.reason}
                for letter in refused[:_IN_JSON]
            ],
            dead_letter_topic=run.sink.dead_letter_topic if refused else None,
            uncopied=uncopied,
            missing=missing_json(check),
            deleted_by_retention=deleted,
            earliest=str(earliest) if earliest else None,
        )
        return cls(event, seconds, records is not None, resumed, check, refused, until, earliest)

    def lines(self) -> Iterator[str]:
        event = self.event
        documents = f"{sum(event.documents.values()):,} documents in {counted(len(event.documents), 'namespace')}"
        follows = ", and follows from now on" if event.following else ""
        until = f", as of {format_time(self.until)}" if self.until else ""
        about = "" if self.counted else "about "
        rate = f"{event.records / max(self.seconds, 0.001):,.0f} a second"
        took = f"{about}{event.records:,} records in {duration(self.seconds)}, {rate}"
        if self.resumed:
            took = f"{about}{event.records:,} records since it started {duration(self.seconds)} ago"
        yield f"{event.done}: applied {took}; {documents}{until}{follows}"
        if event.uncopied:
            yield 'missing  what the source held when the log began ([capture] copy = "none")'
        yield from missing_lines(self.check)
        for head in event.deleted_by_retention:
            yield f"deleted by retention meanwhile, and perhaps not applied: {head}"
        if self.earliest and self.until:
            yield (
                f"Kafka has compacted the log past {format_time(self.until)} meanwhile, so documents may be missing;"
                f" the earliest point in time that can be rebuilt now is {format_time(self.earliest)}"
            )
        for letter in self.refused[:_SHOWN]:
            code = f" ({letter.code})" if letter.code else ""
            yield f"refused  {letter.namespace} {_key(letter.key)}: {letter.reason}{code}"
        more = len(self.refused) - _SHOWN
        if more > 0:
            yield f"         and {more:,} more"
        if self.refused:
            count, topic = len(self.refused), self.event.dead_letter_topic
            yield f"{count:,} records that the destination refused are in the topic {topic}"
        if not event.whole:
            yield f"{event.done}: not whole"


def missing_lines(check: LogCheck | None) -> Iterator[str]:
    """What the log lacks to rebuild everything, as lines of text."""
    if check is None:
        return
    for partition in check.headless:
        yield f"missing  {_headless(partition)}"
    for (topic, number), reason in check.cut_short.items():
        yield f"missing  {topic}, partition {number}: {reason}"
    for key in check.broken[:_SHOWN]:
        place = f"{key.partition}:{key.offset}"
        yield f"missing  {key.namespace} {_key(key.key)}: updates without their document, from {place} on"
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


def _key(raw: bytes | None) -> str:
    """The `_id` as Extended JSON, or the bytes in hexadecimal."""
    return readable(raw or b"", canonical=False) or ""
