"""The Grafana dashboard as a table: one row a question, one line a panel. `scripts/dashboard` writes its JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

FILE = Path(__file__).parents[2] / "towpath" / "stack" / "monitoring" / "dashboard.json"

#: Grafana replaces these before it asks Prometheus.
PIPELINE, INTERVAL = "$pipeline", "$__rate_interval"
_DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
_WIDTH, _HEIGHT = 24, 7

Kind = Literal["timeseries", "stat"]


@dataclass(frozen=True, slots=True)
class Panel:
    """`queries`: legend → PromQL. `colours`: from which value a number has which; of names, by pattern."""

    title: str
    unit: str
    queries: Mapping[str, str]
    about: str = ""
    kind: Kind = "timeseries"
    width: int = 8
    colours: Mapping[float | str, str] = field(default_factory=dict)


def _of(metric: str, labels: str = "") -> str:
    """A metric of the chosen pipelines."""
    return f'{metric}{{pipeline=~"{PIPELINE}"{", " + labels if labels else ""}}}'


def _rate(metric: str, by: str = "pipeline") -> str:
    return f"sum by ({by}) (rate({_of(metric)}[{INTERVAL}]))"


def _quantile(share: float, buckets: str) -> str:
    return f"histogram_quantile({share}, {_rate(buckets, 'pipeline, le')})"


DASHBOARD: Mapping[str, tuple[Panel, ...]] = {
    "Is it running?": (
        Panel(
            "State",
            "short",
            {"{{pipeline}}: {{state}}": f"{_of('towpath_pipeline_state')} == 1"},
            "The pipeline's state, as `towpath status` prints it.",
            kind="stat",
            width=6,
            colours={
                "/running$|destination primary$/": "green",
                "/starting$|paused$|stopped$/": "orange",
                "/failed$|missing$|unknown$/": "red",
            },
        ),
        Panel(
            "Tasks, by state",
            "short",
            {"{{connector}} {{state}}": f"count by (pipeline, connector, state) ({_of('towpath_task_state')} == 1)"},
            "Tasks of the connectors in Connect's words. FAILED: see the runbook of TowpathTaskFailed.",
            width=6,
        ),
        Panel(
            "Restarts by towpath run",
            "short",
            {"{{connector}}": f"increase({_of('towpath_connector_restarts_total')}[{INTERVAL}])"},
            "How often `towpath run` restarted failed tasks.",
            width=6,
        ),
        Panel(
            "Age of the numbers",
            "s",
            {"{{pipeline}}": _of("towpath_poll_age_seconds")},
            "Time since the last successful poll of the pipeline. It rises while Kafka or Connect does not answer.",
            width=6,
        ),
        Panel(
            "Alerts",
            "short",
            {"{{alertname}} {{pipeline}}": 'sum by (alertname, pipeline) (ALERTS{alertname=~"Towpath.+"})'},
            "Alerts that fire or are about to. docs/runbooks.md says what to do.",
        ),
        Panel(
            "Scrapes",
            "short",
            {"{{job}} {{instance}}": 'up{job=~"towpath|connect"}'},
            "1 while Prometheus can read the process.",
        ),
        Panel(
            "Parts that cannot be read",
            "short",
            {"{{pipeline}}": _of("towpath_poll_errors")},
            "Above 0, other numbers may be unknown: see the runbook of TowpathErrors.",
        ),
    ),
    "How far behind?": (
        Panel(
            "Lag",
            "s",
            {
                "{{pipeline}} capture": _of("towpath_capture_lag_seconds"),
                "{{pipeline}} apply": _of("towpath_apply_lag_seconds"),
            },
            "Capture: how far the log is behind the source. Apply: the age of the oldest record that is not applied.",
        ),
        Panel("Records not applied", "short", {"{{pipeline}}": _of("towpath_lag_records")}),
        Panel(
            "Rates",
            "short",
            {
                "{{pipeline}} into the log": _of("towpath_log_records_per_second"),
                "{{pipeline}} applied": _rate("towpath_sink_records_total"),
            },
            "Records a second.",
        ),
        Panel(
            "Copy",
            "percentunit",
            {
                "{{namespace}}": f"{_of('towpath_copy_documents')} / clamp_min("
                f"{_of('towpath_copy_estimated_documents')}, 1)"
            },
            "Share of each collection that is in the log, while a copy runs.",
            width=6,
        ),
        Panel(
            "Time left",
            "s",
            {
                "{{namespace}} copy": _of("towpath_copy_remaining_seconds"),
                "{{pipeline}} oplog": _of("towpath_oplog_remaining_seconds"),
            },
            "Of the copy at its present rate; and how much longer the source's oplog keeps what is not captured.",
            width=6,
        ),
        Panel(
            "Waiting",
            "short",
            {
                "{{pipeline}} re-read requests": _of("towpath_reread_requests_waiting"),
                "{{connector}} unwritten records": "sum by (connector) (kafka_connect_source_active_records"
                f'{{connector=~"({PIPELINE})-.*"}})',
            },
            "Re-read requests that are not answered, and records between the source task and Kafka.",
            width=6,
        ),
        Panel(
            "Retries of the sink, by cause",
            "short",
            {
                "{{pipeline}} {{cause}}": f"sum by (pipeline, cause) (increase({_of('towpath_sink_retries_total')}"
                f"[{INTERVAL}]))"
            },
            "What keeps the sink from writing: docs/metrics.md says what the causes are.",
            width=6,
        ),
    ),
    "What did it refuse?": (
        Panel(
            "Refused and not repaired",
            "short",
            {"{{pipeline}}": _of("towpath_refused_documents")},
            "Documents that the destination refused and that still differ, as `towpath run` knows them.",
            kind="stat",
            width=4,
            colours={0: "green", 1: "red"},
        ),
        Panel(
            "Dead letters by cause",
            "short",
            {"{{namespace}} {{code}}": _of("towpath_dead_letters_by_cause")},
            "Of the newest 1,000 records in the dead-letter topic, by namespace and the server's error code.",
            width=10,
        ),
        Panel(
            "Schema changes that wait",
            "short",
            {"{{pipeline}}": _of("towpath_ddl_waiting")},
            "`towpath ddl` lists them with the commands that resolve them.",
            kind="stat",
            width=4,
            colours={0: "green", 1: "red"},
        ),
        Panel(
            "Found nothing to change",
            "short",
            {"{{pipeline}}": f"sum by (pipeline) (increase({_of('towpath_sink_without_document_total')}[{INTERVAL}]))"},
            "Updates and deletes that found no document at the destination.",
            width=6,
        ),
    ),
    "Is it the same?": (
        Panel(
            "Verdict",
            "short",
            {"{{pipeline}} {{scope}}": _of("towpath_verdict_clean")},
            "1: the newest verdict found both sides the same. full: on everything; last: of any extent.",
            kind="stat",
            width=4,
            colours={0: "red", 1: "green"},
        ),
        Panel(
            "Age of the verdict",
            "s",
            {"{{pipeline}} {{scope}}": _of("towpath_verdict_age_seconds")},
            width=6,
        ),
        Panel(
            "Differences",
            "short",
            {
                "{{pipeline}} {{scope}} {{kind}}": f"{_of('towpath_verdict_differences')} > 0",
                "{{pipeline}} follow {{kind}}": _of("towpath_verify_differences"),
            },
            "What the newest verdicts found and what is not repaired; and what `verify --follow` finds.",
            width=8,
        ),
        Panel(
            "verify --follow is behind",
            "s",
            {"{{pipeline}}": _of("towpath_verify_behind_seconds")},
            width=6,
        ),
    ),
    "How much does it cost?": (
        Panel(
            "CPU",
            "percentunit",
            {"{{job}} {{instance}}": f'rate(process_cpu_seconds_total{{job=~"towpath|connect"}}[{INTERVAL}])'},
            "Of each process; 100 % is one core.",
        ),
        Panel(
            "CPU for each record",
            "s",
            {
                "connect": f'sum(rate(process_cpu_seconds_total{{job="connect"}}[{INTERVAL}])) / '
                f"sum(rate({_of('towpath_sink_records_total')}[{INTERVAL}]))"
            },
            "CPU of all workers for each record that is applied. High while nothing happens.",
        ),
        Panel(
            "Heap of the workers",
            "bytes",
            {
                "{{instance}} used": 'sum by (instance) (jvm_memory_used_bytes{job="connect", area="heap"})',
                "{{instance}} limit": 'sum by (instance) (jvm_memory_max_bytes{job="connect", area="heap"})',
            },
        ),
        Panel(
            "Transaction at the destination",
            "s",
            {
                "{{pipeline}} mean": f"{_rate('towpath_sink_transaction_seconds_sum')} / "
                f"{_rate('towpath_sink_transaction_seconds_count')}",
                "{{pipeline}} 50 %": _quantile(0.5, "towpath_sink_transaction_seconds_bucket"),
                "{{pipeline}} 99 %": _quantile(0.99, "towpath_sink_transaction_seconds_bucket"),
            },
            "From the start of a transaction to its commit: the mean, and the time within which so many are committed.",
        ),
        Panel(
            "Records for each write",
            "short",
            {
                "{{pipeline}}": f"{_rate('towpath_sink_records_total')} / {_rate('towpath_sink_writes_total')}",
            },
            "How much folding saves.",
        ),
        Panel(
            "Bytes",
            "Bps",
            {
                "{{pipeline}} read from the log": _rate("towpath_sink_read_bytes_total"),
                "{{pipeline}} written": _rate("towpath_sink_written_bytes_total"),
                "to Kafka": f"sum(rate(kafka_producer_outgoing_bytes_total[{INTERVAL}]))",
                "from Kafka": f"sum(rate(kafka_consumer_incoming_bytes_total[{INTERVAL}]))",
            },
            "Of keys and values, before compression; and what the workers' Kafka clients sent and received.",
        ),
        Panel("Log on disk", "bytes", {"{{pipeline}}": _of("towpath_log_bytes")}, "Of one replica."),
        Panel(
            "Unprotected updates",
            "s",
            {
                "{{pipeline}} oldest": _of("towpath_unprotected_age_seconds"),
                "{{pipeline}} compaction lag": _of("towpath_compaction_lag_seconds"),
            },
            "In a compacted log: the oldest update that no whole document follows, and the age at which Kafka's "
            "cleaner may remove it.",
        ),
        Panel(
            "Garbage collection",
            "percentunit",
            {"{{instance}}": f'sum by (instance) (rate(jvm_gc_collection_seconds_sum{{job="connect"}}[{INTERVAL}]))'},
            "Share of the time that a worker's collector stops it.",
        ),
    ),
}


def dashboard() -> dict[str, Any]:
    """The dashboard as Grafana imports it."""
    return {
        "title": "Towpath",
        "uid": "towpath",
        "tags": ["towpath"],
        "schemaVersion": 39,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "timezone": "",
        "templating": {"list": _variables()},
        "annotations": {"list": []},
        "links": [],
        "panels": list(_numbered()),
    }


def _variables() -> list[dict[str, Any]]:
    choice = "label_values(towpath_pipeline_state, pipeline)"
    return [
        {
            "name": "datasource",
            "label": "Prometheus",
            "type": "datasource",
            "query": "prometheus",
            "current": {},
            "hide": 0,
        },
        {
            "name": "pipeline",
            "label": "Pipeline",
            "type": "query",
            "datasource": _DATASOURCE,
            "definition": choice,
            "query": {"query": choice, "refId": "pipelines"},
            "refresh": 2,
            "sort": 1,
            "multi": True,
            "includeAll": True,
            "current": {"text": ["All"], "value": ["$__all"]},
            "hide": 0,
        },
    ]


def _numbered() -> Iterator[dict[str, Any]]:
    for number, panel in enumerate(_laid_out(), 1):
        yield {"id": number, **panel}


def _laid_out() -> Iterator[dict[str, Any]]:
    """Rows of panels, from left to right."""
    y = 0
    for question, panels in DASHBOARD.items():
        yield {
            "type": "row",
            "title": question,
            "collapsed": False,
            "gridPos": {"h": 1, "w": _WIDTH, "x": 0, "y": y},
            "panels": [],
        }
        x, y = 0, y + 1
        for panel in panels:
            if x + panel.width > _WIDTH:
                x, y = 0, y + _HEIGHT
            yield _drawn(panel) | {"gridPos": {"h": _HEIGHT, "w": panel.width, "x": x, "y": y}}
            x += panel.width
        y += _HEIGHT


def _drawn(panel: Panel) -> dict[str, Any]:
    defaults: dict[str, Any] = {"unit": panel.unit}
    by_name = [(pattern, colour) for pattern, colour in panel.colours.items() if isinstance(pattern, str)]
    steps = [{"value": value or None, "color": colour} for value, colour in panel.colours.items()]
    if panel.colours and not by_name:
        defaults |= {"thresholds": {"mode": "absolute", "steps": steps}}
    if panel.kind == "stat":
        options: dict[str, Any] = {
            "textMode": "name" if by_name else "value_and_name",
            "colorMode": "value",
            "graphMode": "none",
            "reduceOptions": {"calcs": ["lastNotNull"]},
        }
    else:
        defaults |= {"min": 0, "custom": {"lineWidth": 1, "fillOpacity": 8, "showPoints": "never"}}
        options = {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi"}}
    return {
        "type": panel.kind,
        "title": panel.title,
        "description": panel.about,
        "datasource": _DATASOURCE,
        "fieldConfig": {"defaults": defaults, "overrides": [_coloured(*names) for names in by_name]},
        "options": options,
        "targets": [
            {
                "refId": chr(ord("A") + place),
                "datasource": _DATASOURCE,
                "expr": query,
                "legendFormat": legend,
                "range": panel.kind != "stat",
                "instant": panel.kind == "stat",
            }
            for place, (legend, query) in enumerate(panel.queries.items())
        ],
    }


def _coloured(pattern: str, colour: str) -> dict[str, Any]:
    fixed = {"id": "color", "value": {"mode": "fixed", "fixedColor": colour}}
    return {"matcher": {"id": "byRegexp", "options": pattern}, "properties": [fixed]}


def text() -> str:
    return json.dumps(dashboard(), indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    FILE.write_text(text())
