"""What is shown of all pipelines: the newest report of each, its last hour, its events and commands.

Threads that look at pipelines `publish` reports and events. All else happens in the server's event loop, so that no
fault of a page harms a supervisor. A report is never changed once it is published.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from towpath.config.events import TimedEvent
from towpath.config.pipeline import Pipeline
from towpath.monitor import pages
from towpath.monitor.history import History
from towpath.monitor.updates import Update, Updates
from towpath.verify.full_verdict import age

Report = Mapping[str, Any]
_EVENTS, _COMMANDS = 100, 10  # that are kept

#: Keys of a report that `/api/v1/pipelines` has as well.
_SHORT = ("name", "mode", "state", "at", "records_per_second", "dead_letters", "trouble")


def ddl_waiting(report: Report) -> int:
    """Schema changes that wait for somebody: reported ones, and those in the log that are held or refused."""
    return len(report.get("ddl") or ()) + sum(bool(change["commands"]) for change in report.get("schema_changes", ()))


@dataclass(slots=True)
class Command:
    """A verb that somebody has started from the page or the API."""

    verb: str
    began: float
    ended: float | None = None
    exit: int | None = None
    words: str = ""
    """Its last line."""
    checks: list[dict[str, Any]] | None = None
    """The gate, of the dry run of a cutover."""

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(slots=True)
class Shown:
    """One pipeline."""

    report: Report
    hurry: Callable[[], None]
    """Makes the next look come at once and read everything."""
    history: History = field(default_factory=History)
    events: deque[dict[str, Any]] = field(default_factory=lambda: deque(maxlen=_EVENTS))
    commands: deque[Command] = field(default_factory=lambda: deque(maxlen=_COMMANDS))
    sections: dict[str, str] = field(default_factory=dict)
    """Of the page: id → HTML."""

    @property
    def whole(self) -> dict[str, Any]:
        """What `/api/v1/pipelines/NAME` answers."""
        return {
            **self.report,
            "events": list(self.events),
            "commands": [command.as_json() for command in self.commands],
        }

    @property
    def gate(self) -> dict[str, Any]:
        dry_run = next((c for c in reversed(self.commands) if c.verb == "cutover-dry-run"), None)
        return {"checks": self.report.get("checks", []), "dry_run": dry_run and dry_run.as_json()}

    @property
    def verdict(self) -> dict[str, Any]:
        names = ("verify", "last_verdict", "full_verdict", "verdict_doubt")
        shown = {name: self.report.get(name) for name in names}
        return shown | {
            "verdict_doubt": shown["verdict_doubt"] or "",
            "differences": self.report.get("differences", []),
        }

    @property
    def dead_letters(self) -> dict[str, Any]:
        return {
            "count": self.report.get("dead_letters"),
            "complete": self.report.get("dead_letters_complete"),
            "causes": self.report.get("dead_letter_causes", []),
            "newest": self.report.get("dead_letter_examples", []),
        }

    @property
    def short(self) -> dict[str, Any]:
        report = self.report
        verdict = _verdict(report)
        lag = report.get("lag") or {}
        return {
            **{key: report.get(key) for key in _SHORT},
            "lag_seconds": lag.get("seconds"),
            "lag_records": lag.get("records"),
            "sink_records_per_second": report.get("sink_records_per_second"),
            "copying": report["state"] != "missing" and not report.get("snapshot", {}).get("done", True),
            "verdict": verdict and ("repaired since" if _is_repaired(verdict) else verdict["verdict"]),
            "verdict_age_seconds": verdict and round(age(verdict)),
            "ddl_waiting": ddl_waiting(report),
            "cutover": (report.get("cutover") or {}).get("state"),
        }


def _verdict(report: Report) -> Mapping[str, Any] | None:
    """The newest verdict on everything, with what was repaired since; else the newest of any extent."""
    last, full = report.get("last_verdict"), report.get("full_verdict")
    return full if full and not (last and last["id"] == full["id"]) else last


def _is_repaired(verdict: Mapping[str, Any]) -> bool:
    return bool(verdict.get("repaired") and verdict["clean"])


class Board:
    """All pipelines that are shown, in the order in which they were added."""

    def __init__(self) -> None:
        self.updates = Updates()
        self.loop: asyncio.AbstractEventLoop | None = None
        """The server's; None before it serves, when nothing is shown to anybody."""
        self._pipelines: dict[str, Shown] = {}
        self._number = 0

    def add(self, pipeline: Pipeline, report: Report, hurry: Callable[[], None]) -> None:
        shown = self._pipelines[pipeline.name] = Shown(report, hurry)
        shown.sections = pages.sections(self.context(shown))

    def get(self, name: str) -> Shown | None:
        return self._pipelines.get(name)

    @property
    def pipelines(self) -> Sequence[Shown]:
        return list(self._pipelines.values())

    @property
    def reports(self) -> Sequence[Report]:
        return [shown.report for shown in self._pipelines.values()]

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
        shown = self._pipelines[report["name"]]
        shown.report = report
        sample = shown.history.add(report)
        self.updates.send([*self._changes(shown), *self._overview(shown), *_sample(report["name"], sample)])

    def _event(self, name: str, event: TimedEvent) -> None:
        shown = self._pipelines[name]
        values: dict[str, Any] = json.loads(event.line)
        shown.events.append(values)
        self._number += 1
        key = f"event {self._number}"
        update = Update.of(key, "event", {"pipeline": name, **values}, audience="api", pipeline=name)
        self.updates.send([update, *self._changes(shown)])

    def refresh(self, name: str) -> None:
        """Show what has changed apart from the report: the commands."""
        self.updates.send(list(self._changes(self._pipelines[name])))

    def context(self, shown: Shown) -> dict[str, Any]:
        """The values of a pipeline's page."""
        return {"p": shown.whole | {"gate": shown.gate}}

    def first(self, name: str) -> list[Update]:
        """All sections of a pipeline's page: some may have changed since the client loaded it."""
        shown = self._pipelines[name]
        return [_section(name, id, html) for id, html in shown.sections.items()]

    def first_short(self, name: str) -> Iterator[Update]:
        """The present state of one pipeline, or of all (empty)."""
        for shown in self._pipelines.values():
            if name in ("", shown.report["name"]):
                yield from self._overview(shown, pages_too=False)

    def first_overview(self) -> Iterator[Update]:
        for shown in self._pipelines.values():
            yield _row(shown)

    def _changes(self, shown: Shown) -> Iterator[Update]:
        before, shown.sections = shown.sections, pages.sections(self.context(shown))
        for id, html in shown.sections.items():
            if html != before.get(id):
                yield _section(shown.report["name"], id, html)

    def _overview(self, shown: Shown, *, pages_too: bool = True) -> Iterator[Update]:
        short = shown.short
        name = short["name"]
        yield Update.of(f"short {name}", "pipeline", short, audience="api", pipeline=name)
        if pages_too:
            yield _row(shown)


def _section(name: str, id: str, html: str) -> Update:
    return Update.of(f"{name} {id}", "section", {"id": id, "html": html}, audience="page", pipeline=name)


def _row(shown: Shown) -> Update:
    short = shown.short
    name, html = short["name"], pages.row(short)
    return Update.of(f"row {name}", "row", {"id": f"row-{name}", "html": html}, audience="overview", pipeline=name)


def _sample(name: str, sample: Sequence[float | None]) -> Iterator[Update]:
    yield Update.of(f"sample {name}", "sample", sample, audience="page", pipeline=name)
