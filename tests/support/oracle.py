"""Are both sides the same? Decided on stored bytes, by code that shares nothing with the verifier.

Equal means equal bytes, or, with `ignore_field_order`, equal bytes once the fields of every object are sorted by
name: types, NaN payloads, negative zeros and the order of array elements always count.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import zip_longest
from typing import Any

import bson
from pymongo import MongoClient

from tests.support import bsonbytes, raw
from tests.support.bsonbytes import Element, Type

_SHOWN = 5  # differing documents that a failure prints

#: A document whose objects are sorted by name; elements of one name keep their order.
Canonical = tuple[tuple[bytes, int, Any], ...]


def assert_same(
    source_uri: str,
    destination_uri: str,
    namespaces: Mapping[str, str] | Iterable[str],
    *,
    at_least: int,
    ignore_field_order: bool = False,
) -> int:
    """Fail unless both sides hold the same documents, `at_least` of them altogether; return how many.

    A mapping names what is called otherwise at the destination: source namespace → destination namespace.
    """
    assert at_least > 0, "comparing nothing proves nothing: at_least must be positive"
    pairs = namespaces if isinstance(namespaces, Mapping) else {name: name for name in namespaces}
    seen, found = 0, []
    with MongoClient[dict[str, Any]](source_uri) as source, MongoClient[dict[str, Any]](destination_uri) as destination:
        for ours, theirs in pairs.items():
            left = _by_identity(raw.collection(source, ours), ours)
            right = _by_identity(raw.collection(destination, theirs), theirs)
            seen += len(left)
            found += [f"{ours}: {line}" for line in differences(left, right, ignore_field_order=ignore_field_order)]
    listed = "\n".join(found[:_SHOWN])
    assert not found, f"{len(found)} differences in {seen} documents of {', '.join(pairs)}; the first:\n{listed}"
    assert seen >= at_least, f"both sides are equal but hold {seen} documents, not {at_least}: {', '.join(pairs)}"
    return seen


def differences(
    left: Mapping[bytes, bytes], right: Mapping[bytes, bytes], *, ignore_field_order: bool = False
) -> list[str]:
    """A line for each document that is missing, extra or different; both mappings go by `_id` bytes."""
    lines = [f"missing at the destination: {show(left[key])}" for key in left.keys() - right.keys()]
    lines += [f"extra at the destination: {show(right[key])}" for key in right.keys() - left.keys()]
    for key in left.keys() & right.keys():
        if left[key] == right[key] or (ignore_field_order and canonical(left[key]) == canonical(right[key])):
            continue
        what = first_difference(left[key], right[key], ignore_field_order=ignore_field_order)
        lines.append(f"different: {what}\n  source      {show(left[key])}\n  destination {show(right[key])}")
    return lines


def canonical(document: bytes) -> Canonical:
    """What is equal for two documents of the same content and types, whatever the order of their fields."""
    return tuple(sorted(map(_canonical_element, bsonbytes.elements(document)), key=lambda element: element[0]))


def _canonical_element(element: Element) -> tuple[bytes, int, Any]:
    if element.type == Type.DOCUMENT:
        return element.name, element.type, canonical(element.payload)
    if element.type == Type.ARRAY:
        return element.name, element.type, tuple(map(_canonical_element, bsonbytes.elements(element.payload)))
    return element.name, element.type, element.payload


def first_difference(left: bytes, right: bytes, *, ignore_field_order: bool = False, path: str = "") -> str:
    """Where two documents differ first, and in what."""
    fields = [list(bsonbytes.elements(document)) for document in (left, right)]
    if ignore_field_order:
        fields = [sorted(elements, key=lambda element: element.name) for elements in fields]
    for one, other in zip_longest(*fields):
        if one == other:
            continue
        if one is None or other is None or one.name != other.name:
            return f"at {path or 'the top'}: field {_field(one)} against {_field(other)}"
        here = f"{path}.{_text(one.name)}".lstrip(".")
        if one.type == other.type and one.type in (Type.DOCUMENT, Type.ARRAY):
            if ignore_field_order and _canonical_element(one) == _canonical_element(other):
                continue
            return first_difference(one.payload, other.payload, ignore_field_order=ignore_field_order, path=here)
        return f"at {here}: {_field(one)} against {_field(other)}"
    return "nowhere"


def show(document: bytes) -> str:
    """A document for people, cut short; as hexadecimal where the driver cannot decode it."""
    try:
        text = repr(bson.decode(document))
    except (bson.errors.BSONError, OverflowError, RecursionError):
        text = document.hex()
    return text if len(text) <= 400 else f"{text[:400]}… ({len(document):,} bytes)"


def _field(element: Element | None) -> str:
    if element is None:
        return "none"
    shown = element.payload[:40].hex() + ("…" if len(element.payload) > 40 else "")
    return f"{_text(element.name)!r} ({Type(element.type).name} {shown})"


def _text(name: bytes) -> str:
    return name.decode(errors="backslashreplace")


def _by_identity(documents: raw.Documents, namespace: str) -> dict[bytes, bytes]:
    found: dict[bytes, bytes] = {}
    for document in raw.read(documents):
        element = bsonbytes.field(document, "_id")
        key = bytes([element.type]) + element.payload
        assert key not in found, f"{namespace} holds two documents with one _id: {show(document)}"
        found[key] = document
    return found
