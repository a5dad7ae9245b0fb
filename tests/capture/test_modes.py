"""The exactly-once mode as the command line sees it: what it adds, what it refuses, what it tells, what it forgets."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import bson
import pytest
from bson import Int64

from tests.conftest import MakePipeline
from tests.support.awaited import until
from tests.support.pipeline import Pipeline, Settings, towpath
from towpath.clients.connect.control import wait_stopped
from towpath.clients.connect.rest import Connect
from towpath.clients.kafka.topics import Topics
from towpath.config import loading as pipeline_file
from towpath.log import reread_requests
from towpath.log.source_offsets import read_state

pytestmark = pytest.mark.servers

EXACTLY_ONCE = Settings(mode="exactly-once")


@pytest.fixture
def exactly_once(make_pipeline: MakePipeline) -> Pipeline:
    return make_pipeline(EXACTLY_ONCE)


def refused(pipeline: Pipeline) -> str:
    return towpath("deploy", pipeline.write(), "--allow-missing", expect=2).stderr


def with_settings(pipeline: Pipeline, **changes: Any) -> Pipeline:
    return replace(pipeline, settings=replace(pipeline.settings, **changes))


def kept(pipeline: Pipeline, collection: str) -> list[dict[str, Any]]:
    """What the sink keeps for the pipeline at the destination."""
    return list(pipeline.destination_client["towpath"][collection].find({"_id.pipeline": pipeline.name}))


def test_a_collection_with_documents_can_be_added_and_once_taken_out_not_come_back(exactly_once: Pipeline) -> None:
    for name in ("docs", "later"):
        exactly_once.source(name).insert_many([{"_id": n, "n": Int64(n)} for n in range(500)])
    first, both = (with_settings(exactly_once, include=names) for names in (("docs",), ("docs", "later")))
    first.deploy()
    first.wait()
    both.deploy()
    both.source("later").update_many({}, {"$inc": {"n": 1}})
    both.source("later").delete_one({"_id": 7})
    both.wait()
    both.assert_same("docs", "later", at_least=999)
    assert both.status()["copy"]["done"]
    first.deploy()
    assert f"{exactly_once.name}.later was included in this pipeline before, and then excluded" in refused(both)


#: What `deploy` says beforehand.
LOST = "that continue it: the connector will not capture anything (TWP-HISTORY-LOST)"


def planned(pipeline: Pipeline) -> str:
    """What `deploy` would do."""
    return towpath("deploy", pipeline.write(), "--dry-run").stderr


def wait_lost(pipeline: Pipeline, reason: str) -> None:
    """The source task has stopped as its history is lost, and says why."""

    connect, source = Connect(pipeline.addresses.connect), f"{pipeline.name}-source"
    until("a source task that has failed", lambda: any(task.state == "FAILED" for task in connect.status(source).tasks))
    said = towpath("status", pipeline.file, expect=1).stdout
    assert "TWP-HISTORY-LOST" in said and reason in said


@pytest.mark.nightly
def test_neither_lost_offsets_nor_a_collection_that_comes_back_lose_deletes(
    exactly_once: Pipeline, nightly: bool
) -> None:
    for name in ("docs", "later"):
        exactly_once.source(name).insert_many([{"_id": n} for n in range(50)])
    first, both = (with_settings(exactly_once, include=names) for names in (("docs",), ("docs", "later")))
    both.deploy()
    both.wait()
    connect, source = Connect(exactly_once.addresses.connect), f"{exactly_once.name}-source"
    connect.stop(source)
    wait_stopped(connect, source)
    both.source("docs").delete_one({"_id": 7})
    assert LOST not in planned(both)
    connect.forget_offsets(source)
    assert LOST in planned(both)
    config = connect.config(source)
    assert config is not None
    connect.delete(source)
    assert "if its offsets are also lost" in planned(both)
    connect.create_stopped(source, config)
    connect.resume(source)
    wait_lost(both, "offsets are lost")
    assert LOST in planned(both), "the connector has stored that"
    towpath("restart", both.file, expect=2)
    assert "offsets that continue it are lost" in towpath("check", both.file, expect=1).stdout
    assert "TWP-HISTORY-LOST" in towpath("wait", both.file, expect=2).stderr
    towpath("resnapshot", both.file, "--yes")
    both.assert_same("docs", "later", at_least=99)
    if not nightly:  # that a collection comes back is refused: the test before
        return

    first.deploy()
    first.wait()
    towpath("remove", first.file)
    both.source("later").delete_one({"_id": 8})
    assert "included again" in towpath("deploy", both.write(), expect=2).stderr
    towpath("resnapshot", both.file, "--only", both.namespace("later"), "--yes")
    both.wait()
    both.assert_same("docs", "later", at_least=98)


@pytest.mark.nightly
def test_mode_and_copy_of_a_deployed_pipeline_stay_and_its_speed_changes(exactly_once: Pipeline) -> None:
    exactly_once.source("docs").insert_one({"_id": 1})
    exactly_once.deploy()
    exactly_once.wait()
    plain = with_settings(exactly_once, mode="plain")
    assert 'was deployed with mode = "exactly-once"' in refused(plain)
    assert "was deployed with another [capture] copy" in refused(with_settings(exactly_once, copy="none"))
    faster = with_settings(exactly_once, write={"concern": "1", "wtimeout": "5s"})
    said = json.loads(towpath("deploy", faster.write(), "--json").stdout)
    assert said["changes"] == [
        f"update connector {exactly_once.name}-sink (towpath.write.concern, towpath.wtimeout.ms)"
    ]
    towpath("remove", exactly_once.write())
    assert 'was deployed with mode = "exactly-once"' in refused(plain), "its log is still there"
    assert kept(exactly_once, "offsets"), "positions are kept"
    said = planned(exactly_once)
    assert "create connector" in said and "TWP-HISTORY-LOST" not in said, "so are the source's offsets"
    exactly_once.source("docs").insert_one({"_id": 2})
    exactly_once.deploy()
    exactly_once.wait()
    exactly_once.assert_same("docs", at_least=2)
    towpath("remove", plain.write(), "--topics", "--yes")
    assert kept(exactly_once, "offsets") == kept(exactly_once, "tasks") == []
    left = Topics(exactly_once.addresses.bootstrap).all()
    assert [name for name in left if exactly_once.name in name] == []
    towpath("deploy", plain.file, "--dry-run")


@pytest.mark.nightly
def test_what_the_destination_refuses_is_shown_with_its_reason(exactly_once: Pipeline) -> None:
    database = exactly_once.destination_client[exactly_once.name]
    database.create_collection("docs", validator={"bad": {"$exists": False}})
    documents = exactly_once.source("docs")
    documents.insert_many([{"_id": n} for n in range(50)])
    exactly_once.deploy()
    exactly_once.wait()
    documents.update_one({"_id": 3}, {"$set": {"bad": Int64(7)}})
    documents.insert_one({"_id": "x", "bad": 1})
    exactly_once.wait()
    found = exactly_once.status()
    (cause,) = found["dead_letter_causes"]
    assert (found["dead_letters"], found["dead_letters_complete"]) == (2, True)
    assert (cause["namespace"], cause["code"], cause["records"]) == (exactly_once.namespace("docs"), "121", 2)
    assert "validation" in cause["reason"]
    arguments = ("tail", exactly_once.file, "--dead-letters", "--no-follow")
    letters = [json.loads(line) for line in towpath(*arguments, "--json", "--canonical").stdout.splitlines()]
    # a key is the _id in its canonical form
    shown = {letter["key"]: (letter["kind"], letter["value"]) for letter in letters}
    assert shown == {
        '{"_id": {"$numberLong": "3"}}': ("update", '{"$set": {"bad": {"$numberLong": "7"}}}'),
        '{"_id": "x"}': ("document", '{"_id": "x", "bad": {"$numberInt": "1"}}'),
    }
    assert {letter["code"] for letter in letters} == {121}
    said = towpath(*arguments).stdout
    assert f'{exactly_once.namespace("docs")}  {{"_id": "x"}} (121): ' in said
    assert database["docs"].count_documents({}) == 50, "the others are there"


@pytest.mark.nightly
def test_what_is_asked_for_is_read_again_in_its_place(exactly_once: Pipeline) -> None:
    documents, copies = exactly_once.source("docs"), exactly_once.destination("docs")
    documents.insert_many([{"_id": n, "n": n} for n in range(100)])
    exactly_once.deploy()
    exactly_once.wait()
    copies.delete_one({"_id": 1})
    copies.update_one({"_id": 2}, {"$set": {"n": Int64(2)}})
    copies.insert_one({"_id": "extra"})
    spec, topics = pipeline_file.read(exactly_once.file), Topics(exactly_once.addresses.bootstrap)
    ids = [bson.encode({"_id": one}) for one in (1, 2, "extra")]
    with Connect(spec.connect.url) as connect:
        offset = reread_requests.write(spec, topics, exactly_once.namespace("docs"), ids)
        exactly_once.wait()
        assert offset == 0
        state = read_state(connect, spec.source_connector_of(exactly_once.namespace("docs")))
        assert state.has_answered(offset)
        assert not state.has_answered(offset + 1)
    exactly_once.assert_same("docs", at_least=100)
    assert exactly_once.status()["requests_waiting"] == []


@pytest.mark.nightly
def test_the_plain_mode_can_copy_in_ranges(make_pipeline: MakePipeline) -> None:
    pipeline = make_pipeline(Settings(mode="plain", copy="towpath", extra="[log]\nretention = '30d'"))
    pipeline.source("docs").insert_many([{"_id": n} for n in range(200)])
    pipeline.deploy()
    pipeline.source("docs").update_one({"_id": 3}, {"$set": {"a": 1}})
    pipeline.wait()
    pipeline.assert_same("docs", at_least=200)


@pytest.mark.nightly
@pytest.mark.parametrize("mode", ["exactly-once", "plain"])
def test_without_a_copy_the_stream_begins_now(make_pipeline: MakePipeline, mode: str) -> None:
    pipeline = make_pipeline(Settings(mode=mode, copy="none"))
    pipeline.source("docs").insert_many([{"_id": n} for n in range(20)])
    pipeline.deploy()
    pipeline.wait()
    pipeline.source("docs").insert_one({"_id": "new"})
    pipeline.wait()
    assert list(pipeline.destination("docs").find()) == [{"_id": "new"}]
