"""What is known of a pipeline at one time, and what follows from it; does no I/O."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from pydantic import computed_field

from towpath.clients.connect.rest import Connector
from towpath.clients.kafka.topics import Place
from towpath.clients.mongo.client import ClusterTime
from towpath.config.namespaces import topic_of
from towpath.config.sections import Log
from towpath.deploy.schema_changes import SchemaChanges
from towpath.errors import TowpathError
from towpath.log.bounds import Break
from towpath.log.dead_letters import DeadLetters
from towpath.log.source_offsets import CollectionCopy, Ddl, SourceState, Splices
from towpath.store.cutover import Cutover
from towpath.store.positions import Counts, TaskState

#: Seconds of the log over which rates are computed.
RATE_WINDOW = 10


@dataclass(frozen=True, slots=True)
class Copied:
    """The copy of one collection; fields that only a copy by ranges reports are None for Debezium's own copy."""

    namespace: str
    documents: int
    """Documents that are in the log."""
    estimated_documents: int
    bytes: int | None = None
    estimated_bytes: int | None = None
    ranges: int | None = None
    """None also until the ranges are planned."""
    done_ranges: int | None = None
    records_per_second: float = 0.0
    """Into the log, over the last `RATE_WINDOW`."""
    retries: int = 0
    reason: str = ""
    """Why the last read was retried."""
    pending_documents: int = 0
    """Documents that changed while they were copied in natural order, and are not re-read yet."""

    @computed_field  # type: ignore[prop-decorator]
    @property
    def remaining_seconds(self) -> float | None:
        """At the present rate; None while nothing moves or the total is unknown."""
        if self.records_per_second <= 0 or (self.ranges is None and self.done_ranges is not None):
            return None
        return round(max(0, self.estimated_documents - self.documents) / self.records_per_second, 1)

    @property
    def done(self) -> bool:
        return self.ranges is not None and self.done_ranges == self.ranges and not self.pending_documents

    @property
    def started(self) -> bool:
        return self.documents > 0 or bool(self.ranges)


@dataclass(frozen=True, slots=True)
class Held:
    """A copied collection, and the cluster time that the stream must pass before the copy is final."""

    namespace: str
    time: str


@dataclass(frozen=True, slots=True)
class Waiting:
    """Re-read requests that a source connector has not answered: their number, and why."""

    connector: str
    requests: int
    reason: str


@dataclass(frozen=True, slots=True)
class TopicLog:
    """One change topic. What `towpath compact` reports is None until it has committed a report."""

    namespace: str
    topic: str
    offsets: int
    """From the first to the last, including control records and records that the cleaner has removed."""
    bytes: int | None
    """Size of one replica on the brokers' disks; None when the brokers do not report it."""
    begins: int
    """The largest first offset of its partitions; above 0, the beginning of the log is gone."""
    compacted: bool
    """Whether Kafka's cleaner may compact it."""
    unprotected_documents: int | None
    """Documents with updates that no whole document follows in the log."""
    oldest_seconds: float | None
    """The age of the oldest of these updates; None when there are none."""
    reported_seconds: float | None
    """Since the last report of `towpath compact`, for the partition that has waited longest."""
    unreported_offsets: int
    """Offsets that `towpath compact` has not reported on."""


@dataclass(frozen=True, slots=True)
class LogReport:
    """The log, topic by topic; and in words the risks of its settings and of updates that are not protected."""

    topics: tuple[TopicLog, ...]
    warnings: tuple[str, ...]


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
    """Schema changes at the source; the destination may have them by now."""
    changes: SchemaChanges | None = field(default_factory=SchemaChanges)
    """Schema changes in the log that are not made yet, or were made lately; None while the destination is down."""
    splices: Splices = field(default_factory=Splices)
    """Of all source connectors."""
    cutover: Cutover | None = None
    """None while the source is primary and no cutover is under way."""
    breaks: tuple[Break, ...] = ()
    """Partitions whose position is not in their log: records that the sink has not applied are gone."""
    errors: tuple[TowpathError, ...] = ()
    """Why parts of this status could not be read."""
    ends: Mapping[Place, tuple[int, int]] = field(default_factory=dict)
    """The first offset and the end of every partition of the change topics."""
    topic_ids: Mapping[str, str] | None = None
    """Topic → id, for all topics of the pipeline; None when they were not read."""

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


def state_of(connectors: Iterable[Connector]) -> str:
    """The pipeline's state, from those of its connectors and their tasks."""
    connectors = tuple(connectors)
    states = {connector.state for connector in connectors}
    states |= {task.state for connector in connectors for task in connector.tasks}
    for state in ("MISSING", "FAILED", "STOPPED", "PAUSED"):
        if state in states:
            return state.lower()
    return "running" if all(connector.running for connector in connectors) else "starting"


def is_streaming(state: SourceState) -> bool:
    """Whether the initial copy is done and the stream has started."""
    if state.position is None:  # a stream that has only just started, where nothing was to be copied
        return state.start is not None and state.phase == "stream"
    return not state.position.snapshot_running and state.phase != "copy"


def behind(now: ClusterTime | None, times: Iterable[ClusterTime | None]) -> float | None:
    """Seconds by which the earliest of these times is behind the source's; None if that is not known."""
    seconds = [time.seconds for time in times if time]
    if not seconds:
        return 0.0
    # both are whole seconds, and the stream of an idle source moves only with its next no-op
    return None if now is None else float(max(0, now.seconds - min(seconds) - 1))


def copied_by_ranges(prefix: str, copies: Iterable[CollectionCopy], rates: Mapping[str, float]) -> tuple[Copied, ...]:
    """`rates`: topic → records per second."""
    return tuple(
        Copied(
            namespace=copy.namespace,
            documents=copy.rows,
            estimated_documents=max(copy.documents, copy.rows),
            bytes=copy.bytes_read,
            estimated_bytes=max(copy.bytes, copy.bytes_read),
            ranges=copy.planned,
            done_ranges=copy.ranges_done,
            records_per_second=round(rates.get(topic_of(prefix, copy.namespace), 0.0), 1),
            retries=copy.retries,
            reason=copy.reason,
            pending_documents=copy.pending,
        )
        for copy in copies
    )


def held(copies: Iterable[CollectionCopy]) -> tuple[Held, ...]:
    return tuple(Held(copy.namespace, str(copy.time)) for copy in copies if copy.time is not None)


def unprotected(log: Log, topics: Sequence[TopicLog]) -> Iterator[str]:
    """Updates that the cleaner may soon reach although no whole document follows them."""
    half = log.compaction_lag / 2000
    limit = f"the cleaner may remove updates that are older than {2 * half:,.0f} s"
    if never := [topic.namespace for topic in topics if topic.reported_seconds is None and topic.offsets]:
        yield (
            f"`towpath compact` has not read {_first(never)} yet: start it, because a compacted log must be"
            " protected ([log] compact)"
        )
    if late := [topic for topic in topics if topic.unreported_offsets and (topic.reported_seconds or 0) > half]:
        longest = max(topic.reported_seconds or 0 for topic in late)
        names = _first([topic.namespace for topic in late])
        yield f"`towpath compact` has not reported on {names} for {longest:,.0f} s: is it running? {limit}"
    for topic in topics:
        if (topic.oldest_seconds or 0) > half:
            yield (
                f"{topic.namespace}: an update is {topic.oldest_seconds:,.0f} s old, and no whole document follows it;"
                f" {limit}; see the output of `towpath compact`"
            )


def _first(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1:,} more"
