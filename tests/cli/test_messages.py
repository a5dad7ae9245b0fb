"""Errors that people meet: one clear message each, exit code 2, no stack trace."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from pymongo import MongoClient

from tests.checks.test_check import check, one
from tests.conftest import MakePipeline
from tests.support.pipeline import Addresses, Pipeline, Settings, towpath
from tests.support.servers import connect_without_plugins, free_port, mongod, mongod_with_users

pytestmark = pytest.mark.servers

#: Connect's own validation tries a login for as long as its driver looks for a server, 30 s by default.
SOON = "serverSelectionTimeoutMS=3000"
READ_ELSEWHERE = [{"role": "read", "db": "elsewhere"}]
READ_EVERYTHING = [{"role": "readAnyDatabase", "db": "admin"}]


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A replica set that asks for a password; `host:port`."""
    users = {"stranger": READ_ELSEWHERE, "reader": READ_EVERYTHING}
    with mongod_with_users(tmp_path_factory.mktemp("guarded"), users) as address:
        yield address


@pytest.fixture(scope="module")
def standalone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with mongod(tmp_path_factory.mktemp("standalone")) as address:
        yield address


def refused(pipeline: Pipeline, *, command: str = "deploy", **changed: str) -> str:
    """Deploy with other addresses; return the one message of the refusal."""
    addresses = Addresses(**{**asdict(pipeline.addresses), **changed})
    other = replace(pipeline, addresses=addresses, file=pipeline.file.with_suffix(".other"))
    try:
        said = towpath(command, other.write(), expect=2, timeout=60).stderr
    except AssertionError:
        pipeline.write()  # it may have been deployed, and is removed at the end
        raise
    assert "Exception" not in said
    assert "secret@" not in said, "a password is shown"
    messages = [line for line in said.splitlines() if line.startswith("towpath: ")]
    assert len(messages) == 1, f"not one message: {said}"
    return messages[0]


@pytest.fixture
def filled(pipeline: Pipeline) -> Pipeline:
    pipeline.source("docs").insert_one({"_id": 1})
    return pipeline


def nowhere() -> str:
    return f"127.0.0.1:{free_port()}"


@pytest.mark.parametrize(("side", "more"), [("source", ""), ("destination", "&serverSelectionTimeoutMS=500")])
def test_no_server_at_the_uri(filled: Pipeline, side: str, more: str) -> None:
    address = nowhere()
    said = refused(filled, **{side: f"mongodb://{address}/?replicaSet=rs0{more}"})
    assert f"cannot reach the {side} at mongodb://{address}" in said


@pytest.mark.parametrize("side", ["source", "destination"])
def test_a_uri_that_is_none(filled: Pipeline, side: str) -> None:
    said = refused(filled, **{side: "http://127.0.0.1:27017"})
    assert f"[{side}]" in said
    assert "mongodb://" in said


@pytest.mark.nightly
@pytest.mark.parametrize("side", ["source", "destination"])
def test_wrong_password(filled: Pipeline, guarded: str, side: str) -> None:
    said = refused(filled, **{side: f"mongodb://reader:wrong-secret@{guarded}/?authSource=admin&{SOON}"})
    assert f"the {side} at mongodb://{guarded} refuses the user or the password" in said


@pytest.mark.parametrize("side", ["source", "destination"])
def test_standalone(filled: Pipeline, standalone: str, side: str) -> None:
    """Which has no change streams, and no transactions to write in; the plain mode writes to one."""
    exactly_once = replace(filled, settings=Settings(mode="exactly-once"))
    said = refused(exactly_once, **{side: f"mongodb://{standalone}/?directConnection=true"})
    assert f"the {side} is a standalone mongod" in said
    assert "--replSet" in said
    assert ('mode = "plain"' in said) == (side == "destination")


@pytest.mark.nightly
def test_the_plain_mode_writes_to_a_standalone(filled: Pipeline, standalone: str) -> None:
    uri = f"mongodb://{standalone}/?directConnection=true"
    addresses = replace(filled.addresses, destination=uri)
    with MongoClient[dict[str, Any]](uri) as client:
        plain = replace(filled, addresses=addresses, settings=Settings(mode="plain"), destination_client=client)
        plain.deploy()
        plain.source("docs").update_one({"_id": 1}, {"$set": {"a": 1}})
        plain.wait()
        plain.assert_same("docs", at_least=1)
        plain.remove()


@pytest.mark.parametrize(
    ("side", "user", "words"),
    [
        (
            "source",
            "stranger",
            "the user stranger@admin may not find, changeStream, listCollections",
        ),
        ("destination", "reader", "destination: the user reader@admin may not insert, update, remove"),
    ],
)
def test_missing_privileges(filled: Pipeline, guarded: str, side: str, user: str, words: str) -> None:
    said = refused(filled, **{side: f"mongodb://{user}:secret@{guarded}/?authSource=admin"})
    assert words in said
    assert "grant" in said
    assert filled.leftovers() == ([], [])


def test_connect_down(filled: Pipeline) -> None:
    address = nowhere()
    said = refused(filled, connect=f"http://{address}")
    assert f"cannot reach Kafka Connect at http://{address}" in said


@pytest.mark.nightly
def test_plugins_missing(filled: Pipeline, tmp_path: Path) -> None:
    plugins = {
        "plain": "io.debezium.connector.mongodb.MongoDbConnector",
        "exactly-once": "io.towpath.source.MongoSource",
    }
    with connect_without_plugins(tmp_path, filled.addresses.bootstrap) as url:
        for mode, plugin in plugins.items():
            said = refused(replace(filled, settings=Settings(mode=mode)), connect=url)
            assert f"Kafka Connect at {url} lacks {plugin}" in said
            assert "plugin.path" in said
        found = check(filled, expect=1, connect=url)
    assert "plugin.path" in one(found, "error", "connect", "lacks io.")["advice"]


def test_kafka_down(filled: Pipeline) -> None:
    address = nowhere()
    said = refused(filled, bootstrap=address)
    assert f"cannot reach Kafka at {address}" in said


def test_unknown_key(make_pipeline: MakePipeline) -> None:
    pipeline = make_pipeline(Settings(extra="[log]\nretain = 'forever'"))
    said = towpath("deploy", pipeline.write(), expect=2).stderr
    pipeline.file.unlink()
    assert f"{pipeline.file} cannot be used:\n  log.retain: unknown key" in said


def test_a_pattern_that_matches_no_collection(filled: Pipeline) -> None:
    other = replace(filled, settings=Settings(include=("docs", "orders_*")))
    said = refused(other)
    assert f"{filled.name}.orders_*" in said
    assert "matches no collection" in said


def test_no_pipeline_file(tmp_path: Path) -> None:
    said = towpath("deploy", tmp_path / "shop.toml", expect=2).stderr
    assert f"there is no pipeline file {tmp_path}/shop.toml" in said
    assert "towpath init" in said


def test_not_deployed(filled: Pipeline, addresses: Addresses) -> None:
    said = towpath("wait", filled.write(), expect=2).stderr
    assert "has the pipeline been deployed?" in said
    assert addresses.connect in said


def test_removing_what_is_not_there_is_no_error(filled: Pipeline) -> None:
    filled.write()
    for _ in range(2):
        filled.remove()
