"""What a comparison came to, namespace by namespace."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from verifier.differences import Kind, Pair

#: How a namespace was compared: all bytes, hashes of whole collections, or digests, which do not see everything.
Way: TypeAlias = Literal["compared", "hashed", "screened"]


@dataclass(slots=True)
class Tally:
    """One namespace. `expected` is about how many documents there are; `read` counts bytes from both servers."""

    pair: Pair
    way: Way = "compared"
    expected: int = 0
    documents: int = 0
    size: int = 0
    read: int = 0
    kinds: Counter[Kind] = field(default_factory=Counter)
    unsettled: int = 0
    notes: list[str] = field(default_factory=list)
    trouble: list[str] = field(default_factory=list)
    """Why there is no verdict on it."""

    @property
    def verdict(self) -> str:
        """`same`, `screened`, `not the same` or `no verdict`."""
        if self.kinds.total():
            return "not the same"
        if self.trouble or self.unsettled:
            return "no verdict"
        return "screened" if self.way == "screened" else "same"


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a comparison has come; `waiting` documents differed when they were read, and are looked at again."""

    documents: int
    expected: int
    size: int
    read: int
    ranges: int
    done: int
    waiting: int
    seconds: float

    @property
    def per_second(self) -> float:
        return self.documents / self.seconds if self.seconds else 0.0

    @property
    def seconds_left(self) -> float | None:
        """As far as can be told; None before it can."""
        left = max(0, self.expected - self.documents)
        return left / self.per_second if self.per_second else None


@dataclass(slots=True)
class Verdict:
    """All namespaces of one run."""

    tallies: list[Tally]
    began: float = field(default_factory=time.monotonic)
    seconds: float = 0.0

    def total(self, kind: Kind) -> int:
        return sum(tally.kinds[kind] for tally in self.tallies)

    @property
    def compared(self) -> int:
        return sum(tally.documents for tally in self.tallies)

    @property
    def read(self) -> int:
        return sum(tally.read for tally in self.tallies)

    @property
    def differences(self) -> int:
        return sum(tally.kinds.total() for tally in self.tallies)

    @property
    def trouble(self) -> list[str]:
        return [words for tally in self.tallies for words in _troubles(tally)]

    @property
    def clean(self) -> bool:
        return not self.differences and not self.trouble


def _troubles(tally: Tally) -> Iterable[str]:
    yield from tally.trouble
    if tally.unsettled:
        yield f"{tally.unsettled:,} documents of {tally.pair.source} could not be judged"
