"""Reads and builds BSON as bytes, where decoding would lose something (bsonspec.org, version 1.1); orders `_id`s.

The order is that of MongoDB's index on `_id` under the simple collation. No verdict rests on it: before anything is
reported of a document that seems to be in the wrong place, it is read by its `_id` at both sides.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from bson.decimal128 import Decimal128

DOCUMENT = 0x03
"""The type byte of an embedded document."""
ARRAY = 0x04
"""The type byte of an array."""
_REGEX = 0x0B
#: Type byte → rank among the types (those of one rank compare by value), the fixed length of a value, and what to add
#: to the length that a value begins with.
_TYPES: dict[int, tuple[int, int | None, int | None]] = {
    0xFF: (0, 0, None),  # MinKey
    0x06: (1, 0, None),  # undefined
    0x0A: (2, 0, None),  # null
    0x01: (3, 8, None),  # double
    0x10: (3, 4, None),  # int32
    0x12: (3, 8, None),  # int64
    0x13: (3, 16, None),  # decimal128
    0x02: (4, None, 4),  # string
    0x0E: (4, None, 4),  # symbol
    DOCUMENT: (5, None, 0),
    ARRAY: (6, None, 0),
    0x05: (7, None, 5),  # binary
    0x07: (8, 12, None),  # ObjectId
    0x08: (9, 1, None),  # boolean
    0x09: (10, 8, None),  # date
    0x11: (11, 8, None),  # timestamp
    _REGEX: (12, None, None),
    0x0C: (13, None, 16),  # DBPointer
    0x0D: (14, None, 4),  # code
    0x0F: (15, None, 0),  # code with scope
    0x7F: (16, 0, None),  # MaxKey
}
_RANKS = {kind: rank for kind, (rank, _, _) in _TYPES.items()}
_FIXED = {kind: length for kind, (_, length, _) in _TYPES.items() if length is not None}
_PREFIXED = {kind: more for kind, (_, _, more) in _TYPES.items() if more is not None}
_INT32 = struct.Struct("<i")


class Element(NamedTuple):
    """A field as stored: type byte, name and value."""

    kind: int
    name: bytes
    value: bytes


def value_length(raw: bytes, kind: int, at: int) -> int:
    """Bytes of the value of this type that begins at `at`."""
    if kind in _FIXED:
        return _FIXED[kind]
    if kind in _PREFIXED:
        return int(_INT32.unpack_from(raw, at)[0]) + _PREFIXED[kind]
    if kind == _REGEX:
        return raw.index(b"\0", raw.index(b"\0", at) + 1) + 1 - at
    raise ValueError(f"BSON type 0x{kind:02x} at byte {at} is unknown")


def elements(buffer: bytes, start: int = 0) -> Iterator[Element]:
    """The fields of the document or array that begins at `start`, in stored order, including names that occur twice."""
    at, last = start + 4, start + int(_INT32.unpack_from(buffer, start)[0]) - 1
    while at < last:
        kind, end = buffer[at], buffer.index(b"\0", at + 1)
        value = end + 1
        length = value_length(buffer, kind, value)
        yield Element(kind, buffer[at + 1 : end], buffer[value : value + length])
        at = value + length


def document(fields: Iterable[Element]) -> bytes:
    """A document with these fields, in exactly this order."""
    body = b"".join(bytes((kind,)) + name + b"\0" + value for kind, name, value in fields)
    return _INT32.pack(len(body) + 5) + body + b"\0"


def id_element(buffer: bytes, start: int = 0) -> Element:
    """The `_id` of the document that begins at `start`. Raises `ValueError` if it has none."""
    if buffer.startswith(b"_id\0", start + 5):  # almost always; every compared document passes here
        kind, value = buffer[start + 4], start + 9
        return Element(kind, b"_id", buffer[value : value + value_length(buffer, kind, value)])
    for element in elements(buffer, start):
        if element.name == b"_id":
            return element
    raise ValueError("the document has no _id")


def id_document(buffer: bytes, start: int = 0) -> bytes:
    """The BSON `{_id: …}` of the document that begins at `start`, its bytes unchanged."""
    return document((id_element(buffer, start),))


def documents(buffer: bytes) -> Iterator[bytes]:
    """The documents that follow one another in a buffer."""
    at = 0
    while at < len(buffer):
        length: int = _INT32.unpack_from(buffer, at)[0]
        yield buffer[at : at + length]
        at += length


def array(values: Iterable[Element]) -> Element:
    """A BSON array of these values, whatever their names."""
    return Element(ARRAY, b"", document(Element(v.kind, str(n).encode(), v.value) for n, v in enumerate(values)))


_NUMBERS = {0x01: struct.Struct("<d"), 0x10: struct.Struct("<i"), 0x12: struct.Struct("<q")}
_DATE, _TIMESTAMP = struct.Struct("<q"), struct.Struct("<Q")
_NAN, _NUMBER = 0, 1  # all NaNs are equal, and below all numbers

Key = tuple[Any, ...]
"""Compares as MongoDB orders `_id`s; equal, and with equal hashes, for `_id`s that are equal to MongoDB."""


def id_key(buffer: bytes, start: int = 0) -> Key:
    """The key of the `_id` of the document that begins at `start`."""
    return key(id_element(buffer, start))


def key(element: Element) -> Key:
    """The key of a value, whatever its name."""
    return (_RANKS[element.kind], *_comparable(element.kind, element.value))


def _comparable(kind: int, value: bytes) -> Key:
    match kind:
        case 0x07 | 0x08 | 0x0B:
            return (value,)
        case 0x02 | 0x0E | 0x0D:
            return (value[4:-1],)
        case 0x01 | 0x10 | 0x12:
            number = _NUMBERS[kind].unpack(value)[0]
            return (_NAN,) if math.isnan(number) else (_NUMBER, number)
        case 0x13:
            decimal = Decimal128.from_bid(value).to_decimal()
            return (_NAN,) if decimal.is_nan() else (_NUMBER, decimal)  # math.isnan raises for a signaling NaN
        case 0x05 | 0x0C:
            return (_INT32.unpack_from(value)[0], value[4:])
        case 0x09:
            return (_DATE.unpack(value)[0],)
        case 0x11:
            return (_TIMESTAMP.unpack(value)[0],)
        case 0x03:
            return (_inside(value),)
        case 0x04:
            return (tuple(key(element) for element in elements(value)),)
        case 0x0F:
            scope = 8 + _INT32.unpack_from(value, 4)[0]
            return (value[8:scope], _inside(value[scope:]))
        case _:
            return ()


def _inside(document: bytes) -> Key:
    return tuple(
        (_RANKS[element.kind], element.name, *_comparable(element.kind, element.value))
        for element in elements(document)
    )
