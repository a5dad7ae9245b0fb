"""What in two documents differs: the order of fields alone, or which paths."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest

from verifier.raw import ARRAY, DOCUMENT, Element, document, elements


def in_one_order(raw: bytes) -> bytes:
    """The document with the fields of every object in it sorted by name; those of one name keep their order."""
    return document(sorted(map(_ordered, elements(raw)), key=lambda element: element.name))


def _ordered(element: Element) -> Element:
    if element.kind == DOCUMENT:
        return element._replace(value=in_one_order(element.value))
    if element.kind == ARRAY:
        return element._replace(value=document(map(_ordered, elements(element.value))))
    return element


def same_but_for_order(one: bytes, other: bytes) -> bool:
    """Whether two documents have the same fields of the same bytes, in whatever order."""
    return one == other or (len(one) == len(other) and _same_sorted(one, other))


def _same_sorted(one: bytes, other: bytes) -> bool:
    ours, theirs = (sorted(elements(raw), key=lambda element: element.name) for raw in (one, other))
    return len(ours) == len(theirs) and all(map(_same, ours, theirs))


def _same(one: Element, other: Element) -> bool:
    if one == other:
        return True
    if (one.kind, one.name, len(one.value)) != (other.kind, other.name, len(other.value)):
        return False
    if one.kind == ARRAY:  # element by element: an array may hold a million
        return all(
            a is not None and b is not None and _same(a, b)
            for a, b in zip_longest(elements(one.value), elements(other.value))
        )
    return one.kind == DOCUMENT and _same_sorted(one.value, other.value)


@dataclass(frozen=True, slots=True)
class Part:
    """One differing path, and the value that either side has there; None where it has none.

    Where only the order of fields differs, the values are the objects that hold them, and `order` is set.
    """

    path: str
    source: Element | None
    destination: Element | None
    order: bool = False


def differing(source: bytes, destination: bytes, path: str = "", *, array: bool = False) -> Iterator[Part]:
    """The paths at which two documents differ, deepest first; an object in another order is one path, its own."""
    if array:
        for one, other in zip_longest(elements(source), elements(destination)):
            yield from _between(one, other, path)
        return
    ours, theirs = list(elements(source)), list(elements(destination))
    if _has_twins(ours) or _has_twins(theirs):
        pairs = list(zip_longest(ours, theirs))  # by place: a name does not tell one from another
        yield from (part for one, other in pairs for part in _between(one, other, path))
        return
    by_name = {element.name: element for element in theirs}
    known = {element.name for element in ours}
    found = False
    for one in ours:
        for part in _between(one, by_name.get(one.name), path):
            found = True
            yield part
    for other in theirs:
        if other.name not in known:
            found = True
            yield Part(_joined(path, other.name), None, other)
    if not found and [element.name for element in ours] != [element.name for element in theirs]:
        yield Part(path, Element(DOCUMENT, b"", source), Element(DOCUMENT, b"", destination), order=True)


def _between(one: Element | None, other: Element | None, path: str) -> Iterator[Part]:
    if one == other:
        return
    here = _joined(path, one.name if one else other.name if other else b"")
    if one and other and one.name == other.name and one.kind == other.kind and one.kind in (DOCUMENT, ARRAY):
        yield from differing(one.value, other.value, here, array=one.kind == ARRAY)
    else:
        yield Part(here, one, other)


def _joined(path: str, name: bytes) -> str:
    text = name.decode(errors="backslashreplace")
    return f"{path}.{text}" if path else text


def _has_twins(fields: list[Element]) -> bool:
    return any(count > 1 for count in Counter(element.name for element in fields).values())
