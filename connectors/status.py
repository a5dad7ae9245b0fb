"""How a pipeline is doing: its connectors, its first copy, its lag."""

from __future__ import annotations

import re
import time
from dataclasses import asdict, dataclass, replace
from typing import Any

from connectors.barrier import committed_position
from connectors.clusters import connected, operation_time
from connectors.connect import Connect, Connector
from connectors.errors import ConnectorsError, NoSuchConnector
from connectors.lag import measure, pipeline_ends
from connectors.lifecycle import statuses
from connectors.namespaces import namespace_of
from connectors.spec import Pipeline
from connectors.topics import Topics

#: Seconds of the log by which the rate is reckoned.
RATE_WINDOW = 10


@dataclass(frozen=True, slots=True)
class Copied:
    """Of one collection: how many documents are in the log, and about how many the source holds."""

    namespace: str
    documents: int
    of: int


@dataclass(frozen=True, slots=True)
class Status:
    """`state`: running, paused, stopped, failed, missing (not deployed) or starting. Lags are in seconds."""

    name: str
    state: str
    snapshot_done: bool
    snapshot: tuple[Copied, ...]
    lag_records: int
    capture_seconds: float
    """How far the log is behind the source."""
    apply_seconds: float
    """Age of the oldest record that is not at the destination, by the source's clock."""
    records_per_second: float
    """Into the log, over the last ten seconds."""
    dead_letters: int
    connectors: tuple[Connector, ...]
    trouble: tuple[str, ...]
    """What kept a part of this from being found out, in words."""

    @property
    def lag_seconds(self) -> float:
        return max(self.capture_seconds, self.apply_seconds)

    def as_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "state": self.state,
            "snapshot": {"done": self.snapshot_done, "collections": [asdict(copied) for copied in self.snapshot]},
            "lag": {
                "records": self.lag_records,
                "seconds": round(self.lag_seconds, 3),
                "capture_seconds": round(self.capture_seconds, 3),
                "apply_seconds": round(self.apply_seconds, 3),
            },
            "records_per_second": round(self.records_per_second, 1),
            "dead_letters": self.dead_letters,
            "connectors": [
                {
                    "name": connector.name,
                    "state": connector.state,
                    "worker": connector.worker,
                    "tasks": [{"id": t.id, "state": t.state, "worker": t.worker} for t in connector.tasks],
                    "reasons": list(connector.failures),
                }
                for connector in self.connectors
            ],
            "trouble": list(self.trouble),
        }


def look(pipeline: Pipeline, connect: Connect, topics: Topics) -> Status:
    """The status now. Raises when Connect or Kafka is out of reach; a source that is shows as `trouble`."""
    topics.brokers()  # first: without Kafka, Connect lets some requests wait for 90 s
    found = tuple(statuses(connect, pipeline.connectors))
    done, behind = _capture(pipeline, connect)
    lag = measure(pipeline, topics)
    status = Status(
        name=pipeline.name,
        state=_state(found),
        snapshot_done=done,
        snapshot=(),
        lag_records=lag.records,
        capture_seconds=0.0,
        apply_seconds=lag.seconds,
        records_per_second=_rate(pipeline, topics),
        dead_letters=_dead_letters(pipeline, topics),
        connectors=found,
        trouble=(),
    )
    try:
        return _with_source(status, pipeline, topics, behind)
    except ConnectorsError as error:
        return replace(status, trouble=(str(error),))


def _state(found: tuple[Connector, ...]) -> str:
    states = {connector.state for connector in found} | {task.state for c in found for task in c.tasks}
    for state in ("MISSING", "FAILED", "STOPPED", "PAUSED"):
        if state in states:
            return state.lower()
    return "running" if all(connector.running for connector in found) else "starting"


def _capture(pipeline: Pipeline, connect: Connect) -> tuple[bool, list[int]]:
    """Whether the first copy is done, and the seconds (since the epoch) up to which each source connector has come."""
    positions = []
    for name in pipeline.source_connectors:
        try:
            positions.append(committed_position(connect, name))
        except NoSuchConnector:
            positions.append(None)
    done = all(position is not None and not position.snapshot_running for position in positions)
    return done, [position.time.seconds for position in positions if position]


def _with_source(status: Status, pipeline: Pipeline, topics: Topics, seconds: list[int]) -> Status:
    with connected(pipeline.source_uri, "source", timeout=5) as client:
        if status.snapshot_done:
            now = operation_time(client).seconds
            # both are whole seconds, and an idle source's stream moves on only with its next no-op
            behind = max(0, now - min(seconds) - 1)
            return replace(status, capture_seconds=float(behind))
        ends = pipeline_ends(pipeline, topics)
        read: dict[str, int] = {}
        for (topic, _), (first, end) in ends.items():
            namespace = namespace_of(pipeline.name, topic)
            read[namespace] = read.get(namespace, 0) + end - first
        copied = []
        for namespace, documents in sorted(read.items()):
            database, collection = namespace.split(".", 1)
            of = client[database][collection].estimated_document_count()
            copied.append(Copied(namespace, min(documents, of), of))
        return replace(status, snapshot=tuple(copied))


def _rate(pipeline: Pipeline, topics: Topics) -> float:
    pattern = pipeline.selection.topic_regex(pipeline.name)
    names = [topic for name, topic in topics.all().items() if re.fullmatch(pattern, name)]
    since = topics.offsets_at(names, int((time.time() - RATE_WINDOW) * 1000))
    ends = topics.ends(names)
    return sum(end - since[place] for place, (_, end) in ends.items() if since.get(place, -1) >= 0) / RATE_WINDOW


def _dead_letters(pipeline: Pipeline, topics: Topics) -> int:
    topic = topics.all().get(pipeline.dead_letter_topic)
    return sum(end - first for first, end in topics.ends([topic]).values()) if topic else 0
