"""Kafka's cleaner works on the log while the source changes, and the log still holds every document, and no other."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any

import bson
import pytest
from bson import Int64
from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient
from pymongo import UpdateOne

import stack as embedded
from connectors import compacting, log_check
from connectors.compacting import Compactor
from connectors.connect import Connect
from connectors.topics import Topics
from connectors.unprotected_reader import Reader
from stack import mongod
from stack.mongod import MongodSizes
from tests.bench import load
from tests.conftest import MakePipeline
from tests.support import bsonbytes, cleaner, log, oracle, raw
from tests.support.awaited import until
from tests.support.cleaner import Disk
from tests.support.compactor import Service
from tests.support.pipeline import Pipeline, Settings, towpath
from tests.support.workload import Workload
from tests.support.writer import Writer
from towpath import pipeline as pipeline_file

OPERATIONS = int(os.environ.get("TOWPATH_TEST_COMPACTED_OPERATIONS", "2500"))
RATE = int(os.environ.get("TOWPATH_TEST_COMPACTED_RATE", "125"))  # operations a second
LAG = int(os.environ.get("TOWPATH_TEST_COMPACTED_LAG", "5"))  # seconds
SMALL = MongodSizes(0.25, 64)


def logged(compact: bool = True, lag: int = LAG, delete_retention: int = 2) -> str:
    lines = [f"compact = {str(compact).lower()}", f'compaction_lag = "{lag}s"']
    return "\n".join(["[log]", *lines, f'delete_retention = "{delete_retention}s"'])


@pytest.fixture(autouse=True, scope="module")
def busy_cleaner(stack: embedded.Stack) -> Iterator[None]:
    with cleaner.busy(stack.bootstrap):
        yield


Serve = Callable[[Pipeline], Service]


@pytest.fixture
def serve(tmp_path: Path) -> Serve:
    made: list[Service] = []

    def service(pipeline: Pipeline) -> Service:
        made.append(Service(pipeline.file, "1s", tmp_path / f"service-{len(made)}"))
        return made[-1]

    return service


def key_of(document: bytes) -> tuple[int, bytes]:
    element = bsonbytes.field(document, "_id")
    return element.type, element.payload


def is_update(value: bytes | None) -> bool:
    return value is not None and b"_id" not in {element.name for element in bsonbytes.elements(value)}


def newest(pipeline: Pipeline, collection: str) -> dict[bytes, bytes | None]:
    """Key → the value of its last record."""
    found = log.records(pipeline.addresses.bootstrap, pipeline.topic(collection))
    return {record.key or b"": record.value for record in found}


def size(pipeline: Pipeline, *collections: str) -> int:
    """Bytes of keys, values and headers, before compression."""
    bootstrap = pipeline.addresses.bootstrap
    found = (record for name in collections for record in log.records(bootstrap, pipeline.topic(name)))
    return sum(
        len(one.key or b"") + len(one.value or b"") + sum(len(name) + len(text) for name, text in one.headers.items())
        for one in found
    )


def assert_log_holds_the_source(pipeline: Pipeline, *collections: str) -> int:
    """The newest record of each document is the document, byte for byte, and there is no other; how many there are."""
    count = 0
    for name in collections:
        last = newest(pipeline, name)
        assert [key for key, value in last.items() if is_update(value)] == []
        held = {key_of(value): value for value in last.values() if value is not None}
        there = {key_of(document): document for document in raw.read(pipeline.source(name))}
        assert held == there
        count += len(there)
    return count


def test_a_cleaned_log_rebuilds_every_document_and_no_deleted_one(
    make_pipeline: MakePipeline, stack: embedded.Stack, serve: Serve, seed: int, tmp_path: Path
) -> None:
    pipeline, names = make_pipeline(Settings(partitions=2, extra=logged())), ("first", "second")
    workload = Workload(seed, [pipeline.source(name) for name in names], documents=150)
    workload.fill()
    pipeline.deploy()
    disks = [Disk(stack.directory, pipeline.topic(name)) for name in names]
    with serve(pipeline) as service:
        until("first round", lambda: service.rounds)
        with Writer(workload, per_second=RATE) as writer:
            writer.wait_for(OPERATIONS, timeout=OPERATIONS / 20)
        between, rounds = _passes(disks), [one for one in service.rounds if one["asked"]]
        pipeline.wait()
        documents = sum(pipeline.source(name).count_documents({}) for name in names)
        until("log as small as its documents", lambda: _records(pipeline, names) <= documents + 8, 30 + 6 * LAG, 0.5)
    print(f"{writer.applied} operations, {len(rounds)} rounds and {between} cleaner passes meanwhile,")
    print(f"{_passes(disks)} passes and {service.total('arrived')} documents read again in all; {service.said}")
    taken = sum(end - first for first, end in _ends(pipeline, names).values())
    bytes_ = sum(len(document) for name in names for document in raw.read(pipeline.source(name)))
    print(f"{taken} offsets, {_records(pipeline, names)} records, {documents} documents")
    print(f"{size(pipeline, *names)} bytes in records, {bytes_} in documents, {sum(d.bytes() for d in disks)} on disk")
    assert len(rounds) >= 3
    assert between > 0
    assert taken > OPERATIONS > _records(pipeline, names)
    assert size(pipeline, *names) <= 2 * bytes_
    assert assert_log_holds_the_source(pipeline, *names) >= 100
    with mongod.start_replica_set(tmp_path / "rebuilt", sizes=SMALL) as servers:
        towpath("replay", pipeline.file, "--destination", servers.uri)
        namespaces = {pipeline.namespace(name): pipeline.namespace(name) for name in names}
        oracle.assert_same(pipeline.addresses.source, servers.uri, namespaces, at_least=100)


def _ends(pipeline: Pipeline, names: tuple[str, ...]) -> dict[Any, tuple[int, int]]:
    topics = Topics(pipeline.addresses.bootstrap)
    existing = topics.all()
    return topics.ends([existing[pipeline.topic(name)] for name in names])


def _passes(disks: list[Disk]) -> int:
    return sum(disk.passes() for disk in disks)


def _records(pipeline: Pipeline, names: tuple[str, ...]) -> int:
    return sum(len(log.records(pipeline.addresses.bootstrap, pipeline.topic(name))) for name in names)


def test_devices_that_push_leave_a_log_of_little_more_than_their_documents(
    make_pipeline: MakePipeline, stack: embedded.Stack, serve: Serve
) -> None:
    pipeline = make_pipeline(Settings(partitions=2, extra=logged(lag=4)))
    devices, pushes = pipeline.source("devices"), Random(1)
    devices.insert_many([load.device(pushes, number, 100) for number in range(50)])
    pipeline.deploy()
    disk = Disk(stack.directory, pipeline.topic("devices"))
    with serve(pipeline) as service:
        until("first round", lambda: service.rounds)
        for turn in range(40):  # 2,000 pushes
            push = {"$push": {"readings": load.reading(pushes, 100 + turn)}}
            devices.bulk_write([UpdateOne({"_id": one["_id"]}, push) for one in devices.find({}, {"_id": 1})])
            time.sleep(0.2)
        pipeline.wait()
        last = int(time.time() * 1000)
        documents = sum(map(len, raw.read(devices)))
        until("small log", lambda: size(pipeline, "devices") <= 1.5 * documents and disk.passes() >= 2, every=0.5)
    until("last segment cleaned", lambda: time.time() * 1000 > last)
    print(f"{size(pipeline, 'devices')} bytes in records, {documents} in documents, {disk.passes()} passes")
    assert assert_log_holds_the_source(pipeline, "devices") == 50


def test_two_instances_share_the_partitions_and_one_takes_over_when_the_other_is_killed(
    make_pipeline: MakePipeline, serve: Serve
) -> None:
    pipeline = make_pipeline(Settings(extra=logged(lag=120)))
    documents = pipeline.source("docs")
    documents.insert_many([{"_id": n, "n": 0} for n in range(400)])
    pipeline.deploy()
    with serve(pipeline) as one, serve(pipeline) as other:

        def shares() -> list[int]:
            return [service.rounds[-1]["partitions"] if service.rounds else 0 for service in (one, other)]

        until("shared work", lambda: sorted(shares()) == [2, 2])
        documents.update_many({}, {"$inc": {"n": 1}})
        until("documents of both", lambda: one.total("arrived") and other.total("arrived"))
        until("all documents", lambda: one.total("arrived") + other.total("arrived") >= 400)
        assert one.total("asked") + other.total("asked") == 400
        one.process.kill()
        documents.update_many({}, {"$inc": {"n": 1}})
        until("all partitions", lambda: shares()[1] == 4)
        until("the other's documents", lambda: other.total("arrived") >= 400)
        pipeline.wait()
        other.await_rounds(1)
    assert assert_log_holds_the_source(pipeline, "docs") == 400


def broken(pipeline: Pipeline) -> set[bytes]:
    """Keys of which the log has an update and no document, by the check that a replay begins with."""
    read = pipeline_file.read(pipeline.file)
    return {one.key for one in log_check.check(read, Topics(read.bootstrap), None, None, lambda done, of: None).broken}


def break_the_rule(pipeline: Pipeline, disk: Disk, ids: list[int], other: int) -> set[bytes]:
    """Update these documents with no service, let the lag pass, and the cleaner at them."""
    documents = pipeline.source("docs")
    documents.update_many({"_id": {"$in": ids}}, {"$inc": {"n": 1}})
    pipeline.wait()

    def closed() -> bool:
        documents.replace_one({"_id": other}, {"n": time.time()})  # closes the segments before it
        return len(broken(pipeline)) == len(ids)

    until("documents that the cleaner has dropped", closed, every=1)
    return {bson.encode({"_id": Int64(n)}) for n in ids}  # as in keys


def test_a_broken_rule_is_found_and_mended_also_when_the_updates_were_committed(
    make_pipeline: MakePipeline, stack: embedded.Stack
) -> None:
    pipeline = make_pipeline(Settings(partitions=1, extra=logged(lag=2)))
    pipeline.source("docs").insert_many([{"_id": n, "n": 0} for n in range(50)])
    pipeline.deploy()
    pipeline.wait()
    disk = Disk(stack.directory, pipeline.topic("docs"))
    keys = break_the_rule(pipeline, disk, list(range(20)), 49)
    assert broken(pipeline) == keys
    assert "has not been at" in towpath("status", pipeline.file).stdout
    said = towpath("compact", pipeline.file, "--once").stdout
    assert "asked for 2" in said
    assert "oldest unprotected update: none" in said
    assert broken(pipeline) == set()
    keys = break_the_rule(pipeline, disk, list(range(10, 30)), 49)
    commit_the_end(pipeline)
    assert "asked for 0" in towpath("compact", pipeline.file, "--once").stdout
    assert broken(pipeline) == keys
    towpath("compact", pipeline.file, "--once", "--from-beginning")
    assert broken(pipeline) == set()
    pipeline.wait()
    assert assert_log_holds_the_source(pipeline, "docs") == 50


def commit_the_end(pipeline: Pipeline) -> None:
    """As if somebody had moved the group's offsets by hand."""
    place = (pipeline.topic("docs"), 0)
    _, end = _ends(pipeline, ("docs",))[place]
    group, admin = f"{pipeline.name}-compact", AdminClient({"bootstrap.servers": pipeline.addresses.bootstrap})
    wanted = ConsumerGroupTopicPartitions(group, [TopicPartition(*place, end)])
    admin.alter_consumer_group_offsets([wanted])[group].result(30)


def test_the_cleaner_is_let_at_an_old_log_once_it_is_protected_and_taken_off_again(
    make_pipeline: MakePipeline,
) -> None:
    pipeline = make_pipeline(Settings(partitions=2, extra=logged(compact=False)))
    pipeline.source("docs").insert_many([{"_id": n} for n in range(20)])
    pipeline.deploy()
    pipeline.source("docs").update_many({}, {"$set": {"v": 1}})
    pipeline.wait()
    assert "is not compacted: it keeps every record" in towpath("compact", pipeline.file, "--once", expect=2).stderr
    file = pipeline.file.read_text()
    pipeline.file.write_text(file.replace("compact = false", "compact = true"))
    assert "`towpath deploy` sets" in towpath("compact", pipeline.file, "--once", expect=2).stderr
    assert "--every 3s is more than half" in towpath("compact", pipeline.file, "--every", "3s", expect=2).stderr
    assert "follows when `towpath compact`" in towpath("deploy", pipeline.file).stderr
    assert policy(pipeline)["cleanup.policy"] == "delete"
    assert "not compacted yet" in towpath("status", pipeline.file).stdout
    assert "is let at it" in towpath("compact", pipeline.file, "--once").stderr
    assert policy(pipeline)["cleanup.policy"] == "compact"
    assert "nothing to change" in towpath("deploy", pipeline.file).stdout
    found = pipeline.status()["log"]
    assert [(one["dirty"], one["compacted"]) for one in found["topics"]] == [(0, True)]
    assert found["warnings"] == []
    pipeline.file.write_text(file)
    assert "cleanup.policy=compact: " in towpath("check", pipeline.file, expect=1).stdout
    towpath("deploy", pipeline.file)
    assert policy(pipeline) == {"cleanup.policy": "delete", "min.compaction.lag.ms": str(LAG * 1000)}


def policy(pipeline: Pipeline) -> dict[str, str]:
    found = Topics(pipeline.addresses.bootstrap).settings(pipeline.topic("docs"))
    return {key: found[key] for key in ("cleanup.policy", "min.compaction.lag.ms")}


def test_many_dirty_documents_are_asked_for_before_memory_fills(
    make_pipeline: MakePipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = make_pipeline(Settings(partitions=1, extra=logged(lag=600)))
    pipeline.source("docs").insert_many([{"_id": n} for n in range(2_000)])
    pipeline.deploy()
    pipeline.source("docs").update_many({}, {"$set": {"v": 1}})
    pipeline.wait()
    read, most = pipeline_file.read(pipeline.file), list[int]()
    topics = Topics(read.bootstrap)
    monkeypatch.setattr(compacting, "MOST_DIRTY", 300)
    monkeypatch.setattr(compacting, "_SLICE", 0.001)
    with Connect(read.connect_url) as connect, closing(Reader(read, topics, from_beginning=False)) as reader:
        take = reader.read
        monkeypatch.setattr(reader, "read", lambda seconds: (take(seconds), most.append(reader.dirty)))
        compactor = Compactor(read, read.compaction, connect, topics, reader, print, lambda key: "", 200)
        done = compactor.round()
    assert (done.dirty, done.unreadable) == (0, 0)
    assert 300 < max(most) < 1_500
    assert assert_log_holds_the_source(pipeline, "docs") == 2_000


def test_the_service_outlives_kafka_and_connect_and_waits_for_a_paused_source(
    make_pipeline: MakePipeline, stack: embedded.Stack, serve: Serve
) -> None:
    pipeline = make_pipeline(Settings(partitions=2, extra=logged(lag=12)))
    documents = pipeline.source("docs")
    documents.insert_many([{"_id": n} for n in range(100)])
    pipeline.deploy()
    with serve(pipeline) as service:
        until("first round", lambda: service.rounds)
        embedded.kill(stack.directory, "connect-0")
        embedded.kill(stack.directory, "kafka")
        documents.update_many({}, {"$set": {"v": 1}})
        embedded.start(stack.directory, "kafka")
        embedded.start(stack.directory, "connect-0")
        until("documents read again", lambda: service.total("arrived") >= 100, timeout=120)
        pipeline.wait()
        service.await_rounds(1)
    assert assert_log_holds_the_source(pipeline, "docs") == 100
