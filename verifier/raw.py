"""Reads and builds BSON as bytes, where decoding would lose something (bsonspec.org, version 1.1)."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import NamedTuple

DOCUMENT, ARRAY = 0x03, 0x04
#: Type byte → length of the value, for types of fixed length.
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
#: Type byte → bytes to add to the length that the value begins with.
_PREFIXED = {
    0x02: 4,  # string
    DOCUMENT: 0,
    ARRAY: 0,
    0x05: 5,  # binary
    0x0C: 16,  # DBPointer
    0x0D: 4,  # code
    0x0E: 4,  # symbol
    0x0F: 0,  # code with scope
}
_REGEX = 0x0B
_INT32 = struct.Struct("<i")
_ID_FIRST = b"_id\0"


class Element(NamedTuple):
    """A field as it is stored: type byte, name and value."""

    kind: int
    name: bytes
    value: bytes


def _value_length(raw: bytes, kind: int, at: int) -> int:
    if kind in _FIXED:
        return _FIXED[kind]
    if kind in _PREFIXED:
        return int(_INT32.unpack_from(raw, at)[0]) + _PREFIXED[kind]
    if kind == _REGEX:
        return raw.index(b"\0", raw.index(b"\0", at) + 1) + 1 - at
    raise ValueError(f"BSON type 0x{kind:02x} at byte {at} is unknown")


def elements(document: bytes) -> Iterator[Element]:
    """The fields of a document or array in stored order, including names that occur twice."""
    at, last = 4, len(document) - 1
    while at < last:
        kind, end = document[at], document.index(b"\0", at + 1)
        value = end + 1
        length = _value_length(document, kind, value)
        yield Element(kind, document[at + 1 : end], document[value : value + length])
        at = value + length


def document(fields: Iterable[Element]) -> bytes:
    """A document with these fields, in exactly this order."""
    body = b"".join(bytes((kind,)) + name + b"\0" + value for kind, name, value in fields)
    return _INT32.pack(len(body) + 5) + body + b"\0"


def id_element(buffer: bytes, start: int = 0) -> Element:
    """The `_id` of the document that begins at `start`. Raises `ValueError` if it has none."""
    at, last = start + 4, start + int(_INT32.unpack_from(buffer, start)[0]) - 1
    while at < last:
        kind, end = buffer[at], buffer.index(b"\0", at + 1)
        value = end + 1
        length = _value_length(buffer, kind, value)
        if buffer[at + 1 : value] == _ID_FIRST:
            return Element(kind, b"_id", buffer[value : value + length])
        at = value + length
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
