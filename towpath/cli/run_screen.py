"""The live screen of `towpath run`: the rows of the state, and the newest events below them."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from towpath.cli.status import lag_text
from towpath.config.events import TimedEvent
from towpath.run.dead_letters import DeadLetterRetries
from towpath.run.report import Report
from towpath.run.supervisor import Supervisor, described

#: Name, line and style of a row.
Row = tuple[str, str, str]


def rows(supervisor: Supervisor) -> Iterator[Row]:
    """What the supervisor knows."""
    name, minutes = supervisor.session.pipeline.name, (time.monotonic() - supervisor.since) / 60
    status = supervisor.status
    if status is None or supervisor.unreachable:
        yield "pipeline", f"{name}: state unknown, supervised for {minutes:.0f} min", "red"
        yield "", supervisor.unreachable, "red"
    else:
        style = "" if status.state == "running" else "red"
        yield "pipeline", f"{name}: {described(status)}, supervised for {minutes:.0f} min", style
        yield from _status(status)
    restarts = ", ".join(f"{connector} {count}" for connector, count in supervisor.restarts.items())
    yield "restarts", restarts or "none", ""
    for connector, command in supervisor.remedies.items():
        yield "to do", f"{connector}: {command}", "red"
    yield from _dead_letters(status, supervisor.dead_letters)
    for service in supervisor.services.services:
        state = "" if service.child is not None else "not running; "
        yield service.command, f"{state}{service.last_report or 'no report yet'}", ""
    for line, differs in supervisor.verified().lines():
        yield "verified", line, "red" if differs else ""
    changes = status and status.raw.changes
    for shown in changes.open if changes else supervisor.stuck.values():
        yield "ddl", shown.line(supervisor.session.file), "red" if shown.is_stuck else ""
    for change in supervisor.ddl:
        yield "ddl", change.line, "yellow"


def _status(status: Report) -> Iterator[Row]:
    if status.copy is not None and status.copying:
        unfinished = [copy for copy in status.copy.collections if not copy.done]
        progress = ", ".join(
            f"{copy.namespace} {copy.documents:,} of {copy.estimated_documents:,}" for copy in unfinished
        )
        yield "copy", f"under way: {progress}", ""
    yield "lag", f"{lag_text(status.lag)}; {status.records_per_second or 0:,.0f} records/s into the log", ""
    for error in status.errors:
        yield "", error.message, "red"


def _dead_letters(status: Report | None, retries: DeadLetterRetries) -> Iterator[Row]:
    count = "unknown" if status is None or status.dead_letters is None else f"{status.dead_letters:,}"
    repaired = f", {retries.repaired:,} repaired" if retries.repaired else ""
    yield "dead letters", f"{count}; {retries.words} to repair{repaired}", ""
    for group, seconds in retries.causes(time.monotonic()):
        when = "being retried" if seconds is None else f"retried in {seconds:.0f} s"
        yield "", f"{len(group):,} of {group[0].description}; {when}", "red"


@dataclass(slots=True)
class Screen:
    """The rows of the state, and the newest events below them; drawn at most once a second."""

    live: Live
    _drawn: float = 0.0

    def draw(self, supervisor: Supervisor) -> None:
        if time.monotonic() - self._drawn < 1:
            return
        self._drawn = time.monotonic()
        self.live.update(_drawing(rows(supervisor), list(supervisor.events.newest)), refresh=True)


def _drawing(rows: Iterable[Row], events: Sequence[TimedEvent]) -> RenderableType:
    state = Table.grid(padding=(0, 2))
    for name, line, style in rows:
        state.add_row(Text(name), Text(line, style=style))
    newest = Table.grid(padding=(0, 2))
    for event in events:
        newest.add_row(Text(f"{event.reported_at:%H:%M:%S}", style="dim"), Text(event.words or ""))
    return Group(state, Text(), newest, Text("times are UTC; Ctrl-C ends", style="dim"))


@contextmanager
def live_screen() -> Iterator[Screen | None]:
    """A screen on a terminal; None elsewhere."""
    console = Console()
    if not console.is_terminal:
        yield None
        return
    with Live(console=console, auto_refresh=False, transient=True) as live:
        yield Screen(live)
