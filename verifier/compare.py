"""Are two collections the same, byte for byte? Field order and BSON types count."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from bson.codec_options import CodecOptions
from bson.raw_bson import RawBSONDocument
from pymongo.collection import Collection

from verifier.raw import id_bytes

_RAW: CodecOptions[RawBSONDocument] = CodecOptions(document_class=RawBSONDocument)


@dataclass(frozen=True, slots=True)
class Missing:
    """A document of the source that the destination does not have."""

    source: RawBSONDocument


@dataclass(frozen=True, slots=True)
class Extra:
    """A document of the destination that the source does not have."""

    destination: RawBSONDocument


@dataclass(frozen=True, slots=True)
class Different:
    """A document that both sides have under the same `_id`, with other bytes."""

    source: RawBSONDocument
    destination: RawBSONDocument


Difference = Missing | Extra | Different


@dataclass(frozen=True, slots=True)
class Comparison:
    """What comparing two collections came to; `compared` counts documents that either side has."""

    compared: int
    differences: tuple[Difference, ...]

    @property
    def same(self) -> bool:
        return not self.differences


def compare(source: Collection[Any], destination: Collection[Any]) -> Comparison:
    """Compare all documents of two collections while nobody writes to them.

    Reads both sides in `_id` order, so that memory is bounded by the documents that differ. Raises what PyMongo
    raises when a server cannot be read.
    """
    compared, found = 0, []
    for pair in pairs(_in_id_order(source), _in_id_order(destination)):
        compared += 1
        difference = _difference(*pair)
        if difference is not None:
            found.append(difference)
    return Comparison(compared, tuple(found))


def _in_id_order(collection: Collection[Any]) -> Iterator[RawBSONDocument]:
    raw = collection.with_options(codec_options=_RAW)
    with raw.find({}, hint=[("_id", 1)], sort=[("_id", 1)]) as cursor:
        yield from cursor


def pairs(
    source: Iterable[RawBSONDocument], destination: Iterable[RawBSONDocument]
) -> Iterator[tuple[RawBSONDocument | None, RawBSONDocument | None]]:
    """Bring together what has the same `_id`, byte for byte; None stands where a side has none.

    Both sides come in MongoDB's order of `_id`s, which Python does not know; one that waits for its partner is kept
    until that comes, or until both sides have ended.
    """
    waiting: tuple[dict[bytes, RawBSONDocument], dict[bytes, RawBSONDocument]] = ({}, {})
    for both in zip_longest(source, destination):
        for side, document in enumerate(both):
            if document is None:
                continue
            key = id_bytes(bytes(document.raw))
            partner = waiting[1 - side].pop(key, None)
            if partner is None:
                waiting[side][key] = document
            else:
                yield (document, partner) if side == 0 else (partner, document)
    yield from ((document, None) for document in waiting[0].values())
    yield from ((None, document) for document in waiting[1].values())


def _difference(source: RawBSONDocument | None, destination: RawBSONDocument | None) -> Difference | None:
    if source is None or destination is None:
        return Missing(source) if source is not None else Extra(destination) if destination is not None else None
    return None if bytes(source.raw) == bytes(destination.raw) else Different(source, destination)
