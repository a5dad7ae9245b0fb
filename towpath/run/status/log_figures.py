"""The log, topic by topic: its size, how well it is protected from Kafka's cleaner, and the risks of its settings."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from towpath.checks import capture
from towpath.checks.log import guard
from towpath.clients.kafka.topics import Place
from towpath.config.namespaces import namespace_of
from towpath.config.pipeline import Pipeline
from towpath.config.sections import Log
from towpath.config.text import duration, size
from towpath.log.topic_settings import is_compacted
from towpath.log.unprotected import Figures, figures
from towpath.session import Session

_MAX_ROWS = 20  # topics with a line of their own
_CONTROL_RECORD = 1  # offset, of the record that ends the last transaction


@dataclass(frozen=True, slots=True)
class TopicLog:
    """One change topic. Figures that `towpath compact` reports are None until it has committed some."""

    namespace: str
    topic: str
    offsets: int
    """From the first to the last, including control records and records that the cleaner has removed."""
    bytes: int | None
    """Size of one replica on the brokers' disks; None when the brokers do not report it."""
    begins: int
    """The largest first offset of its partitions; above 0, the beginning of the log is gone."""
    compacted: bool
    dirty: int | None
    """Number of documents with unprotected updates: no whole document follows them in the log."""
    oldest_seconds: float | None
    """The age of the oldest of these updates; None when there are none."""
    told_seconds: float | None
    """Since the last report of `towpath compact`, for the partition that has waited longest."""
    behind: int
    """Offsets that `towpath compact` has not reported on."""
    settings: Mapping[str, str]

    def as_json(self) -> dict[str, Any]:
        return {key: value for key, value in asdict(self).items() if key != "settings"}


@dataclass(frozen=True, slots=True)
class LogReport:
    of: Log
    topics: tuple[TopicLog, ...]
    findings: tuple[str, ...] = ()
    """Risks of the settings."""

    @property
    def warnings(self) -> list[str]:
        return [*self._unprotected(), *self.findings]

    def _unprotected(self) -> Iterator[str]:
        """Updates that the cleaner may soon reach although no whole document follows them."""
        if not self.of.compact:
            return
        half = self.of.compaction_lag / 2000
        if never := [topic.namespace for topic in self.topics if topic.told_seconds is None and topic.offsets]:
            yield (
                f"`towpath compact` has not read {_first(never)} yet: start it, because a compacted log must be"
                " protected ([log] compact)"
            )
        if late := [topic for topic in self.topics if topic.behind and (topic.told_seconds or 0) > half]:
            longest = max(topic.told_seconds or 0 for topic in late)
            yield (
                f"`towpath compact` has not reported on {_first([topic.namespace for topic in late])} for"
                f" {longest:,.0f} s: is it running? the cleaner may remove updates that are older than"
                f" {2 * half:,.0f} s"
            )
        for topic in self.topics:
            if (topic.oldest_seconds or 0) > half:
                yield (
                    f"{topic.namespace}: an update is {topic.oldest_seconds:,.0f} s old, and no whole document follows"
                    f" it; the cleaner may remove updates that are older than {2 * half:,.0f} s; see the output of"
                    " `towpath compact`"
                )

    def as_json(self) -> dict[str, Any]:
        return {"topics": [topic.as_json() for topic in self.topics], "warnings": self.warnings}

    def rows(self) -> Iterator[tuple[str, str]]:
        """Label and text of each row; topics with the most unprotected updates first."""
        topics = sorted(self.topics, key=lambda topic: (-(topic.dirty or 0), topic.namespace))[:_MAX_ROWS]
        for number, topic in enumerate(topics):
            yield "" if number else "log", _line(topic, compacts=self.of.compact)
        if len(self.topics) > _MAX_ROWS:
            yield "", f"and {len(self.topics) - _MAX_ROWS:,} more topics"


def _first(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1:,} more"


def report(session: Session, ends: Mapping[Place, tuple[int, int]]) -> LogReport:
    """The log now. `ends`: (topic, partition) → its first offset and its end."""
    pipeline, topics = session.pipeline, session.topics
    names, sizes = sorted({topic for topic, _ in ends}), topics.bytes_on_disk()
    settings = topics.settings_of_all(names)
    committed = topics.committed_with_metadata(pipeline.compaction_group) if pipeline.log.compact else {}
    reports = {place: (offset, report) for place, (offset, words) in committed.items() if (report := figures(words))}
    by_topic: dict[str, dict[Place, tuple[int, int]]] = {name: {} for name in names}
    for place, bounds in ends.items():
        by_topic[place[0]][place] = bounds
    logs = tuple(_topic(pipeline, name, by_topic[name], settings[name], reports, sizes) for name in names)
    findings = [
        f"{finding.subject}: {finding.finding}; {finding.advice}"
        for topic in logs
        for finding in guard(topic.namespace, topic.settings, topic.begins, pipeline)
    ]
    return LogReport(pipeline.log, logs, (*findings, *capture.warnings(session)))


def _topic(
    pipeline: Pipeline,
    name: str,
    partitions: Mapping[Place, tuple[int, int]],
    settings: Mapping[str, str],
    reports: Mapping[Place, tuple[int, Figures]],
    sizes: Mapping[str, int] | None,
) -> TopicLog:
    """`partitions`: those of the topic → first offset and end; `reports`: (topic, partition) → the offset up to which
    `towpath compact` has read, and its figures."""
    known = [reports[place][1] for place in partitions if place in reports]
    oldest = min((report.oldest for report in known if report.oldest is not None), default=None)
    return TopicLog(
        namespace=namespace_of(pipeline.name, name),
        topic=name,
        offsets=sum(end - first for first, end in partitions.values()),
        bytes=sizes.get(name, 0) if sizes is not None else None,
        begins=max((first for first, _ in partitions.values()), default=0),
        compacted=is_compacted(settings),
        dirty=sum(report.dirty for report in known) if known else None,
        oldest_seconds=_age(oldest),
        told_seconds=_age(min(report.at for report in known)) if len(known) == len(partitions) else None,
        behind=sum(
            max(0, end - reports[place][0] - _CONTROL_RECORD)
            for place, (_, end) in partitions.items()
            if place in reports
        ),
        settings=settings,
    )


def _age(time_ms: int | None) -> float | None:
    return None if time_ms is None else max(0.0, round(time.time() - time_ms / 1000, 3))


def _line(topic: TopicLog, *, compacts: bool) -> str:
    disk = "" if topic.bytes is None else f", {size(topic.bytes)}"
    line = f"{topic.namespace}: {topic.offsets:,} offsets{disk}"
    if not compacts:
        return line
    if topic.told_seconds is None or topic.dirty is None:
        return f"{line}, not read by `towpath compact` yet"
    oldest = "" if topic.oldest_seconds is None else f", the oldest {duration(topic.oldest_seconds)} old"
    off = "" if topic.compacted else "; not compacted yet"
    reported = duration(topic.told_seconds)
    return f"{line}, {topic.dirty:,} documents with unprotected updates{oldest}, reported {reported} ago{off}"
