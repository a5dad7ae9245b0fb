"""A destination that refuses writes and accepts them again: some documents, all of them, a user's, or for want of room.

One pipeline goes through it, with updates at the source all the time, to a separate destination on a small disk.
With `TOWPATH_FUZZ_TIMES`, so often, with its longer parts.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pymongo import MongoClient
from pymongo.errors import PyMongoError

from tests.conftest import MakePipeline
from tests.support import control, fuzz, mongod, raw, rest
from tests.support.awaited import until
from tests.support.disk import Disk, small_disk
from tests.support.pipeline import Pipeline, Settings, towpath
from tests.support.progress import applied
from tests.support.ticker import Ticker
from towpath import stack as embedded

pytestmark = pytest.mark.servers

IS_LONG = fuzz.TIMES > 1
#: Seconds for which a role is missing; the longer form goes beyond the time for which the sink itself tries again.
REVOKED = 40 if IS_LONG else 3
COUNT = 300
NODE = "tight-0"
ROLES = ["readWriteAnyDatabase", "dbAdminAnyDatabase", "clusterMonitor"]


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    with small_disk(tmp_path / "disk", 700) as disk:
        yield disk


@pytest.fixture
def root(disk: Disk) -> Iterator[raw.Client]:
    """May do anything at the destination."""
    sizes = mongod.MongodSizes(0.25, 50)
    servers = mongod.start_replica_set(disk.place, name="tight", root=mongod.Root("root", "secret"), sizes=sizes)
    try:
        with MongoClient[dict[str, Any]](servers.uri) as client:
            client.admin.command("createUser", "writer", pwd="secret", roles=ROLES)
            yield client
    finally:
        embedded.down(disk.place)


@pytest.fixture
def pipeline(make_pipeline: MakePipeline, root: raw.Client) -> Pipeline:
    made = make_pipeline(Settings(write={"tasks": 1}))
    host, port = root.address or ("", 0)
    uri = f"mongodb://writer:secret@{host}:{port}/?replicaSet=tight&authSource=admin"
    made = replace(made, addresses=replace(made.addresses, destination=uri), destination_client=root)
    made.source("docs").insert_many([{"_id": i, "n": 0, "u": i, "text": "x" * 200} for i in range(COUNT)])
    made.write()
    made.file.chmod(0o600)
    towpath("deploy", made.file)
    made.wait()
    return made


def letters(pipeline: Pipeline) -> list[dict[str, Any]]:
    said = towpath("tail", pipeline.file, "--dead-letters", "--no-follow", "--json").stdout
    return [json.loads(line) for line in said.splitlines()]


def epochs(pipeline: Pipeline) -> int:
    """Grows with every start of a sink's task."""
    return sum(one.epoch for one in applied(pipeline).values())


#: Held while nothing may change at the source.
STILL = threading.Lock()


def same(pipeline: Pipeline) -> None:
    with STILL:
        pipeline.wait()
        pipeline.assert_same("docs", at_least=COUNT)


def validate(pipeline: Pipeline, validator: dict[str, Any]) -> None:
    pipeline.destination_client[pipeline.name].command("collMod", "docs", validator=validator)


@pytest.mark.nightly
def test_a_destination_that_refuses_and_accepts_again_has_lost_nothing(pipeline: Pipeline, disk: Disk) -> None:
    documents, tick = pipeline.source("docs"), iter(range(10**9))

    def change() -> None:
        with STILL:
            documents.update_one({"_id": next(tick) % COUNT}, {"$inc": {"n": 1}})

    for number in range(fuzz.TIMES):
        with Ticker(0.02, change) as changes:
            some_are_refused(pipeline, number)
            if IS_LONG:
                a_unique_index_refuses(pipeline)
            before = epochs(pipeline), len(letters(pipeline))
            a_role_is_gone(pipeline, changes)
            the_disk_is_full(pipeline, changes, disk)
            assert (epochs(pipeline), len(letters(pipeline))) == before, "a task began again, or made a dead letter"
        if IS_LONG:
            all_are_refused(pipeline)
        same(pipeline)


def some_are_refused(pipeline: Pipeline, number: int) -> None:
    documents, told = pipeline.source("docs"), len(letters(pipeline))
    validate(pipeline, {"bad": {"$exists": False}})
    documents.update_one({"_id": 3}, {"$set": {"bad": number}})
    documents.replace_one({"_id": 4}, {"_id": 4, "bad": number})
    documents.insert_one({"_id": f"new {number}", "bad": 1})
    pipeline.wait()
    refused = letters(pipeline)[told:]
    assert sorted(json.loads(one["key"])["_id"] for one in refused if "new" not in one["key"])[:2] == [3, 4]
    assert {one["code"] for one in refused} == {121}
    assert all("failed validation" in one["reason"] for one in refused)
    assert "Document failed validation (121)" in towpath("status", pipeline.file).stdout
    validate(pipeline, {})
    towpath("repair", pipeline.file, "--dead-letters")
    documents.update_many({}, {"$unset": {"bad": ""}})
    same(pipeline)


def a_unique_index_refuses(pipeline: Pipeline) -> None:
    documents, told = pipeline.source("docs"), len(letters(pipeline))
    pipeline.destination("docs").create_index("u", unique=True, sparse=True)
    documents.update_one({"_id": 5}, {"$set": {"u": 7}})
    pipeline.wait()
    assert [one["code"] for one in letters(pipeline)[told:]] == [11000]
    pipeline.destination("docs").drop_index("u_1")
    towpath("repair", pipeline.file, "--dead-letters")
    documents.update_one({"_id": 5}, {"$set": {"u": 5}})
    same(pipeline)


def a_role_is_gone(pipeline: Pipeline, changes: Ticker) -> None:
    admin = pipeline.destination_client.admin
    admin.command("revokeRolesFromUser", "writer", roles=ROLES)
    admin.command("grantRolesToUser", "writer", roles=["readAnyDatabase"])
    done = changes.done
    time.sleep(REVOKED)  # how long a role is missing is what is tried here
    assert changes.done > done
    admin.command("grantRolesToUser", "writer", roles=ROLES)
    same(pipeline)
    admin.command("revokeRolesFromUser", "writer", roles=["readAnyDatabase"])


def the_disk_is_full(pipeline: Pipeline, changes: Ticker, disk: Disk) -> None:
    """mongod may end itself when it cannot write its journal; it is started again when there is room."""
    disk.fill()
    documents, large = pipeline.source("docs"), "y" * 200_000

    def is_stuck() -> bool:
        documents.update_many({"_id": {"$lt": 20}}, {"$set": {"large": large + str(changes.done)}})
        return not answers(pipeline)

    until("destination without room", is_stuck, 120, every=0.3)
    done = changes.done
    changes.wait_for(done + 50)
    disk.empty()

    def has_room() -> bool:
        """Before it has made a checkpoint, mongod may still end itself of what it could not write."""
        with suppress(embedded.StackError):  # it runs
            control.start(disk.place, NODE)
        with suppress(PyMongoError):
            pipeline.destination_client.admin.command("fsync")
            return answers(pipeline)
        return False

    until("destination with room", has_room, 60)
    documents.update_many({}, {"$unset": {"large": ""}})
    same(pipeline)


def answers(pipeline: Pipeline) -> bool:
    try:
        pipeline.destination_client["probe"]["probe"].insert_one({"x": "z" * 1_000_000})
        pipeline.destination_client["probe"].drop_collection("probe")
    except PyMongoError as error:
        print(f"the destination: {str(error)[:200]}")
        return False
    return True


def all_are_refused(pipeline: Pipeline) -> None:
    """Too many to be about documents: the task stops, says so, and continues where it was."""
    validate(pipeline, {"impossible": {"$exists": True}})
    pipeline.source("docs").update_many({}, {"$inc": {"n": 1}})

    url = f"{pipeline.addresses.connect}/connectors/{pipeline.name}-sink/status"
    until("stopped sink", lambda: rest.get(url).json()["tasks"][0]["state"] == "FAILED", 60, every=0.3)
    said = " ".join(towpath("status", pipeline.file, expect=1).stdout.split())
    assert "fix the cause and restart the task" in said, said
    validate(pipeline, {})
    towpath("restart", pipeline.file)
    towpath("repair", pipeline.file, "--dead-letters")
