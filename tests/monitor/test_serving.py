"""Page, API and metrics of a real pipeline: what the description and the table of metrics say is what is served."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import httpx
import psutil
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.conftest import MakePipeline
from tests.monitor.test_pages import REPLAY, report
from tests.support import api
from tests.support.awaited import until
from tests.support.pipeline import TOWPATH, Pipeline, Settings
from tests.support.schema import page
from tests.support.served import Served, served
from towpath.deploy.schema_changes import SchemaChanges
from towpath.monitor.metrics import CUTOVER_STATES, OWN, ROWS
from towpath.run.report import LogReport, Raw, TopicLog, as_json
from towpath.store.cutover import Cutover, State
from towpath.store.positions import Counts, TaskState, TransactionTimes
from towpath.verify.verdict import Verdict, Verification

PAGE = (Path(__file__).parents[2] / "docs" / "metrics.md").read_text()
#: Metrics of what this pipeline does not do: it copies nothing by now, has no replay, and none of the services.
ELSEWHERE = re.compile(r"towpath_(copy_(?!done$)|replay_|verify_|dead_letters_by_cause|unprotected_|compaction_report)")


@pytest.fixture(scope="module")
def names() -> set[str]:
    return {row.name for row in ROWS} | set(OWN)


def test_the_table_of_metrics_is_the_one_in_the_code() -> None:
    rows = re.findall(r"^\| `(towpath_\w+)` \| (\w+) \| (.*?) \| (.*?) \|$", PAGE, re.MULTILINE)
    described = {name: (kind, labels, words) for name, kind, labels, words in rows}
    for row in ROWS:
        labels = ", ".join(f"`{label}`" for label in row.labels)
        assert described.pop(row.name) == (row.kind, labels, row.help)
    own = {name: (kind, "`code`" if "requests" in name else "", words) for name, (kind, words) in OWN.items()}
    assert described == own


def samples(name: str, **fields: Any) -> dict[tuple[str, ...], float]:
    """Of one metric: label values, without the pipeline → the number."""
    (row,) = (row for row in ROWS if row.name == name)
    found = row.family([report(**fields)]).samples
    return {tuple(sample.labels[label] for label in row.labels): sample.value for sample in found}


def test_times_and_retries_of_a_task_are_series_that_prometheus_knows() -> None:
    times, idle = TransactionTimes({"0.01": 1, "60.0": 2, "+Inf": 2}, 1.5), TransactionTimes({"+Inf": 0}, 0.0)
    tasks = (
        TaskState(3, Counts(), None, "", {"network": 4, "other": 0}, times),
        TaskState(4, Counts(), None, "", {}, idle),
    )
    assert samples("towpath_sink_retries_total", sink_tasks=tasks) == {("3", "network"): 4, ("3", "other"): 0}
    (row,) = (row for row in ROWS if row.kind == "histogram")
    found = row.family([report(sink_tasks=tasks)]).samples
    assert {sample.labels["task"] for sample in found} == {"3"}
    assert {(s.name.rpartition("_")[2], s.labels.get("le")): s.value for s in found} == {
        ("bucket", "0.01"): 1,
        ("bucket", "60.0"): 2,
        ("bucket", "+Inf"): 2,
        ("count", None): 2,
        ("sum", None): 1.5,
    }


def test_a_new_topic_hides_nothing_of_the_others() -> None:
    """When `towpath compact` has ended, and a collection is created then."""

    def topic(offsets: int, documents: int | None, oldest: float | None, reported: float | None) -> TopicLog:
        return TopicLog("shop.a", "move.shop.a", offsets, None, 0, True, documents, oldest, reported, 0)

    old, clean, new = topic(9, 2, 50.0, 70.0), topic(9, 0, None, 10.0), topic(1, None, None, None)
    half = topic(9, 1, 60.0, None)  # one of its partitions
    empty = replace(new, offsets=0)
    names = ("unprotected_age_seconds", "compaction_report_age_seconds", "compaction_unreported_topics")

    def values(*topics: TopicLog, lag: float | None = 100.0) -> list[float | None]:
        log = LogReport(topics, ())
        return [samples(f"towpath_{name}", log=log, compaction_lag_seconds=lag).get(()) for name in names]

    assert values(old, clean) == values(old, clean, empty) == [50, 70, 0]
    assert values(old, clean, new) == [50, 70, 1]
    assert values(old, half, new) == [60, 70, 2]
    assert values(clean) == [0, 10, 0]
    assert values(new, new) == [None, None, 2]
    assert values(old, new, lag=None) == [None, None, None]
    assert samples(f"towpath_{names[2]}", log=None, compaction_lag_seconds=1.0) == {}


def test_what_is_repaired_is_taken_off_the_verdict_on_everything() -> None:
    at = "2026-11-22T00:00:00+00:00"
    counts = {"compared": 9, "different": 2, "missing": 0, "extra": 0, "order": 0, "metadata": None}
    full = {"id": "1", "at": at, "since": at, "verdict": "not the same", "of": "everything", "clean": False}
    full |= {"seconds": 1.0, "deferred": None, "origin": {}} | counts
    repaired = full | {"clean": True, "different": 0, "repaired": 2}
    for last, left in ((full, 2), (repaired, 0), (repaired | {"id": "2"}, 2), (None, 2)):
        found = Verification(Verdict.read(last) if last else None, Verdict.read(full)).reported
        assert samples("towpath_verdict_differences", verification=found)["full", "different"] == left
        assert samples("towpath_verdict_clean", verification=found)["full",] == (not left)
    assert [Verdict.read(one).shown for one in (full, repaired)] == ["not the same", "repaired since"]


def test_one_state_is_present_and_all_others_are_known() -> None:
    for present in CUTOVER_STATES:
        marked = Cutover(present, (), 0.0)
        raw = Raw(changes=SchemaChanges())
        found = samples("towpath_cutover_state", cutover=None if present == "none" else marked, raw=raw)
        assert found == {(state,): float(state == present) for state in CUTOVER_STATES}
    assert set(CUTOVER_STATES) == {"none", *get_args(State)}
    assert samples("towpath_pipeline_state", state="missing")["missing",] == 1


def test_of_an_unknown_state_only_that_and_its_age_are_shown() -> None:
    nothing = report(state="unknown", at=1.0, records_per_second=5.0)
    assert {row.name.removeprefix("towpath_") for row in ROWS if row.family([nothing]).samples} == {
        *("pipeline_state", "pipeline_info", "poll_age_seconds", "failed_polls_total")
    }


def test_a_replay_has_its_metrics() -> None:
    replays = (replace(REPLAY, records_behind=None),)
    assert samples("towpath_replay_records", replays=replays) == {("b",): 2000}
    assert samples("towpath_replay_applied_records", replays=replays) == {("b",): 1500}
    assert samples("towpath_replay_behind_records", replays=replays) == {}
    assert samples("towpath_replay_dead_letters", replays=replays) == {("b",): 1}


def test_the_description_says_what_is_in_each_object() -> None:
    assert api.vague(api.API) == []
    whole = {**as_json(report()), "events": [], "commands": []}
    api.refuse(whole, "Pipeline")
    with pytest.raises(AssertionError, match="Additional properties"):
        api.refuse(whole | {"more": 1}, "Pipeline")


def test_the_page_on_json_has_each_field_of_a_report_and_no_other() -> None:
    _, table = page()["status"]
    fields = set(api.API["components"]["schemas"]["Pipeline"]["properties"]) - {"events", "commands"}
    assert {name for name in table if name.isidentifier()} == fields


@pytest.fixture
def running(make_pipeline: MakePipeline, tmp_path: Path) -> Iterator[tuple[Pipeline, Served]]:
    listen = f'listen = "127.0.0.1:0"\ntoken_file = "{tmp_path / "token"}"'
    extra = f'[log]\ncompact = true\n[run]\ncompact = false\nrecovery_point = "10s"\n{listen}'
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
    until("difference", lambda: client.get(path).json()["differences"])
    command(client, path, "cutover-dry-run", "not started")
    whole = client.get(path).json()
    api.refuse(whole, "Pipeline")
    api.refuse(client.get(f"{path}/history").json(), "History")
    short = client.get("/api/v1/pipelines").json()["pipelines"]
    api.refuse(short[0], "Short")
    (difference,) = whole["differences"]
    assert difference["paths"] == [["text", json.dumps("x" * 100), "5"]] or difference["kind"] == "different"
    assert {"connectors", "verified"} <= {check["subject"] for check in whole["checks"]}
    assert {"metadata", "late writes"} <= {check["subject"] for check in whole["commands"][-1]["checks"]}
    command(client, path, "repair", "1 repaired, 0 left")
    until("end of the difference", lambda: not client.get(path).json()["differences"])
    events = client.get(path).json()["events"]
    assert any("is running" in event["words"] for event in events)
    assert client.post(f"{path}/cutover").status_code == 404  # only its dry run is here
    served_metrics(client, pipeline, names)


def served_metrics(client: httpx.Client, pipeline: Pipeline, names: set[str]) -> None:
    families = {family.name: family for family in text_string_to_metric_families(client.get("/metrics").text)}
    ours = {name.removesuffix("_total"): family for name, family in families.items() if name.startswith("towpath")}
    assert all(family.documentation for family in ours.values())
    assert set(ours) == {name.removesuffix("_total") for name in names if not ELSEWHERE.match(name)}
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
        ("towpath_poll_errors",): 0,
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
        return last["command"] == name and last["ended"] is not None and words in last["words"]

    until(f"{name} that says {words!r}", ended, every=0.3)


@pytest.mark.nightly
@pytest.mark.servers
def test_events_tell_of_each_poll(running: tuple[Pipeline, Served]) -> None:
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
@pytest.mark.nightly
def test_several_pipelines_are_shown_that_no_one_supervises(pipeline: Pipeline, tmp_path: Path) -> None:
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
    """Pause and resume; and restart, after the sink has failed at a view that refuses more documents than it may."""
    path, destination = f"/api/v1/pipelines/{pipeline.name}", pipeline.destination_client[pipeline.name]
    command(client, path, "pause", "paused")
    until("paused pipeline", lambda: state() == "paused")
    pipeline.source("a").insert_one({"_id": 2})
    command(client, path, "resume", "running")
    until("running pipeline", lambda: state() == "running")
    until("document that was inserted in the pause", lambda: destination["a"].count_documents({}) == 2)
    destination.drop_collection("a")
    destination.create_collection("a", viewOn="b", pipeline=[])
    pipeline.source("a").insert_many([{"_id": number} for number in range(3, 100)])
    until("failed pipeline", lambda: state() == "failed")
    destination.drop_collection("a")
    command(client, path, "restart", "running")
    until("documents that could not be written", lambda: destination["a"].count_documents({}) > 50)


@pytest.mark.nightly
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
