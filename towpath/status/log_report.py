"""The log as `towpath status` shows it: what it holds, how well it is protected, what its settings could lose."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from towpath.preflight import capture
from towpath.preflight.log import guard
from towpath.session import Session
from towpath.status import log_figures
from towpath.status.log_figures import LogStatus, TopicLog
from towpath.text import duration, size

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


def look(it: Session) -> LogSeen:
    found = log_figures.look(it.pipeline, it.topics)
    findings = [
        f"{finding.subject}: {finding.finding}; {finding.advice}"
        for one in found.topics
        for finding in guard(one.namespace, one.settings, one.begins, it.pipeline)
    ]
    return LogSeen(found, (*found.warnings, *findings, *capture.warnings(it)))
