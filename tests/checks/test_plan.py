"""`towpath plan` against real servers: what it finds, that it makes nothing, and what it says of wrong inputs."""

from __future__ import annotations

import json
from contextlib import closing
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import bson
import pytest
from pymongo import MongoClient

from tests.checks.test_check import everything_there, nowhere
from tests.conftest import MakePipeline
from tests.support import raw
from tests.support.pipeline import Addresses, Pipeline, Settings, towpath
from tests.support.servers import mongod_with_users, replica_set
from towpath.checks.facts import Extent
from towpath.checks.plan import take
from towpath.clients.kafka.topics import Topics
from towpath.clients.mongo.client import Cluster
from towpath.config import loading

pytestmark = pytest.mark.servers

#: A short sample, for tests that are about something else.
SHORT = ("--sample", "0.2")
SOON = "serverSelectionTimeoutMS=500"


def plan(pipeline: Pipeline, *options: str, expect: int = 0, **addresses: str) -> dict[str, Any]:
    """The plan as JSON, with other addresses where they are given."""
    other = replace(pipeline, addresses=Addresses(**{**asdict(pipeline.addresses), **addresses}))
    said = towpath("plan", other.write(), "--json", *(options or SHORT), expect=expect, timeout=120)
    assert ":secret@" not in said.stdout + said.stderr, "a password is shown"
    found: dict[str, Any] = json.loads(said.stdout)
    return found


def errors(found: dict[str, Any]) -> list[str]:
    return [f"{one['subject']}: {one['finding']}" for one in found["findings"] if one["level"] == "error"]


def fill(documents: raw.Documents, count: int, size: int = 800) -> None:
    documents.insert_many([{"_id": number, "text": f"{number} " * (size // 6)} for number in range(count)])


def test_a_plan_and_what_the_pipeline_then_needs(pipeline: Pipeline, tmp_path: Path) -> None:
    fill(pipeline.source("orders"), 10_000)
    pipeline.source("orders").create_index("text")
    pipeline.create("empty")
    before = everything_there(pipeline)
    found = plan(pipeline, "--sample", "1", "--html", str(tmp_path / "plan.html"))
    assert everything_there(pipeline) == before
    assert not Path(f"{pipeline.addresses.secrets}/{pipeline.name}.properties").exists()
    assert (found["ready"], found["deployed"], found["unreachable"]) == (True, False, [])
    assert found["unknown"] == [] or {one["what"] for one in found["unknown"]} == {"changes"}  # on a new stack
    empty, orders = sorted(found["collections"], key=lambda one: int(one["documents"]))
    assert (empty["documents"], empty["bytes"], empty["indexes"]) == (0, 0, 1)
    assert (orders["documents"], orders["indexes"]) == (found["documents"], 2) == (10_000, 2)
    assert orders["bytes"] == sum(len(one.raw) for one in _raw(pipeline, "orders"))
    assert 0 < found["sample"]["documents"] <= 20_000
    assert found["pause"]["seconds"] > 1
    assert [found["pause"][name] for name in ("unique_indexes", "entries", "rebuilt_entries")] == [0, 0, 0]
    assert found["log"]["replicas"] == 1
    assert found["log"]["free_bytes"] > 0 and found["destination"]["free_bytes"] > 0
    page = (tmp_path / "plan.html").read_text()
    assert "could begin" in page and f"{pipeline.name}.orders" in page
    shown = towpath("plan", pipeline.file, *SHORT).stdout
    assert max(map(len, shown.splitlines())) <= max(80, len(str(pipeline.file)) + 40)
    assert everything_there(pipeline) == before

    pipeline.deploy()
    pipeline.wait()
    on_disk = Topics(pipeline.addresses.bootstrap).bytes_on_disk()
    assert on_disk is not None
    assert found["log"]["copy_bytes"] == pytest.approx(on_disk[pipeline.topic("orders")], rel=0.35)
    again = plan(pipeline)
    assert again["deployed"]
    assert not [one for one in again["commands"] if "deploy" in one["command"]]


def _raw(pipeline: Pipeline, name: str) -> list[Any]:
    options = bson.codec_options.CodecOptions(document_class=bson.raw_bson.RawBSONDocument)
    return list(pipeline.source(name).with_options(options).find())


def test_servers_that_do_not_answer(pipeline: Pipeline, nightly: bool) -> None:
    fill(pipeline.source("orders"), 10)
    found = plan(pipeline, expect=2, source=f"mongodb://{nowhere()}/?{SOON}")
    assert found["unreachable"] == ["source"]
    assert (found["sample"], found["collections"], found["oplog"]) == (None, [], None)
    assert {"what": "sample", "reason": "the source cannot be read"} in found["unknown"]
    assert found["commands"][0]["command"].startswith("towpath plan ")
    found = plan(pipeline, expect=2, connect=f"http://{nowhere()}")
    assert (found["unreachable"], found["deployed"]) == (["connect"], None)
    if not nightly:
        return
    found = plan(pipeline, expect=2, destination=f"mongodb://{nowhere()}/?{SOON}", bootstrap=nowhere())  # takes 10 s
    assert found["unreachable"] == ["destination", "kafka"]
    assert found["log"] is None and found["destination"]["free_bytes"] is None
    assert found["documents"] == 10 and found["sample"]
    assert {one["subject"] for one in found["findings"] if one["level"] == "error"} == {"destination", "kafka"}


def test_no_collection_matches(pipeline: Pipeline) -> None:
    found = plan(pipeline, expect=1)
    assert any("matches no collection" in words for words in errors(found))
    assert found["documents"] == 0


def test_what_check_refuses_stops_it(pipeline: Pipeline) -> None:
    pipeline.source_client[pipeline.name].create_collection("series", timeseries={"timeField": "t"})
    assert any("time-series" in words for words in errors(plan(pipeline, expect=1)))


def test_no_sample(pipeline: Pipeline) -> None:
    fill(pipeline.source("orders"), 10)
    found = plan(pipeline, "--sample", "0")
    assert (found["sample"], found["log"]) == (None, None)
    assert {"what": "log", "reason": "no sample was taken (--sample 0)"} in found["unknown"]


def test_a_collection_is_asked_once(pipeline: Pipeline) -> None:
    fill(pipeline.source("orders"), 10)
    database = pipeline.source_client[pipeline.name]
    database.command("profile", 2)
    plan(pipeline)
    database.command("profile", 0)
    asked = [one["command"]["pipeline"] for one in database["system.profile"].find({"command.pipeline": {"$ne": None}})]
    assert sum("$collStats" in stages[0] for stages in asked) == 1


def test_a_user_without_rights(pipeline: Pipeline, tmp_path: Path) -> None:
    with mongod_with_users(tmp_path, {"reader": [{"role": "read", "db": "shop"}]}) as address:
        found = plan(pipeline, expect=1, source=f"mongodb://reader:secret@{address}/")
        assert any("may not" in words and "in every database" in words for words in errors(found))
        assert found["sample"] is None
        assert "may not" in next(one["reason"] for one in found["unknown"] if one["what"] == "changes")
        with MongoClient[dict[str, Any]](f"mongodb://root:secret@{address}/") as root:
            assert pipeline.name not in root.list_database_names()


def test_an_oplog_that_is_shorter_than_the_copy_is_no_error(make_pipeline: MakePipeline, tmp_path: Path) -> None:
    """The copy goes in rounds."""
    pipeline = make_pipeline(Settings(capture={"documents_per_second": 1}))
    with replica_set(tmp_path, "--oplogSize", "1") as address:
        uri = f"mongodb://{address}/?replicaSet=guarded"
        with MongoClient[dict[str, Any]](uri) as client:
            fill(client[pipeline.name]["orders"], 6_000)
        found = plan(pipeline, expect=0, source=uri)
    assert not found["oplog"]["too_new"]
    assert any("reaches back 0.0 hours" in finding["finding"] for finding in found["findings"])


def test_the_limits_of_the_copy_hold_for_the_sample(make_pipeline: MakePipeline) -> None:
    pipeline = make_pipeline(Settings(capture={"documents_per_second": 1_000}))
    fill(pipeline.source("orders"), 30_000, size=100)
    found = plan(pipeline, "--sample", "1", expect=0)
    assert found["sample"]["documents"] < 30_000


def test_indexes_that_a_cutover_makes_unique_are_counted(pipeline: Pipeline) -> None:
    fill(pipeline.source("orders"), 10)
    pipeline.source("orders").create_index("text", unique=True)
    found = plan(pipeline)["pause"]
    assert (found["unique_indexes"], found["entries"], found["rebuilt_entries"]) == (1, 10, 0)


def test_a_sample_reads_whole_documents(pipeline: Pipeline) -> None:
    """As bytes, of a collection of several ranges whose `_id`s are random, and of several types."""
    documents = pipeline.source("orders")
    ids = [bson.ObjectId(), "x", 5, {"a": [1]}]
    documents.insert_many([{"_id": one, "text": "x" * 3_000} for one in ids])
    documents.insert_many([{"_id": bson.Binary(bson.ObjectId().binary[::-1]), "s": "x" * 900} for _ in range(21_000)])
    captured = Extent(pipeline.namespace("orders"), "", 21_004, 21_000_000, 1, 1, 1)
    with closing(Cluster(pipeline.addresses.source, "source")) as it, it.connected() as client:
        sample = take(client, [captured], loading.read(pipeline.write()), 5)
    assert 0 < sample.documents <= 2 * 21_004
    assert 900 < sample.bytes / sample.documents < 1_100
    assert 0 < sample.log_ratio < 1 == sample.left


def test_sizes_are_of_what_the_rules_leave(make_pipeline: MakePipeline) -> None:
    rule = '[[collections.rules]]\ncollections = "*.*"\ndrop = ["text"]'
    pipeline = make_pipeline(Settings(extra=rule))
    pipeline.source("orders").insert_many([{"_id": n, "text": "x" * 900} for n in range(100)])
    sample = plan(pipeline)["sample"]
    assert sample["left"] < 0.05 and sample["log_ratio"] < 0.2
