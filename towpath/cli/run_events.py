"""What `towpath run` tells as it happens: a screen on a terminal, elsewhere a line an event."""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import click
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

_SHOWN = 8  # events on the screen
#: Name, line and style of a row of the screen.
Row = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class Event:
    at: datetime
    kind: str
    words: str
    more: Mapping[str, Any]

    def as_json(self) -> dict[str, Any]:
        first = {"at": self.at.isoformat(timespec="milliseconds"), "event": self.kind, "words": self.words}
        return first | {name: value for name, value in self.more.items() if name not in first}

    @property
    def line(self) -> str:
        return f"{self.at:%Y-%m-%d %H:%M:%S} UTC  {self.words}"


@dataclass(slots=True)
class Events:
    """Tells each thing once: again only when its words have changed meanwhile."""

    write: Callable[[Event], None]
    newest: deque[Event] = field(default_factory=lambda: deque(maxlen=_SHOWN))
    _standing: dict[str, str] = field(default_factory=dict)

    def tell(self, kind: str, words: str, more: Mapping[str, Any] | None = None) -> None:
        event = Event(datetime.now(UTC), kind, words, more or {})
        self.newest.append(event)
        self.write(event)

    def standing(
        self, kind: str, about: str, words: str, well: str = "", more: Mapping[str, Any] | None = None
    ) -> None:
        """How `about` stands; no words when there is nothing to be told. What was told before is over then: `well`
        says so, or a few words of it do."""
        before = self._standing.get(about, "")
        if words == before:
            return
        self._standing[about] = words
        over = well or f"over: {before.partition('; ')[0]}"
        if words or before:
            self.tell(kind, words or over, {"about": about, **(more or {})})


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
