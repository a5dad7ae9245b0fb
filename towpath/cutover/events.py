"""What happens in a cutover, as events: each is handed to who shows them, and all are kept for the report."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal

from towpath.cutover.gate import Check
from towpath.session import Say

Kind = Literal["gate", "step", "stop writes", "switch", "undone", "left", "end"]


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
    """`show` is given each event, `say` the words about a step that begins."""

    show: Callable[[Event], None]
    say: Say
    events: list[Event] = field(default_factory=list)
    doing: str = ""
    """The step that was begun last."""

    def tell(self, kind: Kind, words: str, **figures: Any) -> None:
        event = Event(kind, words, time.time(), figures)
        self.events.append(event)
        self.show(event)

    def gate(self, checks: Sequence[Check]) -> None:
        """The checklist."""
        self.tell("gate", "", checks=[check.as_json() for check in checks])

    @contextmanager
    def step(self, words: str) -> Iterator[dict[str, Any]]:
        """Something that takes a while; figures that are put into what it gives are told with it."""
        self.say(f"{words} …")
        self.doing = words
        begun, figures = time.monotonic(), dict[str, Any]()
        yield figures
        seconds = round(time.monotonic() - begun, 3)
        shown = "".join(f", {value:,} {name.replace('_', ' ')}" for name, value in figures.items())
        self.tell("step", f"{words}: {seconds:.1f} s{shown}", step=words, seconds=seconds, **figures)
