"""The order of `_id`s in MongoDB's index on `_id` under the simple collation, and which of them are equal.

No verdict rests on this order: before anything is reported of a document that seems to be in the wrong place, it is
read by its `_id` at both sides.
"""

from __future__ import annotations

import math
import struct
from typing import Any

from bson.decimal128 import Decimal128

from verifier.raw import ARRAY, DOCUMENT, Element, elements, id_element

#: Type byte → rank among the types; types of one rank compare by value.
_RANKS = {
    0xFF: 0,  # MinKey
    0x06: 1,  # undefined
    0x0A: 2,  # null
    0x01: 3,  # double
    0x10: 3,  # int32
    0x12: 3,  # int64
    0x13: 3,  # decimal128
    0x02: 4,  # string
    0x0E: 4,  # symbol
    DOCUMENT: 5,
    ARRAY: 6,
    0x05: 7,  # binary
    0x07: 8,  # ObjectId
    0x08: 9,  # boolean
    0x09: 10,  # date
    0x11: 11,  # timestamp
    0x0B: 12,  # regular expression
    0x0C: 13,  # DBPointer
    0x0D: 14,  # code
    0x0F: 15,  # code with scope
    0x7F: 16,  # MaxKey
}
_NUMBERS = {0x01: struct.Struct("<d"), 0x10: struct.Struct("<i"), 0x12: struct.Struct("<q")}
_DATE, _TIMESTAMP = struct.Struct("<q"), struct.Struct("<Q")
_INT32 = struct.Struct("<i")
_NAN, _NUMBER = 0, 1  # all NaNs are equal, and below all numbers

#: Compares as MongoDB orders `_id`s; equal, and with equal hashes, for `_id`s that are equal to MongoDB.
Key = tuple[Any, ...]


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
            return _number(_NUMBERS[kind].unpack(value)[0])
        case 0x13:
            return _number(Decimal128.from_bid(value).to_decimal())
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


def _number(number: Any) -> Key:
    return (_NAN,) if math.isnan(number) else (_NUMBER, number)


def _inside(document: bytes) -> Key:
    return tuple(
        (_RANKS[element.kind], element.name, *_comparable(element.kind, element.value))
        for element in elements(document)
    )
