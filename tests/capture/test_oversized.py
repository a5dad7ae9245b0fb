"""Events and records that are larger than a server or a topic takes: nothing stops, and nothing is lost in silence."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path
from typing import Any

import bson
import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from tests.conftest import MakePipeline
from tests.support import control, log, rest
from tests.support.awaited import until
from tests.support.batches import sink_paused
from tests.support.oversized import CHANGE_ALL, long_named
from tests.support.pipeline import TOWPATH, Pipeline, Settings, towpath
from towpath import stack as embedded
from towpath.log.records import is_chunk

pytestmark = pytest.mark.servers

LARGEST = 16 * 1024 * 1024


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Verdicts of these tests are kept here."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def limit(pipeline: Pipeline, size: int) -> None:
    """Set `max.message.bytes` of the topic of `docs` by hand."""
    entry = ConfigEntry("max.message.bytes", str(size), incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, pipeline.topic("docs"), incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": pipeline.addresses.bootstrap})
    admin.incremental_alter_configs([resource])[resource].result(30)


def running(pipeline: Pipeline) -> bool:
    url = f"{pipeline.addresses.connect}/connectors/{pipeline.name}-source/status"
    return all(t["state"] == "RUNNING" for t in rest.get(url, timeout=30).raise_for_status().json()["tasks"])


def test_an_event_that_is_too_large_is_read_by_id_in_its_place(
    make_pipeline: MakePipeline, stack: embedded.Stack
) -> None:
    pipeline = make_pipeline(Settings(exclude=("outside",)))
    documents, outside = pipeline.source("docs"), pipeline.source("outside")
    documents.insert_many([long_named("one"), long_named("gone"), *({"_id": n, "v": 0} for n in range(20))])
    outside.insert_one(long_named("other"))
    pipeline.deploy()
    pipeline.wait()
    documents.update_one({"_id": 1}, {"$set": {"v": 1}})
    documents.update_one({"_id": "one"}, CHANGE_ALL)
    outside.update_one({"_id": "other"}, CHANGE_ALL)
    documents.update_one({"_id": 1}, {"$set": {"v": 2}})
    with pipeline.source_client.start_session() as session, session.start_transaction():
        documents.update_one({"_id": 2}, {"$set": {"v": 1}}, session=session)
        documents.update_one({"_id": "one"}, CHANGE_ALL, session=session)
        for change in ({"$set": {"q": 1}}, {"$unset": {"q": ""}}, {"$set": {"p": 1}}, {"$set": {"q": 2}}):
            documents.update_one({"_id": "one"}, change, session=session)  # applied again, p would come after q
    documents.update_one({"_id": "gone"}, CHANGE_ALL)
    documents.delete_one({"_id": "gone"})
    documents.update_one({"_id": "one"}, {"$inc": {"q": 1}})
    pipeline.wait()
    pipeline.assert_same("docs", at_least=21)
    assert running(pipeline)
    said = (stack.directory / "logs" / "connect-0.log").read_text()
    assert f'{pipeline.namespace("docs")} {{"_id": "one"}} was read as of' in said
    # at the moment of each, so that every state in between is in the log
    every = log.records(pipeline.addresses.bootstrap, pipeline.topic("docs"))
    found = [one for one in every if one.key == bson.encode({"_id": "one"})]
    assert [one.contract["op"] for one in found] == [b"r", b"r", b"r", b"u"]
    assert [b"\x10q\0" in (one.value or b"") for one in found] == [False, False, True, True]


@pytest.mark.nightly
def test_the_largest_documents_and_updates_there_can_be_arrive(pipeline: Pipeline) -> None:
    documents = pipeline.source("docs")
    documents.insert_one({"_id": 0, "x": os.urandom(LARGEST - 30)})
    pipeline.deploy()
    documents.replace_one({"_id": 0}, {"y": os.urandom(LARGEST - 30)})
    documents.insert_one({"_id": 1, "x": os.urandom(LARGEST - 30)})
    documents.insert_one({"_id": 2})
    documents.update_one({"_id": 2}, {"$set": {"x": os.urandom(LARGEST - 60)}})
    pipeline.wait()
    pipeline.assert_same("docs", at_least=3)


def test_a_document_that_is_larger_than_a_record_is_in_chunks(make_pipeline: MakePipeline) -> None:
    pipeline = make_pipeline(Settings(kafka={"max_record": "1MiB"}))
    documents = pipeline.source("docs")
    documents.insert_many([{"_id": "copied", "x": os.urandom(LARGEST - 40)}, *({"_id": n, "v": 0} for n in range(20))])
    pipeline.deploy()
    documents.insert_one({"_id": "zeros", "x": bytes(LARGEST - 40)})  # fits once it is compressed
    documents.insert_one({"_id": "gone", "x": os.urandom(3 << 20)})
    with pipeline.source_client.start_session() as session, session.start_transaction():
        for n in range(20):
            documents.update_one({"_id": n}, {"$set": {"v": 1}}, session=session)
        documents.replace_one({"_id": "copied"}, {"y": os.urandom(5 << 20), "list": [1]}, session=session)
        documents.update_one({"_id": "copied"}, {"$push": {"list": 2}}, session=session)
    documents.update_one({"_id": 7}, {"$set": {"x": os.urandom(2 << 20)}})
    documents.update_one({"_id": 7}, {"$unset": {"v": ""}})
    documents.delete_one({"_id": "gone"})
    pipeline.wait()
    pipeline.assert_same("docs", at_least=22)
    assert pipeline.status()["dead_letters"] == 0
    every = log.records(pipeline.addresses.bootstrap, pipeline.topic("docs"))
    assert max(len(one.key or b"") + len(one.value or b"") for one in every if one.key != _key("zeros")) < 1 << 20
    parts = {one.partition for one in every if is_chunk(one.key) and one.key[45:-1] == _key("copied")[9:-1]}
    assert parts == {one.partition for one in every if one.key == _key("copied")}
    shown = towpath("tail", pipeline.file, pipeline.namespace("docs"), "--from-beginning", "--no-follow").stdout
    assert '  document  {"_id": "copied"}  16,777,2' in shown and '  update    {"_id": 7}  2,097,' in shown
    assert "$chunk" not in shown and "foreign" not in shown


@pytest.mark.nightly
def test_a_sink_that_begins_anywhere_between_chunks_applies_each_document_once(
    make_pipeline: MakePipeline, stack: embedded.Stack
) -> None:
    pipeline = make_pipeline(Settings(kafka={"max_record": "1MiB"}, partitions=2))
    documents = pipeline.source("docs")
    pipeline.create("docs")
    pipeline.deploy()
    with sink_paused(pipeline):
        for n in range(40):
            documents.insert_one({"_id": n, "n": 0, "x": os.urandom(3 << 20)})
            documents.update_one({"_id": n}, {"$inc": {"n": 1}, "$set": {"y": os.urandom(2 << 20)}})
    for _ in range(4):
        time.sleep(1)
        control.kill(stack.directory, "connect-0")
        control.start(stack.directory, "connect-0")
    pipeline.wait(300)
    pipeline.assert_same("docs", at_least=40)
    assert pipeline.status()["dead_letters"] == 0


@pytest.mark.nightly
def test_a_document_whose_id_is_larger_than_a_record_is_a_dead_letter_and_is_repaired_later(
    pipeline: Pipeline,
) -> None:
    documents, large = pipeline.source("docs"), "x" * 300_000
    documents.insert_one({"_id": 0})
    pipeline.deploy()
    pipeline.wait()
    limit(pipeline, 200_000)
    documents.insert_one({"_id": 1, "x": os.urandom(300_000)})
    documents.insert_one({"_id": os.urandom(300_000)})
    documents.insert_one({"_id": large})  # fits once it is compressed
    documents.insert_one({"_id": 3})
    pipeline.wait()
    assert running(pipeline)
    found = pipeline.status()
    assert found["dead_letters"] == 1
    assert "and 200,000 are the most" in found["dead_letter_causes"][0]["reason"]
    assert pipeline.destination("docs").count_documents({}) == 4
    towpath("repair", pipeline.file, "--dead-letters", expect=1)
    limit(pipeline, 17 * 1024 * 1024)
    until("repair", lambda: "1 repaired, 0 left" in _repaired(pipeline))
    pipeline.assert_same("docs", at_least=5)


def _key(id: Any) -> bytes:
    return bson.encode({"_id": id})


def _repaired(pipeline: Pipeline) -> str:
    """What repair says; the connector asks for a topic's limit every ten seconds."""
    done = subprocess.run(
        [TOWPATH, "repair", pipeline.file, "--dead-letters"], capture_output=True, text=True, check=False
    )
    return done.stdout
