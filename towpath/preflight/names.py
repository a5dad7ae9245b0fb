"""Field names in a BSON document, read from its bytes: decoders keep one of two fields of the same name."""

from __future__ import annotations

import struct
from collections.abc import Iterator

_DOCUMENT, _ARRAY = 0x03, 0x04
#: Bytes of the values that always have the same length, by BSON type.
_FIXED = {0x01: 8, 0x06: 0, 0x07: 12, 0x08: 1, 0x09: 8, 0x0A: 0, 0x10: 4, 0x11: 8, 0x12: 8, 0x13: 16, 0x7F: 0, 0xFF: 0}
#: Bytes besides the length that a value begins with: strings and code, binary's subtype, a DBPointer's id.
_COUNTED = {0x02: 4, 0x0D: 4, 0x0E: 4, 0x05: 5, 0x0C: 16, 0x0F: 0, _DOCUMENT: 0, _ARRAY: 0}
_REGULAR_EXPRESSION = 0x0B

Path = tuple[str, ...]


def odd_names(raw: bytes) -> Iterator[Path]:
    """Paths of the fields whose names hold a dot, begin with `$` or are empty, at any depth; `[]` is an element."""
    yield from _odd(raw, 0, (), in_array=False)


def _odd(raw: bytes, start: int, above: Path, *, in_array: bool) -> Iterator[Path]:
    place = start + 4
    while (kind := raw[place]) != 0:
        end = raw.index(0, place + 1)
        path = (*above, "[]" if in_array else raw[place + 1 : end].decode(errors="replace"))
        if not in_array and _is_odd(path[-1]):
            yield path
        if kind in (_DOCUMENT, _ARRAY):
            yield from _odd(raw, end + 1, path, in_array=kind == _ARRAY)
        place = _after(raw, kind, end + 1)


def _is_odd(name: str) -> bool:
    return not name or "." in name or name.startswith("$")


def _after(raw: bytes, kind: int, place: int) -> int:
    """Where the value of a type that begins at `place` is over."""
    if kind in _FIXED:
        return place + _FIXED[kind]
    if kind == _REGULAR_EXPRESSION:
        return raw.index(0, raw.index(0, place) + 1) + 1
    length: int = struct.unpack_from("<i", raw, place)[0]
    return place + length + _COUNTED[kind]
