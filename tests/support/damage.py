"""Damage at the destination, of every kind that a comparison has to find, in documents of one shape."""

from __future__ import annotations

import struct
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import bson
from bson import Int64

from tests.support.raw import Documents

Document = dict[str, Any]

WHEN = datetime(2026, 3, 29, 1, 30, tzinfo=UTC)
_NAN, _OTHER_NAN = (
    struct.unpack("<d", payload.to_bytes(8, "little"))[0] for payload in (0x7FF8 << 48, 0x7FF8 << 48 | 1)
)


def document(number: int) -> Document:
    """A document that all kinds of damage suit; `v` may be counted up in the meantime."""
    return {
        "_id": number,
        "v": 0,
        "n": number,
        "deep": {"list": [{"t": n, "to": ["a", "b", number]} for n in range(3)]},
        "x": "x" * 50,
        "y": number / 2,
        "at": WHEN,
        "ratio": _NAN,
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


def date(documents: Documents, number: int) -> None:
    """A millisecond off."""
    documents.update_one({"_id": number}, {"$set": {"at": WHEN + timedelta(milliseconds=1 - 2 * (number % 2))}})


def payload(documents: Documents, number: int) -> None:
    """A NaN of other bytes."""
    documents.update_one({"_id": number}, {"$set": {"ratio": _OTHER_NAN}})


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
    date: "different",
    payload: "different",
    another_id: "different",
}


def damage(documents: Documents, random: Random, numbers: range, places: int) -> dict[bytes, str]:
    """Damage so many of these documents, some by one that is added: BSON `{_id: …}` → kind of difference."""
    found: dict[bytes, str] = {}
    for at, number in enumerate(random.sample(numbers, places)):
        if at % (len(KINDS) + 1) == len(KINDS):
            added = f"added {number}"
            documents.insert_one({**document(number), "_id": added})
            found[bson.encode({"_id": added})] = "extra"
        else:
            done, kind = list(KINDS.items())[at % (len(KINDS) + 1)]
            done(documents, number)
            found[bson.encode({"_id": number})] = kind
    return found
