"""`deploy` changes what differs and nothing else, and refuses what would break the order; other commands on the way."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from bson import Int64

from tests.support.awaited import until
from tests.support.pipeline import Pipeline, Settings, towpath
from towpath.checks.facts import Facts
from towpath.deploy import deployment
from towpath.session import opened

pytestmark = pytest.mark.servers


def deployed(pipeline: Pipeline, *options: str) -> list[str]:
    """Deploy with `--json`; return what changed, in words."""
    said = json.loads(towpath("deploy", pipeline.write(), "--json", *options).stdout)
    changes: list[str] = said["changes"]
    return changes


@pytest.mark.nightly
def test_deploying_changes_only_what_differs(pipeline: Pipeline) -> None:
    pipeline.source("docs").insert_one({"_id": 1})
    planned = deployed(pipeline, "--dry-run")
    assert len(planned) >= 4
    towpath("wait", pipeline.file, expect=2)
    assert deployed(pipeline) == planned
    assert deployed(pipeline) == []
    tasks = replace(pipeline, settings=Settings(write={"tasks": 3}))
    assert deployed(tasks) == [f"update connector {pipeline.name}-sink (tasks.max)"]
    pipeline.wait()
    until("three tasks", lambda: sink_tasks(pipeline) == [0, 1, 2], 60)
    partitions = replace(tasks, settings=Settings(partitions=5))
    said = towpath("deploy", partitions.write(), expect=2).stderr
    assert "has 4 partitions and the file says 5" in said
    pipeline.source("docs").insert_one({"_id": 2})
    pipeline.wait()
    pipeline.assert_same("docs", at_least=2)


@pytest.mark.nightly
def test_secrets_where_the_workers_do_not_look_are_named_and_nothing_else(pipeline: Pipeline, tmp_path: Path) -> None:
    pipeline.source("docs").insert_one({"_id": 1})
    elsewhere = replace(pipeline, addresses=replace(pipeline.addresses, secrets=tmp_path))
    said = towpath("deploy", elsewhere.write(), expect=2).stderr
    assert f"finds no URI for {pipeline.name}-source through ${{file:{tmp_path}/" in said
    assert f"set [connect] secrets, which is {tmp_path}, to a folder that every worker has" in said
    assert "grant" not in said
    assert f"set [connect] secrets, which is {tmp_path}, to" in towpath("check", pipeline.file, expect=1).stdout
    pipeline.deploy()
    pipeline.wait()
    pipeline.assert_same("docs", at_least=1)


@pytest.mark.nightly
def test_what_an_interrupted_deployment_has_created_is_the_pipeline_s(pipeline: Pipeline) -> None:
    """It can be removed at once, or after it was deployed again; nothing is left that the next one would refuse."""
    pipeline.source("docs").insert_one({"_id": 1})
    for deploys_again in (False, True):
        with opened(pipeline.write()) as session:
            changes = deployment.plan(Facts(session))
            last = next(n for n, change in enumerate(changes) if pipeline.topic("docs") in change.description)
            for change in changes[: last + 1]:
                change.apply()
        if deploys_again:
            pipeline.deploy()
            pipeline.wait()
            towpath("remove", pipeline.file)
        said = towpath("remove", pipeline.file, "--topics", "--yes").stderr
        assert f"deleted topic {pipeline.topic('docs')}" in said and "left the topic" not in said
    pipeline.deploy()
    pipeline.wait()
    pipeline.assert_same("docs", at_least=1)


@pytest.mark.nightly
@pytest.mark.parametrize("mode", ["exactly-once", "plain"])
def test_a_log_that_was_removed_after_the_connectors_begins_with_a_copy(pipeline: Pipeline, mode: str) -> None:
    """Connect still has the offsets of the source, with which it would continue the stream."""
    one = replace(pipeline, settings=Settings(mode=mode))
    one.source("docs").insert_many([{"_id": n} for n in range(20)])
    one.deploy()
    one.wait()
    towpath("remove", one.file)
    towpath("remove", one.file, "--topics", "--yes")
    one.destination("docs").delete_many({})
    assert f"forgot the position of an earlier {one.name}-source" in towpath("deploy", one.file).stderr
    one.source("docs").insert_one({"_id": 20})
    one.wait()
    one.assert_same("docs", at_least=21)
    towpath("remove", one.file)
    said = towpath("deploy", one.file).stderr
    assert "forgot" not in said, "the log was kept"
    one.source("docs").insert_one({"_id": 21})
    one.wait()
    one.assert_same("docs", at_least=22)


def sink_tasks(pipeline: Pipeline) -> list[int]:
    sink = next(one for one in pipeline.status()["connectors"] if one["name"] == f"{pipeline.name}-sink")
    return [task["id"] for task in sink["tasks"]]


def tailed(pipeline: Pipeline, collection: str) -> list[dict[str, Any]]:
    words = ("--from-beginning", "--no-follow", "--json", "--canonical")
    said = towpath("tail", pipeline.file, pipeline.namespace(collection), *words).stdout
    return [json.loads(line) for line in said.splitlines()]


def test_a_pipeline_goes_on_where_it_was_paused_restarted_and_removed(pipeline: Pipeline) -> None:
    """Without `--topics` the log and the positions stay: nothing is copied again, and no change is lost."""
    documents = pipeline.source("docs")
    documents.insert_one({"_id": 5.0, "n": Int64(1)})
    pipeline.deploy()
    pipeline.wait()
    towpath("remove", pipeline.file)
    documents.update_one({"_id": 5}, {"$inc": {"n": 1}})
    pipeline.deploy()
    towpath("pause", pipeline.file)
    assert pipeline.status(expect=1)["state"] == "paused"
    documents.delete_one({"_id": 5})
    towpath("resume", pipeline.file)
    towpath("restart", pipeline.file, "--all")
    documents.insert_one({"_id": 5, "n": 3})
    pipeline.wait()
    pipeline.assert_same("docs", at_least=1)
    records = tailed(pipeline, "docs")
    assert [record["op"] for record in records] == ["r", "u", "d", "c"]
    assert [record["kind"] for record in records] == ["document", "update", "delete", "document"]
    assert len({record["key"] for record in records}) == 1
    assert json.loads(records[0]["value"]) == {"_id": {"$numberDouble": "5.0"}, "n": {"$numberLong": "1"}}
    assert json.loads(records[1]["value"]) == {"$set": {"n": {"$numberLong": "2"}}}
    assert records[2]["value"] is None
