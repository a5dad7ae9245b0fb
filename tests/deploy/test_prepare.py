"""What the source has in addition to documents is made at the destination, harmless while changes stream in."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from bson import Int64

from tests.conftest import MakePipeline
from tests.support import raw
from tests.support.awaited import until
from tests.support.pipeline import Pipeline, Settings, towpath
from tests.support.swapping import Swapping
from tests.support.ticker import Ticker
from towpath_verifier.descriptions import Options, described
from towpath_verifier.metadata import NEVER

pytestmark = pytest.mark.servers

VALIDATOR = {"$jsonSchema": {"required": ["email"]}}
INDEXES: list[dict[str, Any]] = [
    {"key": {"email": 1}, "name": "by email", "unique": True},
    {"key": {"until": 1}, "name": "expired", "expireAfterSeconds": 0},
    {"key": {"n": -1}, "name": "by n", "partialFilterExpression": {"n": {"$gt": Int64(5)}}},
]


def prepared(pipeline: Pipeline, *options: str, expect: int = 0) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(towpath("prepare", pipeline.file, "--json", *options, expect=expect).stdout)
    return found


def verdict(pipeline: Pipeline, *options: str, expect: int = 0) -> tuple[str, int, int]:
    """What `verify` finds, and how much differs except documents, and is deferred."""
    found = json.loads(towpath("verify", pipeline.file, "--json", *options, expect=expect).stdout.splitlines()[-1])
    return found["verdict"], found["metadata"], found["deferred"]


def indexes(client: raw.Client, pipeline: Pipeline, collection: str) -> dict[str, Options]:
    namespace = pipeline.namespace(collection)
    return dict(described(client, [namespace])[namespace].indexes)


@pytest.mark.nightly
def test_a_capped_collection_is_replicated_in_plain_mode_and_capped_at_the_end(make_pipeline: MakePipeline) -> None:
    """What the source drops, it reports as deletes. The commands are those of docs/how-to/cutover.md."""
    pipeline = make_pipeline(Settings(mode="plain", partitions=1))
    source, ring = pipeline.source_client[pipeline.name], pipeline.source("ring")
    source.create_collection("ring", capped=True, size=100_000, max=5)
    ring.create_index("n", name="by n", unique=True)
    ring.insert_many([{"_id": n, "n": n} for n in range(8)])
    assert "no cutover moves it" in towpath("check", pipeline.write()).stdout
    pipeline.deploy()
    towpath("prepare", pipeline.file)
    pipeline.wait()
    for n in range(8, 12):
        ring.insert_one({"_id": n, "n": n})
    pipeline.wait()
    pipeline.assert_same("ring", at_least=5)
    assert verdict(pipeline)[0] == "same"
    assert "switched manually" in towpath("cutover", pipeline.file, "--dry-run", expect=2).stderr
    towpath("remove", pipeline.file, "--topics", "--yes")
    towpath("prepare", pipeline.file, "--final", expect=2)  # it asks: nothing shows what the pipeline has written
    towpath("prepare", pipeline.file, "--final", "--yes")
    name = pipeline.namespace("ring")
    there, here = (described(one, [name])[name] for one in (pipeline.destination_client, pipeline.source_client))
    assert there.options == here.options and there.indexes == here.indexes
    pipeline.assert_same("ring", at_least=5)


@pytest.mark.nightly
def test_unique_ttl_and_validators_arrive_harmless_and_are_put_right(pipeline: Pipeline) -> None:
    source, destination = pipeline.source_client[pipeline.name], pipeline.destination_client[pipeline.name]
    users = pipeline.source("users")
    users.insert_many([{"_id": n, "email": f"e{n}", "n": n} for n in range(200)])
    source.command({"createIndexes": "users", "indexes": INDEXES})
    source.command({"collMod": "users", "validator": VALIDATOR, "validationLevel": "moderate"})
    source.command({"create": "adults", "viewOn": "users", "pipeline": [{"$match": {"n": {"$gte": 18}}}]})
    pipeline.write()
    planned = towpath("prepare", pipeline.file, "--dry-run").stdout
    assert destination.list_collection_names() == []
    assert planned.count("runCommand") == 3  # a collection, a view, all indexes in one command
    pipeline.deploy()
    assert {"adults", "users"} <= set(destination.list_collection_names())
    made = prepared(pipeline)
    (step,) = made["steps"]
    assert all(one["name"] in step["command"] and one["name"] in planned for one in INDEXES)
    assert {one["what"] for one in made["deferred"]} == {
        "uniqueness of the index by email",
        "TTL of the index expired",
        "the validator's refusals (it warns until then)",
    }
    assert prepared(pipeline)["steps"] == []
    assert all({"unique", "expireAfterSeconds"}.isdisjoint(one) for one in _indexes(pipeline).values())
    assert len(_indexes(pipeline)) == 3
    with Ticker(0.01, Swapping(users, 200).swap) as swaps:
        source.command({"collMod": "users", "validationLevel": "off"})
        users.insert_one({"_id": "no email", "n": 1})
        late = datetime.now(UTC) + timedelta(hours=1)
        users.insert_many([{"_id": f"late {n}", "email": f"l{n}", "until": late} for n in range(5)])
        past = datetime.now(UTC) - timedelta(hours=1)
        users.insert_many([{"_id": f"past {n}", "email": f"p{n}", "until": past} for n in range(5)])
        until("expired at the source", lambda: users.count_documents({"until": {"$lt": late}}) == 0, 30)
        until("swaps", lambda: swaps.done > 100, 60)
        users.delete_one({"_id": "no email"})
    pipeline.wait()
    assert pipeline.status()["dead_letters"] == 0
    pipeline.assert_same("users", at_least=200)
    assert verdict(pipeline, expect=1) == ("not the same", 1, 3)
    assert prepared(pipeline, expect=1)["different"][0]["what"].startswith("the option validationLevel is")
    _refused_for_duplicates(pipeline)
    towpath("remove", pipeline.file)
    final = prepared(pipeline, "--final")
    assert [step["takes_time"] for step in final["steps"]] == [False, True]  # prepareUnique, unique
    assert verdict(pipeline, "--alone") == ("same", 0, 0)
    assert indexes(pipeline.destination_client, pipeline, "users") == indexes(pipeline.source_client, pipeline, "users")
    assert destination["adults"].count_documents({}) == source["adults"].count_documents({}) > 100
    _way_back(pipeline)


def _refused_for_duplicates(pipeline: Pipeline) -> None:
    """The destination's clock begins to run, and its index is as it was, and refuses nothing."""
    users = pipeline.destination("users")
    twin = users.find_one({"_id": 3}, {"email": 1}) or {}
    past = datetime.now(UTC) - timedelta(hours=1)
    users.insert_many([{**twin, "_id": "twin"}, {"_id": "expired", "until": past, "email": "x"}])
    seen = _ttl_passes(pipeline)
    until("passes of the destination's TTL monitor", lambda: _ttl_passes(pipeline) > seen + 1, 30)
    assert users.count_documents({"_id": "expired"}) == 1
    said = towpath("prepare", pipeline.file, "--final", expect=2).stderr
    assert "the index by email of " in said and any(one in said for one in ('value: 3, "twin"', 'value: "twin", 3')), (
        said
    )
    until("expired by the destination's clock", lambda: users.count_documents({"_id": "expired"}) == 0, 30)
    assert {"unique", "prepareUnique"}.isdisjoint(_indexes(pipeline)["by email"])
    assert users.delete_one({"_id": "twin"}).deleted_count == 1


def _ttl_passes(pipeline: Pipeline) -> int:
    return int(pipeline.destination_client.admin.command("serverStatus")["metrics"]["ttl"]["passes"])


def _way_back(pipeline: Pipeline) -> None:
    """The former source becomes a destination: its clock and its validator are stopped, its indexes stay."""
    addresses = replace(
        pipeline.addresses, source=pipeline.addresses.destination, destination=pipeline.addresses.source
    )
    settings = replace(pipeline.settings, copy="none")
    back = replace(pipeline, addresses=addresses, settings=settings, file=pipeline.file.with_name("back.toml"))
    name, before = f'name = "{back.name}"', indexes(pipeline.source_client, pipeline, "users")
    text = back.write().read_text()
    assert "are exchanged" in towpath("prepare", back.file, "--in-place", "--yes", expect=2).stderr
    back.file.write_text(text.replace(name, f'name = "{back.name}-back"', 1))
    planned = prepared(back, "--in-place", "--yes")
    assert [len(planned[name]) for name in ("steps", "deferred", "undo")] == [2, 2, 2]
    stopped = before | {"expired": before["expired"] | {"expireAfterSeconds": NEVER}}
    assert indexes(pipeline.source_client, pipeline, "users") == stopped
    assert prepared(back, "--in-place")["steps"] == []
    assert verdict(back, "--alone") == ("same", 0, 2)
    assert all("collMod" in step["command"] for step in prepared(back, "--final", "--yes")["steps"])
    assert prepared(back, "--final")["steps"] == []
    assert indexes(pipeline.source_client, pipeline, "users") == before


def _indexes(pipeline: Pipeline) -> dict[str, Options]:
    return indexes(pipeline.destination_client, pipeline, "users")
