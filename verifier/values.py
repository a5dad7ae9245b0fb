"""Values for people and for JSON: canonical Extended JSON, or bytes where that would lose something."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice
from typing import Any

import bson
from bson.codec_options import CodecOptions, DatetimeConversion
from bson.json_util import CANONICAL_JSON_OPTIONS, dumps
from bson.son import SON

from verifier import raw
from verifier.differences import Difference, Part, differing
from verifier.raw import Element

_OPTIONS: CodecOptions[SON[str, Any]] = CodecOptions(
    document_class=SON, tz_aware=True, datetime_conversion=DatetimeConversion.DATETIME_AUTO
)
_WIDTH = 1_000  # characters of one value
_LARGE = 1 << 16  # bytes from which a value is not decoded to be shown
_PATHS = 20  # of one document

#: Path, value at the source, value at the destination; None where a side has none. The empty path is the document.
Shown = tuple[str, str | None, str | None]


def extended_json(document: bytes) -> str | None:
    """A document as canonical Extended JSON; None when that would not tell it exactly."""
    try:
        decoded = bson.decode(document, _OPTIONS)
        if bson.encode(decoded, codec_options=_OPTIONS) != document:
            return None
        return dumps(decoded, json_options=CANONICAL_JSON_OPTIONS, ensure_ascii=False)
    except (bson.errors.BSONError, OverflowError, RecursionError, ValueError, TypeError):
        return None


def paths(found: Difference) -> list[Shown]:
    """What differs in a document that both sides have: the first paths and both values, cut short where long."""
    if found.source is None or found.destination is None:
        return []
    return list(_shown(islice(differing(found.source, found.destination), _PATHS)))


def _shown(parts: Iterator[Part]) -> Iterator[Shown]:
    for part in parts:
        texts = [None if one is None else text(one) for one in (part.source, part.destination)]
        if texts[0] == texts[1]:  # as two NaNs
            texts = [None if one is None else _bytes(one) for one in (part.source, part.destination)]
        if part.order:
            texts = [None if one is None else _names(one) for one in (part.source, part.destination)]
        yield part.path, texts[0], texts[1]


def _names(fields: Element) -> str:
    names = (element.name.decode(errors="backslashreplace") for element in raw.elements(fields.value))
    return _cut(f"fields in the order {', '.join(names)}", len(fields.value))


def text(element: Element) -> str:
    """One value."""
    if len(element.value) > _LARGE:
        return _cut(_bytes(element), len(element.value))
    whole = extended_json(raw.document((element._replace(name=b"v"),)))
    return (
        _bytes(element) if whole is None else _cut(whole.removeprefix('{"v": ').removesuffix("}"), len(element.value))
    )


def whole(document: bytes) -> str:
    """A document for people, over several lines, cut short."""
    found = extended_json(document) if len(document) <= _LARGE else None
    if found is None:
        return _cut(f"BSON {document[: _WIDTH * 2].hex()}", len(document), 4 * _WIDTH)
    return _cut(json.dumps(json.loads(found), indent=2, ensure_ascii=False), len(document), 4 * _WIDTH)


def _bytes(element: Element) -> str:
    return _cut(f"BSON type 0x{element.kind:02x} {element.value[:_WIDTH].hex()}", len(element.value))


def _cut(words: str, size: int, width: int = _WIDTH) -> str:
    return words if len(words) <= width else f"{words[:width]}… ({size:,} bytes)"
