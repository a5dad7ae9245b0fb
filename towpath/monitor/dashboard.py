"""What is shown of all pipelines: the newest report of each, its last hour, its events and commands.

Threads that read pipelines `publish` reports and events. All else happens in the server's event loop, so that no fault
of a page harms a supervisor.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from towpath.checks.rule import Finding
from towpath.config.events import TimedEvent
from towpath.monitor import pages
from towpath.monitor.updates import Update, Updates
from towpath.run.report import Problem, Report, as_json

#: The columns of a sample of the last hour. Times are seconds since the epoch.
COLUMNS = (
    *("at", "capture_lag_seconds", "apply_lag_seconds"),
    *("records_per_second", "sink_records_per_second", "lag_records"),
)
Sample = tuple[float | None, ...]
_SECONDS = 3600  # of history, with a sample a second at most
_EVENTS, _COMMANDS = 100, 10  # that are kept


@dataclass(slots=True)
class Command:
    """A command that was started from the page or the API. Times are seconds since the epoch."""

    command: str
    began: float
    ended: float | None = None
    exit: int | None = None
    words: str = ""
    """Its last line."""
    checks: tuple[Finding, ...] | None = None
    """The gate, of the dry run of a cutover."""


@dataclass(frozen=True, slots=True)
class Short:
    """A pipeline in short."""

    name: str
    mode: str
    state: str
    at: float | None
    errors: tuple[Problem, ...]
    lag_seconds: float | None
    lag_records: int | None
    records_per_second: float | None
    sink_records_per_second: float | None
    dead_letters: int | None
    copying: bool
    verdict: str | None
    """Of the newest verdict on everything, or else of the newest one; `repaired since` once all is repaired."""
    verdict_age_seconds: int | None
    ddl_waiting: int | None
    cutover: str | None

    @classmethod
    def of(cls, report: Report) -> Short:
        verdict = report.verification.full or report.verification.last
        return cls(
            name=report.name,
            mode=report.mode,
            state=report.state,
            at=report.at,
            errors=report.errors,
            lag_seconds=report.lag.seconds,
            lag_records=report.lag.records,
            records_per_second=report.records_per_second,
            sink_records_per_second=report.sink_records_per_second,
            dead_letters=report.dead_letters,
            copying=report.copying,
            verdict=verdict.shown if verdict else None,
            verdict_age_seconds=round(verdict.age) if verdict else None,
            ddl_waiting=report.ddl_waiting,
            cutover=report.cutover.state if report.cutover else None,
        )


@dataclass(frozen=True, slots=True)
class History:
    """The last hour; null where nothing is known."""

    columns: Sequence[str]
    samples: Sequence[Sample]


@dataclass(slots=True)
class Shown:
    """One pipeline."""

    report: Report
    hurry: Callable[[], None]
    """Makes the next poll come at once and read everything."""
    samples: deque[Sample] = field(default_factory=lambda: deque(maxlen=_SECONDS))
    events: deque[dict[str, Any]] = field(default_factory=lambda: deque(maxlen=_EVENTS))
    commands: deque[Command] = field(default_factory=lambda: deque(maxlen=_COMMANDS))
    sections: dict[str, str] = field(default_factory=dict)
    """Of the page: id → HTML."""

    @property
    def whole(self) -> dict[str, Any]:
        """What `/api/v1/pipelines/NAME` answers."""
        commands = [as_json(command) for command in self.commands]
        return {**as_json(self.report), "events": list(self.events), "commands": commands}

    @property
    def dry_run(self) -> Command | None:
        """The last dry run of a cutover."""
        return next((c for c in reversed(self.commands) if c.command == "cutover-dry-run"), None)

    def add(self, report: Report) -> Sample:
        """Show a new report. While the state is unknown, all of its sample but the time is null: a gap."""
        self.report = report
        if report.state == "unknown" or report.at is None:
            sample: Sample = (round(time.time(), 1), None, None, None, None, None)
        else:
            lags = report.lag.capture_seconds, report.lag.apply_seconds
            rates = report.records_per_second, report.sink_records_per_second
            sample = (round(report.at, 1), *lags, *rates, report.lag.records)
        self.samples.append(sample)
        while (self.samples[0][0] or 0) < (sample[0] or 0) - _SECONDS:
            self.samples.popleft()
        return sample


class Dashboard:
    """All pipelines that are shown, in the order in which they were added."""

    def __init__(self) -> None:
        self.updates = Updates()
        self.loop: asyncio.AbstractEventLoop | None = None
        """The server's; None before it serves, when nothing is shown."""
        self.pipelines: dict[str, Shown] = {}
        self._number = 0

    def add(self, report: Report, hurry: Callable[[], None]) -> None:
        shown = self.pipelines[report.name] = Shown(report, hurry)
        shown.sections = pages.sections(self.context(shown))

    def publish(self, report: Report) -> None:
        """Show a new report; from any thread."""
        self._in_loop(self._publish, report)

    def event(self, name: str, event: TimedEvent) -> None:
        """Show an event of the supervisor; from any thread."""
        self._in_loop(self._event, name, event)

    def _in_loop(self, act: Callable[..., None], *arguments: Any) -> None:
        if self.loop is not None and not self.loop.is_closed():
            self.loop.call_soon_threadsafe(act, *arguments)

    def _publish(self, report: Report) -> None:
        name, shown = report.name, self.pipelines[report.name]
        sample = Update.of(f"sample {name}", "sample", shown.add(report), audience="page", pipeline=name)
        self.updates.send([*self._changes(shown), _short(shown), _row(shown), sample])

    def _event(self, name: str, event: TimedEvent) -> None:
        shown = self.pipelines[name]
        values: dict[str, Any] = json.loads(event.line)
        shown.events.append(values)
        self._number += 1
        key = f"event {self._number}"
        update = Update.of(key, "event", {"pipeline": name, **values}, audience="api", pipeline=name)
        self.updates.send([update, *self._changes(shown)])

    def refresh(self, name: str) -> None:
        """Show what has changed apart from the report: the commands."""
        self.updates.send(list(self._changes(self.pipelines[name])))

    def context(self, shown: Shown) -> Mapping[str, Any]:
        """The values of a pipeline's page."""
        return {"p": shown.report, "events": shown.events, "commands": shown.commands, "dry_run": shown.dry_run}

    def first(self, audience: str, name: str) -> list[Update]:
        """The present state, for a client that begins to follow one pipeline, or all (empty)."""
        shown = [shown for shown in self.pipelines.values() if name in ("", shown.report.name)]
        if audience == "page":  # all sections: some may have changed since the client loaded it
            return [_section(name, id, html) for each in shown for id, html in each.sections.items()]
        return [_short(each) if audience == "api" else _row(each) for each in shown]

    def _changes(self, shown: Shown) -> Iterator[Update]:
        before, shown.sections = shown.sections, pages.sections(self.context(shown))
        for id, html in shown.sections.items():
            if html != before.get(id):
                yield _section(shown.report.name, id, html)


def _section(name: str, id: str, html: str) -> Update:
    return Update.of(f"{name} {id}", "section", {"id": id, "html": html}, audience="page", pipeline=name)


def _short(shown: Shown) -> Update:
    name = shown.report.name
    return Update.of(f"short {name}", "pipeline", as_json(Short.of(shown.report)), audience="api", pipeline=name)


def _row(shown: Shown) -> Update:
    name, html = shown.report.name, pages.row(Short.of(shown.report))
    return Update.of(f"row {name}", "row", {"id": f"row-{name}", "html": html}, audience="overview", pipeline=name)
