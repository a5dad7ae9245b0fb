"""What `status` tells of verification: the last verdict on this machine, and the running one."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from towpath import running, verdicts
from towpath.running import Running


@dataclass(frozen=True, slots=True)
class Verified:
    """`last` is the last line of the last verdict; `following` what `verify --follow` keeps."""

    last: Mapping[str, Any] | None = None
    following: Running | None = None

    @classmethod
    def read(cls, pipeline: str) -> Verified:
        """Raises `TowpathError` for files that are broken."""
        return cls(verdicts.last(pipeline), running.read(pipeline))

    def as_json(self) -> dict[str, Any]:
        return {"verify": self.following and self.following.as_json(), "last_verdict": self.last}

    def lines(self) -> Iterator[tuple[str, bool]]:
        """A line each, and whether it tells of differences."""
        if self.last is not None and "at" in self.last:
            yield self._last_words(self.last), not self.last["clean"]
        if self.following is not None:
            yield self.following.words, bool(self.following.differences)

    @staticmethod
    def _last_words(last: Mapping[str, Any]) -> str:
        counts = {name: last.get(name) or 0 for name in (*verdicts.KINDS, "metadata")}
        found = ", ".join(f"{count:,} {name}" for name, count in counts.items() if count)
        told = "repaired since" if last.get("repaired") and not found else last["verdict"]
        words = f"{told}{f' ({found})' if found else ''}: {last['compared']:,} documents, {last['of']}"
        return f"{words}, {length(age(last))} ago"


def age(verdict: Mapping[str, Any]) -> float:
    """In seconds."""
    return max(0.0, time.time() - datetime.fromisoformat(verdict["at"]).timestamp())


def length(seconds: float) -> str:
    """Of a time, in words."""
    for unit, whole in (("days", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * whole:
            return f"{seconds / whole:.0f} {unit}"
    return f"{seconds:.0f} s"
