"""Pairs of versions of MongoDB, each on a separate stack. `scripts/test --servers` runs the whole core on each.

TOWPATH_TEST_MONGOD names two programs of yours, such as a mongod of 7.0 as source and one of 8.0 as destination. One
alone is a pair with itself.
"""

from __future__ import annotations

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

from tests.servers.pairs import PAIRS, Pair
from tests.support import control, core, log, mongod, mongods
from tests.support.awaited import until
from tests.support.clock import Clock
from tests.support.cutover import indexes
from tests.support.pipeline import Addresses, Pipeline, Settings, towpath
from tests.support.writer import Writer
from towpath import stack as embedded

pytestmark = [pytest.mark.servers, pytest.mark.nightly]

_OWN = os.environ.get("TOWPATH_TEST_MONGOD", "").split()
EVERYTHING = Settings()


def program(version: str) -> Path:
    return Path(version) if "/" in version else mongods.mongod(version)


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


def kill_the_worker(pipeline: Pipeline) -> None:
    control.restart(pipeline.addresses.secrets.parent, "connect-0", signal.SIGKILL)


@contextmanager
def third(pair: Pair, folder: Path) -> Iterator[str]:
    """A third cluster of the destination's version: its URI."""
    with mongod.start_replica_set(folder / "third", name="third", program=program(pair.destination)) as servers:
        yield servers.uri


def test_a_source_of_5_0_is_copied_streamed_and_replayed_and_told_what_it_lacks(tmp_path: Path, seed: int) -> None:
    """The short form of the core: across the end of the worker as well."""
    pair = Pair("5.0.4", "6.0.27")
    with pipeline_of(pair, tmp_path) as pipeline:
        workload, _ = core.fill(pipeline, seed)
        core.schema_changes_are_refused(replace(pipeline, settings=core.WITH_DDL))
        warned = [one["finding"] for one in core.findings(pipeline, 0) if one["level"] == "warning"]
        assert any("`status` will not show drops" in words for words in warned)
        with Writer(workload, per_second=300) as writer:
            pipeline.deploy()
            writer.wait_for(300)
            kill_the_worker(pipeline)
            writer.wait_for(writer.applied + 300)
        core.compared(pipeline)
        found = log.records(pipeline.addresses.bootstrap, pipeline.topic("mixed"))
        assert all(abs(one.time_ms - int(one.contract["at"])) < 60_000 for one in found), "the source's clock"
        towpath("prepare", pipeline.file)
        towpath("verify", pipeline.file)
        with third(pair, tmp_path) as uri:
            core.replayed(pipeline, uri)
        said = towpath("cutover", pipeline.file, "--dry-run", "--block-writes", expect=1).stdout
        assert "stop the applications' writes yourself (--stop-with" in said, said
        restored_in_the_other_direction(pipeline)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("pair", [*PAIRS, *([Pair(_OWN[0], _OWN[-1])] if _OWN else [])], ids=str)
def test_the_core(pair: Pair, tmp_path: Path, seed: int) -> None:
    with pipeline_of(pair, tmp_path) as pipeline:
        core.run(pipeline, seed, tmp_path, lambda: kill_the_worker(pipeline), lambda: third(pair, tmp_path))
        if pair.level:
            schema_changes_are_seen_after_the_upgrade(pipeline)


def test_plain_mode_from_5_0(tmp_path: Path, seed: int) -> None:
    with pipeline_of(Pair("5.0.4", "6.0.27"), tmp_path, Settings(mode="plain")) as pipeline:
        workload, _ = core.fill(pipeline, seed)
        pipeline.deploy()
        with Writer(workload, per_second=300) as writer:
            writer.wait_for(500)
        pipeline.wait()
        pipeline.assert_same("users", at_least=3000)
        pipeline.assert_same("mixed", at_least=100, ignore_field_order=True)


def test_schema_changes_are_made_at_a_destination_of_5_0(tmp_path: Path, seed: int) -> None:
    with pipeline_of(Pair("6.0.27", "5.0.4"), tmp_path, core.WITH_DDL) as pipeline:
        core.schema_changes_are_made(pipeline, seed)


def test_a_pipeline_goes_on_when_its_servers_are_upgraded_from_5_0_to_6_0(tmp_path: Path, seed: int) -> None:
    with pipeline_of(Pair("5.0.4", "5.0.4"), tmp_path) as pipeline:
        workload, _ = core.fill(pipeline, seed)
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
        core.compared(pipeline)
        schema_changes_are_seen_after_the_upgrade(pipeline)


def schema_changes_are_seen_after_the_upgrade(pipeline: Pipeline) -> None:
    """By the task that was running before."""
    pipeline.source_client.admin.command("setFeatureCompatibilityVersion", "6.0")
    pipeline.source("audit").insert_one({"_id": 1})
    pipeline.wait()
    pipeline.source("audit").drop()
    until("the drop", lambda: pipeline.status()["ddl"], 60, 1)


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
    towpath("prepare", back.file, "--final", "--yes")
    assert indexes(back, back.destination_client) == indexes(back, back.source_client)
