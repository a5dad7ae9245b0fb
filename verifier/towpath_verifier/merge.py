"""Merges two streams of raw documents, each in the order of `_id`s.

Nearly all documents are equal, so whole blocks are compared at once; only a block that differs is compared document by
document. Documents of equal bytes are the same document, whatever the order. Where the order is not the one that
`verifier.raw` knows (a collation), documents that do not differ may be named too, and no difference is missed.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from pymongo.collection import Collection
from pymongo.errors import PyMongoError

from towpath_verifier.differences import same_but_for_order
from towpath_verifier.ranges import Bounds
from towpath_verifier.raw import Key, id_document, id_key
from towpath_verifier.reads import brief, in_id_order, is_passing, verifier_error, with_retries

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
    """One stream, in batches of whole documents; one batch is in memory at a time."""

    __slots__ = ("_batches", "_before", "_behind", "_last", "at", "batch", "read")

    def __init__(self, batches: Iterable[bytes], behind: Key | None = None) -> None:
        """`behind`: an `_id` that is skipped if it comes first."""
        self._batches, self._behind = iter(batches), behind
        self._before: bytes | None = None
        self._last = -1
        self.batch, self.at = b"", 0
        self.read = 0
        """Bytes that came over the network."""

    def fill(self) -> bool:
        """Whether there is a current document; reads the next batch when this one is used up."""
        while self.at >= len(self.batch):
            self._before = self.position
            self.batch, self.at, self._last = b"", 0, -1
            batch = next(self._batches, None)
            if batch is None:
                return False
            self.batch, self.read = batch, self.read + len(batch)
            if self._behind is not None and batch:
                if id_key(batch) == self._behind:
                    self.at = _length(batch)[0]
                self._behind = None
        return True

    def take(self) -> bytes:
        """The current document; the next one becomes current."""
        self._last, self.at = self.at, self.at + _length(self.batch, self.at)[0]
        return self.batch[self._last : self.at]

    def skip(self, size: int, last: int) -> None:
        """Skip documents of `size` bytes, the last of which begins `last` bytes from here."""
        self._last, self.at = self.at + last, self.at + size

    @property
    def position(self) -> bytes | None:
        """BSON `{_id: …}` of the last document that was taken or skipped."""
        return id_document(self.batch, self._last) if self._last >= 0 else self._before


def merged(source: Side, destination: Side, *, ignore_field_order: bool = False) -> Iterator[Merged]:
    """The equal documents of two sides, block by block, and each document that differs."""
    while source.fill() and destination.fill():
        documents, size, last = _block(source.batch, source.at)
        block = source.batch[source.at : source.at + size]
        if destination.batch.startswith(block, destination.at):
            source.skip(size, last)
            destination.skip(size, last)
            yield Equal(documents, size)
        else:
            yield from _one_by_one(source, destination, source.at + size, ignore_field_order)
    while source.fill():
        document = source.take()
        yield Unequal(id_document(document), document, None)
    while destination.fill():
        document = destination.take()
        yield Unequal(id_document(document), None, document)


def _block(batch: bytes, start: int) -> tuple[int, int, int]:
    """The documents up to about `_BLOCK` bytes from `start` on: how many, how long, and where the last begins."""
    count, at, last, limit = 0, start, start, min(len(batch), start + _BLOCK)
    while at < limit:
        last = at
        at += _length(batch, at)[0]
        count += 1
    return count, at - start, last - start


def _one_by_one(source: Side, destination: Side, end: int, ignore_field_order: bool) -> Iterator[Merged]:
    """Document by document, until the source's block or the destination's batch is at its end."""
    documents = size = 0
    ours: Key | None = None
    theirs: Key | None = None
    while source.at < end and destination.at < len(destination.batch):
        document = source.batch[source.at : source.at + _length(source.batch, source.at)[0]]
        if ours is None and theirs is None and destination.batch.startswith(document, destination.at):
            source.take()
            destination.take()
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


@dataclass(slots=True)
class RangeRead:
    """Reads one range at both sides. An interrupted read continues after the last compared `_id`."""

    source: Collection[Any]
    destination: Collection[Any]
    bounds: Bounds
    batch_size: int
    ordered: bool = True
    """Whether `verifier.raw` knows the order of the `_id`s; otherwise an interrupted read cannot go on."""
    ignore_field_order: bool = False
    lost_for: float = 60.0
    """Seconds for which a server may be unreachable."""
    say: Callable[[str], None] = field(default=lambda words: None)
    _sides: list[Side] = field(default_factory=list)
    _closed: int = 0

    @property
    def read(self) -> int:
        """Bytes of documents that both servers sent so far."""
        return self._closed + sum(side.read for side in self._sides)

    def __iter__(self) -> Iterator[Merged]:
        """Equal and unequal documents, in `_id` order. Raises `ServerLost`, or `VerifierError` if a server refuses."""
        position: bytes | None = None
        lost_since: float | None = None
        while True:
            self._sides = self._open(position)
            try:
                for stretch in merged(self._sides[0], self._sides[1], ignore_field_order=self.ignore_field_order):
                    yield stretch
                    lost_since = None
                return
            except PyMongoError as error:
                lost_since = lost_since or time.monotonic()
                self._await(error, lost_since)
                position = _later(position, *(side.position for side in self._sides))
            finally:
                self._closed, self._sides = self.read, []

    def _open(self, position: bytes | None) -> list[Side]:
        low = self.bounds.low if position is None else position
        known = None if position is None else id_key(position)
        return [
            Side(in_id_order(documents, low, self.bounds.high, self.batch_size), known)
            for documents in (self.source, self.destination)
        ]

    def _await(self, error: PyMongoError, since: float) -> None:
        action = f"compare {self.source.full_name} with {self.destination.full_name}"
        if not self.ordered or not is_passing(error) or time.monotonic() - since > self.lost_for:
            raise verifier_error(action, error) from error
        self.say(f"cannot {action}: {brief(error)}; waiting up to {self.lost_for:g} s for the server")
        for documents in (self.source, self.destination):
            admin = documents.database.client.admin
            with_retries(action, self.lost_for, lambda admin=admin: admin.command("hello"))  # type: ignore[misc]


def _later(*positions: bytes | None) -> bytes | None:
    """The last of these `_id`s in `_id` order."""
    return max((position for position in positions if position is not None), key=id_key, default=None)
