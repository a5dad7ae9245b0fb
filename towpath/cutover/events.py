"""The events of a cutover: each is shown at once and kept for the report."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from towpath.config.events import Step, TimedEvent, label
from towpath.session import Say


@dataclass(slots=True)
class Reporter:
    """`show` receives each event, `say` a line for each step that starts."""

    show: Callable[[TimedEvent], None]
    say: Say
    events: list[TimedEvent] = field(default_factory=list)
    current_step: str = ""
    """The step that started last."""

    def report(self, event: TimedEvent) -> None:
        event = replace(event, at=datetime.now(UTC))
        self.events.append(event)
        self.show(event)

    @contextmanager
    def step(self, name: str) -> Iterator[dict[str, int]]:
        """Time a step. Its event contains the counts `documents` and `commands` that the body puts into the dict."""
        self.current_step = label(name)
        self.say(f"{self.current_step} …")
        start, figures = time.monotonic(), dict[str, int]()
        yield figures
        seconds = round(time.monotonic() - start, 3)
        counts = "".join(f", {count:,} {unit}" for unit, count in figures.items())
        documents, commands = figures.get("documents"), figures.get("commands")
        words = f"{label(name)}: {seconds:.1f} s{counts}"
        self.report(Step(words=words, step=name, seconds=seconds, documents=documents, commands=commands))
