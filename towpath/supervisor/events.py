"""What happens while a pipeline is kept running, as events."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

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
