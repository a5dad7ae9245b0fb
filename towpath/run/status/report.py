"""The report of a pipeline: what `status --json`, the page, the API and the metrics are rendered from.

docs/json.md says what each field means. Times without a word are seconds since the epoch.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.metadata import version
from typing import Any, Self

from pydantic import TypeAdapter, computed_field

from towpath.checks.rule import Finding
from towpath.clients.connect.rest import Connector, Failure
from towpath.config.events import FollowCounts
from towpath.config.mongo_uri import without_credentials
from towpath.errors import TowpathError, fields
from towpath.log.bounds import Break
from towpath.log.dead_letters import Cause
from towpath.log.source_offsets import Splices
from towpath.run.status.status import Copied, Held, LogReport, Status, Waiting
from towpath.session import Session
from towpath.store.cutover import Cutover, State
from towpath.store.positions import Counts, TaskState
from towpath.verify.full_verdict import Verified, age

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
class Copy:
    """The initial copy, and copies of added collections; `awaiting_stream`: those that the stream has still to pass."""

    done: bool
    collections: tuple[Copied, ...]
    awaiting_stream: tuple[Held, ...]


@dataclass(frozen=True, slots=True)
class Lag:
    """None is not known: a side does not answer. `seconds` is the larger one of the two others."""

    records: int | None
    seconds: float | None
    capture_seconds: float | None
    apply_seconds: float | None


@dataclass(frozen=True, slots=True)
class Task:
    id: int
    state: str
    worker: str


@dataclass(frozen=True, slots=True)
class ConnectorState:
    """`state` is Connect's word, such as RUNNING."""

    name: str
    state: str
    worker: str
    tasks: tuple[Task, ...]
    failures: tuple[Failure, ...]


@dataclass(frozen=True, slots=True)
class CutoverState:
    """A cutover that is under way or over."""

    state: State
    steps: tuple[str, ...]
    began: float
    cluster_time: str
    """Of the old primary: up to it, everything is at the new one. Empty before the switch."""
    switched_at: float
    blocked: bool
    has_reverse_pipeline: bool


@dataclass(frozen=True, slots=True)
class Verdict:
    """A verdict of `verify`; times are ISO 8601."""

    id: str
    at: str
    since: str
    """When its oldest comparison began."""
    verdict: str
    of: str
    clean: bool
    compared: int
    missing: int
    extra: int
    different: int
    order: int
    metadata: int | None
    seconds: float
    repaired: int
    """Documents that were repaired since, as this machine knows."""

    @classmethod
    def read(cls, verdict: Mapping[str, Any] | None) -> Self | None:
        """From a stored one."""
        if verdict is None:
            return None
        stored: dict[str, Any] = {**verdict, "repaired": verdict.get("repaired") or 0}
        return cls(**{name: stored[name] for name in cls.__slots__})

    @property
    def age(self) -> float:
        """Seconds since its oldest comparison began."""
        return age({"since": self.since})

    @property
    def shown(self) -> str:
        """What it says now."""
        return "repaired since" if self.repaired and self.clean else self.verdict


@dataclass(frozen=True, kw_only=True)
class Following(FollowCounts):
    """What `verify --follow` has found."""

    age_seconds: float


@dataclass(frozen=True, slots=True)
class Verification:
    """`last` is the newest verdict that counts, `full` the newest one on everything."""

    last: Verdict | None = None
    full: Verdict | None = None
    doubt: str = ""
    """Why a newer verdict does not count."""
    follow: Following | None = None

    @classmethod
    def of(cls, verified: Verified) -> Self:
        last, full, follow = Verdict.read(verified.last), Verdict.read(verified.full), verified.following
        if last and full and last.id == full.id:
            full = last  # it alone has what was repaired since
        return cls(last, full, verified.doubt, Following(**follow.as_json()) if follow else None)


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
class Replays:
    replays: tuple[ReplayState, ...] = ()
    rebuild: Rebuild | None = None
    rebuild_error: Problem | None = None
    """Why it is not known whether a rebuild has not ended."""


@dataclass(frozen=True, slots=True)
class SourceChange:
    """A schema change at the source that is not at the destination, and that no record of the log reports."""

    time: str
    at: str
    kind: str
    namespace: str
    to: str
    words: str | None = None
    """What is to be done; None, like the two below, while a side does not answer."""
    commands: Sequence[str] | None = None
    at_destination: bool | None = None


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
    lag: Lag | None = None
    records_per_second: float | None = None
    dead_letters: int | None = None
    dead_letters_complete: bool = False
    dead_letter_causes: tuple[Cause, ...] = ()
    splices: Splices | None = None
    requests_waiting: tuple[Waiting, ...] | None = None
    sink: Counts | None = None
    sink_tasks: tuple[TaskState, ...] = ()
    epochs: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    """Topic → partition → epoch."""
    connectors: tuple[ConnectorState, ...] = ()
    cutover: CutoverState | None = None
    log_breaks: tuple[Break, ...] | None = None
    verification: Verification = field(default_factory=Verification)
    replays: tuple[ReplayState, ...] = ()
    rebuild: Rebuild | None = None
    rebuild_error: Problem | None = None
    ddl: tuple[SourceChange, ...] | None = None
    schema_changes: tuple[LoggedChange, ...] | None = None
    log: LogReport | None = None
    compaction_lag_seconds: float | None = None
    poll_seconds: float | None = None
    failed_polls: int = 0
    oplog: Oplog | None = None
    sink_records_per_second: float | None = None
    differences: tuple[Difference, ...] | None = None
    dead_letter_examples: tuple[LetterExample, ...] | None = None
    checks: tuple[Finding, ...] | None = None
    supervisor: Supervision | None = None

    @computed_field  # type: ignore[prop-decorator]
    @property
    def ddl_waiting(self) -> int | None:
        """Schema changes that wait for a decision: those of `ddl`, and those in the log that are held or refused."""
        if self.ddl is None:
            return None
        return len(self.ddl) + sum(bool(change.commands) for change in self.schema_changes or ())


def unknown(session: Session) -> Report:
    """The report of a pipeline of which nothing is known but its file."""
    pipeline = session.pipeline
    return Report(
        name=pipeline.name,
        mode=pipeline.mode,
        file=str(session.file),
        source=without_credentials(pipeline.source.uri),
        destination=without_credentials(pipeline.destination.uri),
        compaction_lag_seconds=pipeline.log.compaction_lag / 1000 if pipeline.log.compact else None,
    )


def report(
    session: Session,
    status: Status,
    verified: Verified,
    replays: Replays,
    ddl: Sequence[Mapping[str, Any]] | None,
    log: LogReport | None,
) -> Report:
    """The report of a status. `ddl`: the schema changes at the source that are not at the destination."""
    letters, changes = status.dead_letters, status.changes
    epochs: dict[str, dict[int, int]] = {}
    for (topic, partition), epoch in sorted(status.epochs.items()):
        epochs.setdefault(topic, {})[partition] = epoch
    lags = (_rounded(lag) for lag in (status.lag_seconds, status.capture_seconds, status.apply_seconds))
    return replace(
        unknown(session),
        state=status.state,
        errors=tuple(map(Problem.of, status.errors)),
        at=round(time.time(), 3),
        copy=Copy(status.snapshot_done, status.snapshot, status.held),
        lag=Lag(status.lag_records, *lags),
        records_per_second=round(status.records_per_second, 1),
        dead_letters=letters.count if letters else None,
        dead_letters_complete=letters is not None and letters.complete,
        dead_letter_causes=letters.causes if letters else (),
        splices=status.splices,
        requests_waiting=status.waiting,
        sink=status.sink,
        sink_tasks=status.tasks,
        epochs=epochs,
        connectors=tuple(map(_connector, status.connectors)),
        cutover=_cutover(status.cutover) if status.cutover else None,
        log_breaks=status.breaks,
        verification=Verification.of(verified),
        replays=replays.replays,
        rebuild=replays.rebuild,
        rebuild_error=replays.rebuild_error,
        ddl=None if ddl is None else tuple(SourceChange(**change) for change in ddl),
        schema_changes=None
        if changes is None
        else tuple(LoggedChange(**change) for change in changes.as_json(session.file)),
        log=log,
    )


def _connector(connector: Connector) -> ConnectorState:
    tasks = tuple(Task(task.id, task.state, task.worker) for task in connector.tasks)
    return ConnectorState(connector.name, connector.state, connector.worker, tasks, connector.causes)


def _cutover(marker: Cutover) -> CutoverState:
    """All but its token."""
    switch = marker.cluster_time, marker.switched_at
    return CutoverState(marker.state, marker.steps, marker.began, *switch, marker.blocked, marker.has_reverse_pipeline)


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 3)


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def as_json(value: Any) -> Any:
    """A report, or a part of one, as JSON has it."""
    kind: Any = type(value)
    return _adapter(kind).dump_python(value, mode="json")
