"""The source's oplog is near its end, and beyond it: what is told, and how the pipeline is brought back."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import httpx
import pytest
from pymongo import MongoClient

from tests.support import history, mongod, oracle, rest
from tests.support.awaited import until
from tests.support.mongod import MongodSizes
from tests.support.pipeline import TOWPATH, Addresses, Pipeline, Settings, towpath
from tests.support.started import started
from tests.support.ticker import Ticker
from towpath import stack as embedded

pytestmark = pytest.mark.servers

COUNT = 3_000


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Verdicts of these tests are kept here."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture
def pipeline(tmp_path: Path, addresses: Addresses, destination_client: Any) -> Iterator[Pipeline]:
    """Deployed and in step, from a source whose oplog holds 16 MB."""
    sizes = MongodSizes(cache_gb=0.25, oplog_mb=16)
    often = ["--syncdelay", "1"]  # checkpoints, behind which the oplog is cut
    with mongod.start_replica_set(tmp_path / "small", name="small", sizes=sizes, options=often) as small:
        with MongoClient[dict[str, Any]](small.uri) as client:
            name = f"t{Random().randrange(2**31):x}"
            ours = replace(addresses, source=small.uri)
            made = Pipeline(name, tmp_path / f"{name}.toml", ours, client, destination_client, Settings())
            destination_client[name].command({"create": "docs", "validator": {"bad": {"$ne": True}}})
            made.source("docs").insert_many([{"_id": n, "v": 0} for n in range(COUNT)])
            made.source("docs").insert_one({"_id": "refused", "bad": True})
            made.source("others").insert_many([{"_id": n} for n in range(10)])
            made.deploy()
            made.wait()
            yield made
            made.remove()
        destination_client.drop_database(name)


def connector(pipeline: Pipeline, request: str) -> None:
    url = f"{pipeline.addresses.connect}/connectors/{pipeline.name}-source/{request}"
    httpx.put(url, timeout=60).raise_for_status()


def words(*arguments: str | Path, expect: int) -> str:
    done = towpath(*arguments, expect=expect)
    return done.stdout + done.stderr


def offset(pipeline: Pipeline) -> dict[str, Any]:
    """The source connector's own offset."""
    url = f"{pipeline.addresses.connect}/connectors/{pipeline.name}-source/offsets"
    found = rest.get(url, timeout=60).raise_for_status().json()["offsets"]
    return next((one["offset"] for one in found if one["partition"] == {"towpath": pipeline.name}), {})


@pytest.mark.nightly
def test_a_pipeline_whose_resume_point_is_gone_is_brought_back_by_the_log(
    pipeline: Pipeline, stack: embedded.Stack, tmp_path: Path, nightly: bool
) -> None:
    documents, file = pipeline.source("docs"), pipeline.file
    if nightly:  # it takes as long as the source was there before
        _is_warned_of(pipeline, stack)
    lost = _lose_history(pipeline)
    _is_told(pipeline, lost)
    with Ticker(0.05, lambda: documents.update_many({"_id": {"$gte": COUNT - 20}}, {"$inc": {"v": 1}})):
        _interrupted(pipeline)
        said = words("resnapshot", file, "--yes", expect=0)
        assert "continuing the resnapshot" in said
    pipeline.wait()
    pipeline.assert_same("docs", "others", at_least=COUNT - 100 + 10)
    assert pipeline.status()["state"] == "running"
    assert "resnapshot" not in words("check", file, expect=0)
    _is_right_in_the_log(pipeline, lost, tmp_path)


def _is_warned_of(pipeline: Pipeline, stack: embedded.Stack) -> None:
    """By `status`, by `check`, and, once it runs again, by the connector itself, in the worker's log."""
    connector(pipeline, "stop")
    history.fill(pipeline.source_client, 0.92)
    # from when it is behind by as long as the server was there before
    until(
        "warning",
        lambda: "behind: if the oplog drops changes" in words("status", pipeline.file, expect=1),
        240,
        every=1,
    )
    assert "behind: if the oplog drops changes before they are captured" in words("check", pipeline.file, expect=0)
    connector(pipeline, "resume")
    log = stack.directory / "logs" / "connect-0.log"
    until("warning in the worker's log", lambda: f"{pipeline.name}-source|task-0] capture is" in log.read_text())
    pipeline.wait()
    assert offset(pipeline)["phase"] == "stream"


def _lose_history(pipeline: Pipeline) -> str:
    """Change everything in every way while it is not captured; the cluster time of the last change that is captured."""
    documents = pipeline.source("docs")
    connector(pipeline, "stop")
    moment = pipeline.source_client.admin.command("ping")["operationTime"]
    documents.delete_many({"_id": {"$lt": 100}})
    documents.delete_one({"_id": "refused"})
    documents.update_many({"_id": {"$gte": 100, "$lt": 200}}, {"$set": {"a": 1}, "$unset": {"v": ""}})
    documents.insert_many([{"_id": f"new{n}"} for n in range(10)])
    history.lose(pipeline.source_client)
    connector(pipeline, "resume")
    return f"{moment.time}:{moment.inc}"


def _has_failed(pipeline: Pipeline) -> bool:
    url = f"{pipeline.addresses.connect}/connectors/{pipeline.name}-source/status"
    tasks = rest.get(url, timeout=60).raise_for_status().json()["tasks"]
    return any(task["state"] == "FAILED" for task in tasks)


def _is_told(pipeline: Pipeline, lost: str) -> None:
    until("failure", lambda: _has_failed(pipeline))
    status = words("status", pipeline.file, expect=1)
    assert "no longer holds the changes since" in status
    assert "A restart does not help; run: towpath resnapshot PIPELINE" in status
    assert "`towpath resnapshot PIPELINE` re-reads all documents" in words("wait", pipeline.file, expect=2)
    assert "no longer holds the changes since" in words("restart", pipeline.file, expect=2)
    assert "no longer holds the changes since" in words("check", pipeline.file, expect=1)
    one = pipeline.namespace("others")
    assert "run it without --only" in words("resnapshot", pipeline.file, "--only", one, "--yes", expect=2)
    assert "are re-read, and the stream restarts after them" in words(
        "resnapshot", pipeline.file, "--dry-run", expect=0
    )


def _interrupted(pipeline: Pipeline) -> None:
    """The command is killed once the copy has begun again."""
    with started([TOWPATH, "resnapshot", pipeline.file, "--yes"], stderr=subprocess.DEVNULL) as command:
        until("gap", lambda: offset(pipeline).get("gap"))
        command.send_signal(signal.SIGKILL)
    said = words("replay", pipeline.file, "--destination", pipeline.addresses.source, "--yes", expect=2)
    assert said


def _is_right_in_the_log(pipeline: Pipeline, lost: str, place: Path) -> None:
    """A moment before the end of the resnapshot is refused, and a replay holds nothing that was deleted during it."""
    with mongod.start_replica_set(place / "other", name="other", sizes=MongodSizes(cache_gb=0.25)) as other:
        to = ("replay", pipeline.file, "--destination", other.uri, "--name", "other")
        assert f"earliest point in time that can be rebuilt: {offset(pipeline)['copied']}" in words(
            *to, "--until", lost, expect=2
        )
        words(*to, expect=0)
        oracle.assert_same(
            pipeline.addresses.source, other.uri, [pipeline.namespace("docs"), pipeline.namespace("others")],
            at_least=COUNT - 100 + 10,
        )  # fmt: skip


@pytest.mark.nightly
def test_documents_are_read_again_in_place_where_nothing_is_lost(pipeline: Pipeline) -> None:
    pipeline.destination("docs").delete_many({"_id": {"$lt": 5}})
    pipeline.destination("others").delete_many({})
    one = pipeline.namespace("docs")
    before = offset(pipeline)
    assert "nothing is lost" in words("resnapshot", pipeline.file, "--dry-run", expect=0)
    said = words("resnapshot", pipeline.file, "--only", one, "--yes", expect=1)  # for what is refused
    assert "documents of" in said
    assert "stream restarts" not in said
    assert pipeline.destination("docs").count_documents({}) == COUNT
    assert pipeline.destination("others").count_documents({}) == 0
    after = offset(pipeline)
    assert (after["start"], after["closed"]) == (before["start"], after["resnapshot"])
    towpath("deploy", pipeline.file)
    assert offset(pipeline)["resnapshot"] == after["resnapshot"]
