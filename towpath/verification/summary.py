"""What `status` and the cutover's gate tell of verification: the verdicts that count, and the running one."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from towpath.session import Session
from towpath.text import duration
from towpath.verification import follow_state, full_verdict, running_verdict, verdict_file
from towpath.verification.full_verdict import Standing
from towpath.verification.origin import Origin
from towpath.verification.running_verdict import Running


@dataclass(frozen=True, slots=True)
class Verified:
    """`last` is the newest verdict that counts, `full` the newest on everything; `following` what `verify --follow`
    keeps. `doubt`: why a newer one does not count."""

    last: Mapping[str, Any] | None = None
    full: Mapping[str, Any] | None = None
    doubt: str = ""
    following: Running | None = None

    @classmethod
    def look(cls, it: Session) -> Verified:
        """Raises `TowpathError` for files that are broken."""
        return cls.read(it.pipeline.name, Standing.look(it))

    @classmethod
    def read(cls, pipeline: str, standing: Standing) -> Verified:
        """As `look`, with what was asked of the servers before."""
        full, doubt = standing.believed(full_verdict.read(pipeline))
        last: Mapping[str, Any] | None = verdict_file.last(pipeline)
        if last is None or "at" not in last or (full and last.get("id") != full["id"] and last["at"] < full["at"]):
            last = full
        elif full is None or last.get("id") != full["id"]:
            why = standing.doubt(last)
            if full is None and last.get("of") == full_verdict.EVERYTHING:
                why = why or doubt or "the documents were rebuilt or read again since"
            if why:
                last, doubt = full, why
        return cls(last, full, doubt, _following(pipeline, standing))

    @property
    def left(self) -> int:
        """Documents that differ by a later verdict than that on everything, or by `verify --follow`."""
        later = self.last if self.full is None or (self.last and self.last["id"] != self.full["id"]) else None
        return (_total(later) if later else 0) + (self.following.differences if self.following else 0)

    def as_json(self) -> dict[str, Any]:
        return {
            "verify": self.following and self.following.as_json(),
            "last_verdict": _shown(self.last),
            "full_verdict": _shown(self.full),
            "verdict_doubt": self.doubt,
        }

    def lines(self) -> Iterator[tuple[str, bool]]:
        """A line each, and whether it tells of differences."""
        if self.full is not None and self.last is not None and self.full["id"] != self.last["id"]:
            yield words(self.full), not self.full["clean"]
        if self.last is not None:
            yield words(self.last), not self.last["clean"]
        if self.doubt:
            yield f"the last verdict does not count: {self.doubt}", False
        if self.following is not None:
            yield self.following.words, bool(self.following.differences)


def _following(pipeline: str, standing: Standing) -> Running | None:
    """The running verdict, when it is of this life of the pipeline."""
    found, state = running_verdict.read(pipeline), follow_state.read(pipeline)
    before = Origin.of(state.origin) if state else None
    if found is None or before is None or (standing.origin and before.doubt_of_life(standing.origin)):
        return None
    return found


def _shown(verdict: Mapping[str, Any] | None) -> dict[str, Any] | None:
    return None if verdict is None else {name: value for name, value in verdict.items() if name != "origin"}


def _total(verdict: Mapping[str, Any]) -> int:
    return sum(verdict.get(name) or 0 for name in verdict_file.KINDS)


def words(last: Mapping[str, Any]) -> str:
    """A verdict in a line."""
    counts = {name: last.get(name) or 0 for name in (*verdict_file.KINDS, "metadata")}
    found = ", ".join(f"{count:,} {name}" for name, count in counts.items() if count)
    told = "repaired since" if last.get("repaired") and not found else last["verdict"]
    head = f"{told}{f' ({found})' if found else ''}: {last['compared']:,} documents, {last['of']}"
    return f"{head}, {duration(age(last))} ago"


def age(verdict: Mapping[str, Any]) -> float:
    """In seconds."""
    return max(0.0, time.time() - datetime.fromisoformat(verdict["at"]).timestamp())
