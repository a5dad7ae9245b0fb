"""BSON by its bytes, for where decoding would lose something (bsonspec.org, version 1.1)."""

from __future__ import annotations

import struct

#: Type byte → length of the value, where it is fixed.
_FIXED = {
    0x01: 8,  # double
    0x06: 0,  # undefined
    0x07: 12,  # ObjectId
    0x08: 1,  # boolean
    0x09: 8,  # date
    0x0A: 0,  # null
    0x10: 4,  # int32
    0x11: 8,  # timestamp
    0x12: 8,  # int64
    0x13: 16,  # decimal128
    0x7F: 0,  # MaxKey
    0xFF: 0,  # MinKey
}
#: Type byte → bytes that come on top of the length that the value begins with.
_PREFIXED = {
    0x02: 4,  # string
    0x03: 0,  # document
    0x04: 0,  # array
    0x05: 5,  # binary
    0x0C: 16,  # DBPointer
    0x0D: 4,  # code
    0x0E: 4,  # symbol
    0x0F: 0,  # code with scope
}
_REGEX = 0x0B


def _value_length(raw: bytes, kind: int, at: int) -> int:
    if kind in _FIXED:
        return _FIXED[kind]
    if kind in _PREFIXED:
        return int(struct.unpack_from("<i", raw, at)[0]) + _PREFIXED[kind]
    if kind == _REGEX:
        return raw.index(b"\0", raw.index(b"\0", at) + 1) + 1 - at
    raise ValueError(f"BSON type 0x{kind:02x} at byte {at} is not known")


def id_bytes(raw: bytes) -> bytes:
    """Type byte and value of a document's `_id`. Raises `ValueError` when it has none."""
    at = 4
    while at < len(raw) - 1:
        kind, end = raw[at], raw.index(b"\0", at + 1)
        value = end + 1
        length = _value_length(raw, kind, value)
        if raw[at + 1 : end] == b"_id":
            return raw[at : at + 1] + raw[value : value + length]
        at = value + length
    raise ValueError("the document has no _id")
