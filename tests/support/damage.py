"""Damage at the destination, of every kind that a comparison has to find, in documents of one shape."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import bson
from bson import Int64

from tests.support.raw import Documents

Document = dict[str, Any]


def document(number: int) -> Document:
    """A document that all kinds of damage suit; `v` may be counted up meanwhile."""
    return {
        "_id": number,
        "v": 0,
        "n": number,
        "deep": {"list": [{"t": n, "to": ["a", "b", number]} for n in range(3)]},
        "x": "x" * 50,
        "y": number / 2,
    }


def delete(documents: Documents, number: int) -> None:
    documents.delete_one({"_id": number})


def retype(documents: Documents, number: int) -> None:
    documents.update_one({"_id": number}, {"$set": {"n": Int64(number)}})


def reorder(documents: Documents, number: int) -> None:
    """`x` moves to the end."""
    value = "x" * 50
    documents.update_one({"_id": number}, {"$unset": {"x": ""}})
    documents.update_one({"_id": number}, {"$set": {"x": value}})


def element(documents: Documents, number: int) -> None:
    documents.update_one({"_id": number}, {"$set": {"deep.list.1.to.2": -1}})


def another_id(documents: Documents, number: int) -> None:
    """The same document under an `_id` that MongoDB holds equal."""
    found = documents.find_one_and_delete({"_id": number})
    assert found is not None
    documents.insert_one({**found, "_id": float(number)})


#: What is done to a document that both sides have → the kind by which a comparison names it.
KINDS: dict[Callable[[Documents, int], None], str] = {
    delete: "missing",
    retype: "different",
    reorder: "order",
    element: "different",
    another_id: "different",
}


def damage(documents: Documents, random: Random, numbers: range, places: int) -> dict[bytes, str]:
    """Damage so many of these documents, every sixth by one that is added: BSON `{_id: …}` → kind of difference."""
    found: dict[bytes, str] = {}
    for at, number in enumerate(random.sample(numbers, places)):
        if at % 6 == 5:
            added = f"added {number}"
            documents.insert_one({**document(number), "_id": added})
            found[bson.encode({"_id": added})] = "extra"
        else:
            done, kind = list(KINDS.items())[at % 6]
            done(documents, number)
            found[bson.encode({"_id": number})] = kind
    return found
