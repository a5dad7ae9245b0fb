"""Page, API and metrics of a real pipeline: what the description and the table of metrics say is what is served."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, get_args

import httpx
import psutil
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.conftest import MakePipeline
from tests.support import api
from tests.support.awaited import until
from tests.support.pipeline import TOWPATH, Pipeline, Settings
from tests.support.served import Served, served
from towpath.monitor.metrics import CUTOVER_STATES, OWN, ROWS, family
from towpath.store import cutover as marker

PAGE = (Path(__file__).parents[2] / "docs" / "metrics.md").read_text()
#: Metrics of what this pipeline does not do: it copies nothing by now, has no replay, and none of the services.
ELSEWHERE = re.compile(r"towpath_(copy_(?!done$)|replay_|verify_|dead_letters_by_cause|unprotected_|compaction_report)")


@pytest.fixture(scope="module")
def names() -> set[str]:
    return {row.name for row in ROWS} | {name for name, _, _, _ in OWN}


def test_the_table_of_metrics_is_the_one_in_the_code() -> None:
    rows = re.findall(r"^\| `(towpath_\w+)` \| (\w+) \| (.*?) \|$", PAGE, re.MULTILINE)
    described = {name: (kind, [cell.strip() for cell in rest.split("|")]) for name, kind, rest in rows}
    for row in ROWS:
        shown = f"{row.name}_info" if row.kind == "info" else row.name
        labels = ", ".join(f"`{label}`" for label in row.labels)
        assert described.pop(shown) == (row.kind, [labels, row.unit, row.help])
    assert {name: (kind, cells) for name, kind, *cells in OWN} == {n: (k, c) for n, (k, c) in described.items()}
    assert [row.name for row in ROWS if (row.kind == "counter") != row.name.endswith("_total")] == []


def test_times_and_retries_of_a_task_are_series_that_prometheus_knows() -> None:
    times = {"within": {"0.01": 1, "60.0": 2, "+Inf": 2}, "sum": 1.5}
    tasks = [{"task": 3, "retries_by_cause": {"network": 4, "other": 0}, "transaction_seconds": times}]
    idle = {"task": 4, "retries_by_cause": {}, "transaction_seconds": {"within": {"+Inf": 0}, "sum": 0.0}}
    rows = {row.name: row for row in ROWS}
    reports = [{"name": "shop", "state": "running", "sink_tasks": [*tasks, idle]}]
    found = [family(rows[name], reports) for name in ("towpath_sink_transaction_seconds", "towpath_sink_retries_total")]
    assert [(one.name.removeprefix("towpath_sink_"), {s.labels["task"] for s in one.samples}) for one in found] == [
        ("transaction_seconds", {"3"}),
        ("retries", {"3"}),
    ]
    samples = {(s.name, s.labels.get("le"), s.labels.get("cause")): s.value for one in found for s in one.samples}
    assert samples == {
        ("towpath_sink_transaction_seconds_bucket", "0.01", None): 1,
        ("towpath_sink_transaction_seconds_bucket", "60.0", None): 2,
        ("towpath_sink_transaction_seconds_bucket", "+Inf", None): 2,
        ("towpath_sink_transaction_seconds_count", None, None): 2,
        ("towpath_sink_transaction_seconds_sum", None, None): 1.5,
        ("towpath_sink_retries_total", None, "network"): 4,
        ("towpath_sink_retries_total", None, "other"): 0,
    }


def samples(name: str, **report: Any) -> dict[tuple[str, ...], float]:
    """Of one metric: label values, without the pipeline → the number."""
    (row,) = (row for row in ROWS if row.name == name)
    found = family(row, [{"name": "shop", "state": "running", **report}]).samples
    return {tuple(sample.labels[label] for label in row.labels): sample.value for sample in found}


def test_a_new_topic_hides_nothing_of_the_others() -> None:
    """When `towpath compact` has ended, and somebody creates a collection then."""
    old = {"offsets": 9, "dirty": 2, "oldest_seconds": 50.0, "told_seconds": 70.0}
    clean = {"offsets": 9, "dirty": 0, "oldest_seconds": None, "told_seconds": 10.0}
    new = {"offsets": 1, "dirty": None, "oldest_seconds": None, "told_seconds": None}
    half = {"offsets": 9, "dirty": 1, "oldest_seconds": 60.0, "told_seconds": None}  # one of its partitions
    empty = new | {"offsets": 0}
    names = ("unprotected_age_seconds", "compaction_report_age_seconds", "compaction_unreported_topics")

    def values(*topics: Mapping[str, Any], lag: float | None = 100.0) -> list[float | None]:
        report = {"log": {"topics": topics}, "compaction_lag_seconds": lag}
        return [samples(f"towpath_{name}", **report).get(()) for name in names]

    assert values(old, clean) == values(old, clean, empty) == [50, 70, 0]
    assert values(old, clean, new) == [50, 70, 1]
    assert values(old, half, new) == [60, 70, 2]
    assert values(clean) == [0, 10, 0]
    assert values(new, new) == [None, None, 2]
    assert values(old, new, lag=None) == [None, None, None]
    assert samples(f"towpath_{names[2]}", log=None, compaction_lag_seconds=1.0) == {}


def test_what_is_repaired_is_taken_off_the_verdict_on_everything() -> None:
    full = {"id": "1", "clean": False, "different": 2, "missing": 0, "extra": 0, "order": 0, "metadata": None}
    repaired = full | {"clean": True, "different": 0, "repaired": 2}
    for last, left in ((full, 2), (repaired, 0), (repaired | {"id": "2"}, 2), (None, 2)):
        report = {"full_verdict": full, "last_verdict": last}
        assert samples("towpath_verdict_differences", **report)["full", "different"] == left
        assert samples("towpath_verdict_clean", **report)["full",] == (not left)


def test_one_state_is_present_and_all_others_are_known() -> None:
    for cutover, present in ((None, "none"), *(({"state": state}, state) for state in CUTOVER_STATES[1:])):
        found = samples("towpath_cutover_state", cutover=cutover)
        assert found == {(state,): float(state == present) for state in CUTOVER_STATES}
    assert set(get_args(marker.State)) <= set(CUTOVER_STATES)
    assert samples("towpath_pipeline_state", state="missing")["missing",] == 1


def test_a_replay_has_its_metrics() -> None:
    replay = {"label": "b", "records": 9, "records_done": 4, "records_behind": None, "dead_letters": 1}
    assert samples("towpath_replay_records", replays=[replay]) == {("b",): 9}
    assert samples("towpath_replay_applied_records", replays=[replay]) == {("b",): 4}
    assert samples("towpath_replay_behind_records", replays=[replay]) == {}
    assert samples("towpath_replay_dead_letters", replays=[replay]) == {("b",): 1}


def test_the_description_says_what_is_in_each_object() -> None:
    assert api.vague(api.API) == []
    with pytest.raises(AssertionError, match=r"\$\.lag: Additional properties"):
        lag = {"records": 0, "seconds": 0.0, "capture_seconds": 0.0, "apply_seconds": 0.0, "more": 1}
        api.refuse({"lag": lag}, "Pipeline")


@pytest.fixture
def running(make_pipeline: MakePipeline, tmp_path: Path) -> Iterator[tuple[Pipeline, Served]]:
    listen = f'listen = "127.0.0.1:0"\ntoken_file = "{tmp_path / "token"}"'
    extra = f"[log]\ncompact = true\n[run]\ncompact = false\n{listen}"
    pipeline = make_pipeline(Settings(partitions=1, extra=extra))
    pipeline.source("a").insert_many([{"_id": n, "text": "x" * 100} for n in range(500)])
    pipeline.deploy()
    pipeline.wait()
    with served(tmp_path, "run", pipeline.file, "--json", options=False) as run:
        yield pipeline, run


@pytest.mark.servers
def test_api_and_metrics_are_as_described(running: tuple[Pipeline, Served], names: set[str]) -> None:
    pipeline, run = running
    path, client = f"/api/v1/pipelines/{pipeline.name}", run.client
    until("pipeline that is ready", lambda: client.get("/readyz").status_code == 200)
    command(client, path, "verify", "same: 500 documents compared")
    pipeline.destination("a").update_one({"_id": 7}, {"$set": {"text": 5}})
    command(client, path, "verify", "not the same")
    until("difference", lambda: client.get(f"{path}/verdict").json()["differences"])
    command(client, path, "cutover-dry-run", "not started")
    for part, name in (
        *(("", "Pipeline"), ("/verdict", "Verification"), ("/gate", "Gate"), ("/dead-letters", "DeadLetters")),
        ("/history", "History"),
    ):
        api.refuse(client.get(path + part).json(), name)
    short = client.get("/api/v1/pipelines").json()["pipelines"]
    api.refuse(short[0], "Short")
    (difference,) = client.get(f"{path}/verdict").json()["differences"]
    assert difference["paths"] == [["text", json.dumps("x" * 100), "5"]] or difference["kind"] == "different"
    gate = client.get(f"{path}/gate").json()
    assert {"connectors", "verified"} <= {check["name"] for check in gate["checks"]}
    assert {"metadata", "late writes"} <= {check["name"] for check in gate["dry_run"]["checks"]}
    command(client, path, "repair", "1 repaired, 0 left")
    until("end of the difference", lambda: not client.get(f"{path}/verdict").json()["differences"])
    events = client.get(path).json()["events"]
    assert any("is running" in event["words"] for event in events)
    assert client.post(f"{path}/cutover").status_code == 404  # only its dry run is here
    served_metrics(client, pipeline, names)


def served_metrics(client: httpx.Client, pipeline: Pipeline, names: set[str]) -> None:
    families = {family.name: family for family in text_string_to_metric_families(client.get("/metrics").text)}
    ours = {name.removesuffix("_total"): family for name, family in families.items() if name.startswith("towpath")}
    assert all(family.documentation for family in ours.values())
    expected = {name.removesuffix("_total") for name in names if not ELSEWHERE.match(name)}
    assert {name.removesuffix("_info") for name in ours} == expected
    values = {
        (sample.name, *sorted(sample.labels.values())): sample.value
        for family in ours.values()
        for sample in family.samples
    }
    expected_values = {
        ("towpath_pipeline_state", "running"): 1,
        ("towpath_verdict_differences", "last", "different"): 0,
        ("towpath_verdict_clean", "full"): 1,  # the same verdict, with what was repaired
        ("towpath_verdict_differences", "full", "different"): 0,
        ("towpath_compaction_unreported_topics",): 1,
        ("towpath_troubles",): 0,
        ("towpath_dead_letters",): 0,
    }
    assert {key: values[key[0], *sorted([pipeline.name, *key[1:]])] for key in expected_values} == expected_values
    assert sum(value for key, value in values.items() if key[0] == "towpath_sink_records_total") >= 500
    assert "process_cpu_seconds" in families


def command(client: httpx.Client, path: str, name: str, words: str) -> None:
    """Start a command, and wait until it has ended with these words."""
    started = client.post(f"{path}/{name}")
    assert started.status_code == 202, started.text
    api.refuse(started.json(), "Command")
    if name == "verify":
        assert client.post(f"{path}/{name}").status_code == 409

    def ended() -> bool:
        last = client.get(path).json()["commands"][-1]
        return last["verb"] == name and last["ended"] is not None and words in last["words"]

    until(f"{name} that says {words!r}", ended, every=0.3)


@pytest.mark.servers
def test_events_tell_of_each_look(running: tuple[Pipeline, Served]) -> None:
    pipeline, run = running
    shorts = []
    with run.client.stream("GET", "/api/v1/events", params={"pipeline": pipeline.name}) as stream:
        for line in stream.iter_lines():
            if line.startswith("data: ") and '"lag_seconds"' in line:
                shorts.append(json.loads(line.removeprefix("data: ")))
            if len({short["at"] for short in shorts}) > 2:
                break
    api.refuse(shorts[-1], "Short")
    assert run.client.get("/api/v1/events", params={"pipeline": "other"}).status_code == 404


@pytest.mark.servers
def test_several_pipelines_are_shown_that_nobody_supervises(pipeline: Pipeline, tmp_path: Path) -> None:
    pipeline.source("a").insert_one({"_id": 1})
    pipeline.deploy()
    other = tmp_path / "other.toml"
    other.write_text(pipeline.file.read_text().replace(f'name = "{pipeline.name}"', 'name = "other"'))
    other.chmod(0o600)
    with served(tmp_path, "monitor", pipeline.file, other) as monitor:

        def states() -> dict[str, str]:
            return {each["name"]: each["state"] for each in monitor.client.get("/api/v1/pipelines").json()["pipelines"]}

        until("states of both", lambda: states() == {pipeline.name: "running", "other": "missing"})
        page = monitor.client.get("/").text
        assert page.index(f"/pipelines/{pipeline.name}") < page.index("/pipelines/other")
        assert monitor.client.get("/readyz").status_code == 503
        whole = monitor.client.get(f"/api/v1/pipelines/{pipeline.name}").json()
        api.refuse(whole, "Pipeline")
        assert whole["supervisor"] is None
        assert any("is running" in event["words"] for event in whole["events"])
        commands_take_effect(monitor.client, pipeline, lambda: states()[pipeline.name])


def commands_take_effect(client: httpx.Client, pipeline: Pipeline, state: Callable[[], str]) -> None:
    """Pause and resume; and restart, after the sink has failed at a view in place of its collection."""
    path, destination = f"/api/v1/pipelines/{pipeline.name}", pipeline.destination_client[pipeline.name]
    command(client, path, "pause", "paused")
    until("paused pipeline", lambda: state() == "paused")
    pipeline.source("a").insert_one({"_id": 2})
    command(client, path, "resume", "running")
    until("running pipeline", lambda: state() == "running")
    until("document that was inserted in the pause", lambda: destination["a"].count_documents({}) == 2)
    destination.drop_collection("a")
    destination.create_collection("a", viewOn="b", pipeline=[])
    pipeline.source("a").insert_one({"_id": 3})
    until("failed pipeline", lambda: state() == "failed")
    destination.drop_collection("a")
    command(client, path, "restart", "running")
    until("document that could not be written", lambda: destination["a"].find_one({"_id": 3}))


@pytest.mark.servers
def test_without_listen_nothing_listens(pipeline: Pipeline, tmp_path: Path) -> None:
    pipeline.source("a").insert_one({"_id": 1})
    pipeline.deploy()
    out = tmp_path / "out"
    with out.open("w") as stream, subprocess.Popen([TOWPATH, "run", pipeline.file], stdout=stream) as process:
        until("pipeline that runs", lambda: "is running" in out.read_text())
        listening = [c for c in psutil.Process(process.pid).net_connections() if c.status == psutil.CONN_LISTEN]
        process.terminate()
    assert listening == []
