"""The report of a pipeline: what status, the page, the API and the metrics are rendered from.

docs/json.md says what each field means. Times without a word are seconds since the epoch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import Field, TypeAdapter, computed_field

from towpath.checks.rule import Finding
from towpath.clients.connect.rest import Connector
from towpath.clients.kafka.topics import Place
from towpath.config.loading import reverse_file_path
from towpath.config.mongo_uri import without_credentials
from towpath.deploy.schema_changes import SchemaChanges
from towpath.deploy.unreplicated import SourceChange
from towpath.errors import TowpathError, fields
from towpath.log.bounds import Break
from towpath.log.dead_letters import Cause, DeadLetter
from towpath.log.source_offsets import Ddl, SourceState, Splices
from towpath.session import Session
from towpath.store.cutover import Cutover
from towpath.store.positions import Counts, TaskState
from towpath.verify.verdict import VerdictContext, Verification

#: Seconds of the log over which rates are computed.
RATE_WINDOW = 10
_VERSION = version("towpath")


@dataclass(frozen=True, slots=True)
class Problem:
    """An error as data; see `towpath.errors`."""

    what: str
    where: str = ""
    advice: str = ""
    code: str = ""

    @classmethod
    def of(cls, error: BaseException) -> Self:
        return cls(**fields(error))

    @property
    def message(self) -> str:
        """All of it in a sentence."""
        return str(TowpathError(self.what, self.advice, where=self.where, code=self.code))


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
class Awaiting:
    """A copied collection, and the cluster time that the stream must pass before the copy is final."""

    namespace: str
    time: str


@dataclass(frozen=True, slots=True)
class Copy:
    """The initial copy, and copies of added collections."""

    done: bool
    """No copy runs."""
    collections: tuple[Copied, ...]
    awaiting_stream: tuple[Awaiting, ...]
    round: int | None = None
    """Of the initial copy; None when it is over."""


#: Seconds that the steps of a takeover take, rounded up: 6.2 with 1,000,000 documents and four indexes to restore
#: (docs/benchmarks/takeover.json).
_TAKEOVER_S = 7.0


@dataclass(frozen=True, slots=True)
class Lag:
    """None is not known: a side does not answer."""

    records: int | None = None
    """Those in the log that are not applied."""
    capture_seconds: float | None = None
    """How far the log is behind the source."""
    apply_seconds: float | None = None
    """Age of the oldest record that is not applied yet, by the source's clock."""
    capture_changes: int | None = None
    """How many changes the log is behind the source; None also if they are many, or the user may not read the oplog."""

    @computed_field  # type: ignore[prop-decorator]
    @property
    def seconds(self) -> float | None:
        """The larger one of the two."""
        if self.capture_seconds is None or self.apply_seconds is None:
            return None
        return max(self.capture_seconds, self.apply_seconds)

    @computed_field  # type: ignore[prop-decorator]
    @property
    def takeover_seconds(self) -> float | None:
        """About how long a takeover would take now: its steps, and the rest of the log, which the sink applies at least
        as fast as it came."""
        return None if self.apply_seconds is None else round(_TAKEOVER_S + self.apply_seconds, 1)


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
class ReplayState:
    """A replay. `state` is its connector's, or FAILED when a task has failed."""

    label: str
    connector: str
    destination: str
    only: tuple[str, ...]
    until: str | None
    follow: bool
    began: float
    state: str
    reasons: tuple[str, ...]
    records: int
    records_done: int | None
    """Those that are applied; None while its destination does not answer."""
    records_behind: int | None
    dead_letters: int
    dead_letter_topic: str
    error: Problem | None


@dataclass(frozen=True, slots=True)
class Rebuild:
    """A rebuild of the destination that has not ended."""

    since: float
    only: Sequence[str]
    phase: str
    records_done: int
    records: int


@dataclass(frozen=True, slots=True)
class LoggedChange:
    """A schema change in the log."""

    id: str
    time: str
    kind: str
    namespace: str
    to: str
    destination_namespace: str
    state: str
    reason: str
    decision: str | None
    since: str | None
    began: str | None
    ended: str | None
    arrived: int
    expected: int
    done: int | None
    total: int | None
    holds_up: Sequence[str]
    words: str
    commands: Sequence[str]


@dataclass(frozen=True, slots=True)
class Oplog:
    """Of the source."""

    window_seconds: float
    remaining_seconds: float
    estimated: bool

    def with_uncaptured(self, seconds: float) -> Oplog:
        """When so many seconds of it are not captured."""
        return replace(self, remaining_seconds=max(0, self.window_seconds - round(seconds)))


@dataclass(frozen=True, slots=True)
class Difference:
    """One of the differences of the last verdict or of `verify --follow`; a path has the values of both sides."""

    namespace: str
    destination_namespace: str
    id: Any
    id_bson: str
    kind: str
    paths: tuple[tuple[str, str | None, str | None], ...]


@dataclass(frozen=True, slots=True)
class LetterExample:
    """A dead letter with its document, shortened."""

    namespace: str
    code: str
    reason: str
    topic: str
    partition: int
    offset: int
    op: str | None
    key: str | None
    value: str | None


@dataclass(frozen=True, slots=True)
class Service:
    """A command that `towpath run` keeps running."""

    command: str
    running: bool
    report: str


@dataclass(frozen=True, slots=True)
class Supervision:
    """What `towpath run` knows."""

    seconds: float
    restarts: Mapping[str, int]
    remedies: Mapping[str, str]
    refused_documents: int
    repaired_documents: int
    services: tuple[Service, ...]


@dataclass(frozen=True, slots=True)
class Raw:
    """What was read for a report and serves to read its other parts. It is not shown."""

    ends: Mapping[Place, tuple[int, int]] = field(default_factory=dict)
    """The first offset and the end of every partition of the change topics."""
    sources: Mapping[str, SourceState] = field(default_factory=dict)
    """Source connector → the state that it has committed."""
    configs: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Source connector → its configuration; of MongoSource only."""
    topic_ids: Mapping[str, str] | None = None
    """Topic → id, for all topics of the pipeline; None when they were not read."""
    ddl: tuple[Ddl, ...] = ()
    """Schema changes at the source; the destination may have them by now."""
    changes: SchemaChanges | None = None
    """Schema changes in the log that are not made yet, or were made lately; None while the destination is down."""
    letters: tuple[DeadLetter, ...] = ()
    """Examples of dead letters."""
    verdict_context: VerdictContext | None = None
    """What verdicts are compared with; None while that was not read."""
    uncaptured_seconds: float | None = None
    """How far back the source's oplog has to reach: in the first round of a copy, to its beginning. None while the
    source does not answer."""
    idle: str = ""
    """Why a cutover has the connectors of a reverse pipeline stopped or removed, in words; empty for all others."""
    lacks_reverse_pipeline: bool = False
    """Whether a cutover is done whose reverse pipeline is not deployed any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """A pipeline at one time. A part that is None is not known, or only `run` and `monitor` read it."""

    name: str
    mode: str
    file: str
    version: str = _VERSION
    source: str
    destination: str
    state: str = "unknown"
    errors: tuple[Problem, ...] = ()
    at: float | None = None
    copy: Copy | None = None
    lag: Lag = Lag()
    records_per_second: float | None = None
    dead_letters: int | None = None
    dead_letters_complete: bool = False
    dead_letter_causes: tuple[Cause, ...] = ()
    splices: Splices | None = None
    requests_waiting: tuple[Waiting, ...] | None = None
    requests_skipped: int | None = None
    sink: Counts | None = None
    sink_tasks: tuple[TaskState, ...] = ()
    epochs: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    """Topic → partition → epoch."""
    connectors: tuple[Connector, ...] = ()
    cutover: Cutover | None = None
    log_breaks: tuple[Break, ...] | None = None
    verification: Verification = field(default_factory=Verification)
    replays: tuple[ReplayState, ...] = ()
    rebuild: Rebuild | None = None
    rebuild_error: Problem | None = None
    """Why it is not known whether a rebuild has not ended."""
    ddl: tuple[SourceChange, ...] | None = None
    schema_changes: tuple[LoggedChange, ...] | None = None
    log: LogReport | None = None
    recovery_point_seconds: float | None = None
    """[run] recovery_point."""
    compaction_lag_seconds: float | None = None
    poll_seconds: float | None = None
    failed_polls: int = 0
    oplog: Oplog | None = None
    sink_records_per_second: float | None = None
    differences: tuple[Difference, ...] | None = None
    dead_letter_examples: tuple[LetterExample, ...] | None = None
    checks: tuple[Finding, ...] | None = None
    supervisor: Supervision | None = None
    raw: Annotated[Raw, Field(exclude=True)] = field(default_factory=Raw)

    @computed_field  # type: ignore[prop-decorator]
    @property
    def ddl_waiting(self) -> int | None:
        """Schema changes that wait for a decision: those of `ddl`, and those in the log that are held or refused."""
        if self.ddl is None:
            return None
        return len(self.ddl) + sum(bool(change.commands) for change in self.schema_changes or ())

    @property
    def cutover_is_known(self) -> bool:
        """Whether `cutover` is None because there is none, and not because the destination does not answer."""
        return self.cutover is not None or self.raw.changes is not None

    @property
    def is_taken_over(self) -> bool:
        """Whether the source was lost, and has not returned."""
        return self.cutover is not None and self.cutover.is_takeover

    @property
    def cutover_words(self) -> str:
        """What the cutover of the pipeline is at, or that of the pipeline whose reverse pipeline it is."""
        if self.cutover is None:
            return self.raw.idle
        watch = f"; watch {self.reverse_file}" if self.reverse_file else ""
        return f"{self.cutover.described(self.missing_file)}{watch}"

    @property
    def remedy(self) -> str:
        """The command that makes it run again; empty where a cutover, or a rebuild that empties the destination,
        forbids it, or may forbid it."""
        found = self.cutover
        if self.raw.idle or self.is_taken_over:
            return ""
        if self.state == "missing":
            return "deploy"
        # the capture; while the destination does not answer, a sink that a cutover has stopped would count as stopped
        is_paused = found is not None and found.state == "destination primary" and self.state == "paused"
        is_free = found is None and self.cutover_is_known and self.state in ("paused", "stopped")
        is_emptied = self.rebuild_error is not None or (self.rebuild is not None and self.rebuild.phase == "emptying")
        return "resume" if (is_paused or is_free) and not is_emptied else ""

    @property
    def reverse_file(self) -> str:
        """The file of the reverse pipeline that replicates now; empty if there is none."""
        found = self.cutover
        is_due = found is not None and found.state == "destination primary" and found.has_reverse_pipeline
        return self._reverse_path if is_due and not self.raw.lacks_reverse_pipeline else ""

    @property
    def missing_file(self) -> str:
        """The file of the reverse pipeline that should replicate now, and is not deployed; empty otherwise."""
        return self._reverse_path if self.raw.lacks_reverse_pipeline else ""

    @property
    def _reverse_path(self) -> str:
        return str(reverse_file_path(Path(self.file)))

    @property
    def is_partial(self) -> bool:
        """Whether the destination's part, or whether the log has lost records, is not known."""
        return self.raw.changes is None or (self.log_breaks is None and self.cutover is None)

    def after(self, last: Report | None) -> Report:
        """While the destination does not answer: with what was known of it last and may not change in the meantime."""
        if last is None or self.raw.changes is not None:
            return self
        raw = replace(self.raw, lacks_reverse_pipeline=last.raw.lacks_reverse_pipeline)
        return replace(self, cutover=last.cutover, schema_changes=last.schema_changes, raw=raw)

    @property
    def copying(self) -> bool:
        return self.copy is not None and not self.copy.done and self.state != "missing"


def unknown(session: Session) -> Report:
    """The report of a pipeline of which nothing is known but its file."""
    pipeline = session.pipeline
    return Report(
        name=pipeline.name,
        mode=pipeline.mode,
        file=str(session.file),
        source=without_credentials(pipeline.source.uri),
        destination=without_credentials(pipeline.destination.uri),
        recovery_point_seconds=None if pipeline.run.recovery_point is None else pipeline.run.recovery_point / 1000,
        compaction_lag_seconds=pipeline.log.compaction_lag / 1000 if pipeline.log.compact else None,
    )


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def as_json(value: Any) -> Any:
    """A report, or a part of one, as JSON has it."""
    kind: Any = type(value)
    return _adapter(kind).dump_python(value, mode="json")
