"""How the replays of a pipeline do, as `status` shows it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from connectors import sink_state
from connectors.clusters import REPLAY_SIDE, connected
from connectors.connect import Connect
from connectors.errors import ConnectorsError
from connectors.lag import measure
from connectors.lifecycle import statuses
from connectors.replays import Replay, change_topics, every
from connectors.spec import Pipeline
from connectors.topics import Topics


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
    trouble: str = ""

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
            "trouble": self.trouble,
        }


def look(pipeline: Pipeline, connect: Connect, topics: Topics) -> tuple[State, ...]:
    """All replays of the pipeline, as they are now."""
    return tuple(_state(replay, connect, topics) for replay in every(connect, pipeline))


def _state(replay: Replay, connect: Connect, topics: Topics) -> State:
    (connector,) = statuses(connect, [replay.name])
    state = "FAILED" if connector.failures else connector.state
    of = sum(end - first for first, end in replay.plan.log.values())
    if replay.uri is None:
        words = f"{replay.secrets} cannot be read from here, so that its destination cannot be asked"
        return State(replay, state, connector.failures, of, trouble=words)
    try:
        with connected(replay.uri, REPLAY_SIDE, timeout=5) as client:
            done = {place: found.offset for place, found in sink_state.positions(client, replay.sink).items()}
    except ConnectorsError as error:
        return State(replay, state, connector.failures, of, trouble=str(error))
    ends = topics.ends(change_topics(replay.pipeline, replay.plan.only, topics.all()))
    left = measure(topics, replay.plan.log, done).records
    return State(replay, state, connector.failures, of, of - left, measure(topics, ends, done).records)
