"""`towpath check` against real servers: what it finds, what it says to do, and that it changes nothing."""

from __future__ import annotations

import json
import os
import re
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from pymongo import MongoClient

from tests.conftest import MakePipeline
from tests.support.awaited import until
from tests.support.pipeline import Addresses, Pipeline, Settings, towpath
from tests.support.servers import free_port, mongod, replica_set
from towpath.clients.connect.rest import Connect
from towpath.clients.kafka.topics import Topics

pytestmark = pytest.mark.servers

#: For a URI where nothing answers: that is known at once, and not after the 10 s that a server may take to come back.
SOON = "serverSelectionTimeoutMS=500"


def check(pipeline: Pipeline, *, expect: int, **changed: str) -> list[dict[str, str]]:
    """The findings, with other addresses where they are given."""
    other = replace(pipeline, addresses=Addresses(**{**asdict(pipeline.addresses), **changed}))
    said = towpath("check", other.write(), "--json", expect=expect, timeout=120)
    assert ":secret@" not in said.stdout, "a password is shown"
    return [json.loads(line) for line in said.stdout.splitlines()]


def one(found: list[dict[str, str]], level: str, subject: str, words: str) -> dict[str, str]:
    """The one finding at this place with these words; errors and warnings have to say what to do."""
    matching = [f for f in found if (f["level"], f["subject"]) == (level, subject) and words in f["finding"]]
    told = "\n".join(f"{f['level']} {f['subject']}: {f['finding']}" for f in found)
    assert len(matching) == 1, f"{len(matching)} of {level} {subject}: …{words}… in\n{told}"
    assert level == "ok" or matching[0]["advice"]
    return matching[0]


def levels(found: list[dict[str, str]]) -> list[str]:
    return [finding["level"] for finding in found]


def is_good(found: list[dict[str, str]]) -> bool:
    """Nothing is amiss but that the stack of the tests has one broker."""
    amiss = [finding["finding"] for finding in found if finding["level"] != "ok"]
    return [finding.partition(" (")[0] for finding in amiss] == ["topics have one replica"]


@pytest.fixture
def filled(pipeline: Pipeline) -> Pipeline:
    pipeline.source("docs").insert_one({"_id": 1})
    return pipeline


def nowhere() -> str:
    return f"127.0.0.1:{free_port()}"


def everything_there(pipeline: Pipeline) -> list[object]:
    """All names of collections, connectors, topics and secrets files."""
    clients = (pipeline.source_client, pipeline.destination_client)
    names: list[object] = [sorted(c[pipeline.name].list_collection_names()) for c in clients]
    files = pipeline.addresses.secrets.iterdir() if pipeline.addresses.secrets.exists() else ()
    with Connect(pipeline.addresses.connect) as connect:
        return [*names, connect.names(), sorted(Topics(pipeline.addresses.bootstrap).all()), sorted(files)]


def test_a_good_pipeline_has_no_error_and_check_changes_nothing(filled: Pipeline) -> None:
    before = everything_there(filled)
    found = check(filled, expect=0)
    assert everything_there(filled) == before
    assert is_good(found)
    assert {f["subject"].split()[0] for f in found} >= {"file", "source", "destination", "kafka", "connect", "deploy"}
    filled.deploy()
    filled.wait()
    found = check(filled, expect=0)
    assert is_good(found)
    one(found, "ok", "deploy", "nothing to change")
    one(found, "ok", f"connect {filled.name}-source", "Kafka Connect validated it")
    one(found, "ok", f"connect {filled.name}-sink", "Kafka Connect validated it")


def test_text_for_people_has_errors_first(filled: Pipeline) -> None:
    filled.source_client[filled.name].create_collection("series", timeseries={"timeField": "t"})
    lines = towpath("check", filled.write(), expect=1).stdout.splitlines()
    assert lines[0].startswith(f"error    source {filled.name}.series: ")
    assert "→ leave it out" in lines[1]
    assert lines[-1] == "1 error, 1 warning"


def test_collections_of_the_source(make_pipeline: MakePipeline) -> None:
    pipeline = make_pipeline(Settings(include=("*", "none_*"), whole_documents=("known",)))
    database = pipeline.source_client[pipeline.name]
    database.create_collection("capped", capped=True, size=4096)
    database.create_collection("series", timeseries={"timeField": "t"})
    database.create_collection("folded", collation={"locale": "en", "strength": 2})
    database.create_collection("view", viewOn="docs", pipeline=[])
    database["large"].insert_one({"_id": 1, "bytes": os.urandom(16 * 2**20 - 4096)})
    for name in ("docs", "x.y", "x_y", "Zürich"):
        database[name].insert_one({"_id": 1})
    for name in ("odd", "known"):
        database[name].insert_many([{"_id": n, "in": [{"a.b": {"": n}}]} for n in range(2000)])
    found = check(pipeline, expect=1)
    place = f"source {pipeline.name}"
    one(found, "error", "source", "none_*' matches no collection")
    one(found, "error", f"{place}.series", "time-series")
    one(found, "error", f"{place}.folded", "default collation")
    one(found, "error", f"{place}.x_y", "would collide")
    one(found, "error", f"{place}.Zürich", "Kafka allows only")
    one(found, "error", f"{place}.capped", "capped collection")
    one(found, "warning", f"{place}.large", "holds a document of 16.00 MiB")
    odd = one(found, "warning", f"{place}.odd", "'in' → [] → 'a.b', 'in' → [] → 'a.b' → ''")
    assert f'"{pipeline.name}.odd"' in odd["advice"] and "whole_documents" in odd["advice"]
    one(found, "ok", f"{place}.known", "whole_documents")
    one(found, "ok", f"{place}.view", "is a view")
    assert levels(found).count("error") == 6
    assert levels(found).count("warning") == 3


def test_collections_at_the_destination(pipeline: Pipeline) -> None:
    database = pipeline.destination_client[pipeline.name]
    for name in ("docs", "strict", "view", "folded", "empty"):
        pipeline.source(name).insert_one({"_id": 1})
    database["docs"].insert_one({"_id": 2})
    database["docs"].create_index("email", unique=True)
    database["docs"].create_index("seen", expireAfterSeconds=3600)
    database.create_collection("strict", validator={"a": {"$exists": True}})
    database.create_collection("view", viewOn="docs", pipeline=[])
    database.create_collection("folded", collation={"locale": "en", "strength": 2})
    database.create_collection("empty")
    found = check(pipeline, expect=1)
    place = f"destination {pipeline.name}"
    one(found, "warning", f"{place}.docs", "holds about 1 document already")
    one(found, "warning", f"{place}.docs", "unique index 'email_1'")
    one(found, "warning", f"{place}.docs", "TTL index 'seen_1'")
    one(found, "warning", f"{place}.strict", "validator")
    one(found, "error", f"{place}.view", "is a view")
    one(found, "error", f"{place}.folded", "default collation")
    one(found, "ok", f"{place}.empty", "exists and is empty")
    assert levels(found).count("error") == 2
    assert levels(found).count("warning") == 5
    before = everything_there(pipeline)
    for options in ((), ("--dry-run",)):
        said = towpath("deploy", pipeline.file, *options, expect=2).stderr
        assert f"{place}.folded: has a default collation" in said and f"{place}.view: is a view" in said
    assert everything_there(pipeline) == before
    for name in ("view", "folded"):
        database.drop_collection(name)
    pipeline.deploy()  # warnings do not stop it


def test_an_upgrade_that_was_not_finished_is_finished_as_is_advised(filled: Pipeline, tmp_path: Path) -> None:
    """The servers are of 6.0, and their feature compatibility version is that of 5.0."""
    with replica_set(tmp_path) as address, MongoClient[dict[str, Any]](f"mongodb://{address}/") as client:
        until("a primary", lambda: client.admin.command("hello")["isWritablePrimary"])
        client.admin.command("setFeatureCompatibilityVersion", "5.0")
        uri = f"mongodb://{address}/?replicaSet=guarded"
        found = check(filled, expect=0, destination=uri)
        (unfinished,) = [one for one in found if one["finding"].startswith("feature compatibility version 5.0")]
        assert unfinished["level"] == "warning"
        version = re.search(r'adminCommand\({setFeatureCompatibilityVersion: "([0-9.]+)"}\)', unfinished["advice"])
        assert version is not None
        client.admin.command("setFeatureCompatibilityVersion", version[1])
        found = check(filled, expect=0, destination=uri)
        assert not [one for one in found if one["finding"].startswith("feature") and one["level"] != "ok"]


def test_the_same_replica_set_on_both_sides(filled: Pipeline) -> None:
    found = check(filled, expect=1, destination=filled.addresses.source)
    one(found, "error", "destination", "which the pipeline captures again")
    one(found, "warning", "destination", "is the same replica set as the source")


@pytest.mark.nightly
def test_servers_out_of_reach_are_told_each(filled: Pipeline) -> None:
    at = {name: nowhere() for name in ("source", "destination", "connect", "kafka")}
    found = check(
        filled,
        expect=1,
        source=f"mongodb://{at['source']}/?replicaSet=a&{SOON}",
        destination=f"mongodb://u:secret@{at['destination']}/?replicaSet=b&{SOON}",
        connect=f"http://{at['connect']}",
        bootstrap=at["kafka"],
    )
    for place, address in at.items():
        one(found, "error", place, address)
    assert levels(found).count("error") == 4


def test_one_server_out_of_reach_leaves_the_others_checked(filled: Pipeline) -> None:
    found = check(filled, expect=1, destination=f"mongodb://{nowhere()}/?replicaSet=b&{SOON}")
    one(found, "error", "destination", "cannot reach the destination")
    one(found, "ok", f"source {filled.name}.docs", "sampled 1 of 1 document")
    one(found, "ok", "kafka", "broker, cluster ")
    one(found, "ok", "connect", "Kafka Connect")
    assert levels(found).count("error") == 1


def test_a_standalone(filled: Pipeline, tmp_path: Path) -> None:
    with mongod(tmp_path) as address:
        found = check(filled, expect=1, source=f"mongodb://{address}/?directConnection=true")
    advice = one(found, "error", "source", "is a standalone mongod")["advice"]
    assert "--replSet" in advice


def test_a_file_that_cannot_be_read_is_an_error(make_pipeline: MakePipeline) -> None:
    pipeline = make_pipeline(Settings(extra="[log]\nretain = 'forever'"))
    said = towpath("check", pipeline.write(), "--json", expect=2)
    assert "log.retain: unknown key" in said.stderr
    assert not said.stdout
    pipeline.file.unlink()
