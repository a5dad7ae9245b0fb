"""BSON as bytes: written by hand, so that what no driver would write can be stored, and read without decoding.

An element is `type byte, name, NUL, payload`; a document is `length, elements, NUL`. Nothing here imports `bson`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from enum import IntEnum
from typing import NamedTuple


class Type(IntEnum):
    """Type bytes of BSON, the deprecated ones included."""

    DOUBLE = 0x01
    STRING = 0x02
    DOCUMENT = 0x03
    ARRAY = 0x04
    BINARY = 0x05
    UNDEFINED = 0x06
    OBJECT_ID = 0x07
    BOOLEAN = 0x08
    DATE = 0x09
    NULL = 0x0A
    REGEX = 0x0B
    DB_POINTER = 0x0C
    CODE = 0x0D
    SYMBOL = 0x0E
    CODE_WITH_SCOPE = 0x0F
    INT32 = 0x10
    TIMESTAMP = 0x11
    INT64 = 0x12
    DECIMAL128 = 0x13
    MIN_KEY = 0xFF
    MAX_KEY = 0x7F


class Value(NamedTuple):
    """A BSON value: its type and the bytes that follow the name."""

    type: Type
    payload: bytes


class Element(NamedTuple):
    """A field of a document as it is stored."""

    type: int
    name: bytes
    payload: bytes

    @property
    def value(self) -> Value:
        return Value(Type(self.type), self.payload)


_FIXED = {
    Type.DOUBLE: 8,
    Type.UNDEFINED: 0,
    Type.OBJECT_ID: 12,
    Type.BOOLEAN: 1,
    Type.DATE: 8,
    Type.NULL: 0,
    Type.INT32: 4,
    Type.TIMESTAMP: 8,
    Type.INT64: 8,
    Type.DECIMAL128: 16,
    Type.MIN_KEY: 0,
    Type.MAX_KEY: 0,
}
#: Bytes on top of the length that the payload begins with.
_PREFIXED = {
    Type.STRING: 4,
    Type.CODE: 4,
    Type.SYMBOL: 4,
    Type.BINARY: 5,
    Type.DB_POINTER: 16,
    Type.DOCUMENT: 0,
    Type.ARRAY: 0,
    Type.CODE_WITH_SCOPE: 0,
}


def elements(document: bytes) -> Iterator[Element]:
    """The elements of a document or array, in stored order, duplicates included."""
    position, end = 4, len(document) - 1
    while position < end:
        kind = document[position]
        name_end = document.index(0, position + 1)
        start = name_end + 1
        stop = start + _size(kind, document, start)
        yield Element(kind, document[position + 1 : name_end], document[start:stop])
        position = stop


def _size(kind: int, raw: bytes, start: int) -> int:
    if kind == Type.REGEX:
        options = raw.index(0, start) + 1
        return raw.index(0, options) + 1 - start
    fixed = _FIXED.get(Type(kind))
    if fixed is not None:
        return fixed
    length: int = struct.unpack_from("<i", raw, start)[0]
    return length + _PREFIXED[Type(kind)]


def field(document: bytes, name: str) -> Element:
    """The first element called `name`; raises KeyError."""
    wanted = name.encode()
    for element in elements(document):
        if element.name == wanted:
            return element
    raise KeyError(name)


def document(*fields: tuple[str, Value]) -> bytes:
    """A document of these fields, exactly in this order."""
    body = b"".join(bytes([value.type]) + name.encode() + b"\0" + value.payload for name, value in fields)
    return struct.pack("<i", len(body) + 5) + body + b"\0"


def _text(text: str) -> bytes:
    encoded = text.encode()
    return struct.pack("<i", len(encoded) + 1) + encoded + b"\0"


def double(number: float) -> Value:
    return Value(Type.DOUBLE, struct.pack("<d", number))


def double_bits(bits: int) -> Value:
    """A double by its 64 bits: the only way to a NaN of one's choice."""
    return Value(Type.DOUBLE, struct.pack("<Q", bits))


def string(text: str) -> Value:
    return Value(Type.STRING, _text(text))


def embedded(*fields: tuple[str, Value]) -> Value:
    return Value(Type.DOCUMENT, document(*fields))


def array(*values: Value) -> Value:
    return Value(Type.ARRAY, document(*((str(index), value) for index, value in enumerate(values))))


def binary(subtype: int, content: bytes) -> Value:
    """Subtype 2 (old) carries a second length inside."""
    inner = struct.pack("<i", len(content)) + content if subtype == 2 else content
    return Value(Type.BINARY, struct.pack("<iB", len(inner), subtype) + inner)


def object_id(twelve: bytes) -> Value:
    return Value(Type.OBJECT_ID, twelve)


def boolean(byte: int) -> Value:
    return Value(Type.BOOLEAN, bytes([byte]))


def date(milliseconds: int) -> Value:
    return Value(Type.DATE, struct.pack("<q", milliseconds))


def regex(pattern: str, options: str) -> Value:
    return Value(Type.REGEX, pattern.encode() + b"\0" + options.encode() + b"\0")


def db_pointer(namespace: str, twelve: bytes) -> Value:
    return Value(Type.DB_POINTER, _text(namespace) + twelve)


def code(text: str) -> Value:
    return Value(Type.CODE, _text(text))


def symbol(text: str) -> Value:
    return Value(Type.SYMBOL, _text(text))


def code_with_scope(text: str, scope: bytes) -> Value:
    inner = _text(text) + scope
    return Value(Type.CODE_WITH_SCOPE, struct.pack("<i", len(inner) + 4) + inner)


def int32(number: int) -> Value:
    return Value(Type.INT32, struct.pack("<i", number))


def int64(number: int) -> Value:
    return Value(Type.INT64, struct.pack("<q", number))


def timestamp(seconds: int, increment: int) -> Value:
    return Value(Type.TIMESTAMP, struct.pack("<II", increment, seconds))


def decimal_bits(high: int, low: int) -> Value:
    """A Decimal128 by its bits: every payload and every cohort member."""
    return Value(Type.DECIMAL128, struct.pack("<QQ", low, high))


NULL = Value(Type.NULL, b"")
UNDEFINED = Value(Type.UNDEFINED, b"")
MIN_KEY = Value(Type.MIN_KEY, b"")
MAX_KEY = Value(Type.MAX_KEY, b"")
