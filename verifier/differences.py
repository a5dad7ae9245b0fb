"""What can be wrong with one document, and the namespaces that are compared."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest
from typing import Literal, TypeAlias

from verifier.raw import ARRAY, DOCUMENT, Element, document, elements

#: `database.collection`
Namespace: TypeAlias = str
Kind: TypeAlias = Literal["missing", "extra", "different", "order"]


@dataclass(frozen=True, slots=True)
class Pair:
    """A namespace at the source, and its name at the destination."""

    source: Namespace
    destination: Namespace


@dataclass(frozen=True, slots=True)
class Missing:
    """A document of the source that the destination does not have.

    `namespace` is the source's name of it in all three, and `id` the BSON `{_id: …}` in the bytes that it has.
    """

    namespace: Namespace
    id: bytes
    source: bytes
    destination: None = None

    @property
    def kind(self) -> Kind:
        return "missing"


@dataclass(frozen=True, slots=True)
class Extra:
    """A document of the destination that the source does not have."""

    namespace: Namespace
    id: bytes
    destination: bytes
    source: None = None

    @property
    def kind(self) -> Kind:
        return "extra"


@dataclass(frozen=True, slots=True)
class Different:
    """A document that both sides have, as MongoDB tells `_id`s apart, with other bytes; `id` is the source's."""

    namespace: Namespace
    id: bytes
    source: bytes
    destination: bytes

    @property
    def kind(self) -> Kind:
        """`order` when nothing but the order of fields differs."""
        return "order" if same_but_for_order(self.source, self.destination) else "different"


Difference: TypeAlias = Missing | Extra | Different


def difference(namespace: Namespace, id: bytes, source: bytes | None, destination: bytes | None) -> Difference | None:
    """What is wrong with a document of which these bytes were found; None when nothing is."""
    if source == destination:
        return None
    if source is None:
        return Extra(namespace, id, destination or b"")
    return Missing(namespace, id, source) if destination is None else Different(namespace, id, source, destination)


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
