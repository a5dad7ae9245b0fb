"""The replays of a pipeline and the rebuild of its destination, as `towpath status` shows them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from towpath.clients.connect.control import statuses
from towpath.errors import MongoError, MongoUnreachable, TowpathError, fields
from towpath.history.replay import rebuild
from towpath.history.replay.plan import Replay, change_topics, find_all
from towpath.log.bounds import still_in_log
from towpath.log.lag import measure
from towpath.session import Session
from towpath.store import positions


@dataclass(frozen=True, slots=True)
class State:
    """`state` is the connector's, or FAILED when a task has failed."""

    replay: Replay
    state: str
    reasons: tuple[str, ...]
    records: int
    """Of the log when the replay began."""
    records_done: int | None = None
    """Those that are applied; None while its destination does not answer."""
    records_behind: int | None = None
    """Records of the log that are not applied yet."""
    dead_letters: int = 0
    """Records in its dead-letter topic; a record can be there twice."""
    trouble: str = ""
    error: dict[str, str] | None = None
    """The trouble as data, where it is an error: see `towpath.errors`."""

    def as_json(self) -> dict[str, Any]:
        plan = self.replay.plan.as_json()
        figures = ("state", "reasons", "records_done", "records", "records_behind", "dead_letters", "trouble", "error")
        return {
            "label": self.replay.label,
            "connector": self.replay.name,
            "destination": str(self.replay.destination),
            **{name: plan[name] for name in ("only", "until", "follow", "began")},
            **{name: getattr(self, name) for name in figures},
        }


def _state(replay: Replay, session: Session) -> State:
    topics = session.topics
    (connector,) = statuses(session.connect, [replay.name])
    existing = topics.all()
    letters = topics.ends(topic for name, topic in existing.items() if name == replay.sink.dead_letter_topic)
    state = State(
        replay,
        "FAILED" if connector.failures else connector.state,
        connector.failures,
        records=replay.plan.offsets,
        dead_letters=sum(end - max(first, replay.plan.letters) for first, end in letters.values()),
    )
    if replay.uri is None:
        trouble = f"{replay.secrets} cannot be read on this machine, so its destination cannot be queried"
        return replace(state, trouble=trouble)
    try:
        with session.replay_destination(replay.uri).briefly() as client:
            applied = {place: position.offset for place, position in positions.positions(client, replay.sink).items()}
    except TowpathError as error:
        return replace(state, trouble=str(error), error=fields(error))
    ends = topics.ends(change_topics(replay.pipeline, replay.plan.only, existing))
    remaining = measure(topics, still_in_log(replay.plan.log, topics), applied).records
    behind = measure(topics, ends, applied).records
    return replace(state, records_done=state.records - remaining, records_behind=behind)


_HEALTHY = ("RUNNING", "UNASSIGNED", "RESTARTING")


@dataclass(frozen=True, slots=True)
class Replays:
    """All replays of a pipeline, and a rebuild that has not ended."""

    replays: tuple[State, ...] = ()
    rebuild: rebuild.State | None = None
    rebuild_trouble: str = ""
    """Why it is not known whether a rebuild has not ended."""

    def as_json(self) -> dict[str, Any]:
        return {
            "replays": [state.as_json() for state in self.replays],
            "rebuild": self.rebuild and self.rebuild.as_json(),
            "rebuild_trouble": self.rebuild_trouble,
        }

    def rows(self) -> Iterator[tuple[str, str, str]]:
        """Label, text and style of each row."""
        if self.rebuild is not None:
            yield "rebuilding", f"{self.rebuild.words}; the same `towpath replay --rebuild` continues it", ""
        if self.rebuild_trouble:
            yield "rebuilding", f"unknown: {self.rebuild_trouble}", "red"
        for state in self.replays:
            bad = bool(state.reasons or state.dead_letters) or state.state not in _HEALTHY
            yield f"replay {state.replay.label}", _description(state), "red" if bad else ""


def report(session: Session) -> Replays:
    """The replays now. If the destination does not answer at all, the status itself reports that."""
    replays = tuple(_state(replay, session) for replay in find_all(session.connect, session.pipeline))
    try:
        return Replays(replays, rebuild.read_state(session))
    except MongoUnreachable:
        return Replays(replays)
    except MongoError as error:
        return Replays(replays, rebuild_trouble=str(error))


def _description(state: State) -> str:
    plan = state.replay.plan
    text = f"to {state.replay.destination}: "
    if state.records_done is None:
        text += f"progress unknown ({state.trouble})"
    elif state.records_done < state.records:
        text += f"{state.records_done:,} of about {state.records:,} records"
    elif plan.follow:
        text += f"follows, {state.records_behind or 0:,} records behind"
    else:
        text += "all of the log is applied; the same `towpath replay` ends it"
    if state.dead_letters:
        text += f"; {state.dead_letters:,} dead letters in {state.replay.sink.dead_letter_topic}"
    if state.state != "RUNNING":
        text += f"; {state.state}" + (f": {'; '.join(state.reasons)}" if state.reasons else "")
    return text
