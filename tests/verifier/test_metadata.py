"""Options, views and indexes: every difference is named, and the commands that come with them repair all of it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest
from bson import Int64, json_util
from pymongo import MongoClient
from pymongo.database import Database

from tests.support import mongod
from towpath_verifier import (
    AS_IT_IS,
    RELAXED,
    RELAXED_IN_PLACE,
    MetadataDifference,
    Pair,
    Schemas,
    described,
    omitted,
)
from towpath_verifier.metadata import Form

pytestmark = pytest.mark.servers

Client = MongoClient[dict[str, Any]]
Made = Callable[[Database[dict[str, Any]]], None]
_COMMAND = re.compile(r"db\.getSiblingDB\((.+?)\)\.runCommand\((.*)\)")
_TYPED = re.compile(r"EJSON\.deserialize\((.*), \{relaxed: false\}\)")
GERMAN = {"locale": "de", "strength": 2}
SMALL, LARGE = {"$jsonSchema": {"required": ["n"]}}, {"n": {"$gt": Int64(5), "$lt": 10}}


@pytest.fixture(scope="module")
def clients(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Client, Client]]:
    """Two separate replica sets: the source and the destination."""
    directory = tmp_path_factory.mktemp("metadata")
    with (
        mongod.start_replica_set(directory / "source", name="one") as one,
        mongod.start_replica_set(directory / "destination", name="two") as two,
        Client(one.uri) as source,
        Client(two.uri) as destination,
    ):
        yield source, destination


def differences(
    source: Client, destination: Client, pairs: list[Pair], form: Form = AS_IT_IS
) -> list[MetadataDifference]:
    return Schemas.read(source, destination, pairs).differences(form)


def collection(**options: Any) -> Made:
    return lambda database: database.command({"create": "it", **options}) and None


def indexes(*specs: dict[str, Any], **options: Any) -> Made:
    def made(database: Database[dict[str, Any]]) -> None:
        database.command({"create": "it", **options})
        database.command({"createIndexes": "it", "indexes": list(specs)})

    return made


def nothing(database: Database[dict[str, Any]]) -> None:
    """No collection at all."""


def index(key: dict[str, Any], **options: Any) -> dict[str, Any]:
    return {"key": key, "name": "one", **options}


@dataclass(frozen=True)
class Case:
    """How a collection `it` is made on each side, and a word for each difference that is to be found."""

    source: Made
    destination: Made
    said: tuple[str, ...]


TIMES = {"timeField": "at", "metaField": "of"}
CLUSTERED = {"clusteredIndex": {"key": {"_id": 1}, "unique": True, "name": "by id"}}
TEXT = index({"a": "text", "b": "text"}, weights={"a": 3, "b": 1}, default_language="german")
CASES = {
    "missing": Case(indexes(index({"a": 1}), validator=SMALL), nothing, ("collection is missing",)),
    "only at the destination": Case(nothing, collection(), ("only at the destination",)),
    "a view there": Case(
        collection(), collection(viewOn="other", pipeline=[]), ("a collection at the source and a view",)
    ),
    "validator": Case(collection(validator=SMALL), collection(), ("option validator",)),
    "typed validator": Case(collection(validator=LARGE), collection(validator=SMALL), ("option validator",)),
    "no validator": Case(collection(), collection(validator=SMALL), ("option validator",)),
    "level and action": Case(
        collection(validator=SMALL, validationLevel="moderate", validationAction="warn"),
        collection(validator=SMALL),
        ("validationLevel", "validationAction"),
    ),
    "strict again": Case(
        collection(validator=SMALL), collection(validator=SMALL, validationLevel="off"), ("validationLevel",)
    ),
    "collation": Case(
        indexes(index({"a": 1}), collation=GERMAN), indexes(index({"a": 1})), ("option collation", "one's coll")
    ),
    "capped": Case(
        collection(capped=True, size=4096, max=10), indexes(index({"a": 1})), ("index one", "option capped")
    ),
    "capped, with an index": Case(
        indexes(index({"a": 1}), capped=True, size=4096),
        indexes(index({"a": 1}), validator=SMALL),
        ("option capped", "option validator"),
    ),
    "capped, with a unique index": Case(
        indexes(index({"a": 1}, unique=True), capped=True, size=4096),
        indexes(index({"a": 1})),
        ("option capped", "one's unique"),
    ),
    "capped size": Case(
        collection(capped=True, size=8192, max=10), collection(capped=True, size=4096), ("option capped",)
    ),
    "capped max": Case(
        collection(capped=True, size=8192), collection(capped=True, size=8192, max=5), ("option capped",)
    ),
    "not capped": Case(indexes(index({"a": 1})), collection(capped=True, size=4096), ("index one", "option capped")),
    "clustered": Case(collection(**CLUSTERED), collection(), ("option clusteredIndex",)),
    "clustered, ttl": Case(
        collection(**CLUSTERED, expireAfterSeconds=60), collection(**CLUSTERED), ("option expireAfterSeconds",)
    ),
    "clustered, no ttl": Case(
        collection(**CLUSTERED), collection(**CLUSTERED, expireAfterSeconds=60), ("option expireAfterSeconds",)
    ),
    "pre-images": Case(
        collection(changeStreamPreAndPostImages={"enabled": True}), collection(), ("changeStreamPreAndPostImages",)
    ),
    "no pre-images": Case(
        collection(), collection(changeStreamPreAndPostImages={"enabled": True}), ("changeStreamPreAndPostImages",)
    ),
    "time-series": Case(collection(timeseries=TIMES), collection(), ("a timeseries at the source",)),
    "granularity": Case(
        collection(timeseries=TIMES | {"granularity": "hours"}), collection(timeseries=TIMES), ("option timeseries",)
    ),
    "finer granularity": Case(
        collection(timeseries=TIMES), collection(timeseries=TIMES | {"granularity": "hours"}), ("option timeseries",)
    ),
    "time-series ttl": Case(
        collection(timeseries=TIMES, expireAfterSeconds=3600), collection(timeseries=TIMES), ("expireAfterSeconds",)
    ),
    "view": Case(collection(viewOn="other", pipeline=[{"$match": LARGE}]), nothing, ("view is missing",)),
    "view's pipeline": Case(
        collection(viewOn="other", pipeline=[{"$match": LARGE}]),
        collection(viewOn="other", pipeline=[{"$match": SMALL}]),
        ("view's pipeline",),
    ),
    "view's collation": Case(
        collection(viewOn="other", pipeline=[], collation=GERMAN),
        collection(viewOn="other", pipeline=[]),
        ("view's collation",),
    ),
    "index missing": Case(indexes(index({"a": 1, "b": -1})), collection(), ("index one",)),
    "index extra": Case(collection(), indexes(index({"a": 1, "b": -1})), ("index one",)),
    "index renamed": Case(indexes(index({"a": 1}, name="new")), indexes(index({"a": 1})), ("index new", "index one")),
    "order of keys": Case(indexes(index({"a": 1, "b": 1})), indexes(index({"b": 1, "a": 1})), ("one's key",)),
    "partial": Case(
        indexes(index({"a": 1}, partialFilterExpression={"b": {"$gt": Int64(1)}})),
        indexes(index({"a": 1}, partialFilterExpression={"b": {"$gt": 2}})),
        ("one's partialFilterExpression",),
    ),
    "ttl": Case(
        indexes(index({"a": 1}, expireAfterSeconds=60, hidden=True)),
        indexes(index({"a": 1}, expireAfterSeconds=61)),
        ("one's expireAfterSeconds is 60 at the source and 61 at the destination",),
    ),
    "no ttl": Case(
        indexes(index({"a": 1})), indexes(index({"a": 1}, expireAfterSeconds=61)), ("one's expireAfterSeconds",)
    ),
    "unique": Case(indexes(index({"a": 1}, unique=True)), indexes(index({"a": 1})), ("one's unique",)),
    "sparse": Case(indexes(index({"a": 1}, sparse=True)), indexes(index({"a": 1})), ("one's sparse",)),
    "hidden": Case(indexes(index({"a": 1}, hidden=True)), indexes(index({"a": 1})), ("one's hidden",)),
    "index collation": Case(indexes(index({"a": 1}, collation=GERMAN)), indexes(index({"a": 1})), ("one's collation",)),
    "text": Case(indexes(TEXT), indexes({**TEXT, "weights": {"a": 1, "b": 1}}), ("one's weights",)),
    "2dsphere": Case(indexes(index({"a": "2dsphere"})), indexes(index({"a": "2d"})), ("one's key",)),
    "2d": Case(indexes(index({"a": "2d"}, bits=20)), indexes(index({"a": "2d"})), ("one's bits",)),
    "wildcard": Case(
        indexes(index({"$**": 1}, wildcardProjection={"a": 1})),
        indexes(index({"$**": 1}, wildcardProjection={"b": 1})),
        ("one's wildcardProjection",),
    ),
    "hashed": Case(indexes(index({"a": "hashed"})), collection(), ("index one",)),
}


def run(client: Client, found: list[MetadataDifference]) -> None:
    """Every command once, in order, read from the text that people see."""
    for text in dict.fromkeys(one.command for one in found):
        for line in text.splitlines():
            parsed = _COMMAND.fullmatch(line)
            assert parsed is not None, line
            typed = _TYPED.fullmatch(parsed[2])
            body = (
                json_util.loads(typed[1], json_options=json_util.CANONICAL_JSON_OPTIONS)
                if typed
                else json.loads(parsed[2])
            )
            client[json.loads(parsed[1])].command(body)


@pytest.mark.parametrize("name", CASES)
def test_a_difference_is_named_and_its_command_repairs_it(clients: tuple[Client, Client], name: str) -> None:
    source, destination = clients
    case, pair = CASES[name], Pair("here.it", "there.it")
    for client, database, made in ((source, "here", case.source), (destination, "there", case.destination)):
        client.drop_database(database)
        made(client[database])
    found = differences(source, destination, [pair])
    assert len(found) == len(case.said), found
    for said in case.said:
        assert any(said in one.what for one in found), f"{said!r} is not in {[one.what for one in found]}"
    assert all(one.command and json.dumps(one.as_json()) for one in found)
    run(destination, found)
    assert differences(source, destination, [pair]) == []


@pytest.mark.parametrize("name", CASES)
def test_the_same_on_both_sides_is_no_difference(clients: tuple[Client, Client], name: str) -> None:
    source, destination = clients
    for client in clients:
        client.drop_database("here")
        CASES[name].source(client["here"])
    assert differences(source, destination, [Pair("here.it", "here.it")]) == []


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.source is not nothing])
def test_the_harmless_form_is_made_and_then_put_right(clients: tuple[Client, Client], name: str) -> None:
    source, destination = clients
    for client in clients:
        client.drop_database("it")
    CASES[name].source(source["it"])
    pair = Pair("it.it", "it.it")
    run(destination, differences(source, destination, [pair], RELAXED))
    assert differences(source, destination, [pair], RELAXED) == []
    held = differences(source, destination, [pair])
    assert bool(held) == bool(list(omitted(described(source, ["it.it"])["it.it"], RELAXED)))
    run(destination, held)
    assert differences(source, destination, [pair]) == []


IN_PLACE = {
    "unique": {"unique": True},
    "unique, partial": {"unique": True, "partialFilterExpression": {"n": {"$gt": Int64(5)}}},
    "unique, sparse": {"unique": True, "sparse": True},
    "unique, collation": {"unique": True, "collation": GERMAN},
    "unique, compound": {"unique": True, "key": {"a": 1, "b": -1}},
    "unique, hidden": {"unique": True, "hidden": True},
    "ready to be unique": {"prepareUnique": True},
    "ttl": {"expireAfterSeconds": 2**30},
    "unique and ttl": {"unique": True, "expireAfterSeconds": 2**30, "hidden": True},
}


@pytest.mark.parametrize("version", [(6, 0), (5, 0)])
@pytest.mark.parametrize("name", IN_PLACE)
def test_what_was_deferred_of_an_index_comes_in_place_where_the_server_can(
    clients: tuple[Client, Client], name: str, version: tuple[int, int]
) -> None:
    source, destination = clients
    spec = index({"a": 1}) | IN_PLACE[name]
    ready = spec.pop("prepareUnique", False)
    for client in clients:
        client.drop_database("it")
        client["it"]["it"].insert_many([{"_id": n, "a": str(n), "n": n} for n in range(10)])
    source["it"].command({"createIndexes": "it", "indexes": [spec]})
    pair = Pair("it.it", "it.it")
    run(destination, differences(source, destination, [pair], RELAXED))
    if ready:
        source["it"].command({"collMod": "it", "index": {"name": "one", "prepareUnique": True}})
    looked = replace(Schemas.read(source, destination, [pair]), version=version)
    found = looked.differences()
    dropped = any("dropIndexes" in command.body for one in found for command in one.commands)
    assert dropped is (version < (6, 0))
    run(destination, found)
    assert differences(source, destination, [pair]) == []


def test_the_version_is_the_one_that_features_go_by(clients: tuple[Client, Client]) -> None:
    _, destination = clients
    destination.admin.command("setFeatureCompatibilityVersion", "5.0")
    try:
        assert Schemas.read(destination, destination, []).version == (5, 0)
    finally:
        destination.admin.command("setFeatureCompatibilityVersion", "6.0")
    assert Schemas.read(destination, destination, []).version == (6, 0)


STOPPED = ("validator", "typed validator", "level and action", "clustered, ttl", "ttl", "unique", "capped", "view")


@pytest.mark.parametrize("name", STOPPED)
def test_clocks_and_validators_are_stopped_in_place_and_set_again(clients: tuple[Client, Client], name: str) -> None:
    source, destination = clients
    for client in clients:
        client.drop_database("it")
        CASES[name].source(client["it"])
    pair = Pair("it.it", "it.it")
    here = described(destination, ["it.it"])["it.it"]
    found = differences(destination, destination, [pair], RELAXED_IN_PLACE)
    assert all("collMod" in command.body for one in found for command in one.commands)
    assert len(found) == len(list(omitted(here, RELAXED_IN_PLACE)))
    run(destination, found)
    assert differences(source, destination, [pair], RELAXED_IN_PLACE) == []
    back = differences(source, destination, [pair])
    assert [one.name for one in back] == [one.name for one in found]
    assert all("collMod" in command.body for one in back for command in one.commands)
    run(destination, back)
    assert described(destination, ["it.it"])["it.it"] == here


def test_a_view_on_renamed_collections_reads_them_by_their_new_names(clients: tuple[Client, Client]) -> None:
    source, destination = clients
    for client in clients:
        client.drop_database("here")
    source["here"]["old"].insert_one({"_id": 1, "n": 1})
    destination["here"]["new"].insert_one({"_id": 1, "n": 1})
    joined = {"from": "old", "localField": "n", "foreignField": "n", "as": "x", "pipeline": [{"$unionWith": "old"}]}
    pipeline = [{"$lookup": joined}]
    source["here"].command({"create": "view", "viewOn": "old", "pipeline": pipeline})
    pairs = [Pair("here.old", "here.new"), Pair("here.view", "here.view")]
    (found,) = differences(source, destination, pairs)
    assert found.kind == "view"
    run(destination, [found])
    assert differences(source, destination, pairs) == []
    assert list(destination["here"]["view"].find()) == list(source["here"]["view"].find()) != []
