"""A copy that reads from a member which is behind: what that does not have yet is not taken for absent."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pymongo import MongoClient, WriteConcern

from tests.support import mongod
from tests.support.awaited import until
from tests.support.mongod import MongodSizes
from tests.support.pipeline import Addresses, Pipeline, Settings, towpath

pytestmark = pytest.mark.servers

COUNT = 200
_ON_HOLD = "rsSyncApplyStop"

Client = MongoClient[dict[str, Any]]


@pytest.mark.nightly
def test_a_collection_that_the_member_does_not_have_yet_is_copied(
    tmp_path: Path, addresses: Addresses, destination_client: Client
) -> None:
    sizes, options = MongodSizes(cache_gb=0.25, oplog_mb=64), ["--setParameter", "enableTestCommands=1"]
    place = tmp_path / "late"
    with (
        mongod.start_replica_set(place, name="late", nodes=3, sizes=sizes, options=options) as late,
        Client(late.uri) as it,
    ):
        member = _the_only_one_to_read_from(it)
        name = f"t{Random().randrange(2**31):x}"
        ours = replace(addresses, source=late.uri)
        settings = Settings(capture={"read_preference": "secondary"})
        pipeline = Pipeline(name, tmp_path / f"{name}.toml", ours, it, destination_client, settings)
        try:
            with _on_hold(member):
                documents = pipeline.source("docs").with_options(write_concern=WriteConcern("majority"))
                documents.insert_many([{"_id": n} for n in range(COUNT)])
                pipeline.deploy()
                until("read of the collection", lambda: _is_waited_for(member) or _is_copied(pipeline), timeout=120)
            pipeline.source("docs").insert_one({"_id": "later"})
            pipeline.wait()
            pipeline.assert_same("docs", at_least=COUNT + 1)
        finally:
            member.close()
            towpath("remove", pipeline.file, "--topics", "--yes")
            destination_client.drop_database(name)


def _the_only_one_to_read_from(client: Client) -> Client:
    """A secondary, the other one being hidden, so that it makes a majority with the primary but is not read from."""
    answer = client.admin.command("hello")
    config = client.admin.command("replSetGetConfig")["config"]
    others = [member for member in config["members"] if member["host"] != answer["me"]]
    for member in others:
        member["priority"] = 0
    others[1]["hidden"] = True
    client.admin.command("replSetReconfig", config | {"version": config["version"] + 1})
    until("hidden member", lambda: others[1]["host"] not in client.admin.command("hello")["hosts"])
    return Client(f"mongodb://{others[0]['host']}/?directConnection=true")


@contextmanager
def _on_hold(member: Client) -> Iterator[None]:
    """The member applies nothing."""
    count = member.admin.command({"configureFailPoint": _ON_HOLD, "mode": "alwaysOn"})["count"]
    try:
        member.admin.command({"waitForFailPoint": _ON_HOLD, "timesEntered": count + 1, "maxTimeMS": 60_000})
        yield
    finally:
        member.admin.command({"configureFailPoint": _ON_HOLD, "mode": "off"})


def _is_waited_for(member: Client) -> bool:
    """Whether a read at the member waits for a moment that it has not come to."""
    found = {"op": {"$in": ["command", "query"]}, "command.readConcern.atClusterTime": {"$exists": True}}
    return any(member.admin.aggregate([{"$currentOp": {"allUsers": True}}, {"$match": found}]))


def _is_copied(pipeline: Pipeline) -> bool:
    return bool(pipeline.status()["copy"]["done"])
