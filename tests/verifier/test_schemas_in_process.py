"""Options, views and indexes as servers list them, without servers: what counts as a difference, what corrects it, and
what a copy leaves out while changes stream in. `test_metadata.py` has servers make and run all of it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from bson import Int64
from pymongo.errors import OperationFailure

from tests.support.member import Reachable
from towpath_verifier import (
    AS_IT_IS,
    RELAXED,
    RELAXED_IN_PLACE,
    Command,
    Described,
    MetadataDifference,
    Pair,
    Schemas,
    described,
    feature_version,
    omitted,
)
from towpath_verifier.descriptions import concurrently, index, options
from towpath_verifier.metadata import NEVER, Form

PAIR = Pair("here.it", "there.it")
GERMAN = {"locale": "de", "strength": 2}
SMALL = {"n": {"$gt": 5}}
TIMES = {"timeField": "at", "granularity": "minutes"}
ONE = {"a": 1}


class Server(Reachable):
    """Answers as a server does that has these collections: namespace → entry of `listCollections`, and indexes."""

    def __init__(self, version: str = "6.0", **entries: Any) -> None:
        self.entries = {name.replace("__", "."): entry for name, entry in entries.items()}
        self.version, self.asked = version, list[str]()
        self.denied: OperationFailure | None = None
        self.admin = self

    def command(self, name: str, **arguments: Any) -> dict[str, Any]:
        if name == "buildInfo":
            return {"versionArray": [7, 3, 1, 0]}
        assert (name, arguments) == ("getParameter", {"featureCompatibilityVersion": 1})
        if self.denied is not None:
            raise self.denied
        return {"featureCompatibilityVersion": {"version": self.version}}

    def __getitem__(self, database: str) -> Any:
        return Database(self, database)


class Database:
    def __init__(self, server: Server, name: str) -> None:
        self._server, self._name = server, name

    def list_collections(self, filter: dict[str, Any]) -> Iterator[dict[str, Any]]:
        for namespace, (entry, _) in self._server.entries.items():
            database, name = namespace.split(".", 1)
            if database == self._name and name in filter["name"]["$in"]:
                yield {"name": name, "type": "collection", "info": {"uuid": name}} | entry

    def command(self, listing: dict[str, Any]) -> Any:
        namespace = f"{self._name}.{listing['listIndexes']}"
        self._server.asked.append(namespace)
        if namespace not in self._server.entries:
            raise OperationFailure("ns does not exist", 26)
        assert listing["includeBuildUUIDs"]
        indexes = [{"v": 2, "key": {"_id": 1}, "name": "_id_"}, *self._server.entries[namespace][1]]
        return {"cursor": {"firstBatch": indexes}}


def collection(*indexes: dict[str, Any], kind: str = "collection", **options: Any) -> Any:
    return {"type": kind, "options": options}, list(indexes)


def one(key: dict[str, Any] = ONE, **options: Any) -> dict[str, Any]:
    return {"v": 2, "key": key, "name": "one", **options}


def differences(
    source: Any, destination: Any, form: Form = AS_IT_IS, version: str = "6.0", pairs: tuple[Pair, ...] = (PAIR,)
) -> list[MetadataDifference]:
    ours: Any = Server(**({"here__it": source} if source else {}))
    theirs: Any = Server(version, **({"there__it": destination} if destination else {}))
    return Schemas.read(ours, theirs, pairs).differences(form)


def commands(found: list[MetadataDifference]) -> list[dict[str, Any]]:
    """Every command once, in order."""
    assert all(command.database == "there" for one in found for command in one.commands)
    unique: list[dict[str, Any]] = []
    for command in (command for one in found for command in one.commands):
        if command.body not in unique:
            unique.append(dict(command.body))
    return unique


def changed(**arguments: Any) -> dict[str, Any]:
    return {"collMod": "it", **arguments}


def changed_index(**arguments: Any) -> dict[str, Any]:
    return changed(index={"name": "one", **arguments})


def made(*indexes: dict[str, Any]) -> dict[str, Any]:
    return {"createIndexes": "it", "indexes": list(indexes)}


DROP, DROP_INDEX = {"drop": "it"}, {"dropIndexes": "it", "index": "one"}


def created(**options: Any) -> dict[str, Any]:
    return {"create": "it", **options}


#: What each side has, and the commands that give the destination what the source has.
CASES: dict[str, tuple[Any, Any, list[dict[str, Any]]]] = {
    "missing": (
        collection(one(), validator=SMALL, capped=True, size=4096.0, max=7),
        None,
        [created(validator=SMALL, capped=True, size=4096, max=7), made({"key": ONE, "name": "one"})],
    ),
    "only at the destination": (None, collection(), [DROP]),
    "of another kind": (collection(), collection(kind="view", viewOn="x", pipeline=[]), [DROP, created()]),
    "validator": (collection(validator=SMALL), collection(), [changed(validator=SMALL)]),
    "no validator": (collection(), collection(validator=SMALL), [changed(validator={})]),
    "strict again": (collection(), collection(validationLevel="off"), [changed(validationLevel="strict")]),
    "refuses again": (collection(), collection(validationAction="warn"), [changed(validationAction="error")]),
    "no pre-images": (
        collection(),
        collection(changeStreamPreAndPostImages={"enabled": True}),
        [changed(changeStreamPreAndPostImages={"enabled": False})],
    ),
    "type inside a validator": (
        collection(validator={"n": Int64(5)}),
        collection(validator={"n": 5}),
        [changed(validator={"n": Int64(5)})],
    ),
    "collation": (collection(one(), collation=GERMAN), collection(one()), [
        DROP, created(collation=GERMAN), made({"key": ONE, "name": "one"}),
    ]),
    "becomes capped": (
        collection(one(), capped=True, size=4096, max=10),
        collection(one()),
        [{"convertToCapped": "it", "size": 4096}, changed(cappedMax=10), made({"key": ONE, "name": "one"})],
    ),
    "becomes capped without a limit": (
        collection(capped=True, size=4096, max=2**31 - 1), collection(), [{"convertToCapped": "it", "size": 4096}],
    ),
    "size": (
        collection(capped=True, size=8192),
        collection(capped=True, size=4096, max=3),
        [changed(cappedSize=8192, cappedMax=0)],
    ),
    "no longer capped": (collection(), collection(capped=True, size=4096), [DROP, created()]),
    "clustered, TTL": (
        collection(clusteredIndex={"v": 2, "key": {"_id": 1}}, expireAfterSeconds=Int64(60)),
        collection(clusteredIndex={"v": 1, "key": {"_id": 1}}),
        [changed(expireAfterSeconds=60)],
    ),
    "time series, no TTL": (
        collection(kind="timeseries", timeseries=TIMES),
        collection(kind="timeseries", timeseries=TIMES, expireAfterSeconds=60),
        [changed(expireAfterSeconds="off")],
    ),
    "coarser": (
        collection(kind="timeseries", timeseries=TIMES | {"granularity": "hours", "bucketMaxSpanSeconds": 9}),
        collection(kind="timeseries", timeseries=TIMES | {"bucketMaxSpanSeconds": 5}),
        [changed(timeseries={"granularity": "hours"})],
    ),
    "finer": (
        collection(kind="timeseries", timeseries=TIMES),
        collection(kind="timeseries", timeseries=TIMES | {"granularity": "hours"}),
        [DROP, created(timeseries=TIMES)],
    ),
    "coarser and something else": (
        collection(kind="timeseries", timeseries=TIMES | {"granularity": "hours", "metaField": "m"}),
        collection(kind="timeseries", timeseries=TIMES),
        [DROP, created(timeseries=TIMES | {"granularity": "hours", "metaField": "m"})],
    ),
    "view's pipeline": (
        collection(kind="view", viewOn="x", pipeline=[{"$match": SMALL}]),
        collection(kind="view", viewOn="x", pipeline=[]),
        [changed(viewOn="x", pipeline=[{"$match": SMALL}])],
    ),
    "view's collation": (
        collection(kind="view", viewOn="x", pipeline=[], collation=GERMAN),
        collection(kind="view", viewOn="x", pipeline=[]),
        [DROP, created(viewOn="x", pipeline=[], collation=GERMAN)],
    ),
    "index missing": (collection(one(sparse=True)), collection(), [made({"key": ONE, "name": "one", "sparse": True})]),
    "index extra": (collection(), collection(one()), [DROP_INDEX]),
    "index renamed": (
        collection(one() | {"name": "new"}), collection(one()), [DROP_INDEX, made({"key": ONE, "name": "new"})],
    ),
    "order of keys": (
        collection(one({"a": 1, "b": 1})),
        collection(one({"b": 1, "a": 1})),
        [DROP_INDEX, made({"key": {"a": 1, "b": 1}, "name": "one"})],
    ),
    "hidden": (collection(one(hidden=True)), collection(one()), [changed_index(hidden=True)]),
    "shown and TTL": (
        collection(one(expireAfterSeconds=5)),
        collection(one(expireAfterSeconds=6, hidden=True)),
        [changed_index(expireAfterSeconds=5, hidden=False)],
    ),
    "no TTL": (
        collection(one()), collection(one(expireAfterSeconds=6)), [DROP_INDEX, made({"key": ONE, "name": "one"})],
    ),
    "unique": (
        collection(one(unique=True, hidden=True)),
        collection(one()),
        [changed_index(hidden=True), changed_index(prepareUnique=True), changed_index(unique=True)],
    ),
    "not unique": (
        collection(one()), collection(one(unique=True)), [DROP_INDEX, made({"key": ONE, "name": "one"})],
    ),
    "ready to be unique": (collection(one(prepareUnique=True)), collection(one()), [changed_index(prepareUnique=True)]),
    "no longer ready": (collection(one()), collection(one(prepareUnique=True)), [changed_index(prepareUnique=False)]),
    "hidden and sparse": (
        collection(one(hidden=True, sparse=True)),
        collection(one()),
        [DROP_INDEX, made({"key": ONE, "hidden": True, "sparse": True, "name": "one"})],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_a_difference_is_named_with_the_commands_that_correct_it(name: str) -> None:
    source, destination, wanted = CASES[name]
    found = differences(source, destination)
    assert commands(found) == wanted
    assert all(one.what and one.command and one.as_json()["command"] == one.command for one in found)
    if source:
        assert differences(source, source) == []


@pytest.mark.parametrize(("here", "there", "where"), [(True, False, "source"), (False, True, "destination")])
def test_an_index_that_is_being_built_is_not_the_same_and_needs_no_command(here: bool, there: bool, where: str) -> None:
    def side(builds: bool) -> Any:
        spec = one(unique=True)
        return collection({"spec": spec, "buildUUID": 1} if builds else spec)

    [found] = differences(side(here), side(there))
    assert (found.what, found.commands) == (f"the index one is being built at the {where}", [])
    assert differences(side(True), side(True)) == []
    [missing] = differences(side(True), collection())
    assert commands([missing]) == [made({"key": ONE, "unique": True, "name": "one"})]
    schema = described(Server(here__it=side(True)), ["here.it"])["here.it"]  # type: ignore[arg-type]
    assert schema.building == ["one"] and schema.ready.building == []
    assert schema.ready.indexes == {"one": {"key": ONE, "unique": True}} != schema.indexes


def test_a_collection_that_is_dropped_while_it_is_read_has_no_indexes() -> None:
    class Dropping(Server):
        def __getitem__(self, database: str) -> Any:
            found = super().__getitem__(database)
            found.list_collections = lambda filter: [{"name": "it", "type": "collection"}]
            return found

    assert described(Dropping(), ["here.it"])["here.it"].indexes == {}  # type: ignore[arg-type]


def told(name: str) -> list[tuple[str, str, Any, Any]]:
    """Kind, name and values of each difference of a case."""
    source, destination, _ = CASES[name]
    return [(one.kind, one.name, one.source, one.destination) for one in differences(source, destination)]


def test_a_difference_has_the_values_of_both_sides() -> None:
    assert told("view's pipeline") == [("view", "pipeline", [{"$match": SMALL}], [])]
    assert told("validator") == [("option", "validator", SMALL, None)]
    assert told("index missing") == [("index", "one", {"key": ONE, "sparse": True}, None)]
    assert told("index extra") == [("index", "one", None, {"key": ONE})]
    assert told("missing")[0][:2] == ("collection", "") and told("missing")[0][3] is None
    assert told("of another kind") == [("collection", "", {}, {"viewOn": "x", "pipeline": []})]
    assert told("only at the destination") == [("collection", "", None, {})]
    assert [name for _, name, *_ in told("shown and TTL")] == ["one"]


@pytest.mark.parametrize(
    ("destination", "version", "wanted"),
    [
        (collection(one()), "5.1", [changed_index(expireAfterSeconds=5)]),
        (collection(one()), "5.0", [DROP_INDEX, made({"key": ONE, "expireAfterSeconds": 5, "name": "one"})]),
        (collection(one(expireAfterSeconds=6)), "4.4", [changed_index(expireAfterSeconds=5)]),
    ],
)
def test_an_older_server_recreates_what_it_cannot_change(destination: Any, version: str, wanted: Any) -> None:
    assert commands(differences(collection(one(expireAfterSeconds=5)), destination, version=version)) == wanted
    unique = commands(differences(collection(one(unique=True)), collection(one()), version="5.0"))
    assert unique == [DROP_INDEX, made({"key": ONE, "unique": True, "name": "one"})]


def test_what_a_server_adds_and_what_is_at_its_default_is_no_difference() -> None:
    added = {"uuid": 1, "autoIndexId": True, "flags": 1, "temp": False, "create": "it", "recordPreImages": True}
    defaults = {"validator": {}, "validationLevel": "strict", "validationAction": "error", "capped": False, "size": 7}
    assert options(added | defaults | {"changeStreamPreAndPostImages": {"enabled": False}}) == {}
    assert options({"collation": GERMAN | {"version": "57.1"}}) == {"collation": GERMAN}
    assert options({"collation": {"locale": "simple"}}) == {}
    assert options({"capped": True, "size": 4096.0, "max": 0}) == {"capped": {"size": 4096}}
    listed = {"v": 2, "ns": "a.b", "background": True, "dropDups": True, "name": "one", "key": {"a": 1.0, "b": "text"}}
    flags = {"unique": False, "sparse": 0, "hidden": True, "prepareUnique": 1}
    more = {"expireAfterSeconds": 60.0, "weights": {"b": 2.0, "a": 1}, "collation": GERMAN | {"version": "57.1"}}
    assert index(listed | flags | more) == {
        "key": {"a": 1, "b": "text"},
        "hidden": True,
        "prepareUnique": True,
        "expireAfterSeconds": 60,
        "weights": {"a": 1, "b": 2},
        "collation": GERMAN,
    }
    assert index({"key": {"a": 1.5}, "expireAfterSeconds": float("nan")})["key"] == {"a": 1.5}


#: Everything that would reject or delete documents, and what need not go.
STRICT = collection(
    one(unique=True, expireAfterSeconds=5, hidden=True),
    one({"b": 1}, prepareUnique=True) | {"name": "two"},
    one({"c": 1}, sparse=True) | {"name": "three"},
    validator=SMALL,
    capped=True,
    size=4096,
    expireAfterSeconds=60,
)
HARMLESS = {"validator": SMALL, "validationAction": "warn"}


def test_a_copy_has_nothing_that_rejects_or_deletes_documents_while_changes_stream_in() -> None:
    (found,) = differences(STRICT, None, RELAXED)
    create, indexes = commands([found])
    assert create == created(**HARMLESS)
    assert indexes["indexes"] == [
        {"key": ONE, "hidden": True, "name": "one"},
        {"key": {"b": 1}, "name": "two"},
        {"key": {"c": 1}, "sparse": True, "name": "three"},
    ]
    strict = described(Server(here__it=STRICT), ["here.it"])["here.it"]  # type: ignore[arg-type]
    assert list(omitted(strict, RELAXED)) == [
        "its limit as a capped collection",
        "its TTL",
        "the validator's refusals (it warns until then)",
        "uniqueness of the index one",
        "TTL of the index one",
        "uniqueness of the index two",
    ]
    assert list(omitted(Described("collection", {}, {"one": {"key": ONE}}), RELAXED)) == []


def test_a_former_source_keeps_its_limits_and_its_clocks_and_validators_are_stopped_in_place() -> None:
    indexes = one(unique=True, expireAfterSeconds=5, hidden=True), one({"b": 1}, unique=True) | {"name": "two"}
    clustered = {"key": {"_id": 1}, "unique": True}
    clocks = collection(*indexes, validator=SMALL, clusteredIndex=clustered, expireAfterSeconds=60)
    assert commands(differences(clocks, clocks, RELAXED_IN_PLACE)) == [
        changed(validationAction="warn"),
        changed(expireAfterSeconds="off"),
        changed_index(expireAfterSeconds=NEVER),
    ]
    assert differences(collection(capped=True, size=4096), collection(capped=True, size=4096), RELAXED_IN_PLACE) == []
    whole = described(Server(here__it=clocks), ["here.it"])["here.it"]  # type: ignore[arg-type]
    assert list(omitted(whole, RELAXED_IN_PLACE)) == [
        "its TTL",
        "the validator's refusals (it warns until then)",
        "TTL of the index one",
    ]


def test_a_fail_back_to_a_former_source_of_5_0_rebuilds_no_index() -> None:
    """It is still unique there, and its TTL is only too long; the new primary may not have converted its own yet."""
    stopped = collection(one(unique=True, expireAfterSeconds=NEVER))
    for new in (one(unique=True, expireAfterSeconds=60), one(prepareUnique=True, expireAfterSeconds=60)):
        found = differences(collection(new), stopped, version="5.0")
        assert commands(found) == [changed_index(expireAfterSeconds=60)]
    made_since = differences(collection(one(expireAfterSeconds=60)), collection(one()), version="5.0")
    assert DROP_INDEX in commands(made_since)


@pytest.mark.parametrize("form", [RELAXED, RELAXED_IN_PLACE])
@pytest.mark.parametrize("kind", ["view", "timeseries"])
def test_what_no_record_is_written_to_is_left_as_it_is(form: Form, kind: Any) -> None:
    whole = Described(kind, {"validator": SMALL, "expireAfterSeconds": 5, "viewOn": "x"}, {"one": {"unique": True}})
    assert form.of(whole) == whole


def test_a_view_reads_what_it_is_to_read_by_the_names_of_the_destination() -> None:
    join = {"from": "old", "as": "old", "pipeline": [{"$unionWith": "old"}, {"$unionWith": {"coll": "kept"}}]}
    others = [{"$graphLookup": {"from": "moved", "x": "old"}}, {"$match": {"from": "old"}}]
    ours: Any = Server(a__view=collection(kind="view", viewOn="old", pipeline=[{"$lookup": join}, *others]))
    theirs: Any = Server()
    pairs = [Pair("a.view", "b.view"), Pair("a.old", "b.new"), Pair("a.moved", "c.moved")]
    (found,) = (one for one in Schemas.read(ours, theirs, pairs).differences() if one.pair == pairs[0])
    new = {"from": "new", "as": "old", "pipeline": [{"$unionWith": "new"}, {"$unionWith": {"coll": "kept"}}]}
    (command,) = found.commands
    assert command.body == {"create": "view", "viewOn": "new", "pipeline": [{"$lookup": new}, *others]}
    assert found.kind == "view"


def test_only_what_exists_is_described_with_indexes_where_there_are_any() -> None:
    clustered = {"key": {"_id": 1}, "name": "by id", "clustered": True}
    server: Any = Server(
        a__one=collection(one()),
        a__other=collection(),
        a__view=collection(kind="view", viewOn="one"),
        a__clustered=collection(clustered, one({"b": 1})),
        b__one=collection(one()),
    )
    found = described(server, ["a.one", "a.view", "a.clustered", "a.missing", "b.missing"])
    assert {name: list(of.indexes) for name, of in found.items()} == {
        "a.one": ["one"],
        "a.view": [],
        "a.clustered": ["one"],
    }
    assert sorted(server.asked) == ["a.clustered", "a.one"], "a view has none"


@pytest.mark.parametrize("count", [0, 3, 49, 50, 500])
def test_every_namespace_has_its_own_answer_and_an_error_of_one_is_raised(count: int) -> None:
    names, threads = [f"a.{number}" for number in range(count)], set[str]()

    def ask(name: str) -> str:
        threads.add(threading.current_thread().name)
        return f"answer to {name}"

    assert concurrently(ask, names) == {name: f"answer to {name}" for name in names}
    assert (threads <= {threading.current_thread().name}) is (count < 50)

    def refuse(name: str) -> str:
        if name == names[-1]:
            raise OperationFailure("not authorized", 13)
        return name

    if names:
        with pytest.raises(OperationFailure, match="not authorized"):
            concurrently(refuse, names)


def test_features_go_by_the_compatibility_version_or_by_the_servers_own_where_that_is_denied() -> None:
    server: Any = Server("6.0")
    assert feature_version(server) == (6, 0)
    server.denied = OperationFailure("not authorized", 13)
    assert feature_version(server) == (7, 3)
    server.denied = OperationFailure("shutting down", 91)
    with pytest.raises(OperationFailure, match="shutting down"):
        feature_version(server)


@pytest.mark.parametrize(
    ("value", "is_plain"),
    [
        (None, True),
        (True, True),
        ("x", True),
        (-(2**31), True),
        (2**31 - 1, True),
        (2**31, False),
        (-(2**31) - 1, False),
        (Int64(5), False),
        (1.5, True),
        (2.0, False),
        (float("inf"), False),
        ([1, {"a": Int64(1)}], False),
        ({"a": [1, "x"]}, True),
        (b"x", False),
    ],
)
def test_a_command_is_shown_so_that_the_shell_reads_it_with_its_types(value: Any, is_plain: bool) -> None:
    text = Command("a", {"collMod": "it", "validator": value}).text
    assert text.startswith(
        'db.getSiblingDB("a").runCommand({"collMod": "it"' if is_plain else 'db.getSiblingDB("a").run'
    )
    assert ("EJSON.deserialize" in text) is not is_plain
    assert text.endswith("})" if is_plain else ", {relaxed: false}))")
