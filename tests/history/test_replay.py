"""The log is written to another destination, as of now or of a moment, or to the pipeline's own again."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any

import pytest
from bson import Int64, json_util
from bson.timestamp import Timestamp
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from pymongo import MongoClient

from tests.conftest import MakePipeline
from tests.support import bsonbytes, control, fuzz, mongod, oracle, raw, rest, workers
from tests.support.awaited import until
from tests.support.damage import damage, document
from tests.support.mongod import MongodSizes, Servers
from tests.support.page import program
from tests.support.pipeline import TOWPATH, Pipeline, Settings, towpath
from tests.support.reference import page_s_code
from tests.support.started import started
from tests.support.workload import Workload
from tests.support.writer import Writer
from towpath import stack as embedded
from towpath.clients.connect.rest import Connect

pytestmark = pytest.mark.servers

#: Moments of a workload that are rebuilt.
MOMENTS = 2 if fuzz.TIMES == 1 else 3 * fuzz.TIMES
SIZES = MongodSizes(cache_gb=0.25, oplog_mb=200)
#: Documents by the bytes of their `_id`.
State = Mapping[bytes, bytes]


@dataclass(frozen=True, slots=True)
class Third:
    """A replica set that is neither side of a pipeline."""

    uri: str
    client: raw.Client

    def replay(self, pipeline: Pipeline, *options: str, expect: int = 0) -> dict[str, Any]:
        """Replay to here; the verdict."""
        found: dict[str, Any] = json.loads(self._run(pipeline, *options, "--json", expect=expect).stdout)
        return found

    def refused(self, pipeline: Pipeline, *options: str, expect: int = 2) -> str:
        """What is said when a replay to here is refused."""
        return self._run(pipeline, *options, expect=expect).stderr

    def tried(self, pipeline: Pipeline, *options: str, expect: int = 0) -> dict[str, Any]:
        """What a dry run says."""
        return self.replay(pipeline, *options, "--dry-run", expect=expect)

    def _run(self, pipeline: Pipeline, *options: str, expect: int) -> subprocess.CompletedProcess[str]:
        return towpath("replay", pipeline.file, "--destination", self.uri, *options, expect=expect)

    def assert_same(self, pipeline: Pipeline, *collections: str, at_least: int) -> None:
        as_here = replace(pipeline, addresses=replace(pipeline.addresses, destination=self.uri))
        as_here.assert_same(*collections, at_least=at_least)

    def documents(self, pipeline: Pipeline, collection: str) -> raw.Documents:
        return replace(pipeline, destination_client=self.client).destination(collection)

    def kept(self, name: str) -> list[Any]:
        """What there is in the database `towpath` of a sink of that name."""
        database = self.client["towpath"]
        return [
            found["_id"]
            for kind in ("offsets", "tasks")
            for found in database[kind].find()
            if name in str(found["_id"])
        ]


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Third]:
    with (
        mongod.start_replica_set(tmp_path_factory.mktemp("third"), name="third", sizes=SIZES) as started,
        MongoClient[dict[str, Any]](started.uri) as client,
    ):
        yield Third(started.uri, client)


@pytest.fixture
def single(tmp_path: Path) -> Iterator[Servers]:
    """A mongod that is no replica set."""
    with mongod.start_standalone(tmp_path / "single", sizes=SIZES) as started:
        yield started


@pytest.fixture
def third(servers: Third) -> Iterator[Third]:
    yield servers
    for name in servers.client.list_database_names():
        if name not in ("admin", "config", "local"):
            servers.client.drop_database(name)


def state(documents: raw.Documents) -> State:
    """All documents as they are now."""
    return {repr(bsonbytes.field(one, "_id")).encode(): one for one in raw.read(documents)}


def moment(pipeline: Pipeline) -> Timestamp:
    """The source's time: everything written so far is at or before it."""
    found: Timestamp = pipeline.source_client.admin.command("hello")["operationTime"]
    return found


def connectors(pipeline: Pipeline) -> set[str]:
    """Those of the pipeline's replays that Connect knows."""
    found = rest.get(f"{pipeline.addresses.connect}/connectors", timeout=30).raise_for_status().json()
    return {name for name in found if name.startswith(f"{pipeline.name}-replay-")}


@pytest.mark.nightly
def test_a_whole_log_of_random_changes_is_byte_identical_elsewhere(
    make_pipeline: MakePipeline, third: Third, single: Servers, seed: int
) -> None:
    pipeline = make_pipeline(Settings(rename={"docs": "papers"}))
    load = Workload(seed, [pipeline.source("docs"), pipeline.source("more")], documents=300)
    load.fill()
    pipeline.deploy()
    load.run(1_000)
    pipeline.wait()
    for uri, words in {
        pipeline.addresses.source: "of the pipeline's source",
        pipeline.addresses.destination: "--rebuild",
        single.uri: "is a standalone mongod",
    }.items():
        assert words in towpath("replay", pipeline.file, "--destination", uri, expect=2).stderr
    assert "the log holds no such namespace" in third.refused(pipeline, "--only", pipeline.namespace("papers"))
    found = third.replay(pipeline, "--name", "copy")
    third.assert_same(pipeline, "docs", "more", at_least=200)
    assert (found["whole"], found["refused"], found["missing"]) == (True, 0, [])
    assert found["documents"][pipeline.namespace("papers")] == pipeline.source("docs").count_documents({})
    name = f"{pipeline.name}-replay-copy"
    assert (connectors(pipeline), third.kept(name)) == (set(), [])
    assert not (pipeline.addresses.secrets / f"{name}.properties").exists()
    assert name not in AdminClient({"bootstrap.servers": pipeline.addresses.bootstrap}).list_topics(timeout=10).topics

    third.documents(pipeline, "more").drop()
    third.documents(pipeline, "docs").create_index("x")
    said = third.refused(pipeline)
    assert f"{pipeline.namespace('papers')} ({found['documents'][pipeline.namespace('papers')]:,})" in said
    assert "--empty" in said
    third.client[pipeline.name].command({"create": "more", "validator": {"_id": {"$type": "objectId"}}})
    third.documents(pipeline, "docs").insert_one({"_id": "stray"})
    third.replay(pipeline, "--empty", "--yes", "--only", pipeline.namespace("docs"))
    third.assert_same(pipeline, "docs", at_least=100)
    assert "x_1" in third.documents(pipeline, "docs").index_information()
    assert not state(third.documents(pipeline, "more"))


def test_a_moment_is_rebuilt_exactly_and_only_one_that_the_log_can_tell(
    make_pipeline: MakePipeline, third: Third, seed: int
) -> None:
    pipeline = make_pipeline(Settings())
    documents = pipeline.source("docs")
    load = Workload(seed, [documents], documents=200)
    load.fill()
    before = moment(pipeline)
    documents.insert_one({"_id": "last of the copy"})
    pipeline.deploy()
    pipeline.wait()
    known: list[tuple[str, State]] = []
    for written in range(MOMENTS):
        load.run(300)
        now = moment(pipeline)
        as_iso = datetime.fromtimestamp(now.time, UTC).isoformat()
        known.append((as_iso if written % 3 == 1 else f"{now.time}:{now.inc}", state(documents)))
        until("next second at the source", lambda now=now: moment(pipeline).time > now.time)  # type: ignore[misc]
    load.run(100)
    pipeline.wait()
    said = third.refused(pipeline, "--until", f"{before.time}:{before.inc}")
    assert "before the earliest point in time that can be rebuilt" in said
    early = third.tried(pipeline, "--until", f"{before.time}:{before.inc}", expect=2)
    assert (early["until_accepted"], [one["finding"] in said for one in early["findings"]]) == (False, [True])
    assert "is beyond what has been captured" in third.refused(pipeline, "--until", "2099-01-01T00:00:00Z")
    words = ("replay", pipeline.file, "--until", early["earliest"], "--dry-run")
    assert "is accepted" in towpath(*words).stdout, "without a destination"
    for text, expected in known:
        tried = third.tried(pipeline, "--empty", "--until", text)
        assert (tried["accepted"], tried["earliest"]) == (True, early["earliest"])
        found = third.replay(pipeline, "--empty", "--yes", "--until", text)
        assert 0 < found["records"] <= tried["records"]
        assert found["whole"]
        assert oracle.differences(expected, state(third.documents(pipeline, "docs"))) == []
        assert len(expected) >= 50
    assert "holds documents already" in third.tried(pipeline, expect=2)["findings"][0]["finding"]
    third.replay(pipeline, "--empty", "--yes", "--follow", "--name", "last")
    assert third.tried(pipeline, "--follow", "--name", "last")["continues"]
    assert towpath("replay", pipeline.file, "--rebuild", "--dry-run").stdout.count("would first delete about") == 1
    pipeline.remove()
    assert (connectors(pipeline), third.kept("last")) == (set(), [])
    assert oracle.differences(state(documents), state(third.documents(pipeline, "docs"))) == []


@dataclass(frozen=True, slots=True)
class Programs:
    """`check.py`, `restore.py` and `merge.py`, as the pages have them."""

    check: Path
    restore: Path
    merge: Path
    environment: Mapping[str, str]

    def run(self, file: Path, *arguments: str | Path, expect: int = 0) -> list[str]:
        command = [sys.executable, file, *arguments]
        done = subprocess.run(
            command,
            cwd=self.check.parent,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == expect, f"{done.stdout}\n{done.stderr}"
        return done.stdout.splitlines()


def next_second(pipeline: Pipeline) -> str:
    """A second of the source in which nothing is written."""
    now = moment(pipeline).time
    until("next second at the source", lambda: moment(pipeline).time > now)
    until("the one after it", lambda: moment(pipeline).time > now + 1)
    return datetime.fromtimestamp(now + 1, UTC).isoformat()


def restored(lines: list[str]) -> dict[int, tuple[str, int]]:
    """What `restore.py` printed: _id → what it did, and how many changes others made. It changes only `total`."""
    found = {}
    for line in lines[:-1]:
        parts = re.fullmatch(
            r"(.{24}) (\{.*\})  \(\d+ by the mistake, (\d+) by others since(?:, deleted)?\)(?:  total: .*)?", line
        )
        assert parts, line
        found[json_util.loads(parts[2])["_id"]] = (parts[1].rstrip(), int(parts[3]))
    return found


@pytest.mark.nightly
def test_what_only_the_mistake_changed_is_restored_at_the_source_and_what_others_changed_too_is_not(
    make_pipeline: MakePipeline, third: Third, tmp_path: Path
) -> None:
    pipeline = make_pipeline(Settings())
    orders, namespace = pipeline.source("orders"), pipeline.namespace("orders")
    orders.insert_many(
        [
            {"_id": n, "status": "open" if 20 <= n < 25 else "paid", "total": Int64(n), "lines": [{"n": 1.0}]}
            for n in range(40)
        ]
    )
    pipeline.deploy()
    pipeline.wait()
    orders.update_one({"_id": 1}, {"$set": {"lines.0.n": 2}})
    before = next_second(pipeline)
    expected = state(orders)
    orders.update_one({"_id": 5}, {"$set": {"paid": True}})  # by the application, before the mistake
    orders.insert_one({"_id": 50, "total": 1})
    orders.insert_many([{"_id": 51, "status": "open"}, {"_id": 52, "status": "open"}])
    orders.update_many({"_id": {"$in": [22, 52]}}, {"$set": {"status": "paid"}})
    orders.update_many({"_id": {"$in": [*range(10), 24, 50]}}, {"$set": {"total": None}})  # the mistake
    orders.update_one({"_id": 24}, {"$set": {"note": 1}})  # by the application, after it
    orders.delete_many({"_id": {"$in": [20, 21, 24, 51]}})  # the mistake, too
    orders.delete_many({"_id": {"$in": [22, 52]}})  # by the application: they were paid
    orders.update_one({"_id": 32}, {"$set": {"total": None, "mixed": True}})  # the mistake, with a correct field
    orders.update_one({"_id": 2}, {"$unset": {"lines": ""}})  # by the application, after the mistake
    orders.delete_one({"_id": 30})
    orders.update_one({"_id": 31}, {"$set": {"total": 32}})
    over = next_second(pipeline)
    orders.update_one({"_id": 3}, {"$set": {"paid": True}})
    orders.insert_one({"_id": 21, "total": 1})
    orders.delete_one({"_id": 23})  # by the application: the mistake was over
    (tmp_path / "ids").write_text("4\n15\n")
    towpath("repair", pipeline.file, "--ids", namespace, tmp_path / "ids")  # a re-read is no change
    pipeline.wait()
    assert third.tried(pipeline, "--until", before, "--only", namespace)["accepted"]
    third.replay(pipeline, "--until", before, "--only", namespace, "--name", "before")
    rebuilt = third.documents(pipeline, "orders")
    assert oracle.differences(expected, state(rebuilt)) == []

    (tmp_path / "update.py").write_text(page_s_code())
    restore = program("how-to/restore-documents.md", '"""restore.py', tmp_path)
    for time, its in (("2026-11-21T18:00:01+01:00", before), ("2026-11-21T18:10:00+01:00", over)):  # FROM, TO
        text = restore.read_text()
        assert text.count(time) == 1
        restore.write_text(text.replace(time, its))
    programs = Programs(
        program("verifier.md", '"""check.py', tmp_path),
        restore,
        program("how-to/restore-documents.md", '"""merge.py', tmp_path),
        os.environ
        | {"PATH": f"{TOWPATH.parent}:{os.environ['PATH']}"}
        | {"SOURCE": pipeline.addresses.source, "REBUILT": third.uri},
    )
    arguments = (pipeline.file, namespace, before)
    [said] = programs.run(programs.check, *arguments)
    assert said.endswith(f" documents; 22 in the log since {before}; 0 WRONG"), said
    for id in (10, 15):  # one without a record since, and one with
        rebuilt.update_one({"_id": id}, {"$set": {"total": 0}})
    lines = programs.run(programs.check, *arguments, expect=1)
    assert lines[:-1] == ["WRONG: different 10", "WRONG: not as of the time 15"]
    for id in (10, 15):
        rebuilt.update_one({"_id": id}, {"$set": {"total": Int64(id)}})

    damaged = state(orders)
    others = {2: ("MERGE", 1), 3: ("MERGE", 1), 21: ("MERGE", 1), 32: ("MERGE", 1)}
    alone = (0, 1, 4, 5, 6, 7, 8, 9, 20, 50, 51)
    lacking = [one for one in (rebuilt.find_one_and_delete({"_id": id}) for id in (7, 20)) if one]
    would = (
        others
        | {24: ("MERGE, would come back", 1)}
        | dict.fromkeys(alone, ("would be restored", 0))
        | dict.fromkeys((7, 20), ("KEPT, nothing before", 0))
    )
    assert restored(programs.run(programs.restore, *arguments, expect=1)) == would
    assert oracle.differences(damaged, state(orders)) == []
    rebuilt.insert_many(lacking)
    done = others | {24: ("MERGE, brought back", 1)} | dict.fromkeys(alone, ("restored", 0))
    assert restored(programs.run(programs.restore, *arguments, "--write", expect=1)) == done
    file = max(tmp_path.glob("merge-*.jsonl"))
    merges = {(line := json_util.loads(text))["_id"]: line for text in file.read_text().splitlines()}
    assert (merges[3]["before"]["total"], merges[3]["later"]) == (3, [{"$set": {"paid": True}}])
    assert (merges[21]["before"]["status"], merges[21]["later"]) == ("open", [{"_id": 21, "total": 1}])
    assert len(oracle.differences(expected, state(orders))) == len({*others, 5, 22, 23, 24, 30, 31, 50, 51})
    merged = (file, namespace, "total", "null")
    tried = programs.run(programs.merge, *merged, expect=1)
    assert 'KEPT     {"_id": 21}' in tried
    assert set(tried[-1].split("; ")) == {"4 set back", "1 KEPT"}
    assert len(oracle.differences(damaged, state(orders))) == len({*alone, 24})
    assert programs.run(programs.merge, *merged, "--write", expect=1) == tried
    assert isinstance((orders.find_one({"_id": 3}) or {})["total"], Int64)
    assert [orders.find_one({"_id": id}, {"_id": 0, "lines": 0}) for id in (3, 24, 32)] == [
        {"status": "paid", "total": Int64(3), "paid": True},
        {"status": "open", "total": Int64(24), "note": 1},
        {"status": "paid", "total": Int64(32), "mixed": True},
    ]
    fifth = {"_id": 5, "status": "paid", "total": Int64(5), "lines": [{"n": 1.0}], "paid": True}
    assert [orders.find_one({"_id": id}) for id in (5, 50, 51)] == [
        fifth,
        {"_id": 50, "total": 1},
        {"_id": 51, "status": "open"},
    ]
    orders.update_one({"_id": 4}, {"$set": {"note": 1}})  # by the application, after it was restored
    pipeline.wait()
    again = {id: ("as before", count + 1) for id, (_, count) in others.items()} | {21: ("MERGE", 1)}
    again |= dict.fromkeys(alone, ("as before", 1)) | {4: ("as before", 2), 24: ("as before", 3)}
    assert restored(programs.run(programs.restore, *arguments, "--write", expect=1)) == again
    pipeline.wait()
    pipeline.assert_same("orders", at_least=39)

    lines = towpath("tail", pipeline.file, namespace, "--id", "20", "--no-follow", "--json").stdout.splitlines()
    assert [json.loads(line)["op"] for line in lines] == ["r", "d", "c"]
    lines = towpath("tail", pipeline.file, namespace, "--since", before, "--until", over).stdout.splitlines()
    assert len(lines) == 6 + 12 + 1 + 4 + 2 + 4
    assert all(before[:10] in line and line.split()[3] in ("update", "delete", "document") for line in lines)


@pytest.mark.nightly
def test_a_replay_goes_on_after_the_command_is_interrupted_and_the_worker_killed(
    make_pipeline: MakePipeline, third: Third, stack: embedded.Stack
) -> None:
    pipeline = make_pipeline(Settings(write={"batch_records": 500, "tasks": 1}))
    count = 12_000
    pipeline.source("docs").insert_many([{"_id": n, "x": "x" * 500} for n in range(count)])
    pipeline.source("docs").update_many({"_id": {"$lt": 2_000}}, {"$set": {"y": 1}})
    pipeline.deploy()
    pipeline.wait()
    there = third.documents(pipeline, "docs")
    command = [TOWPATH, "replay", pipeline.file, "--destination", third.uri, "--name", "far"]
    with started(command, stderr=subprocess.PIPE, text=True) as running:
        until("documents at the new destination", lambda: there.estimated_document_count() > 0)
        control.kill(stack.directory, workers.FIRST, signal.SIGKILL)
        half = there.estimated_document_count()
        running.send_signal(signal.SIGINT)
        said = running.communicate(timeout=60)[1]
    assert running.returncode == 2
    assert "continues in Kafka Connect" in said
    assert "--replay far" in said
    assert 0 < half < count, f"killed too late: {half} documents were there"
    control.start(stack.directory, workers.FIRST)
    assert "started with no options" in third.refused(pipeline, "--name", "far", "--follow")
    assert "--name far" in third.refused(pipeline, "--name", "other")
    assert third.replay(pipeline, "--name", "far")["whole"]
    third.assert_same(pipeline, "docs", at_least=count)


@pytest.mark.nightly
def test_a_second_destination_follows_until_it_is_removed(pipeline: Pipeline, third: Third, seed: int) -> None:
    load = Workload(seed, [pipeline.source("docs")], documents=200)
    load.fill()
    pipeline.deploy()
    pipeline.wait()
    with Writer(load):
        found = third.replay(pipeline, "--follow", "--name", "second")
        assert (found["whole"], found["following"]) == (True, True)
        pipeline.source("later").insert_one({"_id": 1})
    config = rest.get(f"{pipeline.addresses.connect}/connectors/{pipeline.name}-replay-second/config", timeout=30)
    assert "${file:" in config.text
    assert third.uri not in config.text
    other = replace(pipeline, file=pipeline.file.with_name("other.toml"))
    other = replace(other, addresses=replace(pipeline.addresses, destination=third.uri))
    text = other.write().read_text()
    other.file.write_text(text.replace(f'name = "{pipeline.name}"', f'name = "{pipeline.name}-new"', 1))
    said = towpath("deploy", other.file, expect=2).stderr
    assert f"the replay {pipeline.name}-replay-second of the pipeline {pipeline.name} already writes" in said
    pipeline.wait()
    shown = until("end of the log", lambda: _followed(pipeline))
    assert (shown["state"], shown["records_behind"]) == ("RUNNING", 0)
    assert "replay second" in towpath("status", pipeline.file).stdout
    third.assert_same(pipeline, "docs", "later", at_least=50)
    towpath("remove", pipeline.file, "--replay", "second")
    assert (connectors(pipeline), third.kept("second")) == (set(), [])
    assert "existing replays: none" in towpath("remove", pipeline.file, "--replay", "second", expect=2).stderr
    third.assert_same(pipeline, "docs", "later", at_least=50)


def _followed(pipeline: Pipeline) -> dict[str, Any] | None:
    (shown,) = pipeline.status()["replays"]
    return shown if shown["records_behind"] == 0 and shown["records_done"] == shown["records"] else None


@pytest.mark.nightly
def test_a_damaged_destination_is_rebuilt_also_when_that_is_killed(pipeline: Pipeline, seed: int) -> None:
    count = 5_000
    pipeline.source("docs").insert_many(map(document, range(count)))
    pipeline.source("other").insert_one({"_id": 1})
    pipeline.deploy()
    pipeline.wait()
    pipeline.source("docs").update_many({"_id": {"$lt": 100}}, {"$inc": {"v": 1}})
    damage(pipeline.destination("docs"), Random(seed), range(count), 50)
    pipeline.destination("other").update_one({"_id": 1}, {"$set": {"damaged": True}})
    only = ("--rebuild", "--only", pipeline.namespace("docs"))
    markers = pipeline.destination_client["towpath"]["rebuilds"]
    for phase in ("emptying", "applying"):
        with started([TOWPATH, "replay", pipeline.file, *only, "--yes"], stderr=subprocess.DEVNULL) as running:
            mark = {"_id": pipeline.name, "phase": phase}
            until(f"rebuild that is {phase}", lambda mark=mark: markers.find_one(mark), every=0.001)  # type: ignore[misc]
            running.kill()
    shown = json.loads(subprocess.run([TOWPATH, "status", pipeline.file, "--json"], stdout=subprocess.PIPE).stdout)
    assert (shown["rebuild"]["only"], shown["rebuild"]["records"] >= count) == ([pipeline.namespace("docs")], True)
    assert "has started and is not finished" in towpath("replay", pipeline.file, "--rebuild", expect=2).stderr
    found = json.loads(towpath("replay", pipeline.file, *only, "--json").stdout)
    assert (found["whole"], found["documents"]) == (True, {pipeline.namespace("docs"): count})
    pipeline.wait()
    pipeline.assert_same("docs", at_least=count)
    assert pipeline.destination("other").find_one() == {"_id": 1, "damaged": True}
    assert pipeline.status()["rebuild"] is None


@pytest.mark.nightly
def test_what_the_log_lacks_or_the_destination_refuses_is_told(pipeline: Pipeline, third: Third) -> None:
    pipeline = replace(pipeline, settings=Settings(partitions=1))
    pipeline.source("docs").insert_many([{"_id": n, "bad": n == 150} for n in range(200)])
    pipeline.deploy()
    pipeline.wait()
    pipeline.source("docs").update_one({"_id": 7}, {"$set": {"v": 1}})
    pipeline.wait()
    kafka = AdminClient({"bootstrap.servers": pipeline.addresses.bootstrap})
    for future in kafka.delete_records([TopicPartition(pipeline.topic("docs"), 0, 100)]).values():
        future.result(timeout=30)
    said = third.refused(pipeline, expect=1)
    assert f"{pipeline.namespace('docs')}, partition 0: retention has deleted what came in before" in said
    assert f'{pipeline.namespace("docs")} {{"_id": 7}}: updates without their document' in said
    assert third.client[pipeline.name].list_collection_names() == []
    third.client[pipeline.name].command({"create": "docs", "validator": {"bad": {"$ne": True}}})
    found = third.replay(pipeline, "--force", "--name", "rest", expect=1)
    assert (found["whole"], [one["key"] for one in found["dead_letters"]]) == (False, ['{"_id": 150}'])
    assert [one.get("key") for one in found["missing"]] == [None, '{"_id": 7}']
    others = {one["_id"] for one in third.documents(pipeline, "docs").find()}
    assert others == set(range(200)) - set(range(100)) - {150}
    letters = f"{pipeline.name}-replay-rest.dead-letters"
    assert letters in kafka.list_topics(timeout=10).topics
    towpath("remove", pipeline.file, "--replay", "rest")
    until("end of the dead letters", lambda: letters not in kafka.list_topics(timeout=10).topics)


@pytest.mark.nightly
def test_a_replay_whose_log_is_deleted_under_it_stops_and_is_to_be_begun_anew(pipeline: Pipeline, third: Third) -> None:
    pipeline = replace(pipeline, settings=Settings(partitions=1))
    pipeline.source("docs").insert_many([{"_id": n} for n in range(100)])
    pipeline.deploy()
    pipeline.wait()
    third.replay(pipeline, "--name", "gap", "--follow")
    kafka = AdminClient({"bootstrap.servers": pipeline.addresses.bootstrap})
    sink = f"{pipeline.name}-replay-gap"
    with Connect(pipeline.addresses.connect) as connect:
        connect.stop(sink)
        until("end of its tasks", lambda: not connect.status(sink).tasks)
        pipeline.source("docs").insert_many([{"_id": n} for n in range(100, 150)])
        pipeline.wait()
        [applied] = pipeline.destination_client["towpath"]["offsets"].find({"_id.topic": pipeline.topic("docs")})
        for future in kafka.delete_records([TopicPartition(pipeline.topic("docs"), 0, applied["offset"])]).values():
            future.result(timeout=30)
        connect.resume(sink)
        [reason] = until("failure of the replay", lambda: connect.status(sink).reasons)
    assert reason.startswith("TWP-LOG-GAP: ") and reason.endswith("A replay has to start again")
    [shown] = pipeline.status()["replays"]
    assert (shown["state"], shown["reasons"]) == ("FAILED", [reason])
    said = third.refused(pipeline, "--name", "gap", "--follow")
    assert "TWP-LOG-GAP" in said and "start again" in said
    assert third.documents(pipeline, "docs").count_documents({}) == 100
    towpath("remove", pipeline.file, "--replay", "gap")
    found = third.replay(pipeline, "--name", "gap", "--empty", "--yes", "--force", "--follow", expect=1)
    assert [one["namespace"] for one in found["missing"]] == [pipeline.namespace("docs")]
    pipeline.source("docs").insert_one({"_id": 150})
    pipeline.wait()
    documents = third.documents(pipeline, "docs")
    until("what came after it", lambda: [one["_id"] for one in documents.find()] == [150])
