"""Values for people and for JSON: canonical Extended JSON, or hexadecimal bytes where that would lose something."""

from __future__ import annotations

import json
from itertools import islice
from typing import Any

import bson
from bson.codec_options import CodecOptions, DatetimeConversion
from bson.json_util import CANONICAL_JSON_OPTIONS, dumps
from bson.son import SON

from towpath_verifier import raw
from towpath_verifier.differences import Difference, Part, differing
from towpath_verifier.raw import Element

_OPTIONS: CodecOptions[SON[str, Any]] = CodecOptions(
    document_class=SON, tz_aware=True, datetime_conversion=DatetimeConversion.DATETIME_AUTO
)
_WIDTH = 1_000  # characters of one value
_LARGE = 1 << 16  # bytes; a larger value is not decoded to be shown
_PATHS = 20  # of one document

#: Path, value at the source, value at the destination; None where a side has none. The empty path is the document.
Shown = tuple[str, str | None, str | None]


def extended_json(document: bytes) -> str | None:
    """A document as canonical Extended JSON; None if that would not represent it exactly."""
    try:
        decoded = bson.decode(document, _OPTIONS)
        if bson.encode(decoded, codec_options=_OPTIONS) != document:
            return None
        return dumps(decoded, json_options=CANONICAL_JSON_OPTIONS, ensure_ascii=False)
    except (bson.errors.BSONError, OverflowError, RecursionError, ValueError, TypeError):
        return None


def paths(difference: Difference) -> list[Shown]:
    """The first 20 paths that differ in a document that both sides have, with both values, of 1,000 characters at most.

    Empty for a document that one side does not have.
    """
    if difference.source is None or difference.destination is None:
        return []
    return [_shown(part) for part in islice(differing(difference.source, difference.destination), _PATHS)]


def _shown(part: Part) -> Shown:
    source, destination = (
        value and (_names if part.order else text)(value) for value in (part.source, part.destination)
    )
    if source == destination:  # as of two NaNs
        source, destination = (value and _bytes(value) for value in (part.source, part.destination))
    return part.path, source, destination


def _names(fields: Element) -> str:
    names = (element.name.decode(errors="backslashreplace") for element in raw.elements(fields.value))
    return _cut(f"fields in the order {', '.join(names)}", len(fields.value))


def text(element: Element) -> str:
    """One value."""
    if len(element.value) > _LARGE:
        return _cut(_bytes(element), len(element.value))
    if (whole := extended_json(raw.document((element._replace(name=b"v"),)))) is None:
        return _bytes(element)
    return _cut(whole.removeprefix('{"v": ').removesuffix("}"), len(element.value))


def whole(document: bytes) -> str:
    """A document for people, on several lines, truncated if long."""
    json_text = extended_json(document) if len(document) <= _LARGE else None
    if json_text is None:
        return _cut(f"BSON {document[: _WIDTH * 2].hex()}", len(document), 4 * _WIDTH)
    return _cut(json.dumps(json.loads(json_text), indent=2, ensure_ascii=False), len(document), 4 * _WIDTH)


def _bytes(element: Element) -> str:
    return _cut(f"BSON type 0x{element.kind:02x} {element.value[:_WIDTH].hex()}", len(element.value))


def _cut(shown: str, size: int, width: int = _WIDTH) -> str:
    return shown if len(shown) <= width else f"{shown[:width]}… ({size:,} bytes)"
