"""What is done to collections at the source as such is noticed, told with the commands that repair it, and resolved."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pymongo import MongoClient

from tests.conftest import MakePipeline
from tests.support.awaited import until
from tests.support.pipeline import Pipeline, Settings, towpath

pytestmark = pytest.mark.servers


def fill(pipeline: Pipeline, name: str, count: int, life: int = 1) -> None:
    pipeline.source(name).insert_many([{"_id": n, "life": life, "of": name} for n in range(count)])


def told(pipeline: Pipeline) -> dict[tuple[str, str], dict[str, Any]]:
    """What `status` tells, by kind and collection."""
    found = pipeline.status()["ddl"]
    return {(one["kind"], one["namespace"].partition(".")[2]): one for one in found}


def of(pipeline: Pipeline, kinds: set[tuple[str, str]]) -> dict[tuple[str, str], dict[str, Any]] | None:
    """What is told, once it is just this."""
    found = told(pipeline)
    return found if set(found) == kinds else None


@pytest.mark.nightly
def test_drops_renames_indexes_and_options_are_told_until_both_sides_are_the_same(make_pipeline: MakePipeline) -> None:
    pipeline = make_pipeline(Settings(partitions=1))
    for name, count in {"orders": 50, "old": 20, "gone": 10, "kept": 5, "kept2": 5}.items():
        fill(pipeline, name, count)
    pipeline.deploy()
    pipeline.wait()
    database = pipeline.source_client[pipeline.name]
    database["orders"].drop()
    fill(pipeline, "orders", 3, life=2)
    database["old"].rename("new")
    database["gone"].drop()
    database["gone2"].drop()  # there is none
    database["kept"].create_index("life")
    database.command({"collMod": "kept", "validator": {"life": {"$gt": 0}}})
    pipeline.wait()

    every = {("drop", "orders"), ("rename", "old"), ("drop", "gone"), ("createIndexes", "kept"), ("modify", "kept")}
    found = until("all of it told", lambda: of(pipeline, every), 20)
    assert "the destination still has 10 documents" in found["drop", "gone"]["words"]
    assert "exists again; of the 50 documents" in found["drop", "orders"]["words"]
    [command] = [line for line in found["modify", "kept"]["commands"] if "collMod" in line]
    assert command.startswith("db.getSiblingDB(") and found["modify", "kept"]["at_destination"]
    shown = towpath("status", pipeline.file).stdout
    assert f"source: {pipeline.name}.gone was dropped at " in shown
    assert f"towpath repair {pipeline.file}" in shown

    deploy, verify, _ = found["rename", "old"]["commands"]
    assert deploy == f"towpath deploy {pipeline.file}"
    assert verify.endswith(f"-n {pipeline.name}.old -n {pipeline.name}.new")
    towpath("deploy", pipeline.file)
    looked = towpath("verify", pipeline.file, "--json", "--processes", "1", expect=1)
    counts = json.loads(looked.stdout.splitlines()[-1])
    assert (counts["missing"], counts["extra"], counts["different"]) == (20, 47 + 20 + 10, 0)
    assert f"source: {pipeline.name}.gone was dropped" in looked.stderr
    towpath("repair", pipeline.file, "--yes")
    pipeline.assert_same("orders", "new", "kept", at_least=3)
    assert pipeline.destination("gone").count_documents({}) == pipeline.destination("old").count_documents({}) == 0

    left = json.loads(towpath("ddl", pipeline.file, "--json", expect=1).stdout)["unfollowed"]
    assert [one["kind"] for one in left] == ["createIndexes", "modify"]
    repair(pipeline)
    assert towpath("ddl", pipeline.file).stdout == "0 schema changes to resolve\n"
    database["kept2"].drop()
    until("the drop told", lambda: of(pipeline, {("drop", "kept2")}), 20)
    assert "accepted 1 schema change" in towpath("ddl", pipeline.file, "--accept").stdout
    fill(pipeline, "kept2", 2, life=2)
    pipeline.wait()
    assert {one["life"] for one in pipeline.destination("kept2").find({"_id": {"$lt": 2}})} == {2}


def repair(pipeline: Pipeline) -> None:
    """What the commands say, which are for MongoDB's shell."""
    with MongoClient[dict[str, Any]](pipeline.addresses.destination) as client:
        client[pipeline.name]["kept"].create_index("life")
        client[pipeline.name].command({"collMod": "kept", "validator": {"life": {"$gt": 0}}})
