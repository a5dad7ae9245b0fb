"""The figures of `towpath status`: connectors, initial copy, lag, retries, refused documents."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from towpath.clients.connect.rest import Connector
from towpath.clients.kafka.topics import Place
from towpath.clients.mongo.client import Client
from towpath.config.namespaces import topic_of
from towpath.deploy.schema.changes import SchemaChanges
from towpath.log.bounds import Break
from towpath.log.dead_letters import DeadLetters
from towpath.log.source_offsets import CollectionCopy, Ddl, Splices
from towpath.store.cutover import Cutover
from towpath.store.positions import Counts, TaskState

#: Seconds of the log over which rates are computed.
RATE_WINDOW = 10


@dataclass(frozen=True, slots=True)
class Waiting:
    """Re-read requests that a source connector has not answered: their number, and why."""

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
    """No copy runs, neither the initial one nor one of a collection added later."""
    lag_records: int | None
    """None, like `apply_seconds`, while the destination does not answer."""
    apply_seconds: float | None
    """Age of the oldest record that is not applied yet, by the source's clock."""
    records_per_second: float
    """Into the log, over the last ten seconds."""
    connectors: tuple[Connector, ...]
    snapshot: tuple[Copied, ...] = ()
    held: tuple[Held, ...] = ()
    capture_seconds: float | None = 0.0
    """How far the log is behind the source; None, like `uncaptured_seconds`, while the source does not answer."""
    uncaptured_seconds: float | None = 0.0
    """How far back the source's oplog has to reach: while the first copy runs, to its beginning."""
    dead_letters: DeadLetters | None = field(default=DeadLetters(0, True, ()))
    """None when they could not be read."""
    waiting: tuple[Waiting, ...] = ()
    epochs: Mapping[Place, int] = field(default_factory=dict)
    """(topic, partition) → how many times a sink task has taken it over; only in exactly-once mode."""
    tasks: tuple[TaskState, ...] = ()
    ddl: tuple[Ddl, ...] = ()
    """Schema changes at the source; somebody may have made them at the destination meanwhile."""
    changes: SchemaChanges | None = field(default_factory=SchemaChanges)
    """Schema changes in the log that are not made yet, or were made lately; None while the destination is down."""
    splices: Splices = field(default_factory=Splices)
    """Of all source connectors."""
    cutover: Cutover | None = None
    """None while the source is primary and no cutover is under way."""
    breaks: tuple[Break, ...] = ()
    """Partitions whose position is not in their log: records that the sink has not applied are gone."""
    trouble: tuple[str, ...] = ()
    """Why parts of this status could not be read."""
    ends: Mapping[Place, tuple[int, int]] = field(default_factory=dict)
    """The first offset and the end of every partition of the change topics."""
    topic_ids: Mapping[str, str] | None = None
    """Topic → id, for all topics of the pipeline; None when they were not read."""
    errors: tuple[dict[str, str], ...] = ()
    """The errors among `trouble` as data: see `towpath.errors`."""

    @property
    def lag_seconds(self) -> float | None:
        """None while one of the two sides does not answer."""
        if self.capture_seconds is None or self.apply_seconds is None:
            return None
        return max(self.capture_seconds, self.apply_seconds)

    @property
    def has_both_sides(self) -> bool:
        """Whether source and destination answered, as far as they were asked."""
        return None not in (self.capture_seconds, self.uncaptured_seconds, self.lag_records)

    @property
    def lag_text(self) -> str:
        if self.lag_records is None:
            return "unknown: the destination, which holds the positions, does not answer"
        seconds = "unknown" if self.lag_seconds is None else f"{self.lag_seconds:.1f} s"
        return f"{self.lag_records:,} records, {seconds}"

    @property
    def sink(self) -> Counts:
        """Sums over all sink tasks; only in exactly-once mode."""
        return sum((task.counts for task in self.tasks), Counts())

    def as_json(self) -> dict[str, Any]:
        letters = self.dead_letters
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
                "seconds": _rounded(self.lag_seconds),
                "capture_seconds": _rounded(self.capture_seconds),
                "apply_seconds": _rounded(self.apply_seconds),
            },
            "records_per_second": round(self.records_per_second, 1),
            "dead_letters": letters.count if letters else None,
            "dead_letter_causes": [asdict(cause) for cause in letters.causes] if letters else [],
            "dead_letters_complete": letters is not None and letters.complete,
            "splices": asdict(self.splices),
            "requests_waiting": [asdict(waiting) for waiting in self.waiting],
            "sink": asdict(self.sink),
            "sink_tasks": [_task(task) for task in self.tasks],
            "epochs": epochs,
            "connectors": [_connector(connector) for connector in self.connectors],
            "cutover": self.cutover and asdict(self.cutover),
            "log_breaks": [gap.as_json() for gap in self.breaks],
            "trouble": list(self.trouble),
            "errors": list(self.errors),
        }


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 3)


def _task(task: TaskState) -> dict[str, Any]:
    retried_at = task.retried_at.isoformat() if task.retried_at else None
    return {
        "task": task.task,
        **asdict(task.counts),
        "retried_at": retried_at,
        "reason": task.reason,
        "retries_by_cause": dict(task.retries_by_cause),
        "transaction_seconds": asdict(task.transaction_seconds),
    }


def _connector(connector: Connector) -> dict[str, Any]:
    return {
        "name": connector.name,
        "state": connector.state,
        "worker": connector.worker,
        "tasks": [{"id": t.id, "state": t.state, "worker": t.worker} for t in connector.tasks],
        "reasons": list(connector.failures),
        "failures": [asdict(cause) for cause in connector.causes],
    }


@dataclass(frozen=True, slots=True)
class Copied:
    """The copy of one collection: `documents` that are in the log, and about how many the source holds (`of`).

    Fields that only a copy by ranges reports are None for Debezium's own copy.
    """

    namespace: str
    documents: int
    of: int
    bytes: int | None = None
    of_bytes: int | None = None
    ranges: int | None = None
    """None also until the ranges are planned."""
    ranges_done: int | None = None
    per_second: float = 0.0
    """Records into the log per second, over the last `RATE_WINDOW`."""
    retries: int = 0
    reason: str = ""
    """Why the last read was retried."""
    pending: int = 0
    """Documents that changed while they were copied in natural order, and are not re-read yet."""

    @property
    def seconds_left(self) -> float | None:
        """At the present rate; None while nothing moves or the total is unknown."""
        if self.per_second <= 0 or (self.ranges is None and self.ranges_done is not None):
            return None
        return max(0, self.of - self.documents) / self.per_second

    @property
    def done(self) -> bool:
        return self.ranges is not None and self.ranges_done == self.ranges and not self.pending

    @property
    def started(self) -> bool:
        return self.documents > 0 or bool(self.ranges)

    def as_json(self) -> dict[str, Any]:
        seconds_left = self.seconds_left
        return asdict(self) | {
            "per_second": round(self.per_second, 1),
            "seconds_left": None if seconds_left is None else round(seconds_left, 1),
        }


@dataclass(frozen=True, slots=True)
class Held:
    """A copied collection, and the cluster time that the stream must pass before the copy is final."""

    namespace: str
    time: str


def copied_by_ranges(prefix: str, copies: Iterable[CollectionCopy], rates: Mapping[str, float]) -> tuple[Copied, ...]:
    """`rates`: topic → records per second."""
    return tuple(
        Copied(
            namespace=copy.namespace,
            documents=copy.rows,
            of=max(copy.documents, copy.rows),
            bytes=copy.bytes_read,
            of_bytes=max(copy.bytes, copy.bytes_read),
            ranges=copy.planned,
            ranges_done=copy.ranges_done,
            per_second=rates.get(topic_of(prefix, copy.namespace), 0.0),
            retries=copy.retries,
            reason=copy.reason,
            pending=copy.pending,
        )
        for copy in copies
    )


def copied_by_debezium(client: Client, records: Mapping[str, int], rates: Mapping[str, float]) -> tuple[Copied, ...]:
    """`records`: namespace → records in the log; `rates`: namespace → records per second.

    Debezium itself reports no progress.
    """
    copies = []
    for namespace, documents in sorted(records.items()):
        database, collection = namespace.split(".", 1)
        of = client[database][collection].estimated_document_count()
        copies.append(Copied(namespace, min(documents, of), of, per_second=rates.get(namespace, 0.0)))
    return tuple(copies)


def held(copies: Iterable[CollectionCopy]) -> tuple[Held, ...]:
    return tuple(Held(copy.namespace, str(copy.time)) for copy in copies if copy.time is not None)
