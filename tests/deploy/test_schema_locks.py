"""Commands that change a schema and wait: for the lock of an open transaction, or for the build of an index."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from types import SimpleNamespace
from typing import Any

import pytest
from pymongo import MongoClient

from tests.support import mongod
from tests.support.awaited import until
from tests.support.cutover_world import pipeline_of
from tests.support.sessions import session_of
from towpath.clients.mongo.client import Cluster
from towpath.cutover import steps
from towpath.deploy import schema
from towpath.deploy.schema import Step
from towpath.errors import TowpathError
from towpath.session import Session
from towpath.store.cutover import Cutover
from towpath_verifier import Command, described

pytestmark = pytest.mark.servers
Client = MongoClient[dict[str, Any]]
ENFORCE = Step("copied.users", Command("copied", {"collMod": "users", "index": {"name": "n", "prepareUnique": True}}))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Client]]:
    options = ("--setParameter", "enableTestCommands=1")
    with (
        mongod.start_replica_set(tmp_path_factory.mktemp("locked"), options=options) as running,
        MongoClient[dict[str, Any]](running.uri) as client,
    ):
        yield running.uri, client


@pytest.fixture
def shop(server: tuple[str, Client], tmp_path: Path) -> Session:
    """From `shop` to `copied`, of one server; the source's index is unique."""
    uri, client = server
    for name in ("shop", "copied"):
        client.drop_database(name)
        client[name].users.insert_many([{"_id": n, "n": n} for n in range(100)])
        client[name].users.create_index("n", name="n", unique=name == "shop")
    more = '[collections.rename]\n"shop.users" = "copied.users"\n'
    source, destination = Cluster(uri, "source"), Cluster(uri + "&appname=destination", "destination")
    return session_of(pipeline_of(tmp_path, more=more), source=source, destination=destination)


def enforced(client: Client) -> bool:
    (index,) = [one for one in client.copied.users.list_indexes() if one["name"] == "n"]
    return bool(index.get("prepareUnique"))


@contextmanager
def read(client: Client) -> Iterator[None]:
    """A transaction that has read, and so has a lock."""
    with client.start_session() as session, session.start_transaction():
        assert client.copied.users.find_one(session=session)
        yield


def waits(client: Client) -> bool:
    """Whether a command waits for its lock."""
    match = {"command.collMod": "users", "waitingForLock": True}
    return bool(list(client.admin.aggregate([{"$currentOp": {}}, {"$match": match}])))


def test_a_command_that_waits_for_a_lock_ends_with_the_pause(server: tuple[str, Client], shop: Session) -> None:
    client = server[1]
    with read(client):
        with pytest.raises(TowpathError, match=r"time limit.*prepareUnique|timed out"):
            schema.apply(shop.destination, [ENFORCE], within=1)
        until("the server has ended it, too", lambda: not waits(client), 10, 0.02)
    client.copied.command("collMod", "users")  # would come after one that still waits
    assert not enforced(client)


def test_an_undo_comes_after_a_command_that_still_waits(server: tuple[str, Client], shop: Session) -> None:
    """As that of a cutover that was killed: nothing shows yet what its command will do."""
    client = server[1]
    undo = schema.as_text([schema.without_enforcement(ENFORCE)])
    marker = Cutover("cutting over", (), 0.0, undo={steps.ENFORCE: undo})
    sides: Any = SimpleNamespace(session=shop, marker=marker)
    with read(client):
        first = Thread(target=schema.apply, args=(shop.destination, [ENFORCE]))
        first.start()
        until("the command waits", lambda: waits(client), 10, 0.02)
        second = Thread(target=steps.release, args=(sides,))
        second.start()
        second.join(1)
        assert second.is_alive() and not enforced(client)
    first.join(10)
    second.join(10)
    assert not enforced(client)


def test_an_index_that_is_built_is_told_and_a_relaxed_schema_ends_its_build(
    server: tuple[str, Client], shop: Session
) -> None:
    """The build is one that the source does not have in this form, such as that of a cutover that was interrupted."""
    client, point = server[1], "hangAfterInitializingIndexBuild"
    client.shop.users.create_index("t", name="t", expireAfterSeconds=60)
    client.copied.command("collMod", "users", validator={"n": {"$gt": 0}})
    client.shop.command("collMod", "users", validator={"n": {"$gt": 0}})
    client.admin.command("configureFailPoint", point, mode="alwaysOn")
    try:
        build = Thread(target=_built, args=(client,))
        build.start()
        until("the build", lambda: described(client, ["copied.users"])["copied.users"].building == ["t"], 10, 0.02)
        with pytest.raises(TowpathError, match=r"copied\.users"):
            schema.apply(shop.destination, [ENFORCE])
        relax = Thread(target=steps.relax_schema, args=(shop,))
        relax.start()
        until("the end of the build", lambda: not build.is_alive(), 10, 0.02)
    finally:
        client.admin.command("configureFailPoint", point, mode="off")
    build.join(10)
    relax.join(10)
    (index,) = [one for one in client.copied.users.list_indexes() if one["name"] == "t"]
    assert "expireAfterSeconds" not in index and not described(client, ["copied.users"])["copied.users"].building
    assert client.copied.get_collection("users").options()["validationAction"] == "warn"


def _built(client: Client) -> None:
    try:
        client.copied.users.create_index("t", name="t", expireAfterSeconds=60)
    except Exception:  # noqa: BLE001 - it was dropped
        return
