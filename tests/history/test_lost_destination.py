"""The destination is lost with its disks, and rebuilt on a new set as `docs/how-to/rebuild.md` says."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from pymongo import MongoClient

from tests.conftest import MakePipeline
from tests.support import commands, mongod, raw
from tests.support.mongod import MongodSizes, Servers
from tests.support.pipeline import Pipeline, Settings, towpath
from tests.support.workload import Workload
from towpath.stack import processes, ready

pytestmark = [pytest.mark.servers, pytest.mark.nightly]

SIZES = MongodSizes(cache_gb=0.25, oplog_mb=200)


def at(pipeline: Pipeline, uri: str, client: raw.Client) -> Pipeline:
    """The pipeline with another destination in its file."""
    changed = replace(pipeline, addresses=replace(pipeline.addresses, destination=uri), destination_client=client)
    changed.write()
    return changed


def emptied(servers: Servers, name: str) -> Servers:
    """Start servers that have ended again, at the same addresses and with new disks."""
    ports = [process.port for process in servers.processes.values()]
    for process in servers.processes.values():
        place = servers.directory / "data" / process.name
        shutil.rmtree(place)
        place.mkdir()
    again = {name: processes.spawn(process) for name, process in servers.processes.items()}
    ready.await_ready({name: ready.replica_set_check(name, ports)}, again.values(), 60, print)
    return Servers(servers.directory, servers.uri, again)


def rebuilt(pipeline: Pipeline, *options: str, expect: int = 0) -> dict[str, Any]:
    """What it says of itself."""
    words = ("replay", pipeline.file, "--rebuild", "--yes", "--json", *options)
    found: dict[str, Any] = json.loads(towpath(*words, expect=expect).stdout)
    return found


def test_it_is_rebuilt_on_a_new_set_with_other_addresses(
    make_pipeline: MakePipeline, tmp_path: Path, seed: int
) -> None:
    pipeline = make_pipeline(Settings(rename={"docs": "papers"}))
    load = Workload(seed, [pipeline.source("docs"), pipeline.source("more")], documents=300)
    load.fill()
    pipeline.source("docs").create_index("x")
    with (
        mongod.start_replica_set(tmp_path / "lost", name="lost", sizes=SIZES) as lost,
        MongoClient[dict[str, Any]](lost.uri) as client,
    ):
        before = at(pipeline, lost.uri, client)
        before.deploy()
        load.run(500)
        before.wait()
    load.run(300)  # the capture continues
    with (
        mongod.start_replica_set(tmp_path / "new", name="new", sizes=SIZES) as new,
        MongoClient[dict[str, Any]](new.uri) as client,
    ):
        assert "would read about" in towpath("replay", pipeline.file, "--dry-run").stdout
        towpath("remove", pipeline.file, "--topics", "--yes", expect=2)  # deletes no log without the destination
        after = at(pipeline, new.uri, client)
        said = towpath("deploy", after.file, expect=2).stderr
        assert "was deployed with the destination lost/" in said and "keep the log" in said
        before.write()
        towpath("remove", pipeline.file)
        after.write()
        towpath("deploy", after.file)
        found = rebuilt(after)
        assert found["whole"], found
        after.wait()
        towpath("prepare", after.file)
        towpath("verify", after.file)
        after.assert_same("docs", "more", at_least=200)
        assert "x_1" in after.destination("docs").index_information()
        load.run(200)
        after.wait()
        after.assert_same("docs", "more", at_least=200)
        after.discard()


def test_it_is_rebuilt_at_the_same_addresses_with_new_disks(
    make_pipeline: MakePipeline, tmp_path: Path, seed: int
) -> None:
    pipeline = make_pipeline(Settings())
    load = Workload(seed, [pipeline.source("docs")], documents=300)
    load.fill()
    with mongod.start_replica_set(tmp_path / "lost", name="lost", sizes=SIZES) as servers:
        with MongoClient[dict[str, Any]](servers.uri) as client:
            before = at(pipeline, servers.uri, client)
            before.deploy()
            load.run(500)
            before.wait()
        servers.stop()
        with emptied(servers, "lost") as again, MongoClient[dict[str, Any]](again.uri) as client:
            load.run(300)  # while the sink has positions that the new set does not know
            after = at(pipeline, again.uri, client)
            assert "does not know" in towpath("replay", after.file, "--rebuild", "--yes", expect=2).stderr
            towpath("remove", after.file)
            towpath("deploy", after.file)
            found = rebuilt(after)
            assert found["whole"], found
            load.run(200)
            after.wait()
            towpath("verify", after.file)
            after.assert_same("docs", at_least=100)
            after.discard()


@pytest.mark.parametrize("again", ["repair", "resnapshot"])
def test_what_the_log_lacks_comes_from_the_source(make_pipeline: MakePipeline, tmp_path: Path, again: str) -> None:
    pipeline = make_pipeline(Settings(partitions=1))
    docs = pipeline.source("docs")
    docs.insert_many([{"_id": n} for n in range(1_000)])
    pipeline.source("more").insert_many([{"_id": n} for n in range(100)])
    with (
        mongod.start_replica_set(tmp_path / "lost", name="lost", sizes=SIZES) as lost,
        MongoClient[dict[str, Any]](lost.uri) as client,
    ):
        before = at(pipeline, lost.uri, client)
        before.deploy()
        before.wait()
        kafka = AdminClient({"bootstrap.servers": pipeline.addresses.bootstrap})
        for future in kafka.delete_records([TopicPartition(pipeline.topic("docs"), 0, 600)]).values():
            future.result(timeout=30)
    docs.insert_one({"_id": 1_000})
    with (
        mongod.start_replica_set(tmp_path / "new", name="new", sizes=SIZES) as new,
        MongoClient[dict[str, Any]](new.uri) as client,
    ):
        towpath("remove", pipeline.file)
        after = at(pipeline, new.uri, client)
        deployed = commands.run(["deploy", str(after.file)], 600)  # the sink may have failed by then
        assert not deployed.returncode or "TWP-LOG-GAP" in deployed.stderr, deployed
        assert "nothing was changed" in towpath("replay", after.file, "--rebuild", "--yes", expect=1).stderr
        found = rebuilt(after, "--force", expect=1)
        assert [one["namespace"] for one in found["missing"]][:1] == [pipeline.namespace("docs")]
        after.wait()
        if again == "repair":
            towpath("verify", after.file, expect=1)
            towpath("repair", after.file, "--yes")
        else:
            towpath("resnapshot", after.file, "--only", pipeline.namespace("docs"), "--yes")
        towpath("verify", after.file)
        after.assert_same("docs", "more", at_least=1_100)
        after.discard()
