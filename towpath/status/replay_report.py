"""The replays of a pipeline and the rebuild of its destination, in `towpath status`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from towpath.errors import MongoUnreachable
from towpath.replay import rebuild_marker
from towpath.session import Session
from towpath.status import replay_states

_WELL = ("RUNNING", "UNASSIGNED", "RESTARTING")


@dataclass(frozen=True, slots=True)
class Replays:
    """What there is of them now."""

    replays: tuple[replay_states.State, ...] = ()
    rebuild: rebuild_marker.State | None = None

    def as_json(self) -> dict[str, Any]:
        return {
            "replays": [state.as_json() for state in self.replays],
            "rebuild": self.rebuild and self.rebuild.as_json(),
        }

    def rows(self) -> Iterator[tuple[str, str, str]]:
        """Name, words and style of each line for people."""
        if self.rebuild is not None:
            yield "rebuilding", f"{self.rebuild.words}; the same `towpath replay --rebuild` goes on with it", ""
        for state in self.replays:
            bad = bool(state.reasons or state.dead_letters) or state.state not in _WELL
            yield f"replay {state.replay.label}", _words(state), "red" if bad else ""


def look(it: Session) -> Replays:
    """As they are now. A destination that does not answer is told by the status itself."""
    replays = replay_states.look(it.pipeline, it.connect, it.topics)
    try:
        return Replays(replays, rebuild_marker.look(it.pipeline, it.topics))
    except MongoUnreachable:
        return Replays(replays)


def _words(state: replay_states.State) -> str:
    plan = state.replay.plan
    words = f"to {state.replay.destination}: "
    if state.done is None:
        words += f"unknown how far ({state.trouble})"
    elif state.done < state.of:
        words += f"{state.done:,} of about {state.of:,} records"
    elif plan.follow:
        words += f"follows, {state.behind or 0:,} records behind"
    else:
        words += "all of the log is applied; the same `towpath replay` ends it"
    if state.dead_letters:
        words += f"; {state.dead_letters:,} dead letters in {state.replay.dead_letter_topic}"
    if state.state != "RUNNING":
        words += f"; {state.state}" + (f": {'; '.join(state.reasons)}" if state.reasons else "")
    return words
