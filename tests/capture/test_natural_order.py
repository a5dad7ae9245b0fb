"""A copy in natural order, of several cluster times, under changes of every kind: both sides are equal after it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pymongo import MongoClient

from tests.conftest import MakePipeline
from tests.support import control, log, mongod, raw, rest
from tests.support.awaited import until
from tests.support.mongod import MongodSizes
from tests.support.pipeline import Addresses, Pipeline, Settings, towpath
from tests.support.progress import reach
from tests.support.workload import Workload
from tests.support.writer import Writer
from towpath import stack as embedded

pytestmark = pytest.mark.servers

WORKER = "connect-0"
PADDING = b"\0" * 4_000_000


@pytest.mark.nightly
def test_changes_during_a_copy_in_natural_order_leave_both_sides_equal(
    make_pipeline: MakePipeline, stack: embedded.Stack, source_client: raw.Client, seed: int, nightly: bool
) -> None:
    """The source keeps its states for so short that pieces are of several. By night the worker is killed."""
    pipeline = make_pipeline(
        Settings(capture={"copy_order": "natural", "documents_per_second": 250 if nightly else 75})
    )
    count = 4000 if nightly else 1000
    changes = Workload(seed, [pipeline.source("scattered")], documents=count)
    changes.fill()
    _spread(pipeline.source("scattered"))
    with _snapshot_window(source_client, 5), Writer(changes, per_second=150) as writer:
        writer.wait_for(100)
        pipeline.deploy()
        reach(pipeline, "copy")
        writer.wait_for(writer.applied + 300)
        if nightly:
            control.kill(stack.directory, WORKER)
            try:
                writer.wait_for(writer.applied + 100)
            finally:
                control.start(stack.directory, WORKER)
        until("end of the copy", lambda: pipeline.status()["copy"]["done"], timeout=120, every=1)
        writer.wait_for(writer.applied + 300)
    pipeline.wait()
    print(changes.statistics)
    pipeline.assert_same("scattered", at_least=count // 2)
    towpath("pause", pipeline.file)  # heartbeats end
    heartbeats = _heartbeats(pipeline)
    assert any(b"pieces in natural order" in text for text in heartbeats), "the copy read ranges of _ids"
    assert any(b"are to be re-read" in text for text in heartbeats), "nothing was pending"


@pytest.mark.nightly
def test_a_copy_in_natural_order_stays_with_its_member_when_that_steps_down(
    tmp_path: Path, addresses: Addresses, destination_client: raw.Client, seed: int
) -> None:
    """Another member has other record ids."""
    sizes = MongodSizes(cache_gb=0.25, oplog_mb=256)
    with (
        mongod.start_replica_set(tmp_path / "three", name="three", nodes=3, sizes=sizes) as three,
        MongoClient[dict[str, Any]](three.uri) as client,
    ):
        name = f"t{Random().randrange(2**31):x}"
        settings = Settings(capture={"copy_order": "natural", "documents_per_second": 100})
        ours = replace(addresses, source=three.uri)
        pipeline = Pipeline(name, tmp_path / f"{name}.toml", ours, client, destination_client, settings)
        try:
            changes = Workload(seed, [pipeline.source("scattered")], documents=3000)
            changes.fill()
            _spread(pipeline.source("scattered"))
            pipeline.deploy()
            reach(pipeline, "copy")
            before = client.admin.command("hello")["me"]
            client.admin.command({"replSetStepDown": 120, "force": True})
            until("another primary", lambda: client.admin.command("hello")["me"] != before)
            members = {plan["member"] for plan in _plans(pipeline)}
            changes.run(500)
            members |= {plan["member"] for plan in _plans(pipeline)}  # none once the copy is over
            pipeline.wait()
            pipeline.assert_same("scattered", at_least=1500)
            assert members == {before}
            assert not any("abandoned" in offset for offset in _offsets(pipeline, {"towpath"}))
        finally:
            towpath("remove", pipeline.file, "--topics", "--yes")
            destination_client.drop_database(name)


def _plans(pipeline: Pipeline) -> list[dict[str, Any]]:
    return _offsets(pipeline, {"towpath", "namespace"})


def _offsets(pipeline: Pipeline, partition: set[str]) -> list[dict[str, Any]]:
    """The source connector's offsets of partitions with these names."""
    answer = rest.get(f"{pipeline.addresses.connect}/connectors/{pipeline.name}-source/offsets")
    return [item["offset"] for item in answer.json()["offsets"] if set(item["partition"]) == partition]


def _spread(collection: raw.Documents) -> None:
    """Has the documents stored in several pieces, of about 16 MB each."""
    documents = list(collection.find())
    collection.drop()
    for at in range(0, len(documents), 200):
        collection.insert_many(documents[at : at + 200])
        collection.insert_one({"_id": f"padding {at}", "padding": PADDING})


@contextmanager
def _snapshot_window(client: raw.Client, seconds: int) -> Iterator[None]:
    name = "minSnapshotHistoryWindowInSeconds"
    before = client.admin.command({"getParameter": 1, name: 1})[name]
    client.admin.command({"setParameter": 1, name: seconds})
    try:
        yield
    finally:
        client.admin.command({"setParameter": 1, name: before})


def _heartbeats(pipeline: Pipeline) -> list[bytes]:
    config = rest.get(f"{pipeline.addresses.connect}/connectors/{pipeline.name}-source/config").json()
    records = log.records(pipeline.addresses.bootstrap, f"__debezium-heartbeat.{config['topic.prefix']}")
    return [record.value or b"" for record in records]
