"""The replays of a pipeline and the rebuild of its destination, as `towpath status` shows them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from connectors.control import statuses
from connectors.rest import Connect
from towpath.bookkeeping import positions
from towpath.errors import MongoUnreachable, TowpathError, fields
from towpath.kafka.topics import Topics
from towpath.log.bounds import remaining
from towpath.log.lag import measure
from towpath.mongo.client import REPLAY_SIDE, briefly
from towpath.pipeline import Pipeline
from towpath.replay import rebuild_marker
from towpath.replay.plan import Replay, change_topics, every
from towpath.session import Session


@dataclass(frozen=True, slots=True)
class State:
    """`state` is the connector's, or FAILED when a task has failed."""

    replay: Replay
    state: str
    reasons: tuple[str, ...]
    of: int
    """Records of the log when the replay began."""
    done: int | None = None
    """Those of them that are applied; None when its destination, which tells, does not."""
    behind: int | None = None
    """Records between it and the end of the log now."""
    dead_letters: int = 0
    """Records in its dead-letter topic; one can be there twice."""
    trouble: str = ""
    error: dict[str, str] | None = None
    """The trouble as data, where it is an error: see `towpath.errors`."""

    def as_json(self) -> dict[str, Any]:
        plan = self.replay.plan
        return {
            "label": self.replay.label,
            "connector": self.replay.name,
            "destination": str(self.replay.destination),
            "only": list(plan.only),
            "until": str(plan.until) if plan.until else None,
            "follow": plan.follow,
            "began": plan.began,
            "state": self.state,
            "reasons": list(self.reasons),
            "records_done": self.done,
            "records": self.of,
            "records_behind": self.behind,
            "dead_letters": self.dead_letters,
            "trouble": self.trouble,
            "error": self.error,
        }


def look(pipeline: Pipeline, connect: Connect, topics: Topics) -> tuple[State, ...]:
    """All replays of the pipeline, as they are now."""
    return tuple(_state(replay, connect, topics) for replay in every(connect, pipeline))


def _state(replay: Replay, connect: Connect, topics: Topics) -> State:
    (connector,) = statuses(connect, [replay.name])
    existing = topics.all()
    letters = topics.ends(topic for name, topic in existing.items() if name == replay.dead_letter_topic)
    shown = State(
        replay,
        "FAILED" if connector.failures else connector.state,
        connector.failures,
        of=sum(end - first for first, end in replay.plan.log.values()),
        dead_letters=sum(end - max(first, replay.plan.letters) for first, end in letters.values()),
    )
    if replay.uri is None:
        words = f"{replay.secrets} cannot be read from here, so that its destination cannot be asked"
        return dataclasses.replace(shown, trouble=words)
    try:
        with briefly(replay.uri, REPLAY_SIDE) as client:
            done = {place: found.offset for place, found in positions.positions(client, replay.sink).items()}
    except TowpathError as error:
        return dataclasses.replace(shown, trouble=str(error), error=fields(error))
    ends = topics.ends(change_topics(replay.pipeline, replay.plan.only, existing))
    left = measure(topics, remaining(replay.plan.log, topics), done).records
    return dataclasses.replace(shown, done=shown.of - left, behind=measure(topics, ends, done).records)


_WELL = ("RUNNING", "UNASSIGNED", "RESTARTING")


@dataclass(frozen=True, slots=True)
class Replays:
    """What there is of them now."""

    replays: tuple[State, ...] = ()
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


def report(it: Session) -> Replays:
    """As they are now. A destination that does not answer is told by the status itself."""
    replays = look(it.pipeline, it.connect, it.topics)
    try:
        return Replays(replays, rebuild_marker.look(it.pipeline, it.topics))
    except MongoUnreachable:
        return Replays(replays)


def _words(state: State) -> str:
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
