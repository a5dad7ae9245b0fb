"""The error of a call names the side and the address of its cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from typing import Any

import pytest
from pymongo import InsertOne, MongoClient
from pymongo.errors import AutoReconnect

from tests.support import servers
from towpath.clients.mongo.client import Cluster
from towpath.errors import MongoError, MongoUnreachable

pytestmark = pytest.mark.servers

Client = MongoClient[dict[str, Any]]


def in_transaction(client: Client) -> None:
    with client.start_session() as session, session.start_transaction():
        client.shop.orders.insert_one({}, session=session)


CALLS: dict[str, Callable[[Client], object]] = {
    "command": lambda client: client.admin.command("hello"),
    "find": lambda client: list(client.shop.orders.find()),
    "aggregate": lambda client: list(client.shop.orders.aggregate([])),
    "insert": lambda client: client.shop.orders.insert_one({}),
    "bulk": lambda client: client.shop.orders.bulk_write([InsertOne({})]),
    "watch": lambda client: client.watch(),
    "list collections": lambda client: list(client.shop.list_collections()),
    "list databases": lambda client: client.list_database_names(),
    "transaction": in_transaction,
}
REFUSED: dict[str, Callable[[Client], object]] = {
    "command": lambda client: client.admin.command("nonsense"),
    "find": lambda client: list(client.shop.orders.find({"$nonsense": 1})),
    "aggregate": lambda client: list(client.shop.orders.aggregate([{"$nonsense": {}}])),
    "insert": lambda client: client.shop.orders.insert_one({"_id": [1]}),
}


@pytest.fixture(scope="module")
def well(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with servers.mongod(tmp_path_factory.mktemp("well")) as address:
        yield f"mongodb://{address}"


def failure(uri: str, side: str, call: Callable[[Client], object], kind: type[MongoError]) -> str:
    with (
        closing(Cluster(uri, side)) as cluster,
        pytest.raises(MongoError) as raised,
        cluster.connected(timeout=0.1) as client,
    ):
        call(client)
    assert type(raised.value) is kind
    return str(raised.value)


@pytest.mark.parametrize("unwell", ["source", "destination"])
@pytest.mark.parametrize("name", CALLS)
def test_a_server_that_is_gone_is_the_one_that_is_named(name: str, unwell: str) -> None:
    gone = f"mongodb://127.0.0.1:{servers.free_port()}"
    words = failure(gone, unwell, CALLS[name], MongoUnreachable)
    assert words.startswith(f"cannot reach the {unwell} at {gone}") and words.endswith(f"([{unwell}] uri)")


@pytest.mark.parametrize("unwell", ["source", "destination"])
@pytest.mark.parametrize("name", REFUSED)
def test_a_server_that_refuses_is_the_one_that_is_named(well: str, name: str, unwell: str) -> None:
    words = failure(well, unwell, REFUSED[name], MongoError)
    assert words.startswith(f"the {unwell} at {well} refused: ")


def test_a_server_that_goes_while_it_is_read_is_the_one_that_is_named(tmp_path_factory: pytest.TempPathFactory) -> None:
    with servers.mongod(tmp_path_factory.mktemp("goes")) as address:
        uri = f"mongodb://{address}"

        def read(source: Client) -> None:
            source.shop.orders.insert_many([{"_id": n} for n in range(10)])
            cursor = source.shop.orders.find(batch_size=2)
            next(cursor)
            with Client(uri) as client, suppress(AutoReconnect):
                client.admin.command("shutdown", force=True)
            list(cursor)

        words = failure(uri, "source", read, MongoUnreachable)
    assert words.startswith(f"cannot reach the source at {uri}")
