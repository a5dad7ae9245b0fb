"""What rules leave of a document: fields dropped, values hashed or set to a constant (docs/design/rules.md).

It works on raw BSON, as MongoSource does, whose result has the same bytes: `Mask.java`.
"""

from __future__ import annotations

import hmac
import math
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cached_property
from typing import Any, Final

import bson

from towpath_verifier.raw import ARRAY, DOCUMENT, Element, documents, elements, value_length

#: What becomes of a value: None if it stays, or the constant in its place.
_Action = str | Element | None
_DROP: Final = "drop"
_HASH: Final = "hash"
_NULL, _UNDEFINED, _STRING = 0x0A, 0x06, 0x02
_DOUBLE, _INT64, _DECIMAL = 0x01, 0x12, 0x13
_HASH_BYTES, _ID_BYTES = 16, 8
_KNOWN = 1_000  # names
_LENGTH = struct.Struct("<i")


@dataclass(frozen=True)
class Mask:
    """The rules of one collection; call it with a document for what they leave of it.

    Paths name fields by the names on the way to them, joined by dots; numbers on the way are skipped. `key` is that of
    the hashes. Raises `ValueError` for `hash` without a key, and for what is no path.
    """

    drop: tuple[str, ...] = ()
    hash: tuple[str, ...] = ()
    set: Mapping[str, str | bool | int | float] = field(default_factory=dict)
    key: bytes = field(default=b"", repr=False)

    def __post_init__(self) -> None:
        if self.hash and not self.key:
            raise ValueError("hashes need a key")
        for path in (*self.drop, *self.hash, *self.set):
            segments = path.split(".")
            numbers = [segment for segment in segments if segment.isascii() and segment.isdigit()]
            if numbers or segments[0] == "_id" or not all(segments):
                raise ValueError(f"{path!r} is not a path: names joined by dots, none a number, the first not _id")

    def __call__(self, document: bytes) -> bytes:
        """What is left of a document; the same object if that is all of it."""
        if not any(map(document.__contains__, self._first_names)):
            return document
        left = self._rewritten(document, 0, self._places, DOCUMENT)
        return document if left is None else left

    def batch(self, batch: bytes) -> bytes:
        """The same of documents that follow one another in a buffer."""
        return b"".join(map(self, documents(batch)))

    @property
    def identity(self) -> Mapping[str, Any]:
        """The same for masks that leave the same, as a JSON value; it does not hold the key."""
        constants = {path: [kind, value.hex()] for path, (kind, _, value) in self._constants.items()}
        key = key_id(self.key) if self.hash else ""
        return {"drop": sorted(self.drop), "hash": sorted(self.hash), "set": constants, "key": key}

    @cached_property
    def _first_names(self) -> Iterable[bytes]:
        """Of each path; a document in which none occurs has no field of a rule."""
        return {path.split(".")[0].encode() for path in (*self.drop, *self.hash, *self.set)}

    @cached_property
    def _constants(self) -> Mapping[str, Element]:
        return {path: next(elements(bson.encode({"": value}))) for path, value in sorted(self.set.items())}

    @cached_property
    def _places(self) -> _Place:
        actions: dict[str, _Action] = {**dict.fromkeys(self.hash, _HASH), **self._constants}
        actions |= dict.fromkeys(self.drop, _DROP)
        places = _Place(None)
        for path in sorted(actions, key=lambda path: path.count(".")):  # what is below inherits
            places.name(path.encode().split(b"."), actions[path])
        return places

    def _rewritten(self, buffer: bytes, start: int, place: _Place, of: int) -> bytes | None:
        """What is left of the document or array that begins at `start`; None if nothing of it changes.

        The names of an array's elements count for nothing: MongoDB does not look at them either.
        """
        parts: list[bytes] = []
        copied = at = start + 4
        last = start + _LENGTH.unpack_from(buffer, start)[0] - 1
        while at < last:
            kind, end = buffer[at], buffer.index(b"\0", at + 1)
            value = end + 1
            behind = value + value_length(buffer, kind, value)
            name = buffer[at + 1 : end]
            inner = place if of == ARRAY else place.known.get(name) or place.find(name)
            if not inner.keeps_all:
                if inner.action == _DROP:
                    parts.append(buffer[copied:at])
                    copied = behind
                elif kind in (DOCUMENT, ARRAY):
                    if (left := self._rewritten(buffer, value, inner, kind)) is not None:
                        parts += buffer[copied:value], left
                        copied = behind
                elif inner.action is not None and kind not in (_NULL, _UNDEFINED):
                    replaced = self._replaced(inner.action, kind, buffer[value:behind])
                    parts += buffer[copied:at], bytes((replaced.kind,)), buffer[at + 1 : value], replaced.value
                    copied = behind
            at = behind
        if copied == start + 4:
            return None
        body = b"".join((*parts, buffer[copied : last + 1]))
        return _LENGTH.pack(len(body) + 4) + body

    def _replaced(self, action: str | Element, kind: int, value: bytes) -> Element:
        if isinstance(action, Element):
            return action
        digest = hmac.digest(self.key, _canonical(kind, value), "sha256")[:_HASH_BYTES]
        return Element(_STRING, b"", _LENGTH.pack(2 * _HASH_BYTES + 1) + digest.hex().encode() + b"\0")


def key_id(key: bytes) -> str:
    """Tells keys apart, and says nothing else of them."""
    return hmac.digest(key, b"towpath", "sha256")[:_ID_BYTES].hex()


class _Place:
    """What happens to a value, and to what is below it: a node of the tree of all paths that rules name."""

    def __init__(self, action: _Action, *, named: bool = True) -> None:
        self.action: Final = action
        self.keeps_all = action is None
        """Whether what is here, and everything below it, stays as it is."""
        self.known: dict[bytes, _Place] = {}
        """What `find` has found, by name: it is asked for each element of each document."""
        self._children: dict[bytes, _Place] = {}
        self._below = _Place(action, named=False) if named else self

    def name(self, path: Iterable[bytes], action: _Action) -> None:
        """Name a path; a shorter one before those below it."""
        place, (*above, last) = self, path
        for segment in above:
            place = place._child(segment, place.action)
        place._child(last, action)

    def _child(self, segment: bytes, action: _Action) -> _Place:
        self.keeps_all = False
        return self._children.setdefault(segment, _Place(action))

    def find(self, name: bytes) -> _Place:
        """The place of an element here."""
        place = self
        for segment in name.split(b"."):
            if not segment.isdigit():
                place = place._children.get(segment, place._below)
            if place.action == _DROP:
                break
        if len(self.known) == _KNOWN:
            self.known.clear()
        self.known[name] = place
        return place


_NAN = bytes((_DOUBLE,)) + struct.pack("<Q", 0x7FF8000000000000)
_TO_63 = 2**63
_EXPONENT_BIAS, _MOST_EXPONENT = 6176, 6111
_MOST_COEFFICIENT = 10**34


def _canonical(kind: int, value: bytes) -> bytes:
    """Type byte and bytes, the same for values that are equal to MongoDB."""
    match kind:
        case 0x10:
            return _integer(_LENGTH.unpack(value)[0])
        case 0x01:
            return _double(struct.unpack("<d", value)[0])
        case 0x13:
            return _decimal(*struct.unpack("<QQ", value))
        case 0x0E:
            return bytes((_STRING,)) + value
    return bytes((kind,)) + value


def _integer(number: int) -> bytes:
    return bytes((_INT64,)) + struct.pack("<q", number)


def _double(number: float) -> bytes:
    if math.isnan(number):
        return _NAN
    if number.is_integer() and -_TO_63 <= number < _TO_63:
        return _integer(int(number))
    return bytes((_DOUBLE,)) + struct.pack("<d", number)


def _decimal(low: int, high: int) -> bytes:
    """As `CanonicalNumber.java`: an int64 or a double where one is equal, else the decimal without trailing zeros."""
    negative, leading = high >> 63, high >> 58 & 0x1F
    if leading == 0x1F:
        return _NAN
    if leading == 0x1E:
        return _double(-math.inf if negative else math.inf)
    coefficient, exponent = (high & 0x1FFFFFFFFFFFF) << 64 | low, (high >> 49 & 0x3FFF) - _EXPONENT_BIAS
    if leading >= 0x18 or not 0 < coefficient < _MOST_COEFFICIENT:  # one of more than 34 digits counts as zero
        return _integer(0)
    while coefficient % 10 == 0:
        coefficient, exponent = coefficient // 10, exponent + 1
    signed = -coefficient if negative else coefficient
    if 0 <= exponent < 19 and -_TO_63 <= (whole := signed * 10**exponent) < _TO_63:
        return _integer(whole)
    exact = Decimal((negative, tuple(map(int, str(coefficient))), exponent))
    nearest = float(exact)
    if math.isfinite(nearest) and Decimal(nearest) == exact:
        return _double(nearest)
    if exponent > _MOST_EXPONENT:
        coefficient, exponent = coefficient * 10 ** (exponent - _MOST_EXPONENT), _MOST_EXPONENT
    high = negative << 63 | exponent + _EXPONENT_BIAS << 49 | coefficient >> 64
    return bytes((_DECIMAL,)) + struct.pack("<QQ", coefficient & (1 << 64) - 1, high)
