"""How two collections are cut into ranges of `_id`s that can be compared side by side."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast

from bson.raw_bson import RawBSONDocument
from pymongo.collection import Collection
from pymongo.errors import OperationFailure

from verifier import raw
from verifier.raw import Element
from verifier.reads import RAW

RANGE_BYTES, RANGE_DOCUMENTS = 32 << 20, 100_000
_MAX_RANGES = 4_096
_SAMPLES_A_RANGE = 10
_FEW = 20_000  # up to so many, every `_id` is read, from the index alone; of more, a sample
_BOUND_BYTES = 1_024  # a longer `_id` bounds no range
_BATCH_BYTES, _BATCH_DOCUMENTS = 4 << 20, 16_000
_NAMESPACE_NOT_FOUND = 26


@dataclass(frozen=True, slots=True)
class Bounds:
    """The `_id`s from `low` (inclusive) to `high` (exclusive), each BSON `{_id: …}`; None is an end."""

    low: bytes | None = None
    high: bytes | None = None


_ALL = Bounds()


@dataclass(frozen=True, slots=True)
class Size:
    """About how many documents a collection holds, and how many bytes they are."""

    documents: int
    bytes: int


def size(documents: Collection[Any]) -> Size:
    """What the server keeps count of; nothing for a collection that does not exist."""
    try:
        found = next(documents.aggregate([{"$collStats": {"storageStats": {}}}]), None)
    except OperationFailure as error:
        if error.code != _NAMESPACE_NOT_FOUND:
            raise
        found = None
    stats = found["storageStats"] if found else {}
    return Size(int(stats.get("count", 0)), int(stats.get("size", 0)))


def batch_size(*sizes: Size) -> int:
    """Documents a batch, so that it weighs a few MB; the server ends one at 16 MB whatever is asked for."""
    average = max((one.bytes // one.documents for one in sizes if one.documents), default=0)
    return max(1, min(_BATCH_DOCUMENTS, _BATCH_BYTES // max(1, average)))


def cut(documents: Collection[Any], found: Size, *, range_bytes: int = RANGE_BYTES) -> list[Bounds]:
    """Ranges of about the same number of documents, which take in every `_id` that there can be.

    Whatever the types of the `_id`s: the server sorts them, and bounds go back to it in the bytes that they have.
    """
    wanted = max(-(-found.bytes // range_bytes), -(-found.documents // RANGE_DOCUMENTS))
    ranges = min(_MAX_RANGES, found.documents, wanted)
    if ranges < 2:
        return [Bounds()]
    ids = list(_ids(documents, found, ranges))
    places = sorted({len(ids) * number // ranges for number in range(1, ranges)} - {0})
    bounds = [ids[place] for place in places if place < len(ids) and len(ids[place]) <= _BOUND_BYTES]
    return between(bounds)


def between(bounds: list[bytes], whole: Bounds = _ALL) -> list[Bounds]:
    """The ranges that these ascending bounds cut `whole` into."""
    return [Bounds(low, high) for low, high in zip([whole.low, *bounds], [*bounds, whole.high], strict=True)]


def _ids(documents: Collection[Any], found: Size, ranges: int) -> Iterator[bytes]:
    # a sample of under 5 % is taken by a random cursor; a larger one would read the whole collection
    sample = min(found.documents // 25, ranges * _SAMPLES_A_RANGE)
    stages = [] if found.documents <= _FEW else [{"$sample": {"size": sample}}]
    pipeline = [*stages, {"$project": {"_id": 1}}, {"$sort": {"_id": 1}}]
    hint: dict[str, Any] = {} if stages else {"hint": {"_id": 1}}
    last = None
    for batch in documents.with_options(codec_options=RAW).aggregate_raw_batches(pipeline, allowDiskUse=True, **hint):
        for one in raw.documents(cast(bytes, batch)):
            if one != last:  # a sample may hold a document twice
                yield one
            last = one


def match(bounds: Bounds) -> dict[str, Any]:
    """The `$match` of an aggregation for a range; `$expr` knows no type brackets, and goes by the index as well."""
    parts: list[Any] = []
    for operator, bound in (("$gte", bounds.low), ("$lt", bounds.high)):
        if bound is not None:
            element = raw.id_element(bound)
            literal = RawBSONDocument(raw.document((Element(element.kind, b"$literal", element.value),)))
            parts.append({operator: ["$_id", literal]})
    return {"$match": {"$expr": {"$and": parts}}} if parts else {"$match": {}}
