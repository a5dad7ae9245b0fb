"""How the replays of a pipeline do, as `status` shows it."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from connectors.control import statuses
from connectors.rest import Connect
from towpath.bookkeeping import positions
from towpath.errors import TowpathError
from towpath.kafka.topics import Topics
from towpath.log.bounds import still_there
from towpath.log.lag import measure
from towpath.mongo.client import REPLAY_SIDE, briefly
from towpath.pipeline import Pipeline
from towpath.replay.plan import Replay, change_topics, every


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
        return dataclasses.replace(shown, trouble=str(error))
    ends = topics.ends(change_topics(replay.pipeline, replay.plan.only, existing))
    left = measure(topics, still_there(replay.plan.log, topics), done).records
    return dataclasses.replace(shown, done=shown.of - left, behind=measure(topics, ends, done).records)
