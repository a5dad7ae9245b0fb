"""What the users of both sides need: `check` asks for just that, and with just that the pipeline runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from typing import Any

import pytest
from pymongo import MongoClient

from tests.checks.test_check import check, one
from tests.conftest import MakePipeline
from tests.support import raw
from tests.support.clock import Clock
from tests.support.pipeline import Addresses, Pipeline, Settings, towpath
from tests.support.servers import mongod_with_users

pytestmark = pytest.mark.servers

#: The least that the pipeline's two users need, as privileges of a role each.
READER: list[dict[str, Any]] = [
    {"resource": {"db": "", "collection": ""}, "actions": ["find", "changeStream", "listCollections"]}
]
#: And for a copy in ranges.
COPIER: list[dict[str, Any]] = [{**READER[0], "actions": [*READER[0]["actions"], "collStats"]}]
WRITER_ACTIONS = ["insert", "update", "remove"]
#: And where writers are registered and the sink keeps its positions.
POSITIONS: dict[str, Any] = {
    "resource": {"db": "towpath", "collection": ""},
    "actions": ["find", "insert", "update", "remove"],
}
SIDES = {"source": "reader", "destination": "writer"}


@pytest.fixture
def filled(pipeline: Pipeline) -> Pipeline:
    pipeline.source("docs").insert_one({"_id": 1})
    return pipeline


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A replica set that asks for a password; `host:port`."""
    with (
        mongod_with_users(tmp_path_factory.mktemp("guarded"), {}) as address,
        Clock(f"mongodb://root:secret@{address}/?authSource=admin"),
    ):
        yield address


@pytest.fixture(scope="module")
def root(guarded: str) -> Iterator[raw.Client]:
    with MongoClient[dict[str, Any]](f"mongodb://root:secret@{guarded}/") as client:
        yield client


UserWith = Callable[[list[dict[str, Any]]], str]


@pytest.fixture
def user_with(root: raw.Client, guarded: str, pipeline: Pipeline) -> Iterator[UserWith]:
    """Makes a user with a role of these privileges; returns the URI."""
    made: list[str] = []

    def make(privileges: list[dict[str, Any]]) -> str:
        name = f"{pipeline.name}-{len(made)}"
        made.append(name)
        root.admin.command("createRole", name, privileges=privileges, roles=[])
        root.admin.command("createUser", name, pwd="secret", roles=[name])
        return f"mongodb://{name}:secret@{guarded}/?authSource=admin"

    yield make
    for name in made:
        root.admin.command("dropUser", name)
        root.admin.command("dropRole", name)


@pytest.mark.parametrize("mode", [pytest.param("plain", marks=pytest.mark.nightly), "exactly-once"])
def test_the_least_privileges_are_enough(
    make_pipeline: MakePipeline, root: raw.Client, guarded: str, mode: str
) -> None:
    """What `check` asks for is what the pipeline needs: it runs with exactly that, from end to end."""
    pipeline = make_pipeline(Settings(mode=mode, include=("docs",), rename={"docs": "copies"}))
    writer = [{"resource": {"db": pipeline.name, "collection": ""}, "actions": WRITER_ACTIONS}]
    writer += [POSITIONS]
    reader = COPIER if mode == "exactly-once" else READER
    for name, privileges in ((f"reader-{mode}", reader), (f"writer-{mode}", writer)):
        root.admin.command("createRole", name, privileges=privileges, roles=[])
        root.admin.command("createUser", name, pwd="secret", roles=[name])
    uris = {side: f"mongodb://{user}-{mode}:secret@{guarded}/?authSource=admin" for side, user in SIDES.items()}
    addresses = Addresses(**{**asdict(pipeline.addresses), **uris})
    pipeline = replace(pipeline, addresses=addresses, source_client=root, destination_client=root)
    documents = pipeline.source("docs")
    documents.insert_many([{"_id": n} for n in range(50)])
    found = check(pipeline, expect=0)
    one(found, "warning", "source oplog", "may not read local.oplog.rs")
    one(found, "warning", "destination", "may not find, listCollections, listIndexes")
    said = towpath("deploy", pipeline.write(), expect=2).stderr
    assert "not authorized" in said and "with --no-prepare" in said, "and no collection without its options"
    pipeline.deploy("--no-prepare")
    documents.update_many({}, {"$set": {"seen": True}})
    documents.delete_one({"_id": 7})
    pipeline.wait()
    assert pipeline.destination("docs").count_documents({"seen": True}) == 49
    towpath("remove", pipeline.file, "--yes")  # what comes next takes the positions over
    pipeline.deploy("--no-prepare")
    documents.update_many({}, {"$set": {"seen": False}})
    pipeline.wait()
    assert pipeline.destination("docs").count_documents({"seen": False}) == 49
    root.drop_database(pipeline.name)


@pytest.mark.parametrize("lacking", COPIER[0]["actions"])
def test_a_privilege_that_the_source_lacks(filled: Pipeline, user_with: UserWith, lacking: str) -> None:
    left = [action for action in COPIER[0]["actions"] if action != lacking]
    uri = user_with([{"resource": {"db": "", "collection": ""}, "actions": left}])
    exactly_once = replace(filled, settings=Settings(mode="exactly-once"))
    advice = one(check(exactly_once, expect=1, source=uri), "error", "source", f"may not {lacking} in every database")
    assert "readAnyDatabase" in advice["advice"]


def test_a_source_user_of_one_database(filled: Pipeline, user_with: UserWith) -> None:
    uri = user_with([{"resource": {"db": filled.name, "collection": ""}, "actions": COPIER[0]["actions"]}])
    one(check(filled, expect=1, source=uri), "error", "source", "Debezium watches all databases")


@pytest.mark.parametrize("lacking", WRITER_ACTIONS)
def test_a_privilege_that_the_destination_lacks(filled: Pipeline, user_with: UserWith, lacking: str) -> None:
    left = [action for action in WRITER_ACTIONS if action != lacking]
    uri = user_with([POSITIONS, {"resource": {"db": filled.name, "collection": ""}, "actions": left}])
    found = check(filled, expect=1, destination=uri)
    advice = one(found, "error", "destination", f"may not {lacking} in {filled.name}.docs")["advice"]
    assert f'{{role: "readWrite", db: "{filled.name}"}}' in advice


def test_a_destination_user_who_may_not_keep_positions(filled: Pipeline, user_with: UserWith) -> None:
    left = [{"resource": {"db": "towpath", "collection": "offsets"}, "actions": ["find", "insert"]}]
    uri = user_with([*left, {"resource": {"db": filled.name, "collection": ""}, "actions": WRITER_ACTIONS}])
    exactly_once = replace(filled, settings=Settings(mode="exactly-once"))
    found = check(exactly_once, expect=1, destination=uri)
    words = "may not find, insert, update, remove in towpath.writers and towpath.offsets and towpath.tasks"
    assert 'role: "readWrite", db: "towpath"' in one(found, "error", "destination", words)["advice"]


@pytest.mark.nightly
def test_what_mongo_kafka_validates_is_foreseen(filled: Pipeline, user_with: UserWith) -> None:
    """A user who may write where the pipeline writes, and is refused by the sink connector all the same."""
    rename = f'[collections.rename]\n"{filled.name}.docs" = "elsewhere.docs"'
    grants = [POSITIONS, {"resource": {"db": "elsewhere", "collection": ""}, "actions": WRITER_ACTIONS}]
    for more, refused in (([], True), ([{"resource": {"db": filled.name, "collection": ""}}], False)):
        uri = user_with([*grants, *({**grant, "actions": WRITER_ACTIONS} for grant in more)])
        other = replace(filled, addresses=replace(filled.addresses, destination=uri))
        text = other.write().read_text().replace("[collections.rename]", rename)
        other.file.write_text(text)
        said = towpath("check", other.file, "--json", expect=int(refused)).stdout
        assert ("own validation would report insert, update, remove missing" in said) is refused
        said = towpath("deploy", other.file, "--no-prepare", expect=2 if refused else 0).stderr
        assert ("own validation would report insert, update, remove missing" in said) is refused
