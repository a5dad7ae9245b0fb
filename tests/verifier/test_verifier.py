"""`verifier.collections`, of two collections in one process: it finds what was damaged, and nothing else."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import Any

import bson
import pytest
from bson import Int64
from pymongo import MongoClient
from pymongo.errors import OperationFailure

from tests.support import raw
from tests.support.corpus import DOCUMENTS as SPECIMENS
from tests.support.corpus import RAW_DOCUMENTS, Specimen
from tests.support.mongod import start_replica_set
from towpath_verifier import Pair, Recheck, check_ids, compare
from towpath_verifier.raw import id_key
from towpath_verifier.reads import RAW, in_id_order

pytestmark = pytest.mark.servers

DOCUMENTS = [{"_id": n, "n": n, "list": [{"t": n, "v": "x" * n}], "z": 1.5} for n in range(500)]
OTHERS: list[dict[str, Any]] = [{"_id": name} for name in ("a", "b", b"c", None, 1.5, Int64(2**40))] + [
    {"_id": {"a": 1}}
]
SOON = Recheck(first=0.02, factor=1, tries=3)


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[raw.Client]:
    with start_replica_set(tmp_path_factory.mktemp("set")) as servers, MongoClient[dict[str, Any]](servers.uri) as it:
        yield it


@pytest.fixture
def sides(client: raw.Client) -> tuple[raw.Documents, raw.Documents]:
    client.drop_database("verifier_test")
    return client.verifier_test.left, client.verifier_test.right


def test_damage_is_found_and_none_is_invented(sides: tuple[raw.Documents, raw.Documents]) -> None:
    left, right = sides
    left.insert_many([*DOCUMENTS, *OTHERS])
    right.insert_many([*reversed(OTHERS), *reversed(DOCUMENTS)])
    assert compare(left, right).same
    assert compare(left, right).compared == len(DOCUMENTS) + len(OTHERS)

    right.delete_many({"_id": {"$in": [3, "b"]}})
    right.insert_one({"_id": 1000})
    right.update_one({"_id": 7}, {"$set": {"n": Int64(7)}})
    right.update_one({"_id": 8}, {"$set": {"list.0.v": "y" * 8}})
    right.replace_one({"_id": 9}, {"z": 1.5, "n": 9, "list": DOCUMENTS[9]["list"]})
    right.delete_one({"_id": 10})
    right.insert_one(DOCUMENTS[10] | {"_id": 10.0})
    wanted = {("missing", 3), ("missing", "b"), ("extra", 1000), ("different", 7), ("different", 8), ("order", 9)}
    wanted.add(("different", 10))  # 10 and 10.0 are one document to MongoDB, of other bytes
    for found in (compare(left, right), compare(left, right, recheck=SOON)):
        assert not found.same
        assert {(one.kind, bson.decode(one.id)["_id"]) for one in found.differences} == wanted
        assert found.compared == len(DOCUMENTS) + len(OTHERS) + 1
    passed = compare(left, right, ignore_field_order=True).differences
    assert {(one.kind, bson.decode(one.id)["_id"]) for one in passed} == wanted - {("order", 9)}


def test_a_missing_collection_holds_nothing(sides: tuple[raw.Documents, raw.Documents]) -> None:
    sides[0].insert_one({"_id": 1})
    assert [one.kind for one in compare(*sides).differences] == ["missing"]
    sides[0].delete_one({"_id": 1})
    assert compare(*sides).same


def test_every_type_of_id_and_value_is_compared(sides: tuple[raw.Documents, raw.Documents]) -> None:
    specimens = [*SPECIMENS, *RAW_DOCUMENTS]
    for specimen in specimens:
        raw.insert(sides[0], specimen)
    for specimen in reversed(specimens):
        raw.insert(sides[1], specimen)
    found = compare(*sides)
    assert found.same
    assert found.compared == len(specimens)

    stored = [id_key(bytes(one.raw)) for one in sides[0].with_options(RAW).find({}, hint=[("_id", 1)])]
    assert stored == sorted(stored), "the server's order of _ids, all types of them, is that of the keys"

    damaged = [one for one in specimens if one.replaceable][::7]
    for specimen in damaged:
        changed = specimen.document[4:-1] + b"\x0anew\0"
        whole = (len(changed) + 5).to_bytes(4, "little") + changed + b"\0"
        raw.replace(sides[1], Specimen(specimen.name, whole))
    pair = Pair(sides[0].full_name, sides[1].full_name)
    wanted = {one.identity for one in damaged}
    assert {one.id for one in compare(*sides).differences} == wanted
    client = sides[0].database.client
    ids = [one.identity for one in specimens]
    assert {one.id for one in check_ids(client, client, pair, ids, SOON)} == wanted


def test_batches_are_the_drivers_for_a_fraction_of_its_cpu(sides: tuple[raw.Documents, raw.Documents]) -> None:
    left, right = sides
    left.insert_many([{"_id": n, "a": "b"} for n in range(40_000)])
    for specimen in SPECIMENS:
        raw.insert(right, specimen)

    def drivers(documents: raw.Documents, size: int) -> Iterable[bytes]:
        return documents.with_options(codec_options=RAW).find_raw_batches(batch_size=size).sort("_id")

    def used(batches: Iterable[bytes]) -> float:
        start = time.process_time()
        assert sum(map(len, batches)) == 40_000 * len(bson.encode({"_id": 1, "a": "b"}))
        return time.process_time() - start

    for size in (1, 7, 1000):
        assert list(in_id_order(right, None, None, size)) == list(drivers(right, size))
    assert list(in_id_order(left.database.nothing, None, None, 10)) == []
    assert used(in_id_order(left, None, None, 8_000)) < used(drivers(left, 8_000)) / 3
    with pytest.raises(OperationFailure, match="min"):
        list(in_id_order(left, bson.encode({"no bound": 1}), None, 10))
