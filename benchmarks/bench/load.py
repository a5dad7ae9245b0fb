"""What is replicated in a benchmark: documents, changes of them, devices that push readings; all from a seed."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any
from zlib import crc32

import bson
from bson import Binary, Decimal128, Int64, ObjectId
from pymongo import DeleteOne, InsertOne, ReplaceOne, UpdateOne

from tests.support import raw

_BATCH = 2000
_BODIES = 2000
_TOGETHER = 20
_START = datetime(2026, 1, 1, tzinfo=UTC)
_WORDS = ("canal", "lock", "barge", "towpath", "bridge", "wharf", "keeper", "rope", "horse", "boat", "water", "level")
_DELETED_AFTER = 2000  # inserts later: by then the change stream is past the insert

Write = InsertOne[dict[str, Any]] | UpdateOne | ReplaceOne[dict[str, Any]] | DeleteOne


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
            return rising(index)


def rising(index: int) -> ObjectId:
    """The next `_id` in the order of the index."""
    return ObjectId((index + (0x65 << 88)).to_bytes(12, "big"))


def document(random: Random, index: int) -> dict[str, Any]:
    """About 0.9 KB of mixed types."""
    return {"_id": identity(index), **_body(random, index)}


def _body(random: Random, number: int) -> dict[str, Any]:
    return {
        "number": number,
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


def fill(documents: raw.Documents, seed: int, count: int, identify: Callable[[int], Any] = identity) -> None:
    """Insert so many documents; after 2,000 all but their `_id` repeats, as drawing it costs more than storing it."""
    random = Random(seed)
    bodies = [bson.encode(_body(random, number)) for number in range(min(count, _BODIES))]
    for some in batches(count):
        raw.insert_many(documents, [joined(identify(index), bodies[index % _BODIES]) for index in some])


def joined(identity: Any, body: bytes) -> bytes:
    """The BSON of a document: the `_id`, and the fields of a document that has none."""
    fields = bson.encode({"_id": identity})[4:-1] + body[4:]
    return (len(fields) + 4).to_bytes(4, "little") + fields


def fill_tiny(documents: raw.Documents, count: int) -> None:
    """Documents that hold nothing but `{"a": "b"}` and the `_id` that the driver gives them."""
    for some in batches(count):
        documents.insert_many([{"a": "b"} for _ in some], ordered=False)


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


@dataclass(frozen=True, slots=True)
class Mix:
    """Parts of a workload, in percent of its changes; what is left of 100 are deletes."""

    insert: int = 30
    set: int = 35
    push: int = 20
    replace: int = 10


def changes(seed: int, existing: int, mix: Mix = Mix()) -> Iterator[Write]:
    """Interleaved changes without end: `$set` with `$inc`, `$push` and replace of the `existing` documents, inserts of
    new ones, and deletes of those that were inserted a while ago.

    No document that was updated is deleted: Debezium would look it up in vain, at which mongo-kafka's handler stops.
    """
    random, next_index, inserted = Random(seed), existing, deque[int]()
    while True:
        kind = random.randrange(100)
        mine = {"_id": identity(random.randrange(existing))}
        if kind < mix.insert or (
            kind >= mix.insert + mix.set + mix.push + mix.replace and len(inserted) <= _DELETED_AFTER
        ):
            yield InsertOne(document(random, next_index))
            inserted.append(next_index)
            next_index += 1
        elif kind < mix.insert + mix.set:
            values = {"weight": random.uniform(0, 100), "address.house": random.randrange(200)}
            yield UpdateOne(mine, {"$set": values, "$inc": {"count": 1}})
        elif kind < mix.insert + mix.set + mix.push:
            line = {"item": random.choice(_WORDS), "price": random.uniform(0, 50), "n": random.randrange(100)}
            yield UpdateOne(mine, {"$push": {"lines": line}})
        elif kind < mix.insert + mix.set + mix.push + mix.replace:
            yield ReplaceOne(mine, _body(random, next_index))
        else:
            yield DeleteOne({"_id": identity(inserted.popleft())})


def write(documents: raw.Documents, some: Iterator[Write], count: int) -> None:
    """Send so many changes, in their order: each run of changes of one kind is a separate command."""
    for part in batches(count):
        documents.bulk_write([next(some) for _ in part], ordered=True)


def write_fast(documents: raw.Documents, some: Iterator[Write], count: int) -> None:
    """Send so many changes, twenty at once: those of one kind are a command. No document's order changes by that."""
    for start in range(0, count, _TOGETHER):
        documents.bulk_write([next(some) for _ in range(min(_TOGETHER, count - start))], ordered=False)


def reading(random: Random, number: int) -> dict[str, Any]:
    """One reading of a device: 100 bytes of BSON."""
    return {
        "at": _START + timedelta(seconds=number),
        "n": number,
        "temperature": random.uniform(-20, 45),
        "humidity": random.uniform(0, 100),
        "pressure": random.uniform(950, 1050),
        "state": "running",
    }


def device_id(number: int) -> str:
    return f"device-{number:04}"


def device(random: Random, number: int, length: int) -> dict[str, Any]:
    """A device's document that holds so many readings."""
    return {"_id": device_id(number), "readings": [reading(random, n) for n in range(length)]}


def push(random: Random, tick: int, options: Mapping[str, Any]) -> dict[str, Any]:
    """The update that pushes the reading of a tick; `options` go beside `$each`, if there are any."""
    one = reading(random, tick)
    return {"$push": {"readings": {"$each": [one], **options} if options else one}}


def batches(count: int) -> Iterator[range]:
    for start in range(0, count, _BATCH):
        yield range(start, min(start + _BATCH, count))
