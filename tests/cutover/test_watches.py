"""Schemas that are read before a pause: a change of either side ends the cutover, on real servers and without one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from bson.timestamp import Timestamp
from pymongo import MongoClient
from pymongo.errors import OperationFailure

from tests.support import mongod
from tests.support.awaited import until
from tests.support.cutover_world import pipeline_of
from tests.support.sessions import session_of
from towpath.clients.mongo.client import Cluster
from towpath.cutover import watches
from towpath.cutover.watches import SchemaWatches
from towpath.session import Session

Client = MongoClient[dict[str, Any]]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Client]]:
    with (
        mongod.start_replica_set(tmp_path_factory.mktemp("watched")) as running,
        MongoClient[dict[str, Any]](running.uri) as client,
    ):
        yield running.uri, client


@pytest.fixture
def shop(server: tuple[str, Client], tmp_path: Path) -> Session:
    """A pipeline that renames, between two databases of one server."""
    uri, client = server
    for name in ("shop", "copied", "other"):
        client.drop_database(name)
        client[name].users.create_index("n")
    client.shop.create_collection("adults", viewOn="users", pipeline=[])
    more = '[collections.rename]\n"shop.users" = "copied.users"\n'
    source, destination = Cluster(uri, "source"), Cluster(uri + "&appname=destination", "destination")
    return session_of(pipeline_of(tmp_path, more=more), source=source, destination=destination)


VIEW: dict[str, Any] = {"viewOn": "users", "pipeline": [{"$match": {"n": 1}}]}
CHANGES: dict[str, tuple[Callable[[Client], object], str]] = {
    "an index": (lambda client: client.shop.users.create_index("m"), "shop.users got the createIndexes at the source"),
    "a drop of an index": (lambda client: client.copied.users.drop_index("n_1"), "copied.users got the dropIndexes at"),
    "a flag": (
        lambda client: client.shop.command("collMod", "users", index={"name": "n_1", "hidden": True}),
        "shop.users got the modify at the source",
    ),
    "a validator": (
        lambda client: client.copied.command("collMod", "users", validator={"a": 1}),
        "copied.users got the modify at the destination",
    ),
    "a collection": (lambda client: client.shop.create_collection("new"), "shop.new got the create at the"),
    "a rename": (lambda client: client.other.users.rename("x") and client.shop.users.rename("y"), "got the rename at"),
    "a view": (lambda client: client.shop.command("collMod", "adults", **VIEW), "shop.adults got the modify"),
    "a new view": (lambda client: client.shop.create_collection("v", **VIEW), "shop.v got the create"),
    "a view's drop": (lambda client: client.shop.drop_collection("adults"), "shop.adults got the drop"),
    "a drop": (lambda client: client.shop.drop_collection("users"), "shop.users got the drop"),
}


@pytest.mark.servers
@pytest.mark.parametrize("name", CHANGES)
def test_a_change_is_told(server: tuple[str, Client], shop: Session, name: str) -> None:
    told = list[str]()
    with ExitStack() as stack:
        SchemaWatches(shop, told.append).begin(stack)
        change, words = CHANGES[name]
        change(server[1])
        until("the change", lambda: bool(told), 10, 0.02)
    assert words in told[0] and "begin again" in told[0], told


@pytest.mark.servers
def test_what_does_not_concern_the_pipeline_and_what_comes_after_the_watch_changes_nothing(
    server: tuple[str, Client], shop: Session
) -> None:
    told = list[str]()
    with ExitStack() as stack:
        schemas = SchemaWatches(shop, told.append)
        schemas.begin(stack)
        server[1].other.users.create_index("m")
        server[1].towpath.positions.create_index("m")
        server[1].shop.users.insert_one({"n": 1})
        assert schemas.unchanged
        server[1].copied.users.create_index("later")
        server[1].shop.users.create_index("later")
        stack.enter_context(second := ExitStack())
        again = SchemaWatches(shop, told.append)
        again.begin(second)
        assert again.unchanged
    assert told == []


def test_where_changes_cannot_be_watched_that_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as with a user who may not watch the whole cluster. Nothing waits for the watch then."""

    def refuse(client: Any, **start: Any) -> Any:
        raise OperationFailure("not authorized", 13)

    monkeypatch.setattr(watches, "watch_schemas", refuse)
    monkeypatch.setattr(watches, "cluster_time", lambda client: Timestamp(9, 1))
    client: Any = None
    watch = watches._SchemaWatch(client, Timestamp(1, 1), "source", lambda name: True, pytest.fail)
    with watch:
        watch.catch_up(lambda: watch.failed)
    assert watch.failed
    schemas = SchemaWatches(Any, pytest.fail, [watch, watch])  # type: ignore[arg-type]
    assert not schemas.unchanged
