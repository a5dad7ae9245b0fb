"""The files for Prometheus and Grafana: valid, in step with the documentation, and with each other."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.prometheus import dashboard, rules
from towpath.monitor import metrics
from towpath.stack.parts import MONITORING
from towpath.stack.plan import ALERTS, WORKER_RULES
from towpath.store import positions

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
JAVA = ROOT / "transforms" / "src" / "main" / "java" / "io" / "towpath"
RUNBOOKS = (DOCS / "runbooks.md").read_text()
#: Of Prometheus, and the standard metrics of a JVM and of a process.
FOREIGN = re.compile(r"up|ALERTS|(jvm|process)_\w+")
METRIC = re.compile(r"\b(?:[a-z]+_[a-z_]+|up|ALERTS)(?=\{)")
HERE = Path(__file__).parent
#: What Prometheus adds to the name of a histogram.
ENDS = ("_bucket", "_sum", "_count")


def documented(page: str) -> dict[str, str]:
    """Metric → the rest of its row."""
    return dict(re.findall(r"^\| `(\w+)` \| (.+) \|$", (DOCS / page).read_text(), re.MULTILINE))


def has_prometheus() -> None:
    if shutil.which("promtool") is None:
        pytest.skip("no promtool on PATH (Debian: apt-get install prometheus)")


def promtool(*words: str | Path, folder: Path = MONITORING) -> str:
    has_prometheus()
    done = subprocess.run(["promtool", *words], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_dashboard_is_that_of_its_table() -> None:
    assert dashboard.FILE.read_text() == dashboard.text(), "run scripts/dashboard"


def test_the_dashboard_has_a_row_for_each_question_and_no_panel_twice() -> None:
    panels = json.loads(dashboard.FILE.read_text())["panels"]
    assert [panel["title"][-1] for panel in panels if panel["type"] == "row"] == ["?"] * 5
    places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in panels]
    assert len(set(places)) == len(places) == len({panel["id"] for panel in panels})
    assert all(panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24 for panel in panels)


def test_every_metric_that_is_asked_for_is_documented() -> None:
    queries = [query for panels in dashboard.DASHBOARD.values() for panel in panels for query in panel.queries.values()]
    names = {name for query in queries for name in METRIC.findall(query)}
    for query in rules.expressions().values():
        names |= set(re.findall(r"\b(?:towpath_\w+|up)\b", query))
    known = documented("metrics.md") | documented("prometheus.md")
    known |= {f"{name}{end}": "" for name, row in known.items() if row.startswith("histogram") for end in ENDS}
    assert len(names) > 40
    assert sorted(name for name in names if name not in known and not FOREIGN.fullmatch(name)) == []


def test_the_metrics_of_workers_are_documented_as_the_rules_have_them() -> None:
    written = {}
    for block in WORKER_RULES.read_text().split("  - pattern: ")[1:]:
        fields = dict(re.findall(r"^ {4}(\w+): (.+)$", block, re.MULTILINE))
        labels = ", ".join(f"`{label}`" for label in re.findall(r"(\w+): \"", fields.get("labels", "")))
        meaning = fields["help"].strip("'").replace("''", "'")
        written[fields["name"]] = f"{fields['type'].lower()} | {labels} | {meaning}"
    assert documented("prometheus.md") == written
    assert [name for name, row in written.items() if (row.startswith("counter")) != name.endswith("_total")] == []


@pytest.mark.parametrize(
    ("kind", "classes"),
    [
        ("source", ["source/progress/SourceMetrics", "connector/RetryCounts"]),
        ("sink", ["sink/SinkMetrics", "sink/TransactionTimes", "connector/RetryCounts"]),
    ],
)
def test_each_attribute_of_our_mbeans_has_a_rule_or_is_named_as_one_without(kind: str, classes: list[str]) -> None:
    attributes = re.findall(r"\.add\(\s*\"(\w+)\"", "".join((JAVA / f"{name}.java").read_text() for name in classes))
    rules_of = re.findall(rf"io\.towpath<type={kind},.*><>(\w+)(?:\(.+\))?:'", WORKER_RULES.read_text())
    (sentence,) = re.findall(r"^.* are there over JMX only\.$", (DOCS / "prometheus.md").read_text(), re.MULTILINE)
    assert len(rules_of) > 10
    assert set(attributes) - set(re.findall(r"`(\w+)`", sentence)) == set(rules_of)


def test_causes_of_retries_and_bounds_of_times_are_those_of_the_tasks() -> None:
    causes = re.findall(r"^    ([A-Z_]+)[,;]$", (JAVA / "net" / "RetryCause.java").read_text(), re.MULTILINE)
    assert tuple(cause.lower() for cause in causes) == positions.RETRY_CAUSES
    (bounds,) = re.findall(r"BOUNDS_MS = \{(.+)\};", (JAVA / "sink" / "TransactionTimes.java").read_text())
    assert tuple(int(ms) for ms in bounds.split(",")) == positions.TRANSACTION_BOUNDS_MS
    notes = (DOCS / "metrics.md").read_text()
    assert [cause for cause in positions.RETRY_CAUSES if f"`{cause}`" not in notes] == []


def test_every_alert_has_its_runbook_and_every_runbook_its_alert() -> None:
    assert re.findall(r"^## (\w+)$", RUNBOOKS, re.MULTILINE) == rules.NAMES
    links = re.findall(r"runbook_url: docs/runbooks\.md#(\w+)", rules.TEXT)
    assert links == [name.lower() for name in rules.NAMES]
    assert list(rules.expressions()) == rules.NAMES


def test_every_runbook_begins_with_the_severity_and_the_time_of_its_alert() -> None:
    alerts = re.findall(r"alert: (\w+)\n.*?for: (\d+)([mh])\n\s+labels: {severity: (\w+)}", rules.TEXT, re.DOTALL)
    units = {"m": "min", "h": "h"}
    said = re.findall(r"^## (\w+)\n\n\*\*(\w+), after (\d+) (min|h)\*\*", RUNBOOKS, re.MULTILINE)
    assert said == [(name, severity.title(), time, units[unit]) for name, time, unit, severity in alerts]
    assert [name for name, *_ in said] == rules.NAMES


def test_alerts_name_only_states_that_exist() -> None:
    states = {
        "towpath_pipeline_state": metrics.PIPELINE_STATES,
        "towpath_connector_state": metrics.CONNECT_STATES,
        "towpath_task_state": metrics.CONNECT_STATES,
        "towpath_cutover_state": metrics.CUTOVER_STATES,
    }
    named = re.findall(r'(towpath_\w+_state)\{[^}]*state="([^"]+)"', rules.TEXT)
    assert {metric for metric, _ in named} == set(states)
    assert [(metric, state) for metric, state in named if state not in states[metric]] == []


def test_promtool_accepts_the_rules_and_the_configuration() -> None:
    assert f"SUCCESS: {len(rules.NAMES)} rules found" in promtool("check", "rules", ALERTS)
    promtool("check", "config", "prometheus.yaml")


def test_limits_and_times_of_the_alerts_are_those_that_the_runbooks_tell() -> None:
    promtool("test", "rules", HERE / "alerts.test.yaml", folder=HERE)


def test_compose_accepts_its_file(tmp_path: Path) -> None:
    if shutil.which("docker-compose") is None:
        pytest.skip("no docker-compose on PATH (Debian: apt-get install docker-compose)")
    command = ["docker-compose", "--file", ROOT / "docker-compose.yml", "--profile", "monitor", "config", "--services"]
    environment = {"PWD": str(tmp_path), "PATH": "/usr/bin:/bin"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert {"run", "prometheus", "grafana"} < set(done.stdout.split())
