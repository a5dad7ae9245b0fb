"""How a document differs: its kind, and the paths with values, as canonical Extended JSON or hexadecimal bytes."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice, zip_longest
from typing import Any, Literal, TypeAlias

import bson
from bson.codec_options import CodecOptions, DatetimeConversion
from bson.json_util import CANONICAL_JSON_OPTIONS, dumps
from bson.son import SON

from towpath_verifier.mask import Mask
from towpath_verifier.raw import ARRAY, DOCUMENT, Element, document, elements

Namespace: TypeAlias = str
"""`database.collection`; the collection's name may contain dots."""
Kind: TypeAlias = Literal["missing", "extra", "different", "order"]
"""A document is `missing` at the destination, `extra` there, `different`, or differs in the `order` of fields only."""


@dataclass(frozen=True, slots=True)
class Pair:
    """A namespace at the source, and the one at the destination to compare it with.

    With a mask, what that leaves of the source's documents is compared; with `only`, a filter in the server's query
    language, the documents that it matches.
    """

    source: Namespace
    destination: Namespace
    mask: Mask | None = field(default=None, compare=False, repr=False)
    only: Mapping[str, Any] | None = field(default=None, compare=False, repr=False)

    @property
    def is_whole(self) -> bool:
        """Whether all documents of the source should be at the destination as they are."""
        return self.mask is None and self.only is None

    def left(self, document: bytes) -> bytes:
        """What the source's document should be at the destination."""
        return document if self.mask is None else self.mask(document)


@dataclass(frozen=True, slots=True)
class Difference:
    """A document that differs: its raw BSON at both sides, None where a side does not have it.

    `_id`s are matched as MongoDB matches them: 5 and 5.0 are one `_id`.
    """

    namespace: Namespace
    """The source's, also where the destination's has another name."""
    id: bytes
    """The BSON document `{_id: …}`, with the bytes that `_id` has on the server: the source, if it has the document."""
    source: bytes | None
    destination: bytes | None

    @property
    def kind(self) -> Kind:
        if self.source is None:
            return "extra"
        if self.destination is None:
            return "missing"
        return "order" if same_but_for_order(self.source, self.destination) else "different"

    @property
    def paths(self) -> list[Shown]:
        """The first 20 paths that differ, with both values, of 1,000 characters at most; none if a side lacks it."""
        if self.source is None or self.destination is None:
            return []
        return [_shown(part) for part in islice(differing(self.source, self.destination), _PATHS)]


def in_one_order(raw: bytes) -> bytes:
    """The document with the fields of every object in it sorted by name; those of one name keep their order."""
    return document(sorted(map(_ordered, elements(raw)), key=lambda element: element.name))


def _ordered(element: Element) -> Element:
    if element.kind == DOCUMENT:
        return element._replace(value=in_one_order(element.value))
    if element.kind == ARRAY:
        return element._replace(value=document(map(_ordered, elements(element.value))))
    return element


def same_but_for_order(left: bytes, right: bytes) -> bool:
    """Whether two documents have the same fields with the same bytes, in any order."""
    return left == right or (len(left) == len(right) and _same_sorted(left, right))


def _same_sorted(left: bytes, right: bytes) -> bool:
    ours, theirs = (sorted(elements(raw), key=lambda element: element.name) for raw in (left, right))
    return len(ours) == len(theirs) and all(map(_same, ours, theirs))


def _same(left: Element, right: Element) -> bool:
    if left == right:
        return True
    if (left.kind, left.name, len(left.value)) != (right.kind, right.name, len(right.value)):
        return False
    if left.kind == ARRAY:  # element by element: an array may hold a million elements
        return all(
            a is not None and b is not None and _same(a, b)
            for a, b in zip_longest(elements(left.value), elements(right.value))
        )
    return left.kind == DOCUMENT and _same_sorted(left.value, right.value)


@dataclass(frozen=True, slots=True)
class Part:
    """A path that differs, and the value that each side has there; None where it has none.

    Where only the order of fields differs, the values are the objects that hold them, and `order` is set.
    """

    path: str
    source: Element | None
    destination: Element | None
    order: bool = False


def differing(source: bytes, destination: bytes, path: str = "", *, array: bool = False) -> Iterator[Part]:
    """The paths at which two documents differ, deepest first; an object in another order is one path, its own."""
    if array:
        for left, right in zip_longest(elements(source), elements(destination)):
            yield from _between(left, right, path)
        return
    ours, theirs = list(elements(source)), list(elements(destination))
    ours_by_name, theirs_by_name = ({element.name: element for element in fields} for fields in (ours, theirs))
    if len(ours_by_name) < len(ours) or len(theirs_by_name) < len(theirs):  # a name occurs twice: match by position
        yield from (part for pair in zip_longest(ours, theirs) for part in _between(*pair, path))
        return
    content_differs = False
    for name in {**ours_by_name, **theirs_by_name}:
        for part in _between(ours_by_name.get(name), theirs_by_name.get(name), path):
            content_differs = True
            yield part
    if not content_differs and list(ours_by_name) != list(theirs_by_name):
        yield Part(path, Element(DOCUMENT, b"", source), Element(DOCUMENT, b"", destination), order=True)


def _between(left: Element | None, right: Element | None, path: str) -> Iterator[Part]:
    if left == right:
        return
    either = left or right
    assert either is not None
    name = either.name.decode(errors="backslashreplace")
    inner = f"{path}.{name}" if path else name
    if left and right and left.name == right.name and left.kind == right.kind and left.kind in (DOCUMENT, ARRAY):
        yield from differing(left.value, right.value, inner, array=left.kind == ARRAY)
    else:
        yield Part(inner, left, right)


_OPTIONS: CodecOptions[SON[str, Any]] = CodecOptions(
    document_class=SON, tz_aware=True, datetime_conversion=DatetimeConversion.DATETIME_AUTO
)
_WIDTH = 1_000  # characters of one value
_LARGE = 1 << 16  # bytes; a larger value is not decoded to be shown
_PATHS = 20  # of one document

Shown = tuple[str, str | None, str | None]
"""Path, value at the source, value at the destination; None where a side has none. The empty path is the document."""


def extended_json(whole: bytes) -> str | None:
    """A document as canonical Extended JSON; None if that would not represent it exactly."""
    try:
        decoded = bson.decode(whole, _OPTIONS)
        if bson.encode(decoded, codec_options=_OPTIONS) != whole:
            return None
        return dumps(decoded, json_options=CANONICAL_JSON_OPTIONS, ensure_ascii=False)
    except (bson.errors.BSONError, OverflowError, RecursionError, ValueError, TypeError):
        return None


def _shown(part: Part) -> Shown:
    source, destination = (
        value and (_names if part.order else _text)(value) for value in (part.source, part.destination)
    )
    if source == destination:  # as of two NaNs
        source, destination = (value and _bytes(value) for value in (part.source, part.destination))
    return part.path, source, destination


def _names(fields: Element) -> str:
    names = (element.name.decode(errors="backslashreplace") for element in elements(fields.value))
    return _cut(f"fields in the order {', '.join(names)}", len(fields.value))


def _text(element: Element) -> str:
    """One value."""
    if len(element.value) > _LARGE:
        return _cut(_bytes(element), len(element.value))
    if (whole := extended_json(document((element._replace(name=b"v"),)))) is None:
        return _bytes(element)
    return _cut(whole.removeprefix('{"v": ').removesuffix("}"), len(element.value))


def readable(raw: bytes) -> str:
    """A document for people, on several lines, truncated if long."""
    json_text = extended_json(raw) if len(raw) <= _LARGE else None
    if json_text is None:
        return _cut(f"BSON {raw[: _WIDTH * 2].hex()}", len(raw), 4 * _WIDTH)
    return _cut(json.dumps(json.loads(json_text), indent=2, ensure_ascii=False), len(raw), 4 * _WIDTH)


def _bytes(element: Element) -> str:
    return _cut(f"BSON type 0x{element.kind:02x} {element.value[:_WIDTH].hex()}", len(element.value))


def _cut(shown: str, size: int, width: int = _WIDTH) -> str:
    return shown if len(shown) <= width else f"{shown[:width]}… ({size:,} bytes)"
