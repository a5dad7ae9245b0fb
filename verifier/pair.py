"""Which collection of the source is to be the same as which of the destination."""

from __future__ import annotations

from dataclasses import dataclass

#: `database.collection`
Namespace = str


@dataclass(frozen=True, slots=True)
class Pair:
    """A namespace at the source, and its name at the destination."""

    source: Namespace
    destination: Namespace
