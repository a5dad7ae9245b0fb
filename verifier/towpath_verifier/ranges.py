"""Cuts two collections into ranges of `_id`s that can be compared side by side."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast

from bson.raw_bson import RawBSONDocument
from pymongo.collection import Collection
from pymongo.errors import OperationFailure

from towpath_verifier import raw
from towpath_verifier.raw import Element
from towpath_verifier.reads import RAW

RANGE_BYTES, RANGE_DOCUMENTS = 32 << 20, 100_000
_MAX_RANGES = 4_096
_SAMPLES_A_RANGE = 10
_FEW = 20_000  # up to so many documents, every `_id` is read, from the index alone; beyond that, a sample
_BOUND_BYTES = 1_024  # a longer `_id` is not used as a bound
_BATCH_BYTES, _BATCH_DOCUMENTS = 4 << 20, 16_000
_NAMESPACE_NOT_FOUND = 26


@dataclass(frozen=True, slots=True)
class Bounds:
    """The `_id`s from `low` (inclusive) to `high` (exclusive), each BSON `{_id: …}`; None for no bound."""

    low: bytes | None = None
    high: bytes | None = None


_ALL = Bounds()


@dataclass(frozen=True, slots=True)
class Size:
    """About how many documents a collection holds, and how many bytes they are."""

    documents: int
    bytes: int


def size(documents: Collection[Any]) -> Size:
    """By the server's own counts; zeros for a collection that does not exist."""
    try:
        reply = next(documents.aggregate([{"$collStats": {"storageStats": {}}}]), None)
    except OperationFailure as error:
        if error.code != _NAMESPACE_NOT_FOUND:
            raise
        reply = None
    stats = reply["storageStats"] if reply else {}
    return Size(int(stats.get("count", 0)), int(stats.get("size", 0)))


def batch_size(*sizes: Size) -> int:
    """Documents in a batch of a few MB; the server ends a batch at 16 MB in any case."""
    average = max((size.bytes // size.documents for size in sizes if size.documents), default=0)
    return max(1, min(_BATCH_DOCUMENTS, _BATCH_BYTES // max(1, average)))


def cut(documents: Collection[Any], whole: Size, *, range_bytes: int = RANGE_BYTES) -> list[Bounds]:
    """Ranges of about the same number of documents, which include every possible `_id`.

    `_id`s may have any types: the server sorts them, and the bounds are sent back to it with the bytes that they have.
    """
    needed = max(-(-whole.bytes // range_bytes), -(-whole.documents // RANGE_DOCUMENTS))
    ranges = min(_MAX_RANGES, whole.documents, needed)
    if ranges < 2:
        return [Bounds()]
    ids = list(_ids(documents, whole, ranges))
    places = sorted({len(ids) * number // ranges for number in range(1, ranges)} - {0})
    bounds = [ids[place] for place in places if place < len(ids) and len(ids[place]) <= _BOUND_BYTES]
    return between(bounds)


def between(bounds: list[bytes], whole: Bounds = _ALL) -> list[Bounds]:
    """The ranges that these ascending bounds cut `whole` into."""
    return [Bounds(low, high) for low, high in zip([whole.low, *bounds], [*bounds, whole.high], strict=True)]


def _ids(documents: Collection[Any], whole: Size, ranges: int) -> Iterator[bytes]:
    # the server takes a sample of under 5 % with a random cursor; for a larger one it would read the whole collection
    sample = min(whole.documents // 25, ranges * _SAMPLES_A_RANGE)
    stages = [] if whole.documents <= _FEW else [{"$sample": {"size": sample}}]
    pipeline = [*stages, {"$project": {"_id": 1}}, {"$sort": {"_id": 1}}]
    hint: dict[str, Any] = {} if stages else {"hint": {"_id": 1}}
    last = None
    for batch in documents.with_options(codec_options=RAW).aggregate_raw_batches(pipeline, allowDiskUse=True, **hint):
        for identity in raw.documents(cast(bytes, batch)):
            if identity != last:  # a sample may hold a document twice
                yield identity
            last = identity


def match(bounds: Bounds) -> dict[str, Any]:
    """The `$match` of an aggregation for a range; `$expr` has no type bracketing, and uses the index too."""
    parts: list[Any] = []
    for operator, bound in (("$gte", bounds.low), ("$lt", bounds.high)):
        if bound is not None:
            element = raw.id_element(bound)
            literal = RawBSONDocument(raw.document((Element(element.kind, b"$literal", element.value),)))
            parts.append({operator: ["$_id", literal]})
    return {"$match": {"$expr": {"$and": parts}}} if parts else {"$match": {}}
