"""What happens in a cutover, as events: each is handed to who shows them, and all are kept for the report."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from towpath.events import Step, Told
from towpath.session import Say


@dataclass(slots=True)
class Telling:
    """`show` is given each event, `say` the words about a step that begins."""

    show: Callable[[Told], None]
    say: Say
    events: list[Told] = field(default_factory=list)
    doing: str = ""
    """The step that was begun last."""

    def tell(self, event: Told) -> None:
        event = replace(event, at=datetime.now(UTC))
        self.events.append(event)
        self.show(event)

    @contextmanager
    def step(self, words: str) -> Iterator[dict[str, int]]:
        """Something that takes a while; `documents` and `commands` that are put into what it gives are told with it."""
        self.say(f"{words} …")
        self.doing = words
        begun, figures = time.monotonic(), dict[str, int]()
        yield figures
        seconds = round(time.monotonic() - begun, 3)
        shown = "".join(f", {count:,} {name}" for name, count in figures.items())
        told = f"{words}: {seconds:.1f} s{shown}"
        counts = figures.get("documents"), figures.get("commands")
        self.tell(Step(words=told, step=words, seconds=seconds, documents=counts[0], commands=counts[1]))
