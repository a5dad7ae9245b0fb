"""What `towpath run` tells as it happens: a screen on a terminal, elsewhere a line an event."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import click
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from towpath.supervisor.events import Event, Row


def plain(event: Event) -> None:
    click.echo(event.line)


def as_json(event: Event) -> None:
    click.echo(json.dumps(event.as_json(), ensure_ascii=False))


@dataclass(slots=True)
class Screen:
    """The rows that stand, and the newest events below them; drawn at most once a second."""

    live: Live
    _drawn: float = 0.0

    def draw(self, rows: Sequence[Row], events: Sequence[Event]) -> None:
        if time.monotonic() - self._drawn < 1:
            return
        self._drawn = time.monotonic()
        self.live.update(_drawing(rows, events), refresh=True)


def _drawing(rows: Sequence[Row], events: Sequence[Event]) -> RenderableType:
    facts = Table.grid(padding=(0, 2))
    for name, line, style in rows:
        facts.add_row(Text(name), Text(line, style=style))
    past = Table.grid(padding=(0, 2))
    for event in events:
        past.add_row(Text(f"{event.at:%H:%M:%S}", style="dim"), Text(event.words))
    return Group(facts, Text(), past, Text("times are UTC; Ctrl-C ends", style="dim"))


@contextmanager
def screen() -> Iterator[Screen | None]:
    """A screen where there is a terminal; None elsewhere."""
    console = Console()
    if not console.is_terminal:
        yield None
        return
    with Live(console=console, auto_refresh=False, transient=True) as live:
        yield Screen(live)
