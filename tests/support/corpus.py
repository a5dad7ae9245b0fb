"""Documents of every BSON type and every oddity that MongoDB stores, each under a name.

`VALUES` are single values: good for a field, an array element, or the operand of a `$set`.
`DOCUMENTS` are whole documents, with `_id` = their name unless the `_id` is the point.
`RAW_VALUES` and `RAW_DOCUMENTS` are the same of what no driver writes.
`ODD_NAMES` are documents whose names hold dots, begin with `$` or are empty: no update can address those fields
through a change stream, so they belong in inserts and replaces, or in a collection of whole documents.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tests.support import bsonbytes as b
from tests.support.bsonbytes import Value

_OID = bytes(range(12))
_UUID = bytes(range(16))


@dataclass(frozen=True, slots=True)
class Specimen:
    """One document, as the source shall hold it byte for byte."""

    name: str
    document: bytes
    insertable: bool = True
    """False: a plain insert would store something else."""
    replaceable: bool = True
    """False: a plain replace would store something else or be refused."""

    @property
    def identity(self) -> bytes:
        """A filter `{_id: …}` for the document."""
        return b.document(("_id", b.field(self.document, "_id").value))


def _decimal(coefficient: int, exponent: int, sign: int = 0) -> Value:
    return b.decimal_bits(sign << 63 | (exponent + 6176) << 49 | coefficient >> 64, coefficient & (1 << 64) - 1)


VALUES: dict[str, Value] = {
    "double": b.double(1.5),
    "double negative zero": b.double(-0.0),
    "double subnormal": b.double_bits(1),
    "double largest": b.double_bits(0x7FEF_FFFF_FFFF_FFFF),
    "double infinity": b.double(float("inf")),
    "double minus infinity": b.double(float("-inf")),
    "double NaN": b.double_bits(0x7FF8_0000_0000_0000),
    "double NaN negative": b.double_bits(0xFFF8_0000_0000_0000),
    "double NaN with payload": b.double_bits(0x7FF8_0000_DEAD_BEEF),
    "double NaN signalling": b.double_bits(0x7FF0_0000_0000_0001),
    "double whole number": b.double(5.0),
    "double 2^53": b.double(9007199254740992.0),
    "string": b.string("Türkiye, 日本, 🚢"),
    "string empty": b.string(""),
    "string with NUL": b.string("a\0b"),
    "string like a number": b.string("5"),
    "string like extended JSON": b.string('{"$numberLong": "5"}'),
    "string of all controls": b.string("".join(map(chr, range(0x20))) + "\x7f\x80\xff\u2028\ufffd"),
    "object empty": b.embedded(),
    "object": b.embedded(("z", b.int32(1)), ("a", b.int64(2)), ("m", b.embedded(("y", b.NULL), ("b", b.NULL)))),
    "object like extended JSON": b.embedded(("x", b.embedded(("oid", b.string("000102030405060708090a0b"))))),
    "object with numeric names": b.embedded(("10", b.int32(1)), ("2", b.int32(2)), ("01", b.int32(3))),
    "array empty": b.array(),
    "array": b.array(b.int32(1), b.double(1.0), b.int64(1), b.NULL, b.array(), b.embedded()),
    "array nested": b.array(b.array(b.array(b.array(b.int32(1))))),
    "array long": b.array(*(b.int32(n) for n in range(1200))),
    **{
        f"binary subtype {subtype:#04x}": b.binary(subtype, _UUID)
        for subtype in (0, 1, 2, 3, 4, 5, 6, 7, 8, 0x80, 0xFF)
    },
    "binary UUID of the wrong length": b.binary(4, b"abc"),
    "binary empty": b.binary(0, b""),
    "binary empty of the old subtype": b.binary(2, b""),
    "binary of every byte": b.binary(0, bytes(range(256))),
    "undefined": b.UNDEFINED,
    "objectId": b.object_id(_OID),
    "objectId of zeros": b.object_id(bytes(12)),
    "true": b.boolean(1),
    "false": b.boolean(0),
    "date": b.date(1_700_000_000_123),
    "date before 1970": b.date(-1),
    "date earliest": b.date(-(2**63)),
    "date latest": b.date(2**63 - 1),
    "null": b.NULL,
    "regex": b.regex("^a.*/b$", ""),
    "regex with options": b.regex("a|b", "imsx"),
    "regex empty": b.regex("", ""),
    "dbPointer": b.db_pointer("shop.orders", _OID),
    "code": b.code("function() { return 1; }"),
    "code empty": b.code(""),
    "symbol": b.symbol("sym"),
    "code with scope": b.code_with_scope(
        "x", b.document(("z", b.int64(1)), ("a", b.symbol("s")), ("n", b.double_bits(0x7FF8_0000_0000_0001)))
    ),
    "code with empty scope": b.code_with_scope("", b.document()),
    "int32": b.int32(5),
    "int32 smallest": b.int32(-(2**31)),
    "int64 small": b.int64(5),
    "int64 zero": b.int64(0),
    "int64 smallest": b.int64(-(2**63)),
    "int64 largest": b.int64(2**63 - 1),
    "timestamp": b.timestamp(1_700_000_000, 7),
    "timestamp of zeros": b.timestamp(0, 0),
    "timestamp largest": b.timestamp(0xFFFF_FFFF, 0xFFFF_FFFF),
    "decimal": _decimal(15, -1),
    "decimal 5.00": _decimal(500, -2),
    "decimal 5": _decimal(5, 0),
    "decimal -0E+3": _decimal(0, 3, sign=1),
    "decimal 0E-6176": _decimal(0, -6176),
    "decimal 1E-6176": _decimal(1, -6176),
    "decimal largest": _decimal(10**34 - 1, 6111),
    "decimal not canonical": b.decimal_bits(0x6C10_0000_0000_0000, 1),
    "decimal NaN": b.decimal_bits(0x7C00_0000_0000_0000, 0),
    "decimal NaN negative": b.decimal_bits(0xFC00_0000_0000_0000, 0),
    "decimal NaN with payload": b.decimal_bits(0x7C00_0000_0000_0000, 0xBEEF),
    "decimal NaN signalling": b.decimal_bits(0x7E00_0000_0000_0000, 0),
    "decimal infinity": b.decimal_bits(0x7800_0000_0000_0000, 0),
    "decimal minus infinity": b.decimal_bits(0xF800_0000_0000_0000, 0),
    "minKey": b.MIN_KEY,
    "maxKey": b.MAX_KEY,
}

#: Values that no driver writes but the server stores: a name twice, options out of order, texts that are no text.
RAW_VALUES: dict[str, Value] = {
    "string not UTF-8": Value(b.Type.STRING, b"\x03\0\0\0\xff\xfe\0"),
    "object with a name twice": b.embedded(("a", b.int32(1)), ("b", b.int32(2)), ("a", b.int32(3))),
    "array with odd names": Value(b.Type.ARRAY, b.document(("5", b.int32(1)), ("x", b.int32(2)), ("0", b.NULL))),
    "binary of the old subtype without its inner length": Value(b.Type.BINARY, b"\x03\0\0\0\x02abc"),
    "regex with unordered options": b.regex("a", "xi"),
    "regex with unknown options": b.regex("a", "ul"),
}


def document_of(name: str, value: Value) -> bytes:
    """The value at the top level, inside an object and inside an array."""
    return b.document(
        ("_id", b.string(name)),
        ("v", value),
        ("in", b.embedded(("z", value), ("a", value))),
        ("list", b.array(value, b.int32(0), value)),
    )


def _nested(levels: int, wrap: Callable[[Value], Value]) -> Value:
    value = b.int64(1)
    for _ in range(levels):
        value = wrap(value)
    return value


def _whole(name: str, *fields: tuple[str, Value], replaceable: bool = True) -> Specimen:
    return Specimen(name, b.document(("_id", b.string(name)), *fields), replaceable=replaceable)


def _of_values(values: Mapping[str, Value]) -> list[Specimen]:
    """A top-level `Timestamp(0, 0)` would be given the server's time by an insert or a replace."""
    special = VALUES["timestamp of zeros"]
    return [
        Specimen(name, document_of(name, value), insertable=value != special, replaceable=value != special)
        for name, value in values.items()
    ]


def _shapes() -> list[Specimen]:
    return [
        _whole("nothing but _id"),
        _whole("fields in descending order", ("z", b.int32(1)), ("m", b.int32(2)), ("a", b.int32(3))),
        _whole("numeric names out of order", ("10", b.int32(1)), ("9", b.int32(2)), ("1", b.int32(3))),
        _whole("names as in an update", ("set", b.int32(1)), ("i", b.int32(1)), ("diff", b.embedded())),
        _whole("names as in an envelope", ("after", b.NULL), ("op", b.string("d")), ("source", b.embedded())),
        _whole("_id inside", ("o", b.embedded(("a", b.NULL), ("_id", b.int32(1)))), ("id", b.int32(2))),
        _whole("deep objects", ("o", _nested(178, lambda v: b.embedded(("o", v))))),
        _whole("deep arrays", ("o", _nested(178, b.array))),
        _whole("a thousand fields", *((f"f{n * 7919 % 1000}", b.int32(n)) for n in range(1000))),
        _whole("a long name", ("n" * 5000, b.int32(1))),
        _whole("names beyond ASCII", ("naïve", b.int32(1)), ("日本", b.int32(2)), ("🚢", b.int32(3))),
        _whole("names with spaces and quotes", (" ", b.int32(1)), ('"', b.int32(2)), ("\\", b.int32(3))),
    ]


#: Values that an `_id` may have (all types but array, regex, undefined), no two of them equal to the server.
IDENTITIES: dict[str, Value] = {
    "double": b.double(2.5),
    "double negative zero": b.double(-0.0),
    "double NaN with payload": b.double_bits(0x7FF8_0000_DEAD_BEEF),
    "double infinity": b.double(float("inf")),
    "double whole number": b.double(6.0),
    "string": b.string("a string as _id"),
    "string empty": b.string(""),
    "string with NUL": b.string("a\0b"),
    "string long": b.string("long" * 25_000),
    "object": b.embedded(("b", b.int32(1)), ("a", b.double(2.0))),
    "object of the other order": b.embedded(("a", b.int64(2)), ("b", b.double(1.0))),
    "object empty": b.embedded(),
    "object of odd types": b.embedded(
        ("undefined", b.UNDEFINED), ("regex", b.regex("a", "i")), ("array", b.array(b.int64(1), b.symbol("s")))
    ),
    "object with dots and an empty name": b.embedded(("a.b", b.int32(1)), ("", b.int32(2))),
    **{f"binary subtype {subtype:#04x}": b.binary(subtype, _UUID) for subtype in (0, 2, 3, 4, 5, 6, 7, 0x80)},
    "objectId": b.object_id(_OID),
    "true": b.boolean(1),
    "false": b.boolean(0),
    "date": b.date(-1),
    "null": b.NULL,
    "dbPointer": b.db_pointer("shop.orders", _OID),
    "code": b.code("code"),
    "symbol": b.symbol("a symbol as _id"),
    "code with scope": b.code_with_scope("x", b.document(("a", b.int32(1)))),
    "int32": b.int32(5),
    "int64 small": b.int64(7),
    "int64 beyond doubles": b.int64(2**53 + 1),
    "timestamp": b.timestamp(1, 2),
    "timestamp of zeros": b.timestamp(0, 0),
    "decimal 9.00": _decimal(900, -2),
    "decimal 0.1": _decimal(1, -1),
    "decimal minus infinity": b.decimal_bits(0xF800_0000_0000_0000, 0),
    "minKey": b.MIN_KEY,
    "maxKey": b.MAX_KEY,
}


def _of_identities() -> list[Specimen]:
    return [
        Specimen(f"_id: {name}", b.document(("_id", value), ("type", b.string(name)), ("n", b.int64(1))))
        for name, value in IDENTITIES.items()
    ]


DOCUMENTS: list[Specimen] = _of_values(VALUES) + _shapes() + _of_identities()

#: Documents that no driver writes.
RAW_DOCUMENTS: list[Specimen] = [
    *_of_values(RAW_VALUES),
    _whole("a top-level name twice", ("a", b.int32(1)), ("b", b.NULL), ("a", b.string("again"))),
    Specimen("a name twice in _id", b.document(("_id", b.embedded(("a", b.int32(1)), ("a", b.int32(2)))))),
    Specimen("an _id that is not UTF-8", b.document(("_id", RAW_VALUES["string not UTF-8"]))),
]

ODD_NAMES: list[Specimen] = [
    _whole("dots", ("a.b", b.int32(1)), ("a", b.embedded(("b", b.int32(2)), ("c.d", b.int32(3))))),
    _whole("dots only", (".", b.int32(1)), ("..", b.int32(2)), ("a.", b.int32(3)), (".a", b.int32(4))),
    _whole("dots and digits", ("a.0", b.int32(1)), ("a", b.array(b.embedded(("0.1", b.int32(2)))))),
    _whole("empty name", ("", b.int64(1)), ("o", b.embedded(("", b.embedded(("", b.int32(2))))))),
    _whole("dollar inside", ("o", b.embedded(("$x", b.int32(1)), ("$set", b.embedded(("a", b.int32(2))))))),
    _whole("dollar in the middle", ("a$b", b.int32(1)), ("a$", b.int32(2))),
    _whole("dollar on top", ("$x", b.int32(1)), ("$$y", b.string("z")), replaceable=False),
    _whole("dollar operators on top", ("$set", b.embedded(("a", b.int32(1)))), ("$unset", b.NULL), replaceable=False),
    _whole("like extended JSON", ("o", b.embedded(("$numberLong", b.int32(5)))), ("$oid", b.NULL), replaceable=False),
    _whole("like a DBRef", ("r", b.embedded(("$ref", b.string("c")), ("$id", b.int32(1)), ("$db", b.string("d"))))),
]


def large(name: str, megabytes: float = 15.9, fill: bytes = b"\x00\xff\x80a") -> Specimen:
    """A document of exactly this size (a megabyte is 1,048,576 bytes; MongoDB takes 16 of them)."""
    size = int(megabytes * 1024 * 1024)
    room = size - len(_whole(name, ("n", b.int64(1)), ("blob", b.binary(0, b""))).document)
    return _whole(name, ("n", b.int64(1)), ("blob", b.binary(0, (fill * (room // len(fill) + 1))[:room])))


def large_text(name: str, megabytes: float = 15.9) -> Specimen:
    """As `large`, of small fields and text beyond ASCII: what grows most when it is turned into JSON."""
    size = int(megabytes * 1024 * 1024)
    text = b.string('é\u0001"\\' * 200)
    rows = (size - 4096) // (len(text.payload) + 8 + 12)
    array = b.array(*(b.embedded(("t", text)) for _ in range(rows)))
    specimen = _whole(name, ("n", b.int64(1)), ("rows", array))
    room = size - len(specimen.document) - struct.calcsize("<i") - len("\x02pad\0\0")
    return _whole(name, ("n", b.int64(1)), ("rows", array), ("pad", b.string("x" * room)))
