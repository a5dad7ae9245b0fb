"""What `check` finds on real servers of other versions, and on what is no replica set of MongoDB."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from bson import ObjectId
from pymongo import MongoClient

from tests.support import mongods
from tests.support.awaited import until
from tests.support.servers import free_port, replica_set
from tests.support.started import started
from towpath.checks import source
from towpath.checks.facts import Side
from towpath.clients.mongo.client import Cluster
from towpath.clients.mongo.replica_set import source_set
from towpath.clients.mongo.versions import imitation
from towpath.errors import MongoError, Refused
from towpath.stack.processes import accepts

pytestmark = pytest.mark.servers


def errors(address: str, options: str = "replicaSet=guarded") -> list[tuple[str, str]]:
    found = source.servers(Side("source", Cluster(f"mongodb://{address}/?{options}", "source"), source_set))
    return [(one.finding, one.advice) for one in found if one.level == "error"]


@contextmanager
def primary(folder: Path, version: str) -> Iterator[tuple[str, MongoClient[dict[str, Any]]]]:
    with (
        replica_set(folder, program=mongods.mongod(version)) as address,
        MongoClient[dict[str, Any]](f"mongodb://{address}/") as client,
    ):
        until("a primary", lambda: client.admin.command("hello")["isWritablePrimary"])
        yield address, client


@pytest.mark.nightly
def test_4_4_is_refused_with_the_reason(tmp_path: Path) -> None:
    with primary(tmp_path, "4.4.2") as (address, _), pytest.raises(Refused) as raised:
        errors(address)
    found = "the source is MongoDB 4.4.2, which is not supported: it reads a snapshot in transactions only"
    assert raised.value.sentence.startswith(found)
    assert raised.value.advice == "upgrade it to MongoDB 5.0 or later ([source] uri)"


def test_what_the_driver_does_not_speak_to_is_refused(tmp_path: Path) -> None:
    port = free_port()
    program = str(mongods.mongod("4.2.6"))
    with started([program, "--dbpath", tmp_path, "--port", str(port), "--logpath", tmp_path / "log"]):
        until("a mongod", lambda: accepts(port), 30, 0.1)
        with pytest.raises(MongoError, match=r"cannot be used: .*wire version") as raised:
            errors(f"127.0.0.1:{port}", "directConnection=true")
    assert raised.value.advice == "Towpath supports MongoDB 5.0 and later ([source] uri)"


def test_an_older_compatibility_version_and_a_shard_are_refused(tmp_path: Path) -> None:
    with primary(tmp_path, "5.0.4") as (address, client):
        assert errors(address) == []
        client.admin["system.version"].insert_one({"_id": "shardIdentity", "shardName": "a", "clusterId": ObjectId()})
        ((shard, _),) = errors(address)
        assert shard.startswith("is a shard of a sharded cluster")
        client.admin["system.version"].delete_one({"_id": "shardIdentity"})
        client.admin.command("setFeatureCompatibilityVersion", "4.4")
        ((old, _),) = errors(address)
        assert old.startswith("feature compatibility version 4.4 is not supported")


@pytest.mark.parametrize(
    ("host", "service"),
    [
        ("shop.cluster-abc.eu-central-1.docdb.amazonaws.com", "Amazon DocumentDB"),
        ("shop.mongo.cosmos.azure.com", "Azure Cosmos DB"),
        ("shop.global.mongocluster.cosmos.azure.com", "Azure Cosmos DB"),
        ("shop-shard-00-00.abc.mongodb.net", ""),
        ("docdb.amazonaws.com.example.org", ""),
    ],
)
def test_services_that_are_not_mongodb_are_known_by_their_hosts(host: str, service: str) -> None:
    assert imitation(["db1", host]) == service
