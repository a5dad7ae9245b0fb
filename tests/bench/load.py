"""Documents of about 1 KB, of mixed types under mixed types of `_id`, and updates of them; both from a seed."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any
from zlib import crc32

from bson import Binary, Decimal128, Int64, ObjectId
from pymongo import UpdateOne

from tests.support import raw

_BATCH = 2000
_START = datetime(2026, 1, 1, tzinfo=UTC)
_WORDS = ("canal", "lock", "barge", "towpath", "bridge", "wharf", "keeper", "rope", "horse", "boat", "water", "level")


def identity(index: int) -> Any:
    match index % 8:
        case 0:
            return f"order-{index:08}"
        case 1:
            return Int64(index)
        case 2:
            return {"shop": index % 50, "number": index}
        case 3:
            return Binary(index.to_bytes(16, "big"), 4)
        case _:
            return ObjectId((index + (0x65 << 88)).to_bytes(12, "big"))


def document(random: Random, index: int) -> dict[str, Any]:
    return {
        "_id": identity(index),
        "number": index,
        "total": Decimal128(f"{random.randrange(10**6)}.{random.randrange(100):02}"),
        "weight": random.uniform(0, 100),
        "count": Int64(random.getrandbits(40)),
        "at": _START + timedelta(seconds=random.randrange(10**7)),
        "owner": ObjectId(random.randbytes(12)),
        "open": random.random() < 0.5,
        "none": None,
        "labels": random.sample(_WORDS, 3),
        "lines": [{"item": random.choice(_WORDS), "price": random.uniform(0, 50), "n": n} for n in range(4)],
        "address": {"street": random.choice(_WORDS), "house": random.randrange(200), "geo": [random.random(), 1.5]},
        "picture": Binary(random.randbytes(64)),
        "text": " ".join(random.choices(_WORDS, k=55)),
    }


def fill(documents: raw.Documents, seed: int, count: int) -> None:
    random = Random(seed)
    for some in batches(count):
        documents.insert_many([document(random, index) for index in some], ordered=False)


def update(documents: raw.Documents, seed: int, run: str, existing: int, count: int) -> None:
    """`$set` one field, now and then two, of so many documents drawn at random: values that no other run has set."""
    random, unlike = Random(seed), crc32(run.encode())
    for some in batches(count):
        documents.bulk_write([_update(random, existing, unlike + number) for number in some], ordered=False)


def _update(random: Random, existing: int, number: int) -> UpdateOne:
    fields: dict[str, Any] = {"weight": number + 0.5}
    if random.random() < 0.25:
        fields["address.house"] = number
    return UpdateOne({"_id": identity(random.randrange(existing))}, {"$set": fields})


def batches(count: int) -> Iterator[range]:
    for start in range(0, count, _BATCH):
        yield range(start, min(start + _BATCH, count))
