"""Two collections of one server: what was damaged is found, and nothing else; and the reads beneath it."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import Any

import bson
import pytest
from bson import Decimal128, Int64
from bson.raw_bson import RawBSONDocument
from hypothesis import given, settings
from hypothesis import strategies as st
from pymongo import MongoClient
from pymongo.errors import OperationFailure

from tests.support import bsonbytes as b
from tests.support import raw
from tests.support.corpus import DOCUMENTS as SPECIMENS
from tests.support.corpus import RAW_DOCUMENTS, Specimen
from tests.support.mongod import start_replica_set
from towpath_verifier import Difference, Options, Pair, Recheck, Rereads, Verification, id_key
from towpath_verifier.raw import documents as split
from towpath_verifier.raw_batches import in_id_order
from towpath_verifier.reads import RAW

pytestmark = pytest.mark.servers

DOCUMENTS = [{"_id": n, "n": n, "list": [{"t": n, "v": "x" * n}], "z": 1.5} for n in range(500)]
OTHERS: list[dict[str, Any]] = [{"_id": name} for name in ("a", "b", b"c", None, 1.5, Int64(2**40))] + [
    {"_id": {"a": 1}}
]
SOON = Recheck(first=0.02, tries=2)


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[raw.Client]:
    with start_replica_set(tmp_path_factory.mktemp("set")) as servers, MongoClient[dict[str, Any]](servers.uri) as it:
        yield it


@pytest.fixture
def sides(client: raw.Client) -> tuple[raw.Documents, raw.Documents]:
    client.drop_database("verifier_test")
    return client.verifier_test.left, client.verifier_test.right


def compare(sides: tuple[raw.Documents, raw.Documents], **how: bool) -> tuple[list[Difference], int]:
    """The differences, and how many documents were compared."""
    uri = "mongodb://{}:{}".format(*sides[0].database.client.address or ())
    pair = Pair(sides[0].full_name, sides[1].full_name)
    run = Verification(uri, uri, [pair], Options(1, SOON, **how))
    return list(run), run.verdict.compared


def test_damage_is_found_and_none_is_invented(sides: tuple[raw.Documents, raw.Documents]) -> None:
    left, right = sides
    left.insert_many([*DOCUMENTS, *OTHERS])
    right.insert_many([*reversed(OTHERS), *reversed(DOCUMENTS)])
    assert compare(sides) == ([], len(DOCUMENTS) + len(OTHERS))

    right.delete_many({"_id": {"$in": [3, "b"]}})
    right.insert_one({"_id": 1000})
    right.update_one({"_id": 7}, {"$set": {"n": Int64(7)}})
    right.update_one({"_id": 8}, {"$set": {"list.0.v": "y" * 8}})
    right.replace_one({"_id": 9}, {"z": 1.5, "n": 9, "list": DOCUMENTS[9]["list"]})
    right.delete_one({"_id": 10})
    right.insert_one(DOCUMENTS[10] | {"_id": 10.0})
    wanted = {("missing", 3), ("missing", "b"), ("extra", 1000), ("different", 7), ("different", 8), ("order", 9)}
    wanted.add(("different", 10))  # 10 and 10.0 are one document to MongoDB, of other bytes
    found, compared = compare(sides)
    assert {(one.kind, bson.decode(one.id)["_id"]) for one in found} == wanted
    assert compared == len(DOCUMENTS) + len(OTHERS) + 1
    passed, _ = compare(sides, ignore_field_order=True)
    assert {(one.kind, bson.decode(one.id)["_id"]) for one in passed} == wanted - {("order", 9)}


def test_a_missing_collection_holds_nothing(sides: tuple[raw.Documents, raw.Documents]) -> None:
    sides[0].insert_one({"_id": 1})
    assert [one.kind for one in compare(sides)[0]] == ["missing"]
    sides[0].delete_one({"_id": 1})
    assert compare(sides) == ([], 0)


def test_every_type_of_id_and_value_is_compared(sides: tuple[raw.Documents, raw.Documents]) -> None:
    specimens = [*SPECIMENS, *RAW_DOCUMENTS]
    for specimen in specimens:
        raw.insert(sides[0], specimen)
    for specimen in reversed(specimens):
        raw.insert(sides[1], specimen)
    assert compare(sides) == ([], len(specimens))

    stored = [id_key(bytes(one.raw)) for one in sides[0].with_options(RAW).find({}, hint=[("_id", 1)])]
    assert stored == sorted(stored), "the server's order of _ids, all types of them, is that of the keys"

    damaged = [one for one in specimens if one.replaceable][::7]
    for specimen in damaged:
        changed = specimen.document[4:-1] + b"\x0anew\0"
        whole = (len(changed) + 5).to_bytes(4, "little") + changed + b"\0"
        raw.replace(sides[1], Specimen(specimen.name, whole))
    pair = Pair(sides[0].full_name, sides[1].full_name)
    wanted = {one.identity for one in damaged}
    assert {one.id for one in compare(sides)[0]} == wanted
    client = sides[0].database.client
    ids = [one.identity for one in specimens]
    assert {one.id for one in Rereads(client, client, SOON).outcomes([(pair, ids)])} == wanted


texts = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=3)
numbers = st.one_of(
    st.integers(-(2**31), 2**31 - 1).map(b.int32),
    st.integers(-(2**63), 2**63 - 1).map(b.int64),
    st.sampled_from((0, 5, 2**53, 2**53 + 1)).map(b.int64),
    st.floats().map(b.double),
    st.decimals(-100, 100, places=1).map(lambda number: b.Value(b.Type.DECIMAL128, Decimal128(number).bid)),
)
leaves = st.one_of(
    numbers,
    texts.map(b.string),
    texts.map(b.symbol),
    texts.map(b.code),
    st.binary(max_size=3).map(lambda content: b.binary(0, content)),
    st.binary(max_size=3).map(lambda content: b.binary(5, content)),
    st.binary(min_size=12, max_size=12).map(b.object_id),
    st.integers(0, 1).map(b.boolean),
    st.integers(-(2**40), 2**40).map(b.date),
    st.integers(0, 2**32 - 1).map(lambda seconds: b.timestamp(seconds, 1)),
    st.sampled_from((b.NULL, b.MIN_KEY, b.MAX_KEY)),
)
names = st.sampled_from(("a", "b", "ä"))
identities = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.dictionaries(names, inner, max_size=3).map(lambda fields: b.embedded(*fields.items())),
        st.lists(inner, max_size=3).map(lambda values: b.embedded(("a", b.array(*values)))),
    ),
    max_leaves=4,
)


@settings(max_examples=max(10, settings().max_examples // 6))
@given(st.lists(identities, min_size=2, max_size=60))
def test_the_keys_of_ids_order_and_equal_as_the_servers(client: raw.Client, values: list[b.Value]) -> None:
    stored = client.verifier_test.ids
    stored.drop()
    documents = [RawBSONDocument(b.document(("_id", value))) for value in values]
    reply = client.verifier_test.command("insert", "ids", documents=documents, ordered=False)
    assert {error["code"] for error in reply.get("writeErrors", [])} <= {11_000}
    assert reply["n"] == len({id_key(bytes(one.raw)) for one in documents})
    keys = [id_key(document) for batch in in_id_order(stored, None, None, 7) for document in split(batch)]
    assert len(keys) == reply["n"]
    assert keys == sorted(keys)


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
