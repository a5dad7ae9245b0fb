"""Kafka's cleaner works on the log while the source changes, and the log still holds every document, and no other."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import bson
import pytest
from bson import ObjectId
from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient

import stack as embedded
from connectors import compacting, log_check
from connectors.connect import Connect
from connectors.spec import Compaction
from connectors.topics import Topics
from connectors.unprotected_reader import Reader
from stack import mongod
from stack.mongod import MongodSizes
from tests.conftest import MakePipeline
from tests.support import bsonbytes, cleaner, log, oracle, raw
from tests.support.awaited import until
from tests.support.cleaner import Disk
from tests.support.compactor import Service
from tests.support.pipeline import Pipeline, Settings, towpath
from tests.support.workload import Workload
from towpath import pipeline as pipeline_file

OPERATIONS = int(os.environ.get("TOWPATH_TEST_COMPACTED_OPERATIONS", "2500"))
TURNS, LAG = 4, 6  # seconds of lag
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
        for _ in range(TURNS):
            passes, asked = _passes(disks), service.total("asked")
            workload.run(OPERATIONS // TURNS)
            until("documents read again", lambda asked=asked: service.total("asked") > asked)
            until("cleaner", lambda passes=passes: _passes(disks) > passes)
        pipeline.wait()
        documents = sum(pipeline.source(name).count_documents({}) for name in names)
        until("log as small as its documents", lambda: _records(pipeline, names) <= documents + 8, every=0.5)
        print(service.said)
    rounds = [one for one in service.rounds if one["asked"]]
    print(f"{OPERATIONS} operations, {len(rounds)} rounds that asked for {service.total('asked')} documents,")
    print(f"{_passes(disks)} cleaner passes, {workload.statistics.effective['delete']} deletes")
    taken = sum(end - first for first, end in _ends(pipeline, names).values())
    bytes_ = sum(len(document) for name in names for document in raw.read(pipeline.source(name)))
    print(f"{taken} offsets, {_records(pipeline, names)} records, {documents} documents")
    print(f"{size(pipeline, *names)} bytes in records, {bytes_} in documents, {sum(d.bytes() for d in disks)} on disk")
    assert len(rounds) >= TURNS
    assert "WARNING" not in service.said
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
