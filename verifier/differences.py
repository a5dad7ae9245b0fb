"""What can be wrong with one document, and the namespaces that are compared."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from verifier.fields import same_but_for_order

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
