"""What a cutover tells as it goes: a line each, or JSON; all of it is kept for the report."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal

import click

from towpath.cutover.gate import Check
from towpath.session import say

Kind = Literal["gate", "step", "stop writes", "switch", "undone", "left", "end"]
_MARKS = {True: click.style("ok ", fg="green"), False: click.style("red", fg="red", bold=True)}


@dataclass(frozen=True, slots=True)
class Event:
    """`at`: seconds since the epoch. `figures` are as JSON."""

    kind: Kind
    words: str
    at: float
    figures: dict[str, Any]

    def as_json(self) -> dict[str, Any]:
        at = datetime.fromtimestamp(self.at, UTC).isoformat(timespec="milliseconds")
        return {"event": self.kind, "at": at, "words": self.words, **self.figures}


@dataclass(slots=True)
class Telling:
    as_json: bool
    events: list[Event] = field(default_factory=list)
    doing: str = ""
    """The step that was begun last."""

    def tell(self, kind: Kind, words: str, **figures: Any) -> None:
        event = Event(kind, words, time.time(), figures)
        self.events.append(event)
        click.echo(json.dumps(event.as_json(), ensure_ascii=False) if self.as_json else words)

    def gate(self, checks: Sequence[Check]) -> None:
        """The checklist."""
        self.events.append(Event("gate", "", time.time(), {"checks": [one.as_json() for one in checks]}))
        if self.as_json:
            click.echo(json.dumps(self.events[-1].as_json(), ensure_ascii=False))
            return
        width = max(len(one.name) for one in checks)
        for one in checks:
            click.echo(f"{_MARKS[one.good]}  {one.name:<{width}}  {one.found}")
            if one.advice and not one.good:
                click.echo(f"     {'':<{width}}  → {one.advice}")

    @contextmanager
    def step(self, words: str) -> Iterator[dict[str, Any]]:
        """Something that takes a while; figures that are put into what it gives are told with it."""
        say(f"{words} …")
        self.doing = words
        begun, figures = time.monotonic(), dict[str, Any]()
        yield figures
        seconds = round(time.monotonic() - begun, 3)
        shown = "".join(f", {value:,} {name.replace('_', ' ')}" for name, value in figures.items())
        self.tell("step", f"{words}: {seconds:.1f} s{shown}", step=words, seconds=seconds, **figures)
