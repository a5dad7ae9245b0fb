"""How one document can differ, and the namespaces that are compared."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import zip_longest
from typing import Literal, TypeAlias

from towpath_verifier.raw import ARRAY, DOCUMENT, Element, document, elements

#: `database.collection`; the collection's name may contain dots.
Namespace: TypeAlias = str
#: How a document differs: see `Missing`, `Extra` and `Different`; `order` is a `Different` in field order only.
Kind: TypeAlias = Literal["missing", "extra", "different", "order"]


def by_database(namespaces: Iterable[Namespace]) -> dict[str, list[str]]:
    """Database → the names of its collections among these namespaces."""
    names: dict[str, list[str]] = {}
    for namespace in namespaces:
        database, name = namespace.split(".", 1)
        names.setdefault(database, []).append(name)
    return names


@dataclass(frozen=True, slots=True)
class Pair:
    """A namespace at the source, and the one at the destination to compare it with."""

    source: Namespace
    destination: Namespace


@dataclass(frozen=True, slots=True)
class Missing:
    """A document of the source that the destination does not have.

    In all three classes `source` and `destination` are the documents as raw BSON.
    """

    namespace: Namespace
    """The source's, also where the destination's has another name."""
    id: bytes
    """The BSON document `{_id: …}`, with the bytes that `_id` has on the server."""
    source: bytes
    destination: None = None

    @property
    def kind(self) -> Kind:
        return "missing"


@dataclass(frozen=True, slots=True)
class Extra:
    """A document of the destination that the source does not have; fields as of `Missing`."""

    namespace: Namespace
    id: bytes
    destination: bytes
    source: None = None

    @property
    def kind(self) -> Kind:
        return "extra"


@dataclass(frozen=True, slots=True)
class Different:
    """A document that both sides have, with other bytes; fields as of `Missing`.

    `_id`s are matched as MongoDB matches them: 5 and 5.0 are one `_id`. `id` has the source's bytes.
    """

    namespace: Namespace
    id: bytes
    source: bytes
    destination: bytes

    @property
    def kind(self) -> Kind:
        """`order` when only the order of fields differs."""
        return "order" if same_but_for_order(self.source, self.destination) else "different"


Difference: TypeAlias = Missing | Extra | Different


def difference(namespace: Namespace, id: bytes, source: bytes | None, destination: bytes | None) -> Difference | None:
    """How a document with these bytes at the two sides differs; None if it does not."""
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
    name = (left or right or Element(0, b"", b"")).name.decode(errors="backslashreplace")
    inner = f"{path}.{name}" if path else name
    if left and right and left.name == right.name and left.kind == right.kind and left.kind in (DOCUMENT, ARRAY):
        yield from differing(left.value, right.value, inner, array=left.kind == ARRAY)
    else:
        yield Part(inner, left, right)
