"""What the log holds, topic by topic, how well it is protected from Kafka's cleaner, what its settings could lose."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from towpath.kafka.disk import bytes_of_topics
from towpath.kafka.topics import Place, Topics
from towpath.log.unprotected import Figures, figures
from towpath.namespaces import namespace_of
from towpath.pipeline import Compaction, Pipeline
from towpath.preflight import log as capture
from towpath.preflight.log import guard
from towpath.session import Session
from towpath.text import duration, size
from towpath.topic_settings import is_compacted

_CONTROL = 1  # offset: the record that ends the last transaction


@dataclass(frozen=True, slots=True)
class TopicLog:
    """One change topic. What `towpath compact` told last is None where it never committed anything."""

    namespace: str
    topic: str
    offsets: int
    """Their span: control records count, and so do records that the cleaner has removed."""
    bytes: int | None
    """On the brokers' disks, of one replica; None when they do not tell."""
    begins: int
    """The largest first offset of its partitions: above 0 the beginning is gone."""
    compacted: bool
    dirty: int | None
    """Documents with updates that no whole document follows."""
    oldest_seconds: float | None
    """The age of the oldest of these updates; None when there are none."""
    told_seconds: float | None
    """Since the partition of which nothing was told for the longest time."""
    behind: int
    """Offsets that were not told of."""
    settings: Mapping[str, str]

    def as_json(self) -> dict[str, Any]:
        return {key: value for key, value in asdict(self).items() if key != "settings"}


@dataclass(frozen=True, slots=True)
class LogStatus:
    compaction: Compaction | None
    topics: tuple[TopicLog, ...]

    @property
    def warnings(self) -> Iterator[str]:
        """How near the rule is to being broken, that updates are followed by documents before the cleaner comes."""
        if self.compaction is None:
            return
        half = self.compaction.lag_ms / 2000
        if never := [one.namespace for one in self.topics if one.told_seconds is None and one.offsets]:
            yield (
                f"`towpath compact` has not been at {_first(never)}: start it, for what the cleaner is let at has to be"
                " protected ([log] compact)"
            )
        if late := [one for one in self.topics if one.behind and (one.told_seconds or 0) > half]:
            longest = max(one.told_seconds or 0 for one in late)
            yield (
                f"`towpath compact` has told nothing of {_first([one.namespace for one in late])} for {longest:,.0f} s:"
                f" is it running? the cleaner may touch updates that are older than {2 * half:,.0f} s"
            )
        for one in self.topics:
            if (one.oldest_seconds or 0) > half:
                yield (
                    f"{one.namespace}: an update is {one.oldest_seconds:,.0f} s old, and no whole document follows it;"
                    f" the cleaner may touch what is older than {2 * half:,.0f} s; see what `towpath compact` says"
                )

    def as_json(self) -> dict[str, Any]:
        return {"topics": [one.as_json() for one in self.topics], "warnings": list(self.warnings)}


def _first(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1:,} more"


def look(pipeline: Pipeline, topics: Topics, ends: Mapping[Place, tuple[int, int]]) -> LogStatus:
    """The log as it is now; `ends`: of every partition of its topics."""
    names, sizes = sorted({topic for topic, _ in ends}), bytes_of_topics(topics.bootstrap, topics.client)
    settings = topics.settings_of_all(names)
    committed = topics.committed_with_words(pipeline.compaction_group) if pipeline.compaction else {}
    told = {place: (offset, known) for place, (offset, words) in committed.items() if (known := figures(words))}
    found = (_topic(pipeline, name, ends, settings[name], told, sizes) for name in names)
    return LogStatus(pipeline.compaction, tuple(found))


def _topic(
    pipeline: Pipeline,
    name: str,
    ends: Mapping[Place, tuple[int, int]],
    settings: Mapping[str, str],
    told: Mapping[Place, tuple[int, Figures]],
    sizes: Mapping[str, int] | None,
) -> TopicLog:
    mine = {place: bounds for place, bounds in ends.items() if place[0] == name}
    known = [told[place][1] for place in mine if place in told]
    oldest = min((one.oldest for one in known if one.oldest is not None), default=None)
    return TopicLog(
        namespace=namespace_of(pipeline.name, name),
        topic=name,
        offsets=sum(end - first for first, end in mine.values()),
        bytes=sizes.get(name, 0) if sizes is not None else None,
        begins=max((first for first, _ in mine.values()), default=0),
        compacted=is_compacted(settings),
        dirty=sum(one.dirty for one in known) if known else None,
        oldest_seconds=_age(oldest),
        told_seconds=_age(min(one.at for one in known)) if len(known) == len(mine) else None,
        behind=sum(max(0, end - told[place][0] - _CONTROL) for place, (_, end) in mine.items() if place in told),
        settings=settings,
    )


def _age(time_ms: int | None) -> float | None:
    return None if time_ms is None else max(0.0, round(time.time() - time_ms / 1000, 3))


_SHOWN = 20  # topics that are told one by one


@dataclass(frozen=True, slots=True)
class LogSeen:
    log: LogStatus
    warnings: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        return {"topics": [one.as_json() for one in self.log.topics], "warnings": list(self.warnings)}

    def rows(self) -> Iterator[tuple[str, str]]:
        """Name and line for people; topics with unprotected updates first."""
        shown = sorted(self.log.topics, key=lambda one: (-(one.dirty or 0), one.namespace))[:_SHOWN]
        for number, one in enumerate(shown):
            yield "" if number else "log", _line(one, compacts=self.log.compaction is not None)
        if len(self.log.topics) > _SHOWN:
            rest = len(self.log.topics) - _SHOWN
            yield "", f"and {rest:,} more topics"


def _line(one: TopicLog, *, compacts: bool) -> str:
    held = "" if one.bytes is None else f", {size(one.bytes)}"
    line = f"{one.namespace}: {one.offsets:,} offsets{held}"
    if not compacts:
        return line
    if one.told_seconds is None or one.dirty is None:
        return f"{line}, never looked at by `towpath compact`"
    oldest = "" if one.oldest_seconds is None else f", the oldest {duration(one.oldest_seconds)} old"
    off = "" if one.compacted else "; not compacted yet"
    return (
        f"{line}, {one.dirty:,} documents with updates to protect{oldest}, told {duration(one.told_seconds)} ago{off}"
    )


def report(it: Session, ends: Mapping[Place, tuple[int, int]]) -> LogSeen:
    found = look(it.pipeline, it.topics, ends)
    findings = [
        f"{finding.subject}: {finding.finding}; {finding.advice}"
        for one in found.topics
        for finding in guard(one.namespace, one.settings, one.begins, it.pipeline)
    ]
    return LogSeen(found, (*found.warnings, *findings, *capture.warnings(it)))
