"""The workload on a real server: every kind of operation happens, and one seed gives one result."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from typing import Any

import pytest
from bson.raw_bson import RawBSONDocument

from tests.support import bsonbytes as b
from tests.support import oracle, raw
from tests.support.order import Order
from tests.support.pipeline import Addresses
from tests.support.workload import KINDS, Workload
from tests.support.workload.versions import VERSION

pytestmark = pytest.mark.servers


@pytest.fixture
def databases(source_client: raw.Client) -> Iterator[tuple[str, str]]:
    names = (f"s{secrets.token_hex(4)}", f"s{secrets.token_hex(4)}")
    yield names
    for name in names:
        source_client.drop_database(name)


def without_clocks(document: bytes) -> bytes:
    """The document with the server's times of `$currentDate` made equal."""
    fields = []
    for element in b.elements(document):
        value = element.value
        if element.name.startswith(b"clock"):
            times = b.elements(value.payload) if value.type == b.Type.DOCUMENT else ()
            inner = [(time.name.decode(), time.type) for time in times]
            value = b.string(repr(inner))
        fields.append((element.name.decode(), value))
    return b.document(*fields)


def content(client: raw.Client, database: str) -> dict[bytes, bytes]:
    found = [without_clocks(document) for document in raw.read(client[database]["docs"])]
    return {b.field(document, "_id").payload: document for document in found}


@pytest.mark.nightly
def test_every_kind_happens_and_one_seed_gives_one_result(
    source_client: raw.Client, databases: tuple[str, str], seed: int
) -> None:
    for name in databases:
        workload = Workload(seed, [source_client[name]["docs"]])
        workload.fill()
        workload.run(3000, until_changed=KINDS)
        print(workload.statistics)
        assert workload.statistics.refused.total() < 600
    one, other = (content(source_client, name) for name in databases)
    assert len(one) > 150
    assert oracle.differences(one, other) == []


def test_the_oracle_sees_damage_on_a_server(
    source_client: raw.Client, databases: tuple[str, str], addresses: Addresses
) -> None:
    documents: list[dict[str, Any]] = [{"_id": n, "a": 1, "b": 2} for n in range(10)]
    for name in databases:
        source_client[name]["docs"].insert_many(documents)
    mapping = {f"{databases[0]}.docs": f"{databases[1]}.docs"}
    assert oracle.assert_same(addresses.source, addresses.source, mapping, at_least=10) == 10
    with pytest.raises(AssertionError, match="hold 10 documents, not 11"):
        oracle.assert_same(addresses.source, addresses.source, mapping, at_least=11)
    damaged = source_client[databases[1]]["docs"]
    damaged.delete_one({"_id": 3})
    damaged.replace_one({"_id": 4}, RawBSONDocument(b.document(("a", b.int64(1)), ("b", b.int32(2)))))
    damaged.replace_one({"_id": 5}, {"b": 2, "a": 1})
    with pytest.raises(AssertionError, match="3 differences in 10 documents") as failure:
        oracle.assert_same(addresses.source, addresses.source, mapping, at_least=10)
    assert "missing at the destination: {'_id': 3" in str(failure.value)
    with pytest.raises(AssertionError, match="2 differences in 10 documents"):
        oracle.assert_same(addresses.source, addresses.source, mapping, at_least=10, ignore_field_order=True)


@pytest.mark.nightly
def test_a_counter_rises_with_every_write_and_the_order_checker_sees_all_of_them(
    source_client: raw.Client, databases: tuple[str, str], seed: int
) -> None:
    collections = [source_client[databases[0]][name] for name in ("one", "two")]
    workload = Workload(seed, collections, documents=100, versions=True)
    with Order(source_client, databases[0]) as order:
        workload.fill()
        workload.run(3000, until_changed=KINDS)
    changed = workload.statistics.effective.total()
    assert order.seen(at_least=160 + changed * 9 // 10) > 0
    assert all(one.count_documents({VERSION: {"$type": "long"}}) == one.count_documents({}) > 30 for one in collections)


def test_the_order_checker_sees_documents_go_back_and_deletes_undone(
    source_client: raw.Client, databases: tuple[str, str]
) -> None:
    documents = source_client[databases[0]]["docs"]
    with Order(source_client, databases[0]) as order:
        documents.insert_many([{"_id": n, VERSION: 5} for n in range(3)])
        documents.update_one({"_id": 0}, {"$set": {VERSION: 4, "a": 1}})
        documents.replace_one({"_id": 1}, {VERSION: 3})
        documents.delete_one({"_id": 2})
        documents.insert_one({"_id": 2.0, VERSION: 5})
    with pytest.raises(AssertionError, match="3 of 7 events at the destination are out of order"):
        order.seen(at_least=1)
    with Order(source_client, databases[0]) as order:
        documents.update_one({"_id": 0}, {"$set": {VERSION: 6}})
    assert order.seen(at_least=1) == 1
    with pytest.raises(AssertionError, match="saw 1 changes, not 2"):
        order.seen(at_least=2)
