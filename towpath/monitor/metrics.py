"""The metrics of `/metrics`: a table, each row with the figures that it takes from a pipeline's report.

They show what the page and the API show, and nothing is read for a scrape. Figures that are not known are left out, so
that no stale or invented number is stored: `towpath_pipeline_state` and `towpath_look_age_seconds` say why.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from towpath.monitor.board import ddl_waiting
from towpath.verify.full_verdict import age

Report = Mapping[str, Any]
#: Label values, and the number; None where it is not known. Of a histogram: an upper bound → how many are within, and
#: the sum of all.
Sample = tuple[tuple[str, ...], float | tuple[Mapping[str, int], float] | None]
Kind = Literal["gauge", "counter", "histogram", "info"]

#: Every value of the label `state`, by metric: exactly one of them is 1.
PIPELINE_STATES = ("running", "paused", "stopped", "failed", "missing", "starting", "unknown")
CONNECT_STATES = ("RUNNING", "PAUSED", "STOPPED", "FAILED", "UNASSIGNED", "RESTARTING", "MISSING")
CUTOVER_STATES = ("none", "cutting over", "destination primary", "failing back", "source primary")
_KINDS = ("missing", "extra", "different", "order", "metadata")


@dataclass(frozen=True, slots=True)
class Row:
    """One metric. `labels` come after `pipeline`, which every metric of a pipeline has."""

    name: str
    kind: Kind
    unit: str
    help: str
    read: Callable[[Report], Iterable[Sample]]
    labels: tuple[str, ...] = ()
    always: bool = False
    """Whether it is known also while the pipeline's state is not."""


def _under(report: Report, path: tuple[str, ...]) -> Any:
    """What is under these keys; None where one of them is absent or null."""
    value: Any = report
    for key in path:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def _at(*path: str) -> Callable[[Report], Iterator[Sample]]:
    """The number under these keys."""

    def read(report: Report) -> Iterator[Sample]:
        if (value := _under(report, path)) is not None:
            yield (), float(value)

    return read


def _each(path: tuple[str, ...], labels: tuple[str, ...], key: str) -> Callable[[Report], Iterator[Sample]]:
    """The number `key` of each object in the array under `path`."""

    def read(report: Report) -> Iterator[Sample]:
        for value in _under(report, path) or ():
            if value.get(key) is not None:
                yield tuple(str(value[label]) for label in labels), float(value[key])

    return read


def _one_of(states: Sequence[str], present: str, *labels: str) -> Iterator[Sample]:
    """1 for the present state and 0 for the others, so that a state that ended does not linger."""
    for state in states if present in states else (*states, present):
        yield (*labels, state), float(state == present)


def _state(report: Report) -> Iterator[Sample]:
    return _one_of(PIPELINE_STATES, report["state"])


def _cutover(report: Report) -> Iterator[Sample]:
    return _one_of(CUTOVER_STATES, (report.get("cutover") or {}).get("state", "none"))


def _connectors(report: Report) -> Iterator[Sample]:
    for connector in report.get("connectors", ()):
        yield from _one_of(CONNECT_STATES, connector["state"], connector["name"])


def _tasks(report: Report) -> Iterator[Sample]:
    for connector in report.get("connectors", ()):
        for task in connector["tasks"]:
            yield from _one_of(CONNECT_STATES, task["state"], connector["name"], str(task["id"]))


def _causes(report: Report) -> Iterator[Sample]:
    counts: dict[tuple[str, ...], float] = {}
    for cause in report.get("dead_letter_causes", ()):
        labels = cause["namespace"], cause["code"] or "none"
        counts[labels] = counts.get(labels, 0) + cause["records"]
    yield from counts.items()


def _operations(report: Report) -> Iterator[Sample]:
    for task in report.get("sink_tasks", ()):
        for operation in ("insert", "update", "delete"):
            yield (str(task["task"]), operation), float(task[f"{operation}s"])


def _transactions(report: Report) -> Iterator[Sample]:
    for task in report.get("sink_tasks", ()):
        times = task["transaction_seconds"]
        if times["within"]["+Inf"]:
            yield (str(task["task"]),), (times["within"], times["sum"])


def _retries(report: Report) -> Iterator[Sample]:
    for task in report.get("sink_tasks", ()):
        yield from (((str(task["task"]), cause), float(n)) for cause, n in task["retries_by_cause"].items())


def _ddl(report: Report) -> Iterator[Sample]:
    if "ddl" in report:
        yield (), float(ddl_waiting(report))


def _fold(report: Report) -> Iterator[Sample]:
    sink = report.get("sink") or {}
    if sink.get("writes"):
        yield (), sink["records"] / sink["writes"]


def _takeovers(report: Report) -> Iterator[Sample]:
    if report.get("epochs"):
        yield (), float(sum(epoch for partitions in report["epochs"].values() for epoch in partitions.values()))


def _sum(key: str) -> Callable[[Report], Iterator[Sample]]:
    """The sum over all topics of the log; nothing where it is not known of any."""

    def read(report: Report) -> Iterator[Sample]:
        known = [topic[key] for topic in (report.get("log") or {}).get("topics", ()) if topic[key] is not None]
        if known:
            yield (), float(sum(known))

    return read


def _compacted(report: Report) -> list[Mapping[str, Any]] | None:
    """The topics of a compacted log that hold something; None where they are not known, or the log is not compacted."""
    if report.get("compaction_lag_seconds") is None or report.get("log") is None:
        return None
    return [topic for topic in report["log"]["topics"] if topic["offsets"]]


def _unprotected_age(report: Report) -> Iterator[Sample]:
    if ages := [topic["oldest_seconds"] or 0.0 for topic in _compacted(report) or () if topic["dirty"] is not None]:
        yield (), max(ages)


def _report_age(report: Report) -> Iterator[Sample]:
    if ages := [topic["told_seconds"] for topic in _compacted(report) or () if topic["told_seconds"] is not None]:
        yield (), max(ages)


def _unreported(report: Report) -> Iterator[Sample]:
    if (topics := _compacted(report)) is not None:
        yield (), float(sum(topic["told_seconds"] is None for topic in topics))


_VERDICTS = {"last": "last_verdict", "full": "full_verdict"}


def _of_scope(report: Report, key: str) -> Mapping[str, Any] | None:
    """A verdict. The last one alone has what was repaired since; it may be that on everything."""
    verdict, last = report.get(key), report.get("last_verdict")
    return last if verdict and last and last["id"] == verdict["id"] else verdict


def _verdict(read: Callable[[Mapping[str, Any]], float]) -> Callable[[Report], Iterator[Sample]]:
    def both(report: Report) -> Iterator[Sample]:
        for scope, key in _VERDICTS.items():
            if verdict := _of_scope(report, key):
                yield (scope,), read(verdict)

    return both


def _differences(report: Report) -> Iterator[Sample]:
    for scope, key in _VERDICTS.items():
        if verdict := _of_scope(report, key):
            yield from (((scope, kind), float(verdict.get(kind) or 0)) for kind in _KINDS)


def _followed(report: Report) -> Iterator[Sample]:
    if report.get("verify"):
        yield from (((kind,), float(report["verify"][kind])) for kind in _KINDS if kind in report["verify"])


def _age(report: Report) -> Iterator[Sample]:
    if report.get("at") is not None:
        yield (), max(0.0, time.time() - report["at"])


def _length(*path: str) -> Callable[[Report], Iterator[Sample]]:
    def read(report: Report) -> Iterator[Sample]:
        if (values := _under(report, path)) is not None:
            yield (), float(len(values))

    return read


def _requests(report: Report) -> Iterator[Sample]:
    if "requests_waiting" in report:
        yield (), float(sum(waiting["requests"] for waiting in report["requests_waiting"]))


def _restarts(report: Report) -> Iterator[Sample]:
    if supervisor := report.get("supervisor"):
        for connector in report.get("connectors", ()):
            yield (connector["name"],), float(supervisor["restarts"].get(connector["name"], 0))


def _copied(key: str) -> Callable[[Report], Iterator[Sample]]:
    return _each(("snapshot", "collections"), ("namespace",), key)


def _task(key: str) -> Callable[[Report], Iterator[Sample]]:
    return _each(("sink_tasks",), ("task",), key)


def _replayed(key: str) -> Callable[[Report], Iterator[Sample]]:
    return _each(("replays",), ("label",), key)


#: In the order of docs/metrics.md, which a test holds against this table.
ROWS: tuple[Row, ...] = (
    # is it running?
    Row("towpath_pipeline_state", "gauge", "", "1 for the pipeline's present state, else 0", _state, ("state",), True),
    Row(
        "towpath_pipeline",
        "info",
        "",
        "The pipeline's mode and the version of Towpath that reports",
        lambda r: (((r.get("mode") or "unknown", r["version"]), 1.0),),
        ("mode", "version"),
        True,
    ),
    Row("towpath_look_age_seconds", "gauge", "s", "Age of the figures: since the last successful look", _age, (), True),
    Row("towpath_look_seconds", "gauge", "s", "How long the last successful look took", _at("look_seconds")),
    Row(
        "towpath_looks_failed_total",
        "counter",
        "",
        "Looks that failed: Kafka or Connect did not answer",
        _at("looks_failed"),
        (),
        True,
    ),
    Row("towpath_troubles", "gauge", "", "Parts of the last look that could not be read", _length("trouble")),
    Row(
        "towpath_connector_state",
        "gauge",
        "",
        "1 for the connector's present state, else 0",
        _connectors,
        ("connector", "state"),
    ),
    Row(
        "towpath_task_state",
        "gauge",
        "",
        "1 for the task's present state, else 0",
        _tasks,
        ("connector", "task", "state"),
    ),
    Row(
        "towpath_connector_restarts_total",
        "counter",
        "",
        "Restarts of failed tasks by `towpath run` since it began",
        _restarts,
        ("connector",),
    ),
    # how far behind?
    Row(
        "towpath_lag_seconds",
        "gauge",
        "s",
        "The larger one of the capture lag and the apply lag",
        _at("lag", "seconds"),
    ),
    Row(
        "towpath_apply_lag_seconds",
        "gauge",
        "s",
        "Age of the oldest record not applied, by the source's clock",
        _at("lag", "apply_seconds"),
    ),
    Row(
        "towpath_capture_lag_seconds",
        "gauge",
        "s",
        "The source's cluster time minus the stream's position, which heartbeats move while nothing changes",
        _at("lag", "capture_seconds"),
    ),
    Row("towpath_lag_records", "gauge", "records", "Records of the log that are not applied", _at("lag", "records")),
    Row(
        "towpath_log_records_per_second",
        "gauge",
        "records/s",
        "Records into the log, over the last 10 seconds",
        _at("records_per_second"),
    ),
    Row(
        "towpath_oplog_window_seconds",
        "gauge",
        "s",
        "How far back the source's oplog reaches, or will once it is full",
        _at("oplog", "window_seconds"),
    ),
    Row(
        "towpath_oplog_remaining_seconds",
        "gauge",
        "s",
        "How much longer the oplog keeps what is not captured: the window minus the capture lag or a first copy's age",
        _at("oplog", "remaining_seconds"),
    ),
    Row("towpath_copy_done", "gauge", "", "1 while nothing is being copied, else 0", _at("snapshot", "done")),
    Row(
        "towpath_copy_documents",
        "gauge",
        "documents",
        "Documents of a collection that are copied into the log",
        _copied("documents"),
        ("namespace",),
    ),
    Row(
        "towpath_copy_estimated_documents",
        "gauge",
        "documents",
        "About how many there are to copy",
        _copied("of"),
        ("namespace",),
    ),
    Row(
        "towpath_copy_bytes",
        "gauge",
        "bytes",
        "Bytes of a collection that are copied",
        _copied("bytes"),
        ("namespace",),
    ),
    Row(
        "towpath_copy_estimated_bytes",
        "gauge",
        "bytes",
        "About how many there are to copy",
        _copied("of_bytes"),
        ("namespace",),
    ),
    Row(
        "towpath_copy_ranges",
        "gauge",
        "ranges",
        "Ranges that the collection was cut into",
        _copied("ranges"),
        ("namespace",),
    ),
    Row(
        "towpath_copy_done_ranges", "gauge", "ranges", "Ranges that are copied", _copied("ranges_done"), ("namespace",)
    ),
    Row(
        "towpath_copy_pending_documents",
        "gauge",
        "documents",
        "Documents that changed during a copy in natural order and are not re-read yet",
        _copied("pending"),
        ("namespace",),
    ),
    Row(
        "towpath_copy_retries_total",
        "counter",
        "",
        "Reads of the copy that were retried",
        _copied("retries"),
        ("namespace",),
    ),
    Row(
        "towpath_copy_remaining_seconds",
        "gauge",
        "s",
        "Time left of the copy, at the present rate",
        _copied("seconds_left"),
        ("namespace",),
    ),
    Row("towpath_reread_requests_waiting", "gauge", "requests", "Re-read requests that are not answered", _requests),
    # what did it refuse?
    Row("towpath_dead_letters", "gauge", "records", "Records in the dead-letter topic", _at("dead_letters")),
    Row(
        "towpath_dead_letters_by_cause",
        "gauge",
        "records",
        "Of the newest 1,000 dead letters, those of a namespace with an error code",
        _causes,
        ("namespace", "code"),
    ),
    Row(
        "towpath_refused_documents",
        "gauge",
        "documents",
        "Documents that the destination refused and that still differ, as `towpath run` knows them",
        _at("supervisor", "refused_documents"),
    ),
    Row(
        "towpath_repaired_documents_total",
        "counter",
        "documents",
        "Those that `towpath run` has repaired",
        _at("supervisor", "repaired_documents"),
    ),
    Row(
        "towpath_log_breaks",
        "gauge",
        "partitions",
        "Partitions whose records are gone before they were applied",
        _length("log_breaks"),
    ),
    Row(
        "towpath_ddl_waiting",
        "gauge",
        "changes",
        "Schema changes at the source that wait for somebody: not followed, held or refused",
        _ddl,
    ),
    # is it the same?
    Row(
        "towpath_verdict_clean",
        "gauge",
        "",
        "1 if the newest verdict that counts found no difference, or all are repaired, else 0",
        _verdict(lambda verdict: float(bool(verdict["clean"]))),
        ("scope",),
    ),
    Row(
        "towpath_verdict_age_seconds",
        "gauge",
        "s",
        "Age of the newest verdict that counts",
        _verdict(age),
        ("scope",),
    ),
    Row(
        "towpath_verdict_documents",
        "gauge",
        "documents",
        "Documents that it compared",
        _verdict(lambda verdict: float(verdict["compared"])),
        ("scope",),
    ),
    Row(
        "towpath_verdict_differences",
        "gauge",
        "",
        "Differences that it found and that are not repaired",
        _differences,
        ("scope", "kind"),
    ),
    Row(
        "towpath_verify_behind_seconds",
        "gauge",
        "s",
        "Age of the oldest record that `verify --follow` has not read",
        _at("verify", "behind_seconds"),
    ),
    Row(
        "towpath_verify_behind_records",
        "gauge",
        "records",
        "Records between `verify --follow` and the end of the log",
        _at("verify", "behind_records"),
    ),
    Row(
        "towpath_verify_differences",
        "gauge",
        "",
        "Differences that `verify --follow` has found and that are not gone",
        _followed,
        ("kind",),
    ),
    Row(
        "towpath_verify_age_seconds",
        "gauge",
        "s",
        "Since `verify --follow` last reported",
        _at("verify", "age_seconds"),
    ),
    Row("towpath_cutover_state", "gauge", "", "1 for the present state of the cutover, else 0", _cutover, ("state",)),
    # how much does it cost?
    Row(
        "towpath_sink_records_total",
        "counter",
        "records",
        "Records that a sink task has applied",
        _task("records"),
        ("task",),
    ),
    Row(
        "towpath_sink_writes_total",
        "counter",
        "writes",
        "Writes that these records were folded to",
        _task("writes"),
        ("task",),
    ),
    Row(
        "towpath_sink_operations_total",
        "counter",
        "writes",
        "The same by operation",
        _operations,
        ("task", "operation"),
    ),
    Row("towpath_sink_waves_total", "counter", "waves", "Waves of writes", _task("waves"), ("task",)),
    Row("towpath_sink_fold_ratio", "gauge", "records/write", "Records for each write, since the pipeline began", _fold),
    Row(
        "towpath_sink_transaction_seconds",
        "histogram",
        "s",
        "How long the transactions of a sink task took, from their start to their commit",
        _transactions,
        ("task",),
    ),
    Row(
        "towpath_sink_read_bytes_total",
        "counter",
        "bytes",
        "Bytes of the records' keys and values",
        _task("bytes"),
        ("task",),
    ),
    Row(
        "towpath_sink_written_bytes_total",
        "counter",
        "bytes",
        "Bytes of the documents and updates written",
        _task("bytes_out"),
        ("task",),
    ),
    Row(
        "towpath_sink_refused_records_total",
        "counter",
        "records",
        "Records that became dead letters",
        _task("refused"),
        ("task",),
    ),
    Row(
        "towpath_sink_retries_total",
        "counter",
        "",
        "Transactions and other steps that a sink task has retried, by the cause of the failure",
        _retries,
        ("task", "cause"),
    ),
    Row(
        "towpath_sink_without_document_total",
        "counter",
        "writes",
        "Updates and deletes that found no document",
        _task("without_document"),
        ("task",),
    ),
    Row(
        "towpath_sink_takeovers_total",
        "counter",
        "",
        "Partitions taken over by a sink task: the sum of all epochs",
        _takeovers,
    ),
    Row("towpath_splices_total", "counter", "arrays", "Arrays that travelled as splices", _at("splices", "splices")),
    Row(
        "towpath_splices_saved_bytes_total",
        "counter",
        "bytes",
        "Bytes by which their records are smaller",
        _at("splices", "saved"),
    ),
    Row("towpath_log_bytes", "gauge", "bytes", "Size of the log on disk, of one replica", _sum("bytes")),
    Row(
        "towpath_log_offsets",
        "gauge",
        "offsets",
        "Offsets of the log: records, markers, and what is compacted",
        _sum("offsets"),
    ),
    Row(
        "towpath_unprotected_documents",
        "gauge",
        "documents",
        "Documents with updates in a compacted log that no whole document follows",
        _sum("dirty"),
    ),
    Row(
        "towpath_unprotected_age_seconds",
        "gauge",
        "s",
        "Age of the oldest of these updates; 0 without one",
        _unprotected_age,
    ),
    Row(
        "towpath_compaction_report_age_seconds",
        "gauge",
        "s",
        "Since `towpath compact` last reported, of the topic for which that is longest",
        _report_age,
    ),
    Row(
        "towpath_compaction_unreported_topics",
        "gauge",
        "topics",
        "Topics of a compacted log on which `towpath compact` has not reported as a whole",
        _unreported,
    ),
    Row(
        "towpath_compaction_lag_seconds",
        "gauge",
        "s",
        "[log] compaction_lag: younger updates are never compacted",
        _at("compaction_lag_seconds"),
    ),
    Row(
        "towpath_log_warnings",
        "gauge",
        "",
        "Warnings about the log, as `towpath status` prints them",
        _length("log", "warnings"),
    ),
    # replays
    Row(
        "towpath_replay_records",
        "gauge",
        "records",
        "Records of the log when the replay began",
        _replayed("records"),
        ("label",),
    ),
    Row(
        "towpath_replay_applied_records",
        "gauge",
        "records",
        "Those of them that the replay has applied",
        _replayed("records_done"),
        ("label",),
    ),
    Row(
        "towpath_replay_behind_records",
        "gauge",
        "records",
        "Records between the replay and the end of the log",
        _replayed("records_behind"),
        ("label",),
    ),
    Row(
        "towpath_replay_dead_letters",
        "gauge",
        "records",
        "Records that the replay's destination refused",
        _replayed("dead_letters"),
        ("label",),
    ),
)


def family(row: Row, reports: Iterable[Report]) -> Metric:
    """One metric with its samples of all pipelines."""
    names = ("pipeline", *row.labels)
    metric: Any
    if row.kind == "info":
        metric = InfoMetricFamily(row.name, row.help, labels=("pipeline",))
    else:
        by_kind = {"gauge": GaugeMetricFamily, "counter": CounterMetricFamily, "histogram": HistogramMetricFamily}
        metric = by_kind[row.kind](row.name, row.help, labels=names)
    for report in reports:
        if report["state"] == "unknown" and not row.always:
            continue
        name = report["name"]
        for labels, value in row.read(report):
            if row.kind == "info":
                metric.add_metric((name,), dict(zip(row.labels, labels, strict=True)))
            elif isinstance(value, tuple):
                within, total = value
                metric.add_metric((name, *labels), list(within.items()), total)
            elif value is not None:
                metric.add_metric((name, *labels), value)
    return metric  # type: ignore[no-any-return]


@dataclass(slots=True, eq=False)
class PipelineMetrics(Collector):
    """The metrics of all pipelines, from their newest reports."""

    reports: Callable[[], Sequence[Report]]

    def collect(self) -> Iterator[Metric]:
        reports = self.reports()
        for row in ROWS:
            metric = family(row, reports)
            if metric.samples:
                yield metric


#: What the process says of itself: name, kind, unit, help; and `process_…`, the standard metrics of a process.
OWN = (
    ("towpath_clients", "gauge", "clients", "Clients that follow the page or the events"),
    ("towpath_dropped_updates_total", "counter", "updates", "Updates that slow clients did not get"),
    ("towpath_requests_total", "counter", "requests", "HTTP requests by status code (label `code`)"),
)
