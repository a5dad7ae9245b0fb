"""The verifier finds what was damaged, and nothing else."""

from __future__ import annotations

from typing import Any

from bson import Int64
from pymongo import MongoClient

from tests.support.pipeline import Addresses
from verifier import Different, Extra, Missing, compare

DOCUMENTS = [{"_id": n, "n": n, "list": [{"t": n, "v": "x" * n}], "z": 1.5} for n in range(500)]
OTHERS: list[dict[str, Any]] = [{"_id": name} for name in ("a", "b", b"c", None, 1.5, Int64(2**40))] + [
    {"_id": {"a": 1}}
]


def test_damage_is_found_and_none_is_invented(addresses: Addresses) -> None:
    with MongoClient[dict[str, Any]](addresses.source) as client:
        client.drop_database("verifier_test")
        left, right = client.verifier_test.left, client.verifier_test.right
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
        found = compare(left, right)
        client.drop_database("verifier_test")

    assert not found.same
    kinds = [
        (type(one), one.source["_id"] if not isinstance(one, Extra) else one.destination["_id"])
        for one in found.differences
    ]
    wanted = {(Missing, 3), (Missing, "b"), (Extra, 1000), (Different, 7), (Different, 8), (Different, 9)}
    assert {one for one in kinds if one[1] != 10} == wanted
    assert [kind for kind, identity in kinds if identity == 10] == [Missing, Extra], (
        "an _id of another type is another _id"
    )
    assert found.compared == len(DOCUMENTS) + len(OTHERS) + 2


def test_a_missing_collection_holds_nothing(addresses: Addresses) -> None:
    with MongoClient[dict[str, Any]](addresses.source) as client:
        client.drop_database("verifier_test")
        client.verifier_test.left.insert_one({"_id": 1})
        found = compare(client.verifier_test.left, client.verifier_test.nothing)
        client.drop_database("verifier_test")
    assert [type(one) for one in found.differences] == [Missing]
