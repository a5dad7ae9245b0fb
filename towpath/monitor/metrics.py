"""The metrics of `/metrics`: tables of name → help and the number that is taken from a pipeline's report.

They show what the page and the API show, and nothing is read for a scrape. Numbers that are not known (None) are left
out, so that no stale or invented number is stored: `towpath_pipeline_state` and `towpath_poll_age_seconds` say why.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar, get_args

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from towpath.monitor.dashboard import Dashboard
from towpath.run.report import Copied, ReplayState, Report, TopicLog
from towpath.store.cutover import State
from towpath.store.positions import TaskState
from towpath.verify.verdict import Verdict

T = TypeVar("T")
Labels = tuple[str, ...]
#: Of a histogram: an upper bound → how many are within, and the sum of all.
Value = float | tuple[Mapping[str, int], float] | None
#: Name, which begins with `towpath_` → help, and the number: a path of attributes, or how to read it.
Table = Mapping[str, tuple[str, str | Callable[[T], Value]]]
#: The same, but with labels, and how to read the numbers by label values.
Labelled = Mapping[str, tuple[str, Labels, Callable[[Report], Iterable[tuple[Labels, float]]]]]

#: Every value of the label `state`, by metric: exactly one of them is 1.
PIPELINE_STATES = ("running", "destination primary", "paused", "stopped", "failed", "missing", "starting", "unknown")
CONNECT_STATES = ("RUNNING", "PAUSED", "STOPPED", "FAILED", "UNASSIGNED", "RESTARTING", "MISSING")
CUTOVER_STATES = ("none", *get_args(State))
_KINDS = ("missing", "extra", "different", "order")
_HISTOGRAM = "sink_transaction_seconds"


@dataclass(frozen=True, slots=True)
class Row:
    """One metric. `labels` come after `pipeline`, which every metric of a pipeline has."""

    name: str
    help: str
    labels: Labels
    read: Callable[[Report], Iterable[tuple[Labels, Value]]]

    @property
    def kind(self) -> str:
        return "histogram" if self.name.endswith(_HISTOGRAM) else "counter" if self.name.endswith("_total") else "gauge"

    def family(self, reports: Iterable[Report]) -> Metric:
        """The metric with its samples of all pipelines."""
        kinds: Any = {"gauge": GaugeMetricFamily, "counter": CounterMetricFamily, "histogram": HistogramMetricFamily}
        metric = kinds[self.kind](self.name, self.help, labels=("pipeline", *self.labels))
        for report in reports:
            if report.state == "unknown" and self.name not in ALWAYS:
                continue
            for labels, value in self.read(report):
                if isinstance(value, tuple):
                    within, total = value
                    metric.add_metric((report.name, *labels), list(within.items()), total)
                elif value is not None:
                    metric.add_metric((report.name, *labels), value)
        return metric  # type: ignore[no-any-return]


def _one_of(states: Sequence[str], present: str, *labels: str) -> Iterator[tuple[Labels, float]]:
    """1 for the present state and 0 for the others, so that a state that ended does not linger."""
    for state in states if present in states else (*states, present):
        yield (*labels, state), float(state == present)


def _tasks(report: Report) -> Iterator[tuple[Labels, float]]:
    for connector in report.connectors:
        for task in connector.tasks:
            yield from _one_of(CONNECT_STATES, task.state, connector.name, str(task.id))


def _restarts(report: Report) -> Iterator[tuple[Labels, float]]:
    if report.supervisor:
        yield from (((c.name,), report.supervisor.restarts.get(c.name, 0)) for c in report.connectors)


def _causes(report: Report) -> Iterator[tuple[Labels, float]]:
    counts = Counter[Labels]()
    for cause in report.dead_letter_causes:
        counts[cause.namespace, cause.code or "none"] += cause.records
    yield from counts.items()


def _operations(report: Report) -> Iterator[tuple[Labels, float]]:
    for task in report.sink_tasks:
        counts = task.counts
        for operation, count in (("insert", counts.inserts), ("update", counts.updates), ("delete", counts.deletes)):
            yield (str(task.task), operation), count


def _retries(report: Report) -> Iterator[tuple[Labels, float]]:
    for task in report.sink_tasks:
        yield from (((str(task.task), cause), count) for cause, count in task.retries_by_cause.items())


def _verdicts(report: Report) -> Iterator[tuple[Labels, Verdict]]:
    for scope, verdict in (("last", report.verification.last), ("full", report.verification.full)):
        if verdict:
            yield (scope,), verdict


def _differences(report: Report) -> Iterator[tuple[Labels, float]]:
    for (scope,), verdict in _verdicts(report):
        yield from (((scope, kind), getattr(verdict, kind) or 0) for kind in (*_KINDS, "metadata"))


def _followed(report: Report) -> Iterator[tuple[Labels, float]]:
    if follow := report.verification.follow:
        yield from (((kind,), getattr(follow, kind)) for kind in _KINDS)


def _times(task: TaskState) -> Value:
    times = task.transaction_seconds
    return (times.within, times.sum) if times.within.get("+Inf") else None


def _of_topics(report: Report, read: Callable[[TopicLog], float | None]) -> list[float]:
    """What is known of the topics of the log."""
    values = map(read, report.log.topics) if report.log else ()
    return [value for value in values if value is not None]


def _compacted(report: Report) -> list[TopicLog]:
    """The topics of a compacted log that hold something."""
    topics = report.log.topics if report.log and report.compaction_lag_seconds is not None else ()
    return [topic for topic in topics if topic.offsets]


def _sum(values: Sequence[float]) -> float | None:
    return sum(values) if values else None


def _unprotected_age(report: Report) -> float | None:
    ages = (t.oldest_seconds or 0.0 for t in _compacted(report) if t.unprotected_documents is not None)
    return max(ages, default=None)


def _report_age(report: Report) -> float | None:
    return max((t.reported_seconds for t in _compacted(report) if t.reported_seconds is not None), default=None)


def _unreported(report: Report) -> float | None:
    if report.compaction_lag_seconds is None or report.log is None:
        return None
    return sum(topic.reported_seconds is None for topic in _compacted(report))


def _at(path: str, value: Any) -> Any:
    """What is at this path of attributes; None where one of them is."""
    for name in path.split("."):
        value = None if value is None else getattr(value, name)
    return value


def _age(report: Report) -> float | None:
    return None if report.at is None else max(0.0, time.time() - report.at)


#: They are known also while the pipeline's state is not.
ALWAYS = ("towpath_pipeline_state", "towpath_pipeline_info", "towpath_poll_age_seconds", "towpath_failed_polls_total")

_LABELLED: Labelled = {
    "pipeline_state": (
        "1 for the pipeline's present state, else 0",
        ("state",),
        lambda r: _one_of(PIPELINE_STATES, r.state),
    ),
    "pipeline_info": (
        "Always 1; the labels are the pipeline's mode and the version of Towpath that reports",
        ("mode", "version"),
        lambda r: (((r.mode, r.version), 1.0),),
    ),
    "connector_state": (
        "1 for the connector's present state, else 0",
        ("connector", "state"),
        lambda r: (sample for c in r.connectors for sample in _one_of(CONNECT_STATES, c.state, c.name)),
    ),
    "task_state": ("1 for the task's present state, else 0", ("connector", "task", "state"), _tasks),
    "connector_restarts_total": ("Restarts of failed tasks by `towpath run` since it began", ("connector",), _restarts),
    "dead_letters_by_cause": (
        "Of the newest 1,000 dead letters, those of a namespace with an error code",
        ("namespace", "code"),
        _causes,
    ),
    "verdict_differences": ("Differences that it found and that are not repaired", ("scope", "kind"), _differences),
    "verify_differences": ("Differences that `verify --follow` has found and that are not gone", ("kind",), _followed),
    "cutover_state": (
        "1 for the present state of the cutover, else 0",
        ("state",),
        lambda r: _one_of(CUTOVER_STATES, r.cutover.state if r.cutover else "none") if r.cutover_is_known else (),
    ),
    "sink_operations_total": ("The same by operation", ("task", "operation"), _operations),
    "sink_retries_total": (
        "Transactions and other steps that a sink task has retried, by the cause of the failure",
        ("task", "cause"),
        _retries,
    ),
}

_PIPELINE: Table[Report] = {
    # is it running?
    "poll_age_seconds": ("Age of the numbers: since the last successful poll", _age),
    "poll_seconds": ("How long the last successful poll took", "poll_seconds"),
    "failed_polls_total": ("Polls that failed: Kafka or Connect did not answer", "failed_polls"),
    "poll_errors": ("Parts that the last poll could not read", lambda r: len(r.errors)),
    # how far behind?
    "lag_seconds": ("The larger one of the capture lag and the apply lag", "lag.seconds"),
    "apply_lag_seconds": ("Age of the oldest record not applied, by the source's clock", "lag.apply_seconds"),
    "capture_lag_seconds": (
        "The source's cluster time minus the stream's position, which heartbeats move while nothing changes",
        "lag.capture_seconds",
    ),
    "capture_lag_changes": (
        "Changes in the source's oplog that the stream has not captured; absent above 10,000",
        "lag.capture_changes",
    ),
    "takeover_seconds": ("About how long a takeover would take now", "lag.takeover_seconds"),
    "recovery_point_seconds": (
        "[run] recovery_point: how far the log may be behind the source, whose loss would cost that much",
        "recovery_point_seconds",
    ),
    "lag_records": ("Records of the log that are not applied", "lag.records"),
    "log_records_per_second": ("Records into the log, over the last 10 seconds", "records_per_second"),
    "oplog_window_seconds": (
        "How far back the source's oplog reaches, or will once it is full",
        "oplog.window_seconds",
    ),
    "oplog_remaining_seconds": (
        "How much longer the oplog keeps what is not captured: the window minus the capture lag or a first copy's age",
        "oplog.remaining_seconds",
    ),
    "copy_done": ("1 while nothing is being copied, else 0", lambda r: float(r.copy.done) if r.copy else None),
    "reread_requests_waiting": (
        "Re-read requests that are not answered",
        lambda r: None if r.requests_waiting is None else sum(waiting.requests for waiting in r.requests_waiting),
    ),
    "reread_requests_skipped_total": (
        "Those of which nothing, or not every document, could be answered (TWP-REQUEST)",
        "requests_skipped",
    ),
    # what did it refuse?
    "dead_letters": ("Records in the dead-letter topic, repaired ones included", "dead_letters"),
    "refused_documents": (
        "Documents that the destination refused and that still differ, as `towpath run` knows them",
        "supervisor.refused_documents",
    ),
    "repaired_documents_total": ("Those that `towpath run` has repaired", "supervisor.repaired_documents"),
    "log_breaks": (
        "Partitions whose records are gone before they were applied",
        lambda r: None if r.log_breaks is None else len(r.log_breaks),
    ),
    "ddl_waiting": (
        "Schema changes at the source that wait for a decision: not followed, held or refused",
        "ddl_waiting",
    ),
    # is it the same?
    "verify_behind_seconds": (
        "How old the oldest record is at most that `verify --follow` has not compared",
        "verification.follow.behind_seconds",
    ),
    "verify_behind_records": (
        "Records of the log that `verify --follow` has not compared",
        "verification.follow.behind_records",
    ),
    "verify_unresolved": ("Documents that `verify --follow` could not judge yet", "verification.follow.unresolved"),
    "verify_age_seconds": ("Since `verify --follow` last reported", "verification.follow.age_seconds"),
    # how much does it cost?
    "sink_fold_ratio": (
        "Records for each write, since the pipeline began",
        lambda r: r.sink.records / r.sink.writes if r.sink and r.sink.writes else None,
    ),
    "sink_takeovers_total": (
        "Partitions taken over by a sink task: the sum of all epochs",
        lambda r: _sum([epoch for partitions in r.epochs.values() for epoch in partitions.values()]),
    ),
    "splices_total": ("Arrays that travelled as splices", "splices.splices"),
    "splices_saved_bytes_total": ("Bytes by which their records are smaller", "splices.saved"),
    "log_bytes": ("Size of the log on disk, of one replica", lambda r: _sum(_of_topics(r, lambda topic: topic.bytes))),
    "log_offsets": (
        "Offsets of the log: records, markers, and what is compacted",
        lambda r: _sum(_of_topics(r, lambda topic: topic.offsets)),
    ),
    "unprotected_documents": (
        "Documents with updates in a compacted log that no whole document follows",
        lambda r: _sum(_of_topics(r, lambda topic: topic.unprotected_documents)),
    ),
    "unprotected_age_seconds": ("Age of the oldest of these updates; 0 without one", _unprotected_age),
    "compaction_report_age_seconds": (
        "Since `towpath compact` last reported, of the topic for which that is longest",
        _report_age,
    ),
    "compaction_unreported_topics": (
        "Topics of a compacted log on which `towpath compact` has not reported as a whole",
        _unreported,
    ),
    "compaction_lag_seconds": ("[log] compaction_lag: younger updates are never compacted", "compaction_lag_seconds"),
    "log_warnings": (
        "Warnings about the log, as `towpath status` prints them",
        lambda r: len(r.log.warnings) if r.log else None,
    ),
}

_COPIES: Table[Copied] = {
    "copy_documents": ("Documents of a collection that are copied into the log", "documents"),
    "copy_estimated_documents": ("About how many there are to copy", "estimated_documents"),
    "copy_bytes": ("Bytes of a collection that are copied", "bytes"),
    "copy_estimated_bytes": ("About how many there are to copy", "estimated_bytes"),
    "copy_ranges": ("Ranges that the collection was cut into", "ranges"),
    "copy_done_ranges": ("Ranges that are copied", "done_ranges"),
    "copy_pending_documents": (
        "Documents that changed during a copy in natural order and are not re-read yet",
        "pending_documents",
    ),
    "copy_retries_total": ("Reads of the copy that were retried", "retries"),
    "copy_remaining_seconds": ("Time left of the copy, at the present rate", "remaining_seconds"),
}

_VERDICTS: Table[Verdict] = {
    "verdict_clean": (
        "1 if the newest verdict that counts found no difference, or all are repaired, else 0",
        lambda v: float(v.clean),
    ),
    "verdict_age_seconds": ("Age of the newest verdict that counts", "age"),
    "verdict_documents": ("Documents that it compared", "compared"),
}

_SINK: Table[TaskState] = {
    "sink_records_total": ("Records that a sink task has applied", "counts.records"),
    "sink_writes_total": ("Writes that these records were folded to", "counts.writes"),
    "sink_waves_total": ("Waves of writes", "counts.waves"),
    _HISTOGRAM: ("How long the transactions of a sink task took, from their start to their commit", _times),
    "sink_read_bytes_total": ("Bytes of the records' keys and values", "counts.bytes"),
    "sink_written_bytes_total": ("Bytes of the documents and updates written", "counts.bytes_out"),
    "sink_refused_records_total": ("Records that became dead letters", "counts.refused"),
    "sink_without_document_total": ("Updates and deletes that found no document", "counts.without_document"),
}

_REPLAYS: Table[ReplayState] = {
    "replay_records": ("Records of the log when the replay began", "records"),
    "replay_applied_records": ("Those of them that the replay has applied", "records_done"),
    "replay_behind_records": ("Records between the replay and the end of the log", "records_behind"),
    "replay_dead_letters": ("Records that the replay's destination refused", "dead_letters"),
}

#: What the process says of itself, in addition to `process_…`, the standard metrics of a process.
OWN = {
    "towpath_clients": ("gauge", "Clients that follow the page or the events"),
    "towpath_dropped_updates_total": ("counter", "Updates that slow clients did not get"),
    "towpath_requests_total": ("counter", "HTTP requests by status code (label `code`)"),
}


def _rows(table: Table[T], labels: Labels, each: Callable[[Report], Iterable[tuple[Labels, T]]]) -> Iterator[Row]:
    """A row for each line of a table, with a number for each of what a report has `each`."""

    def reader(at: str | Callable[[T], Value]) -> Callable[[Report], Iterable[tuple[Labels, Value]]]:
        read = partial(_at, at) if isinstance(at, str) else at
        return lambda report: ((values, read(one)) for values, one in each(report))

    return (Row(f"towpath_{name}", help, labels, reader(at)) for name, (help, at) in table.items())


#: docs/metrics.md has the same table, which a test compares with this one.
ROWS: tuple[Row, ...] = (
    *(Row(f"towpath_{name}", help, labels, read) for name, (help, labels, read) in _LABELLED.items()),
    *_rows(_PIPELINE, (), lambda report: (((), report),)),
    *_rows(_COPIES, ("namespace",), lambda r: (((c.namespace,), c) for c in (r.copy.collections if r.copy else ()))),
    *_rows(_VERDICTS, ("scope",), _verdicts),
    *_rows(_SINK, ("task",), lambda report: (((str(task.task),), task) for task in report.sink_tasks)),
    *_rows(_REPLAYS, ("label",), lambda report: (((replay.label,), replay) for replay in report.replays)),
)


@dataclass(slots=True, eq=False)
class Metrics(Collector):
    """The metrics of all pipelines, from their newest reports, and those of the server."""

    dashboard: Dashboard
    requests: Counter[int]
    """Status code → requests."""

    def collect(self) -> Iterator[Metric]:
        reports = [shown.report for shown in self.dashboard.pipelines.values()]
        yield from (metric for row in ROWS if (metric := row.family(reports)).samples)
        (clients, (_, follow)), (dropped, (_, lost)), (requests, (_, answered)) = OWN.items()
        yield GaugeMetricFamily(clients, follow, value=self.dashboard.updates.clients)
        yield CounterMetricFamily(dropped, lost, value=self.dashboard.updates.dropped)
        counts = CounterMetricFamily(requests, answered, labels=("code",))
        for code, count in sorted(self.requests.items()):
            counts.add_metric((str(code),), count)
        yield counts
