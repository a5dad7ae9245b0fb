"""How a pipeline is doing: its connectors, its copy, its lag, what was retried, what was refused."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from connectors.rest import Connector
from towpath.bookkeeping.cutover import Cutover
from towpath.bookkeeping.positions import Counts, TaskState
from towpath.kafka.topics import Place
from towpath.log.bounds import Break
from towpath.log.ddl_events import Ddl
from towpath.log.dead_letters import DeadLetters
from towpath.status.copy_progress import Copied, Held

#: Seconds of the log by which rates are reckoned.
RATE_WINDOW = 10


@dataclass(frozen=True, slots=True)
class Waiting:
    """Requests to read again that a source connector has not answered: records of the request topic, and why."""

    connector: str
    requests: int
    reason: str


@dataclass(frozen=True, slots=True)
class Status:
    """`state`: running, paused, stopped, failed, missing (not deployed) or starting. Lags are in seconds."""

    name: str
    mode: str
    state: str
    snapshot_done: bool
    """Nothing is being copied, neither at the start nor later."""
    lag_records: int | None
    """None when the destination, which tells, is out of reach; `apply_seconds` as well."""
    apply_seconds: float | None
    """Age of the oldest record that is not at the destination, by the source's clock."""
    records_per_second: float
    """Into the log, over the last ten seconds."""
    connectors: tuple[Connector, ...]
    snapshot: tuple[Copied, ...] = ()
    held: tuple[Held, ...] = ()
    capture_seconds: float = 0.0
    """How far the log is behind the source."""
    dead_letters: DeadLetters = field(default=DeadLetters(0, True, ()))
    waiting: tuple[Waiting, ...] = ()
    epochs: Mapping[Place, int] = field(default_factory=dict)
    """(topic, partition) → how many times a task of the sink has taken it over; in exactly-once mode."""
    tasks: tuple[TaskState, ...] = ()
    ddl: tuple[Ddl, ...] = ()
    """What was done to collections of the source as such; the destination may have followed meanwhile."""
    cutover: Cutover | None = None
    """None while the source is primary and no cutover is under way."""
    breaks: tuple[Break, ...] = ()
    """Partitions whose position is not in their log: what the sink has not applied is gone."""
    trouble: tuple[str, ...] = ()
    """What kept a part of this from being found out, in words."""

    @property
    def lag_seconds(self) -> float:
        return max(self.capture_seconds, self.apply_seconds or 0.0)

    @property
    def sink(self) -> Counts:
        """What all tasks of the sink have done; in exactly-once mode."""
        return sum((task.counts for task in self.tasks), Counts())

    def as_json(self) -> dict[str, Any]:
        apply = self.apply_seconds
        epochs: dict[str, dict[str, int]] = {}
        for (topic, partition), epoch in sorted(self.epochs.items()):
            epochs.setdefault(topic, {})[str(partition)] = epoch
        return {
            "name": self.name,
            "mode": self.mode,
            "state": self.state,
            "snapshot": {
                "done": self.snapshot_done,
                "collections": [copied.as_json() for copied in self.snapshot],
                "held": [asdict(held) for held in self.held],
            },
            "lag": {
                "records": self.lag_records,
                "seconds": None if apply is None else round(self.lag_seconds, 3),
                "capture_seconds": round(self.capture_seconds, 3),
                "apply_seconds": None if apply is None else round(apply, 3),
            },
            "records_per_second": round(self.records_per_second, 1),
            "dead_letters": self.dead_letters.count,
            "dead_letter_causes": [asdict(cause) for cause in self.dead_letters.causes],
            "dead_letters_complete": self.dead_letters.complete,
            "requests_waiting": [asdict(one) for one in self.waiting],
            "sink": asdict(self.sink),
            "sink_tasks": [_task(task) for task in self.tasks],
            "epochs": epochs,
            "connectors": [_connector(connector) for connector in self.connectors],
            "cutover": self.cutover and asdict(self.cutover),
            "log_breaks": [found.as_json() for found in self.breaks],
            "trouble": list(self.trouble),
        }


def _task(task: TaskState) -> dict[str, Any]:
    retried_at = task.retried_at.isoformat() if task.retried_at else None
    return {"task": task.task, **asdict(task.counts), "retried_at": retried_at, "reason": task.reason}


def _connector(connector: Connector) -> dict[str, Any]:
    return {
        "name": connector.name,
        "state": connector.state,
        "worker": connector.worker,
        "tasks": [{"id": t.id, "state": t.state, "worker": t.worker} for t in connector.tasks],
        "reasons": list(connector.failures),
    }
