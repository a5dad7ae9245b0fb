"""Kafka's cleaner works on the log while the source changes, and the log still holds every document, and no other."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from pathlib import Path
from random import Random
from typing import Any

import bson
import pytest
from bson import Int64
from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient
from pymongo import UpdateOne

from benchmarks.bench import load
from tests.conftest import MakePipeline
from tests.support import bsonbytes, cleaner, control, fuzz, log, mongod, oracle, raw
from tests.support.awaited import until
from tests.support.cleaner import Disk
from tests.support.compactor import Service
from tests.support.mongod import MongodSizes
from tests.support.pipeline import Pipeline, Settings, towpath
from tests.support.ticker import Ticker
from tests.support.workload import Workload
from tests.support.writer import Writer
from towpath import stack as embedded
from towpath.clients.kafka.topics import Topics
from towpath.clients.mongo.client import ClusterTime, cluster_time
from towpath.config import loading as pipeline_file
from towpath.config.events import Pass
from towpath.history import compaction
from towpath.history.compaction import Compactor, Reader
from towpath.log import integrity
from towpath.log.records import Chunks, is_chunk
from towpath.session import opened

pytestmark = pytest.mark.servers

OPERATIONS = 1500 * fuzz.TIMES
RATE = 150  # operations a second
LAG = 3  # seconds
SMALL = MongodSizes(0.25, 64)


def logged(compact: bool = True, lag: int = LAG, delete_retention: int = 3600) -> str:
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


@pytest.mark.nightly
def test_a_cleaned_log_rebuilds_every_document_and_no_deleted_one(
    make_pipeline: MakePipeline, stack: embedded.Stack, serve: Serve, seed: int, tmp_path: Path
) -> None:
    settings = Settings(partitions=2, extra=logged(delete_retention=4 * LAG))
    pipeline, names = make_pipeline(settings), ("first", "second", "devices")
    workload = Workload(seed, [pipeline.source(name) for name in names[:2]], documents=150)
    workload.fill()
    devices = Devices(pipeline.source("devices"))
    pipeline.deploy()
    disks = {name: Disk(stack.directory, pipeline.topic(name)) for name in names}
    with serve(pipeline) as service:
        until("first pass", lambda: service.passes)
        with Writer(workload, per_second=RATE) as writer, Ticker(0.2, devices.push) as pushes:
            writer.wait_for(OPERATIONS, timeout=OPERATIONS / 20)
            until("passes", lambda: len([one for one in service.passes if one["asked"]]) >= 3)
            until("cleaner passes", lambda: all(disk.passes() for disk in disks.values()))
        between, passes = sum(disk.passes() for disk in disks.values()), len(service.passes)
        pipeline.wait()
        small = bytes_of_documents(pipeline, names)["documents"] + 12  # documents that close segments
        until(
            "log as small as its documents", lambda: bytes_of_log(pipeline, names)["records"] <= small, 60 + 6 * LAG, 1
        )
    print(f"{writer.applied} operations, {pushes.done * 50} pushes, {passes} passes and {between} cleaner passes;")
    print(f"{service.total('arrived')} documents read again in all; {service.said}")
    for name, most in zip(names, (2, 2, 1.5), strict=True):
        found, documents = bytes_of_log(pipeline, (name,)), bytes_of_documents(pipeline, (name,))
        print(name, found, documents, f"{disks[name].passes()} passes, {disks[name].bytes()} bytes on disk")
        assert found["offsets"] > 3 * found["records"]
        assert found["bytes"] <= most * documents["bytes"]
    assert assert_log_holds_the_source(pipeline, *names) >= 150
    with mongod.start_replica_set(tmp_path / "rebuilt", sizes=SMALL) as servers:
        towpath("replay", pipeline.file, "--destination", servers.uri)
        namespaces = {pipeline.namespace(name): pipeline.namespace(name) for name in names}
        oracle.assert_same(pipeline.addresses.source, servers.uri, namespaces, at_least=150)


class Devices:
    """Fifty devices, each with a document that it pushes readings to."""

    def __init__(self, documents: raw.Documents) -> None:
        self._documents, self._random, self._pushed = documents, Random(1), 100
        documents.insert_many([load.device(self._random, number, self._pushed) for number in range(50)])
        self._ids = documents.distinct("_id")

    def push(self) -> None:
        push = {"$push": {"readings": load.reading(self._random, self._pushed)}}
        self._documents.bulk_write([UpdateOne({"_id": one}, push) for one in self._ids])
        self._pushed += 1


def bytes_of_log(pipeline: Pipeline, names: Sequence[str]) -> dict[str, int]:
    """What is in the log: records with the bytes of their keys, values and headers, and the offsets that were given."""
    bootstrap = pipeline.addresses.bootstrap
    found = [one for name in names for one in log.records(bootstrap, pipeline.topic(name))]
    headers = sum(len(name) + len(text) for one in found for name, text in one.headers.items())
    size = headers + sum(len(one.key or b"") + len(one.value or b"") for one in found)
    offsets = sum(end - first for first, end in ends(pipeline, names).values())
    return {"offsets": offsets, "records": len(found), "bytes": size}


def bytes_of_documents(pipeline: Pipeline, names: Sequence[str]) -> dict[str, int]:
    found = [len(document) for name in names for document in raw.read(pipeline.source(name))]
    return {"documents": len(found), "bytes": sum(found)}


def ends(pipeline: Pipeline, names: Sequence[str]) -> dict[Any, tuple[int, int]]:
    topics = Topics(pipeline.addresses.bootstrap)
    existing = topics.all()
    return topics.ends([existing[pipeline.topic(name)] for name in names])


@pytest.mark.nightly
def test_two_instances_share_and_one_goes_on_when_the_other_kafka_and_connect_are_killed(
    make_pipeline: MakePipeline, stack: embedded.Stack, serve: Serve
) -> None:
    pipeline = make_pipeline(Settings(extra=logged(lag=120)))
    documents = pipeline.source("docs")
    documents.insert_many([{"_id": n, "n": 0} for n in range(400)])
    pipeline.deploy()
    pipeline.wait()
    with serve(pipeline) as one, serve(pipeline) as other:

        def shares() -> list[int]:
            return [service.passes[-1]["partitions"] if service.passes else 0 for service in (one, other)]

        until("shared work", lambda: shares() == [2, 2])
        documents.update_many({}, {"$inc": {"n": 1}})
        until("all documents", lambda: one.total("arrived") + other.total("arrived") >= 400)
        assert min(one.total("asked"), other.total("asked")) > 0
        assert one.total("asked") + other.total("asked") == 400
        one.process.kill()
        for name in ("connect-0", "kafka"):
            control.kill(stack.directory, name)
        documents.update_many({}, {"$inc": {"n": 1}})
        before = other.total("arrived")
        for name in ("kafka", "connect-0"):
            control.start(stack.directory, name)
        until("all documents once more", lambda: other.total("arrived") >= before + 400, 120)
        assert shares()[1] == 4
        pipeline.wait()
    assert assert_log_holds_the_source(pipeline, "docs") == 400


@pytest.mark.nightly
def test_the_cleaner_removes_the_chunks_of_replaced_and_deleted_documents_and_no_others(
    make_pipeline: MakePipeline, seed: int, tmp_path: Path
) -> None:
    pipeline = make_pipeline(Settings(partitions=2, kafka={"max_record": "1MiB"}, extra=logged()))
    documents, random = pipeline.source("docs"), Random(seed)
    pipeline.create("docs")
    pipeline.deploy()
    with (
        opened(pipeline.file) as session,
        closing(Reader(session.pipeline, session.topics, from_beginning=False)) as reader,
    ):
        compactor = Compactor(session, reader, decided_ms=1_000)
        for _ in range(40):
            one = random.randrange(6)
            match random.choice(("large", "large", "small", "part", "delete")):
                case "large":
                    documents.replace_one({"_id": one}, {"x": random.randbytes(random.randrange(2, 5) << 20)}, True)
                case "small":
                    documents.replace_one({"_id": one}, {"x": 1}, True)
                case "part":
                    documents.update_one({"_id": one}, {"$set": {"y": random.randbytes(2 << 20)}}, True)
                case "delete":
                    documents.delete_one({"_id": one})
            documents.update_one({"_id": 100 + random.randrange(10)}, {"$inc": {"n": 1}}, True)
            compactor.run_pass()
            compactor.pause(0.1)

        def is_small() -> bool:
            documents.update_many({"_id": {"$gte": 100}}, {"$inc": {"n": 1}})
            compactor.run_pass()
            compactor.sweep_all()
            return chunks_in(pipeline) == needed_chunks(pipeline)

        until("log with no chunk that no document needs", is_small, 40 * LAG, 1)
    pipeline.wait()
    assert needed_chunks(pipeline), "a document is in chunks"
    pipeline.assert_same("docs", at_least=10)
    with mongod.start_replica_set(tmp_path / "rebuilt", sizes=SMALL) as servers:
        towpath("replay", pipeline.file, "--destination", servers.uri)
        namespaces = {pipeline.namespace("docs"): pipeline.namespace("docs")}
        oracle.assert_same(pipeline.addresses.source, servers.uri, namespaces, at_least=10)


def chunks_in(pipeline: Pipeline) -> set[tuple[bytes, bytes]]:
    """The ids of values and the keys of the chunks that the log has, tombstones left out."""
    last = newest(pipeline, "docs")
    return {(Chunks.id_in(key), key) for key, value in last.items() if is_chunk(key) and value is not None}


def needed_chunks(pipeline: Pipeline) -> set[tuple[bytes, bytes]]:
    """Those that the last record of a document names."""
    found = [named for value in newest(pipeline, "docs").values() if (named := Chunks.named_in(value))]
    ids = {named.id for named in found}
    needed = {(id, key) for id, key in chunks_in(pipeline) if id in ids}
    assert len(needed) == sum(named.count for named in found), "a chunk is missing"
    return needed


def broken(pipeline: Pipeline) -> set[bytes]:
    """Keys of which the log has an update and no document, by the check that a replay begins with."""
    read = pipeline_file.read(pipeline.file)
    return {
        one.key for one in integrity.check(read, Topics(read.kafka.bootstrap), None, None, lambda done, of: None).broken
    }


def break_the_rule(pipeline: Pipeline, ids: list[int], other: int) -> set[bytes]:
    """Update these documents with no service, let the lag pass, and the cleaner at them."""
    documents = pipeline.source("docs")
    documents.update_many({"_id": {"$in": ids}}, {"$inc": {"n": 1}})
    pipeline.wait()

    def closed() -> bool:
        documents.replace_one({"_id": other}, {"n": time.time()})  # closes the segments before it
        return len(broken(pipeline)) == len(ids)

    until("documents that the cleaner has dropped", closed, every=1)
    return {bson.encode({"_id": Int64(n)}) for n in ids}  # as in keys


@pytest.mark.nightly
def test_a_broken_rule_is_found_and_repaired_also_when_the_updates_were_committed(make_pipeline: MakePipeline) -> None:
    pipeline = make_pipeline(Settings(partitions=1, extra=logged(lag=2)))
    pipeline.source("docs").insert_many([{"_id": n, "n": 0} for n in range(50)])
    pipeline.deploy()
    pipeline.wait()
    keys = break_the_rule(pipeline, list(range(20)), 49)
    assert broken(pipeline) == keys
    assert "has not read" in towpath("status", pipeline.file).stdout
    said = towpath("compact", pipeline.file, "--once").stdout
    assert "requested 2" in said
    assert "oldest unprotected update: none" in said
    assert broken(pipeline) == set()
    keys = break_the_rule(pipeline, list(range(10, 30)), 49)
    commit_the_end(pipeline)
    assert "requested 0" in towpath("compact", pipeline.file, "--once").stdout
    assert broken(pipeline) == keys
    towpath("compact", pipeline.file, "--once", "--from-beginning")
    assert broken(pipeline) == set()
    pipeline.wait()
    assert assert_log_holds_the_source(pipeline, "docs") == 50


def commit_the_end(pipeline: Pipeline) -> None:
    """As if someone had moved the group's offsets by hand."""
    place = (pipeline.topic("docs"), 0)
    _, end = ends(pipeline, ("docs",))[place]
    group, admin = f"{pipeline.name}-compact", AdminClient({"bootstrap.servers": pipeline.addresses.bootstrap})
    wanted = ConsumerGroupTopicPartitions(group, [TopicPartition(*place, end)])
    admin.alter_consumer_group_offsets([wanted])[group].result(30)


@pytest.mark.nightly
def test_the_cleaner_is_let_at_an_old_log_once_it_is_protected_and_taken_off_again(
    make_pipeline: MakePipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = make_pipeline(Settings(partitions=2, extra=logged(compact=False, lag=600)))
    pipeline.source("docs").insert_many([{"_id": n} for n in range(900)])
    pipeline.deploy()
    pipeline.wait()  # the copy is over, so that these come as updates
    pipeline.source("docs").update_many({}, {"$set": {"v": 1}})
    pipeline.wait()
    assert "is not compacted: it keeps every record" in towpath("compact", pipeline.file, "--once", expect=2).stderr
    file = pipeline.file.read_text()
    pipeline.file.write_text(file.replace("compact = false", "compact = true"))
    assert "`towpath deploy`, which applies" in towpath("compact", pipeline.file, "--once", expect=2).stderr
    assert "--every 301s is more than half" in towpath("compact", pipeline.file, "--every", "301s", expect=2).stderr
    assert "`towpath compact` sets cleanup.policy later" in towpath("deploy", pipeline.file).stderr
    assert policy(pipeline)["cleanup.policy"] == "delete"
    until("log that is not compacted yet", lambda: "not compacted yet" in _shown(pipeline))
    assert compact_with_little_memory(pipeline, monkeypatch).switched_on == (pipeline.topic("docs"),)
    assert assert_log_holds_the_source(pipeline, "docs") == 900
    assert policy(pipeline)["cleanup.policy"] == "compact"
    assert "nothing to change" in towpath("deploy", pipeline.file).stdout
    found = pipeline.status()["log"]
    assert [(one["unprotected_documents"], one["compacted"]) for one in found["topics"]] == [(0, True)]
    assert found["warnings"] == []
    earliest = [earliest_point(pipeline)]
    for lag in ("1s", "600s"):  # what may be gone with the short one is not promised again with the long one
        text = pipeline.file.read_text()
        pipeline.file.write_text(re.sub(r'compaction_lag = "\d+s"', f'compaction_lag = "{lag}"', text))
        towpath("deploy", pipeline.file)
        earliest.append(earliest_point(pipeline))
    assert earliest[0] < earliest[1] <= earliest[2]
    pipeline.file.write_text(file)
    assert "cleanup.policy=compact: " in towpath("check", pipeline.file, expect=1).stdout
    towpath("deploy", pipeline.file)
    assert policy(pipeline) == {"cleanup.policy": "delete", "min.compaction.lag.ms": "600000"}


@pytest.mark.nightly
def test_documents_of_a_dropped_collection_are_not_re_read_as_that_would_delete_them(
    make_pipeline: MakePipeline,
) -> None:
    """The only copy is at the destination, until someone decides; also when the application makes the name again."""
    pipeline = make_pipeline(Settings(partitions=1, extra=logged(lag=600)))
    pipeline.source("docs").insert_many([{"_id": n} for n in range(5)])
    pipeline.source("others").insert_one({"_id": 1})
    pipeline.deploy()
    pipeline.wait()
    pipeline.source("docs").update_many({}, {"$set": {"n": 1}})
    pipeline.wait()
    pipeline.source("docs").drop()
    for _ in range(2):
        until("drop that is seen", lambda: "was dropped" in towpath("ddl", pipeline.file, expect=1).stdout)
        said = towpath("compact", pipeline.file, "--once", expect=1)
        assert "requested 0 documents, 0 arrived, 5 cannot be requested" in said.stdout
        assert "has dropped or renamed" in said.stderr
        pipeline.source("docs").replace_one({"_id": 9}, {}, upsert=True)
        pipeline.wait()
    assert {one["_id"] for one in pipeline.destination("docs").find()} == {0, 1, 2, 3, 4, 9}


def earliest_point(pipeline: Pipeline) -> ClusterTime:
    """The earliest point in time that a replay accepts."""
    return cluster_time(json.loads(towpath("replay", pipeline.file, "--dry-run", "--json").stdout)["earliest"])


def _shown(pipeline: Pipeline) -> str:
    """The status; nothing while the sink takes up its new settings."""
    with suppress(AssertionError):
        return towpath("status", pipeline.file).stdout
    return ""


def policy(pipeline: Pipeline) -> dict[str, str]:
    topic = pipeline.topic("docs")
    found = Topics(pipeline.addresses.bootstrap).settings_of_all([topic], ("cleanup.policy", "min.compaction.lag.ms"))
    return found[topic]


def compact_with_little_memory(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> Pass:
    """A pass in this process, which is to keep 300 documents at most, and those that one look at the log brings."""
    most = list[int]()
    monkeypatch.setattr(compaction, "MOST_DIRTY", 300)
    monkeypatch.setattr(compaction, "_READ_S", 0.001)
    with (
        opened(pipeline.file) as session,
        closing(Reader(session.pipeline, session.topics, from_beginning=False)) as reader,
    ):
        take = reader.read
        monkeypatch.setattr(reader, "read", lambda seconds: (take(seconds), most.append(reader.dirty)))
        done = Compactor(session, reader, 200).run_pass()
    assert (done.dirty, done.unreadable) == (0, 0)
    assert 300 < max(most) < 900
    return done
