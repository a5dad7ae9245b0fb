"""Indexes that are read before a pause, and what changes after that, on real servers and without one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from bson.timestamp import Timestamp
from pymongo import MongoClient
from pymongo.errors import OperationFailure

from tests.support import mongod
from tests.support.cutover_world import pipeline_of
from tests.support.sessions import session_of
from towpath.clients.mongo.client import Cluster
from towpath.cutover import watches
from towpath.cutover.watches import kept_indexes
from towpath.deploy.schema import plan
from towpath.session import Session
from towpath_verifier import descriptions

Client = MongoClient[dict[str, Any]]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Client]]:
    with (
        mongod.start_replica_set(tmp_path_factory.mktemp("watched")) as running,
        MongoClient[dict[str, Any]](running.uri) as client,
    ):
        yield running.uri, client


def commands(session: Session, kept: Any) -> list[str]:
    return [step.description for step in plan(session, final=True, kept=kept).steps]


@pytest.mark.servers
def test_indexes_that_change_after_they_were_read_are_read_again(
    server: tuple[str, Client], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uri, client = server
    source, destination = Cluster(uri, "source"), Cluster(uri + "&appname=destination", "destination")
    shop = session_of(pipeline_of(tmp_path), source=source, destination=destination)
    client.drop_database("shop")
    for name in ("quiet", "grows", "shrinks", "again", "moves"):
        client.shop[name].create_index("n")
    reads, original = Counter[str](), descriptions._indexes

    def counted(client: Client, namespace: str) -> Any:
        reads[namespace] += 1
        return original(client, namespace)

    monkeypatch.setattr(descriptions, "_indexes", counted)
    with kept_indexes(shop) as kept:
        reads.clear()
        assert commands(shop, kept) == [] and not reads
        client.shop.grows.create_index("m")
        client.shop.shrinks.drop_index("n_1")
        client.shop.drop_collection("again")
        client.shop.again.create_index("m")
        client.shop.command("collMod", "moves", index={"name": "n_1", "hidden": True})
        client.shop.new.create_index("k")
        known = dict(kept(source) or {})
        assert commands(shop, kept) == []
        assert set(reads) == {f"shop.{name}" for name in ("grows", "shrinks", "again", "moves", "new")}
        now = {name: indexes for (name, _), indexes in (kept(source) or {}).items()}
    assert {name for name, _ in known} >= {"shop.quiet"} and "shop.grows" not in {name for name, _ in known}
    assert set(now["shop.grows"]) == {"n_1", "m_1"} and now["shop.shrinks"] == {}
    assert set(now["shop.new"]) == {"k_1"} and now["shop.moves"]["n_1"]["hidden"]


def test_where_changes_cannot_be_watched_all_indexes_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as with a user who may not watch the whole cluster. Nothing waits for the watch then."""

    def refuse(client: Any, **start: Any) -> Any:
        raise OperationFailure("not authorized", 13)

    monkeypatch.setattr(watches, "watch_indexes", refuse)
    monkeypatch.setattr(watches, "cluster_time", lambda client: Timestamp(9, 1))
    client: Any = None
    indexes = watches._SideIndexes(client, Timestamp(1, 1))
    with indexes:
        assert indexes.now() is None
