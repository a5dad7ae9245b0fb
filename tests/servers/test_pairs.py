"""Pairs of versions of MongoDB, each on a separate stack. `scripts/test --servers` runs the whole core on each.

TOWPATH_TEST_MONGOD names a mongod of yours, such as one of 8.0, which then is a pair with itself.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pymongo import MongoClient

from tests.capture.test_oversized import CHANGE_ALL, long_named
from tests.servers.pairs import PAIRS, Pair
from tests.support import control, log, mongod, mongods, oracle
from tests.support.acknowledged import AcknowledgedWriter
from tests.support.awaited import until
from tests.support.clock import Clock
from tests.support.cutover import cutover, fail_back, indexes
from tests.support.pipeline import Addresses, Pipeline, Settings, towpath
from tests.support.workload import Workload
from tests.support.writer import Writer
from towpath import stack as embedded
from towpath.clients.mongo.versions import WRITE_BLOCK

pytestmark = [pytest.mark.servers, pytest.mark.nightly]

_OWN = os.environ.get("TOWPATH_TEST_MONGOD", "")
EVERYTHING = Settings()
COLLECTIONS = ("large", "mixed", "orders", "users")


def program(version: str) -> Path:
    return Path(version) if "/" in version else mongods.mongod(version)


def number(client: MongoClient[dict[str, Any]]) -> tuple[int, ...]:
    return tuple(client.server_info()["versionArray"][:2])


@contextmanager
def pipeline_of(pair: Pair, folder: Path, settings: Settings = EVERYTHING) -> Iterator[Pipeline]:
    """A pipeline on a stack of these versions, not deployed yet."""
    options = embedded.StackOptions(
        folder / "stack", source_mongod=program(pair.source), destination_mongod=program(pair.destination)
    )
    begun = time.monotonic()
    try:
        stack = embedded.up(options, print)
        places = stack.source, stack.destination
        with Clock(stack.source), MongoClient[Any](places[0]) as source, MongoClient[Any](places[1]) as destination:
            if pair.level:
                source.admin.command("setFeatureCompatibilityVersion", pair.level)
            print(f"{pair}: {source.server_info()['version']} to {destination.server_info()['version']}")
            addresses = Addresses(*places, stack.bootstrap, stack.connect, stack.directory.resolve() / "secrets")
            yield Pipeline("pair", folder / "pair.toml", addresses, source, destination, settings)
    finally:
        embedded.down(options.directory)
        print(f"{pair}: {time.monotonic() - begun:.0f} s with the stack")


def fill(pipeline: Pipeline, seed: int) -> tuple[Workload, AcknowledgedWriter]:
    """Documents and indexes at the source, and what will change them."""
    workload = Workload(seed, [pipeline.source("mixed")])
    workload.fill()
    writer = AcknowledgedWriter(pipeline.source_client, pipeline.name, "orders", per_second=500)
    writer.fill()
    pipeline.source("orders").create_index("until", name="expired", expireAfterSeconds=3600)
    users = pipeline.source("users")
    users.insert_many([{"_id": n, "email": f"e{n}", "text": "x" * 500} for n in range(3000)])
    users.create_index("email", name="by email", unique=True)
    pipeline.source("large").insert_one(long_named(1))
    return workload, writer


def compared(pipeline: Pipeline) -> None:
    pipeline.wait()
    pipeline.assert_same(*COLLECTIONS, at_least=3000)
    assert pipeline.status()["dead_letters"] == 0


def kill_the_worker(pipeline: Pipeline) -> None:
    control.restart(pipeline.addresses.secrets.parent, "connect-0", signal.SIGKILL)


def findings(pipeline: Pipeline, expect: int) -> list[dict[str, str]]:
    lines = towpath("check", pipeline.write(), "--json", expect=expect).stdout.splitlines()
    return [found for line in lines if "finding" in (found := json.loads(line))]


def test_a_source_of_5_0_is_copied_streamed_and_replayed_and_told_what_it_lacks(tmp_path: Path, seed: int) -> None:
    """The short form of the core: across the end of the worker as well."""
    pair = Pair("5.0.4", "6.0.27")
    with pipeline_of(pair, tmp_path) as pipeline:
        workload, _ = fill(pipeline, seed)
        with_ddl = replace(pipeline, settings=Settings(extra="[ddl]"))
        (error,) = [one for one in findings(with_ddl, 1) if one["level"] == "error"]
        assert error["finding"] == "MongoDB 5.0 does not report schema changes, which [ddl] needs"
        assert error["finding"] in towpath("deploy", with_ddl.file, expect=2).stderr
        warned = [one["finding"] for one in findings(pipeline, 0) if one["level"] == "warning"]
        assert any("`status` will not show drops" in words for words in warned)
        with Writer(workload, per_second=300) as writer:
            pipeline.deploy()
            writer.wait_for(300)
            kill_the_worker(pipeline)
            writer.wait_for(writer.applied + 300)
        compared(pipeline)
        found = log.records(pipeline.addresses.bootstrap, pipeline.topic("mixed"))
        assert all(abs(one.time_ms - int(one.contract["at"])) < 60_000 for one in found), "the source's clock"
        towpath("prepare", pipeline.file)
        towpath("verify", pipeline.file)
        replayed(pipeline, pair, tmp_path)
        said = towpath("cutover", pipeline.file, "--dry-run", "--block-writes", expect=1).stdout
        assert "stop the applications' writes yourself (--stop-with" in said, said
        restored_in_the_other_direction(pipeline)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("pair", [*PAIRS, *([Pair(_OWN, _OWN)] if _OWN else [])], ids=str)
def test_the_core(pair: Pair, tmp_path: Path, seed: int) -> None:
    with pipeline_of(pair, tmp_path) as pipeline:
        workload, orders = fill(pipeline, seed)
        copied_and_streamed(pipeline, workload)
        verified(pipeline)
        replayed(pipeline, pair, tmp_path)
        switched(pipeline, orders, tmp_path)
        if pair.level:
            schema_changes_are_seen_after_the_upgrade(pipeline)


def test_plain_mode_from_5_0(tmp_path: Path, seed: int) -> None:
    with pipeline_of(Pair("5.0.4", "6.0.27"), tmp_path, Settings(mode="plain")) as pipeline:
        workload, _ = fill(pipeline, seed)
        pipeline.deploy()
        with Writer(workload, per_second=300) as writer:
            writer.wait_for(500)
        pipeline.wait()
        pipeline.assert_same("users", at_least=3000)
        pipeline.assert_same("mixed", at_least=100, ignore_field_order=True)


def test_schema_changes_are_made_at_a_destination_of_5_0(tmp_path: Path, seed: int) -> None:
    ddl = Settings(extra='[ddl]\ndrop = "apply"')
    with pipeline_of(Pair("6.0.27", "5.0.4"), tmp_path, ddl) as pipeline:
        workload, _ = fill(pipeline, seed)
        pipeline.deploy()
        with Writer(workload, per_second=300) as writer:
            for name in ("a", "b", "c"):
                pipeline.source(name).insert_one({"_id": 1, "x": 1})
                pipeline.source(name).create_index("x", name="x", unique=True)
            pipeline.source_client[pipeline.name].command("collMod", "a", index={"name": "x", "hidden": True})
            pipeline.source("b").rename("d")
            pipeline.source("c").drop()
            pipeline.source("users").drop_index("by email")
            writer.wait_for(500)
        pipeline.wait()
        until("the index dropped", lambda: "by email" not in pipeline.destination("users").index_information(), 60)
        pipeline.assert_same("a", "d", "mixed", "orders", "users", at_least=3000)
        at_destination = pipeline.destination_client[pipeline.name]
        assert not {"b", "c"} & set(at_destination.list_collection_names())
        information = at_destination["a"].index_information()["x"]
        assert information["hidden"] and "unique" not in information
        assert {change["state"] for change in pipeline.status()["schema_changes"]} == {"done"}


def test_a_pipeline_goes_on_when_its_servers_are_upgraded_from_5_0_to_6_0(tmp_path: Path, seed: int) -> None:
    with pipeline_of(Pair("5.0.4", "5.0.4"), tmp_path) as pipeline:
        workload, _ = fill(pipeline, seed)
        with Writer(workload, per_second=300) as writer:
            pipeline.deploy()
            writer.wait_for(500)
        directory = pipeline.addresses.secrets.parent
        options = embedded.options_of(directory)
        assert options is not None
        embedded.down(directory)
        newer = program("6.0.27")
        embedded.up(replace(options, source_mongod=newer, destination_mongod=newer), print)
        with Writer(workload, per_second=300) as writer:
            writer.wait_for(500)
            for client in (pipeline.source_client, pipeline.destination_client):
                client.admin.command("setFeatureCompatibilityVersion", "6.0")
            writer.wait_for(1000)
        compared(pipeline)
        schema_changes_are_seen_after_the_upgrade(pipeline)


def schema_changes_are_seen_after_the_upgrade(pipeline: Pipeline) -> None:
    """By the task that was running before."""
    pipeline.source_client.admin.command("setFeatureCompatibilityVersion", "6.0")
    pipeline.source("audit").insert_one({"_id": 1})
    pipeline.wait()
    pipeline.source("audit").drop()
    until("the drop", lambda: pipeline.status()["ddl"], 60, 1)


def copied_and_streamed(pipeline: Pipeline, workload: Workload) -> None:
    """From before the copy on, and across the end of the worker."""
    with Writer(workload, per_second=300) as writer:
        pipeline.deploy()
        writer.wait_for(300)
        kill_the_worker(pipeline)
        writer.wait_for(writer.applied + 1500)
        pipeline.source("users").update_many({}, {"$set": {"n": 1}})
        pipeline.source("users").delete_many({"_id": {"$gte": 2900}})
        pipeline.source("large").update_one({"_id": 1}, CHANGE_ALL)  # an event of more than 16 MB
    compared(pipeline)


def verified(pipeline: Pipeline) -> None:
    """Damage is found and repaired, and the schema is the source's, but for what waits for the cutover."""
    towpath("prepare", pipeline.file)
    prepared = indexes(pipeline, pipeline.destination_client)
    assert prepared[pipeline.namespace("users")].keys() == {"by email"}
    assert "unique" not in prepared[pipeline.namespace("users")]["by email"]
    for options in ((), ("--screen",)):
        towpath("verify", pipeline.file, *options)
    pipeline.destination("users").delete_one({"_id": 5})
    pipeline.destination("users").update_one({"_id": 6}, {"$set": {"n": 1.0}})
    towpath("verify", pipeline.file, expect=1)
    towpath("repair", pipeline.file)
    compared(pipeline)
    towpath("verify", pipeline.file)


def replayed(pipeline: Pipeline, pair: Pair, folder: Path) -> None:
    """To a third cluster of the destination's version."""
    third = mongod.start_replica_set(folder / "third", name="third", program=program(pair.destination))
    with third:
        towpath("replay", pipeline.file, "--destination", third.uri)
        namespaces = list(map(pipeline.namespace, COLLECTIONS))
        oracle.assert_same(pipeline.addresses.source, third.uri, namespaces, at_least=3000)


def restored_in_the_other_direction(pipeline: Pipeline) -> None:
    """What was relaxed of indexes, at the source as a destination: nothing is deployed for it."""
    back = replace(
        pipeline,
        name="back",
        file=pipeline.file.with_name("back.toml"),
        addresses=replace(
            pipeline.addresses, source=pipeline.addresses.destination, destination=pipeline.addresses.source
        ),
        source_client=pipeline.destination_client,
        destination_client=pipeline.source_client,
    )
    users = back.source("users")
    users.create_index("email", name="by email", unique=True)
    users.create_index("until", name="expired", expireAfterSeconds=3600)
    documents = [{"_id": n, "email": f"e{n}"} for n in range(10)]
    for collection in (users, back.destination("users")):
        collection.insert_many(documents)
    towpath("prepare", back.write(), "--indexes", "now")
    assert "unique" not in indexes(back, back.destination_client)[back.namespace("users")]["by email"]
    towpath("prepare", back.file, "--final")
    assert indexes(back, back.destination_client) == indexes(back, back.source_client)


def switched(pipeline: Pipeline, writer: AcknowledgedWriter, folder: Path) -> None:
    """There and back, beside a writer whose acknowledged writes are all there at the end."""
    source, destination = pipeline.source_client, pipeline.destination_client
    form = indexes(pipeline, source)
    level = source.admin.command("getParameter", featureCompatibilityVersion=1)["featureCompatibilityVersion"]
    blocks = tuple(map(int, level["version"].split("."))) >= WRITE_BLOCK
    with writer:
        writer.wait_for_more(500)
        with cutover(pipeline, folder, *(["--block-writes"] if blocks else [])) as there:
            if not blocks:
                there.event("stop writes")
                writer.pause()
                there.answer()
            assert there.event("switch")["primary"] == "destination"
            writer.send(destination)
            there.ended(0)
        assert indexes(pipeline, destination) == form
        writer.wait_for_more(500)
        fail_back(pipeline, folder, writer)
        writer.wait_for_more(200)
    writer.assert_all_at(source)
    compared(pipeline)
    assert indexes(pipeline, source) == form
    towpath("remove", pipeline.file.with_name("pair-back.toml"), "--topics", "--yes")
