"""Indexes that a cutover's pause has left become unique afterwards, on a real server, whatever ended the attempt."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from pymongo import MongoClient
from pymongo.errors import DuplicateKeyError

from tests.support import mongod
from tests.support.awaited import until
from tests.support.cutover_world import pipeline_of
from tests.support.pipeline import pipeline_text
from tests.support.sessions import session_of
from towpath.cli import towpath
from towpath.clients.mongo.client import Cluster
from towpath.deploy import conversions, schema
from towpath.deploy.schema import apply, plan
from towpath.errors import Overtaken, TowpathError
from towpath.session import Session
from towpath.store import cutover as cutovers
from towpath.store.cutover import Conversion, Cutover

pytestmark = pytest.mark.servers
RENAME = '[collections.rename]\n"shop.users" = "copied.users"\n'
Client = MongoClient[dict[str, Any]]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Client]]:
    with (
        mongod.start_replica_set(
            tmp_path_factory.mktemp("converted"), options=["--setParameter", "enableTestCommands=1"]
        ) as running,
        MongoClient[dict[str, Any]](running.uri) as client,
    ):
        yield running.uri, client


@pytest.fixture
def shop(server: tuple[str, Client], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Session]:
    """From `shop` to `copied`, of one server. The source has a unique index, its copy one without."""
    uri, client = server
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    for name in ("shop", "copied", "towpath"):
        client.drop_database(name)
    for name in ("shop", "copied"):
        client[name].users.insert_many([{"_id": n, "email": n} for n in range(100)])
    client.shop.users.create_index("email", name="email", unique=True)
    client.copied.users.create_index("email", name="email")
    source, destination = Cluster(uri, "source"), Cluster(uri + "&appname=destination", "destination")
    yield session_of(pipeline_of(tmp_path, more=RENAME), source=source, destination=destination)
    client.admin.command("setFeatureCompatibilityVersion", "6.0")


def switched(client: Client, shop: Session) -> tuple[Conversion, ...]:
    """The marker after a switch, in whose pause nothing was read."""
    steps = plan(shop, final=True).steps
    apply(shop.destination, [step for step in steps if step.is_quick])
    left = conversions.conversions(step for step in steps if not step.is_quick)
    cutovers.insert(client, shop.pipeline, Cutover("destination primary", (), 1.0, conversions=left))
    return left


def marker(client: Client, shop: Session) -> Cutover:
    found = cutovers.read(client, shop.pipeline)
    assert found is not None
    return found


def index(client: Client) -> dict[str, Any]:
    return next(one for one in client.copied.users.list_indexes() if one["name"] == "email")


def test_it_refuses_duplicates_before_and_is_unique_after(server: tuple[str, Client], shop: Session) -> None:
    client = server[1]
    (left,) = switched(client, shop)
    assert (left.namespace, left.indexes, left.enforced) == ("copied.users", ("email",), True)
    assert index(client)["prepareUnique"] and "is not converted to unique yet" in marker(client, shop).description
    with pytest.raises(DuplicateKeyError):
        client.copied.users.insert_one({"email": 5})
    found = schema.metadata(shop, ())
    assert not found.differences and [one.awaits_conversion for one in found.deferred] == [True]
    assert "email refuses new duplicates at the destination, and is not converted" in found.deferred[0].what
    assert [done.words for done in conversions.complete(shop)] == [left.done]
    assert index(client)["unique"] and marker(client, shop).conversions == () == conversions.pending(shop)
    assert not schema.metadata(shop, ()).deferred
    cutovers.replace_own(client, shop.pipeline, [marker(client, shop).token], Cutover("source primary", (), 1.0))


def test_prepare_completes_it(server: tuple[str, Client], shop: Session, tmp_path: Path) -> None:
    uri, client = server
    file = tmp_path / "shop.toml"
    file.write_text(pipeline_text(uri, uri + "&appname=destination", more=RENAME))
    client.copied.users.insert_one({"_id": "twin", "email": 7})
    switched(client, shop)
    planned = CliRunner().invoke(towpath, ["prepare", str(file), "--dry-run", "--json"])
    (step,) = json.loads(planned.stdout)["steps"]
    assert "unique" in step["command"] and step["takes_time"] and index(client)["prepareUnique"]
    refused = CliRunner().invoke(towpath, ["prepare", str(file)])
    assert isinstance(refused.exception, TowpathError) or refused.exit_code == 2
    assert index(client)["prepareUnique"] and "twin" in marker(client, shop).conversions[0].problem
    client.copied.users.delete_one({"_id": "twin"})
    done = CliRunner().invoke(towpath, ["prepare", str(file), "--json"])
    assert done.exit_code == 0 and json.loads(done.stdout)["steps"] == [step]
    assert index(client)["unique"] and marker(client, shop).conversions == ()


def test_duplicates_are_named_and_it_keeps_refusing_them(server: tuple[str, Client], shop: Session) -> None:
    client = server[1]
    client.copied.users.insert_one({"_id": "twin", "email": 7})
    switched(client, shop)
    for _ in range(2):
        (done,) = conversions.complete(shop)
        assert "cannot be unique: the documents with these _ids" in done.words and "7" in done.words
        assert 'twin"' in done.words and f"towpath prepare {shop.file}" in done.words
        (stored,) = marker(client, shop).conversions
        assert stored.problem == done.words and not marker(client, shop).to_convert
        assert index(client)["prepareUnique"]
    with pytest.raises(DuplicateKeyError):
        client.copied.users.insert_one({"email": 5})
    client.copied.users.delete_one({"_id": "twin"})
    assert [done.is_done for done in conversions.complete(shop)] == [True]
    assert index(client)["unique"] and marker(client, shop).conversions == ()


def test_one_index_gets_its_ttl_first_and_then_becomes_unique(server: tuple[str, Client], shop: Session) -> None:
    client = server[1]
    client.shop.users.drop_index("email")
    client.shop.users.create_index("email", name="email", unique=True, expireAfterSeconds=3600)
    client.copied.users.insert_one({"_id": "twin", "email": 7})
    steps = plan(shop, final=True).steps
    apply(shop.destination, [step for step in steps if not conversions.is_later(step)])
    left = conversions.conversions(filter(conversions.is_later, steps))
    cutovers.insert(client, shop.pipeline, Cutover("destination primary", (), 1.0, conversions=left))
    assert [(one.indexes, one.expires, one.enforced) for one in left] == [
        (("email",), True, False),
        (("email",), False, True),
    ]
    assert index(client)["prepareUnique"] and "expireAfterSeconds" not in index(client)
    assert "the index email of copied.users does not delete expired documents yet" in marker(client, shop).description
    restored, refused = conversions.complete(shop)
    assert (restored.words, restored.is_done) == ("restored the TTL of email of copied.users", True)
    assert index(client)["expireAfterSeconds"] == 3600 and not refused.is_done
    (stored,) = marker(client, shop).conversions
    assert (stored.expires, stored.problem) == (False, refused.words)
    client.copied.users.delete_one({"_id": "twin"})
    assert [done.is_done for done in conversions.complete(shop)] == [True]
    assert index(client)["unique"] and marker(client, shop).conversions == ()


def test_before_6_0_an_index_is_rebuilt_also_after_an_attempt_that_was_ended(
    server: tuple[str, Client], shop: Session
) -> None:
    client = server[1]
    client.admin.command("setFeatureCompatibilityVersion", "5.0")
    client.copied.users.insert_one({"_id": "twin", "email": 7})
    (left,) = switched(client, shop)
    assert (left.indexes, left.enforced) == (("email",), False) and "is not rebuilt yet" in left.description
    client.copied.users.drop_index("email")  # the attempt was killed after its first command
    (done,) = conversions.complete(shop)
    assert "duplicate key" in done.words and "Until then duplicates are accepted" in done.words
    assert "unique" not in index(client), "queries need it"
    client.copied.users.delete_one({"_id": "twin"})
    assert [done.is_done for done in conversions.complete(shop)] == [True]
    assert index(client)["unique"] and marker(client, shop).conversions == ()


def test_what_is_gone_or_cannot_be_converted_stops_nothing(server: tuple[str, Client], shop: Session) -> None:
    client = server[1]
    (email,) = switched(client, shop)
    changed, gone = (
        replace(email, indexes=(name,), commands=email.commands.replace('"email"', f'"{name}"'))
        for name in ("changed", "gone")
    )
    client.copied.users.create_index("email", name="changed", sparse=True)  # without prepareUnique
    client.copied.create_collection("view", viewOn="users")
    view = replace(
        email,
        namespace="copied.view",
        commands=email.commands.replace('"users"', '"view"').replace("copied.users", "copied.view"),
    )
    dropped = replace(
        email,
        namespace="copied.d",
        commands=email.commands.replace('"users"', '"d"').replace("copied.users", "copied.d"),
    )
    stored = marker(client, shop)
    cutovers.replace_own(
        client, shop.pipeline, [stored.token], replace(stored, conversions=(changed, gone, view, dropped, email))
    )
    first, *others = conversions.complete(shop)
    assert "the destination refuses to convert changed of copied.users" in first.words and not first.is_done
    assert [done.is_done for done in others] == [True] * 4
    assert [one.names for one in marker(client, shop).conversions] == [changed.names]
    assert index(client)["unique"] and "d" not in client.copied.list_collection_names()


def test_before_6_0_a_finished_index_is_not_dropped_when_it_is_repeated(
    server: tuple[str, Client], shop: Session
) -> None:
    client = server[1]
    client.admin.command("setFeatureCompatibilityVersion", "5.0")
    switched(client, shop)
    client.copied.users.drop_index("email")
    client.copied.users.create_index("email", name="email", unique=True)  # by another command
    built = since(client)
    assert [done.is_done for done in conversions.complete(shop)] == [True]
    assert since(client) == built and index(client)["unique"] and marker(client, shop).conversions == ()


def since(client: Client) -> object:
    """When the index was built."""
    stats = client.copied.users.aggregate([{"$indexStats": {}}])
    return next(one["accesses"]["since"] for one in stats if one["name"] == "email")


def test_before_6_0_the_build_of_another_command_is_waited_for(server: tuple[str, Client], shop: Session) -> None:
    client = server[1]
    client.admin.command("setFeatureCompatibilityVersion", "5.0")
    switched(client, shop)
    client.copied.users.drop_index("email")
    hang = {"configureFailPoint": "hangAfterStartingIndexBuild"}
    client.admin.command(hang | {"mode": "alwaysOn"})
    with ThreadPoolExecutor() as threads:
        other = threads.submit(client.copied.users.create_index, "email", name="email", unique=True)
        until("the other's build", lambda: "email" in client.copied.users.index_information(), 10)
        ours = threads.submit(lambda: [done.is_done for done in conversions.complete(shop)])
        with pytest.raises(TimeoutError):
            ours.result(1)
        client.admin.command(hang | {"mode": "off"})
        assert other.result(10) == "email" and ours.result(10) == [True]
    assert index(client)["unique"] and marker(client, shop).conversions == ()


def test_nothing_is_converted_during_a_fail_back(server: tuple[str, Client], shop: Session) -> None:
    client = server[1]
    left = switched(client, shop)
    stored = marker(client, shop)
    cutovers.replace_own(client, shop.pipeline, [stored.token], Cutover("failing back", (), 1.0, conversions=left))
    with pytest.raises(Overtaken):
        list(conversions.complete(shop))
    assert index(client)["prepareUnique"]


def test_an_index_that_refuses_duplicates_by_its_own_is_never_weakened_or_released(
    server: tuple[str, Client], shop: Session
) -> None:
    """The other direction, with a conversion left: the old source stays unique, and nothing is to be done there."""
    client = server[1]
    client.copied.command("collMod", "users", index={"name": "email", "prepareUnique": True})
    turned = session_of(
        pipeline_of(shop.file.parent, more='[collections.rename]\n"copied.users" = "shop.users"\n').changed(
            collections={"include": ["copied.*"], "rename": {"copied.users": "shop.users"}}
        ),
        source=shop.destination,
        destination=shop.source,
    )
    assert plan(turned, final=True).steps == ()
    (difference,) = schema.metadata(turned, ()).deferred
    assert difference.awaits_conversion and difference.commands == []
    assert "refuses new duplicates at the source" in difference.what
    steps = plan(shop, final=True).steps
    assert [step.enforces for step in steps] == [False] and steps[0].converts


def test_commands_at_the_same_time_end_before_the_first_failure_is_raised(
    server: tuple[str, Client], shop: Session
) -> None:
    client = server[1]
    for number in range(50):
        client.copied[f"c{number}"].create_index("n", name="n")
    steps = [schema.without_enforcement(one) for one in _enforcing(range(60))]
    with pytest.raises(Exception, match="not exist"):
        schema.at_once(client, steps)
    schema.at_once(client, steps, may_be_gone=True)
    schema.at_once(client, _enforcing(range(50)))
    specs = [next(one for one in client.copied[f"c{n}"].list_indexes() if one["name"] == "n") for n in range(50)]
    assert all(spec["prepareUnique"] for spec in specs)


def _enforcing(numbers: range) -> list[schema.Step]:
    change = {"index": {"name": "n", "prepareUnique": True}}
    return [schema.Step(f"copied.c{n}", schema.Command("copied", {"collMod": f"c{n}", **change})) for n in numbers]


def test_stored_steps_are_read_as_they_were() -> None:
    body = {"createIndexes": "users", "indexes": [{"key": {"a.b": 1}, "partialFilterExpression": {"n": {"$gt": 5}}}]}
    step = schema.Step("copied.a.users", schema.Command("copied", body))
    assert schema.of_text(schema.as_text([step])) == (step,)
