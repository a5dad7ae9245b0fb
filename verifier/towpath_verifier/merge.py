"""Compares two collections, or a range of both: the bytes of documents, or digests that the servers compute.

Nearly all documents are equal, so whole blocks are compared at once; only a block that differs is compared document by
document. Documents of equal bytes are the same document, whatever the order. Where the order is not the one that
`raw` knows (a collation), documents that do not differ may also be named, and no difference is missed.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from pymongo.collection import Collection

from towpath_verifier import raw
from towpath_verifier.differences import same_but_for_order
from towpath_verifier.mask import Mask
from towpath_verifier.raw import Element, Key, id_document, id_key, key
from towpath_verifier.reads import Bounds, aggregated, with_retries

_BLOCK = 1 << 18  # bytes that are compared at once
_length = struct.Struct("<i").unpack_from


@dataclass(frozen=True, slots=True)
class Equal:
    """A number of documents that are the same on both sides, and their bytes."""

    documents: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Unequal:
    """A document that one side does not have, or that differs."""

    id: bytes
    source: bytes | None
    destination: bytes | None


Merged: TypeAlias = Equal | Unequal


class Side:
    """One stream, in batches of whole documents, or of what a mask leaves; one batch is in memory at a time."""

    __slots__ = ("_batches", "_mask", "at", "batch", "read")

    def __init__(self, batches: Iterable[bytes], mask: Mask | None = None) -> None:
        self._batches, self._mask = iter(batches), mask
        self.batch, self.at = b"", 0
        self.read = 0
        """Bytes that came over the network."""

    def fill(self) -> bool:
        """Whether there is a current document; reads the next batch when this one is used up."""
        while self.at >= len(self.batch):
            batch = next(self._batches, None)
            if batch is None:
                return False
            self.batch, self.at, self.read = batch, 0, self.read + len(batch)
            if self._mask is not None:
                self.batch = self._mask.batch(batch)
        return True

    def take(self) -> bytes:
        """The current document; the next one becomes current."""
        start, self.at = self.at, self.at + _length(self.batch, self.at)[0]
        return self.batch[start : self.at]


def merged(source: Side, destination: Side, *, ignore_field_order: bool = False) -> Iterator[Merged]:
    """The equal documents of two sides, block by block, and each document that differs."""
    while source.fill() and destination.fill():
        documents, end = _block(source.batch, source.at)
        block = source.batch[source.at : end]
        if destination.batch.startswith(block, destination.at):
            source.at, destination.at = end, destination.at + len(block)
            yield Equal(documents, len(block))
        else:
            yield from _one_by_one(source, destination, end, ignore_field_order)
    while source.fill():
        document = source.take()
        yield Unequal(id_document(document), document, None)
    while destination.fill():
        document = destination.take()
        yield Unequal(id_document(document), None, document)


def _block(batch: bytes, start: int) -> tuple[int, int]:
    """The documents up to about `_BLOCK` bytes from `start` on: how many, and where they end."""
    count, at, limit = 0, start, min(len(batch), start + _BLOCK)
    while at < limit:
        at += _length(batch, at)[0]
        count += 1
    return count, at


def _one_by_one(source: Side, destination: Side, end: int, ignore_field_order: bool) -> Iterator[Merged]:
    """Document by document, until the source's block or the destination's batch is at its end."""
    documents = size = 0
    ours: Key | None = None
    theirs: Key | None = None
    while source.at < end and destination.at < len(destination.batch):
        document = source.batch[source.at : source.at + _length(source.batch, source.at)[0]]
        if ours is None and theirs is None and destination.batch.startswith(document, destination.at):
            source.at, destination.at = source.at + len(document), destination.at + len(document)
            documents, size = documents + 1, size + len(document)
            continue
        ours = ours or id_key(source.batch, source.at)
        theirs = theirs or id_key(destination.batch, destination.at)
        if ours == theirs:
            ours = theirs = None
            counterpart = (source.take(), destination.take())[1]
            if document == counterpart or (ignore_field_order and same_but_for_order(document, counterpart)):
                documents, size = documents + 1, size + len(document)
            else:
                yield Unequal(id_document(document), document, counterpart)
        elif ours < theirs:
            ours = None
            yield Unequal(id_document(document), source.take(), None)
        else:
            theirs = None
            extra = destination.take()
            yield Unequal(id_document(extra), None, extra)
    if documents:
        yield Equal(documents, size)


_NAMED = 1_000  # a range of up to so many documents is compared digest by digest
_PARTS = 16  # parts that a larger range is split into
#: Primes below 2^32: sums of a 64-bit digest modulo each stay exact for 2^31 documents, and both keep nearly all of it.
_MODULI = (4_294_967_291, 4_294_967_279)
_HASH = {"$toHashedIndexKey": "$$ROOT"}
_Digest = tuple[int, ...]  # how many documents a range holds, and the sums of their hashes


@dataclass(slots=True)
class Screen:
    """Compares one range by digests (`$toHashedIndexKey`), which can miss differences.

    Iterate over it for the documents whose digests are equal, and those that differ.

    It fetches no documents, so `Equal.bytes` is 0, and `source` and `destination` of each `Unequal` are None.
    """

    source: Collection[Any]
    destination: Collection[Any]
    bounds: Bounds
    lost_for: float
    say: Callable[[str], None]
    read: int = 0
    """Bytes of BSON in the replies."""

    def __iter__(self) -> Iterator[Merged]:
        return self._range(self.bounds)

    def _range(self, bounds: Bounds) -> Iterator[Merged]:
        ours, theirs = self._digest(self.source, bounds), self._digest(self.destination, bounds)
        if ours == theirs:
            yield Equal(ours[0], 0)
            return
        few = max(ours[0], theirs[0]) <= _NAMED
        parts = [bounds] if few else self._split(self.source if ours[0] >= theirs[0] else self.destination, bounds)
        if len(parts) == 1:
            yield from self._named(bounds)
            return
        for part in parts:
            yield from self._range(part)

    def _digest(self, documents: Collection[Any], bounds: Bounds) -> _Digest:
        sums = {f"h{n}": {"$sum": {"$mod": ["$h", modulus]}} for n, modulus in enumerate(_MODULI)}
        group = {"$group": {"_id": None, "n": {"$sum": 1}, **sums}}
        for row in self._rows(documents, bounds, {"$project": {"_id": 0, "h": _HASH}}, group):
            return tuple(_whole(element) for element in raw.elements(row) if element.name != b"_id")
        return (0,)

    def _split(self, documents: Collection[Any], bounds: Bounds) -> list[Bounds]:
        buckets = self._rows(
            documents, bounds, {"$project": {"_id": 1}}, {"$bucketAuto": {"groupBy": "$_id", "buckets": _PARTS}}
        )
        lows = [next(raw.elements(raw.id_element(bucket).value)) for bucket in buckets]
        return bounds.split([raw.document((low._replace(name=b"_id"),)) for low in lows[1:]])

    def _named(self, bounds: Bounds) -> Iterator[Merged]:
        ours, theirs = self._singles(self.source, bounds), self._singles(self.destination, bounds)
        keys = ours.keys() | theirs.keys()
        unequal = [key for key in keys if key not in ours or key not in theirs or ours[key][1] != theirs[key][1]]
        yield Equal(len(keys) - len(unequal), 0)
        yield from (Unequal((ours.get(key) or theirs[key])[0], None, None) for key in unequal)

    def _singles(self, documents: Collection[Any], bounds: Bounds) -> dict[Key, tuple[bytes, int]]:
        """BSON `{_id: …}` and digest of each document."""
        rows = self._rows(documents, bounds, {"$project": {"h": _HASH}})
        return {id_key(row): (raw.id_document(row), _whole(list(raw.elements(row))[-1])) for row in rows}

    def _rows(self, documents: Collection[Any], bounds: Bounds, *stages: Mapping[str, Any]) -> list[bytes]:
        rows = with_retries(
            f"compute digests of {documents.full_name}",
            self.lost_for,
            lambda: list(aggregated(documents, [bounds.stage, *stages], hint={"_id": 1})),
            self.say,
        )
        self.read += sum(map(len, rows))
        return rows


def _whole(element: Element) -> int:
    """An integer, whether the server sent 32 or 64 bits."""
    return int(key(element)[-1])
