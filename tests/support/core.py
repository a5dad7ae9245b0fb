"""What must work on every supported version of MongoDB, whatever the servers run on: the core.

A test gives what depends on that: how a worker is killed and started again, and how a third replica set is started.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from pymongo import MongoClient

from tests.support import oracle
from tests.support.acknowledged import AcknowledgedWriter
from tests.support.awaited import until
from tests.support.cutover import cutover, fail_back, indexes
from tests.support.oversized import CHANGE_ALL, long_named
from tests.support.pipeline import Pipeline, Settings, towpath
from tests.support.workload import Workload
from tests.support.writer import Writer
from towpath.clients.mongo.versions import WRITE_BLOCK

COLLECTIONS = ("large", "mixed", "orders", "users")
WITH_DDL = Settings(extra='[ddl]\ndrop = "apply"')


def run(
    pipeline: Pipeline,
    seed: int,
    folder: Path,
    kill_the_worker: Callable[[], None],
    third: Callable[[], AbstractContextManager[str]],
) -> None:
    """All of it. `third` gives the URI of a replica set of the destination's version, for as long as its `with`."""
    workload, orders = fill(pipeline, seed)
    copied_and_streamed(pipeline, workload, kill_the_worker)
    verified(pipeline)
    with third() as uri:
        replayed(pipeline, uri)
    switched(pipeline, orders, folder)


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


def copied_and_streamed(pipeline: Pipeline, workload: Workload, kill_the_worker: Callable[[], None]) -> None:
    """From before the copy on, and across the end of the worker."""
    with Writer(workload, per_second=300) as writer:
        pipeline.deploy()
        writer.wait_for(300)
        kill_the_worker()
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


def replayed(pipeline: Pipeline, third: str) -> None:
    towpath("replay", pipeline.file, "--destination", third)
    namespaces = list(map(pipeline.namespace, COLLECTIONS))
    oracle.assert_same(pipeline.addresses.source, third, namespaces, at_least=3000)


def switched(pipeline: Pipeline, writer: AcknowledgedWriter, folder: Path) -> None:
    """There and back, beside a writer whose acknowledged writes are all there at the end."""
    source, destination = pipeline.source_client, pipeline.destination_client
    form = indexes(pipeline, source)
    blocks = level(source) >= WRITE_BLOCK
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
    towpath("remove", pipeline.file.with_stem(f"{pipeline.file.stem}-back"), "--topics", "--yes")


def schema_changes_are_made(pipeline: Pipeline, seed: int) -> None:
    """At the destination of a pipeline with `WITH_DDL`."""
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


def schema_changes_are_refused(pipeline: Pipeline) -> None:
    """By `check` and `deploy` of a pipeline with `[ddl]`, whose source is older than 6.0."""
    (error,) = [one for one in findings(pipeline, 1) if one["level"] == "error"]
    assert error["finding"] == "MongoDB 5.0 does not report schema changes, which [ddl] needs"
    assert error["finding"] in towpath("deploy", pipeline.file, expect=2).stderr


def findings(pipeline: Pipeline, expect: int) -> list[dict[str, str]]:
    """What `check` finds."""
    lines = towpath("check", pipeline.write(), "--json", expect=expect).stdout.splitlines()
    return [found for line in lines if "finding" in (found := json.loads(line))]


def level(client: MongoClient[dict[str, Any]]) -> tuple[int, ...]:
    """The featureCompatibilityVersion."""
    found = client.admin.command("getParameter", featureCompatibilityVersion=1)["featureCompatibilityVersion"]
    return tuple(map(int, found["version"].split(".")))
