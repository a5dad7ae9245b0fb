"""The result of a verification, namespace by namespace."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from towpath_verifier.differences import Kind, Pair

#: How a namespace was compared: all bytes, all bytes in any order of fields, hashes of whole collections, or digests,
#: which can miss differences.
Way: TypeAlias = Literal["compared", "unordered", "hashed", "screened"]
#: Verdicts that say less than `same`: equal by digests; equal but, perhaps, for the order of fields.
SCREENED, UNORDERED = "screened", "same, field order ignored"
_WORDS: dict[Way, str] = {"compared": "same", "unordered": UNORDERED, "hashed": "same", "screened": SCREENED}


@dataclass(slots=True)
class Tally:
    """The result for one namespace; it grows while the verification runs."""

    pair: Pair
    way: Way = "compared"
    expected: int = 0
    """About how many documents the larger side has, by the server's own count (`$collStats`)."""
    documents: int = 0
    """Documents compared; one that both sides have counts once."""
    size: int = 0
    """Bytes of these documents, of the source's where both sides have one; 0 when digests were compared."""
    read: int = 0
    """Bytes of BSON that both servers sent for it, re-reads not included."""
    kinds: Counter[Kind] = field(default_factory=Counter)
    """Proven differences by kind."""
    unsettled: int = 0
    """Documents that could not be judged in time."""
    notes: list[str] = field(default_factory=list)
    """Notes that qualify the verdict: a collection does not exist at one side, or is capped."""
    trouble: list[str] = field(default_factory=list)
    """Why there is no verdict on the namespace."""

    @property
    def verdict(self) -> str:
        """`same`, `SCREENED`, `UNORDERED`, `not the same`, or `no verdict` (no difference, part not judged)."""
        if self.kinds.total():
            return "not the same"
        if self.trouble or self.unsettled:
            return "no verdict"
        return _WORDS[self.way]


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a verification is, over all namespaces; the first four fields are sums of those of the tallies."""

    documents: int
    expected: int
    size: int
    read: int
    ranges: int
    """All ranges, including those that an interrupted run has read."""
    done: int
    """Ranges read to their end."""
    waiting: int
    """Documents that differed when they were read, and wait for a re-read."""
    seconds: float
    """Since the run was set up."""

    @property
    def per_second(self) -> float:
        """Documents compared a second, on average since the start."""
        return self.documents / self.seconds if self.seconds else 0.0

    @property
    def seconds_left(self) -> float | None:
        """An estimate from the average so far; None before the first document."""
        remaining = max(0, self.expected - self.documents)
        return remaining / self.per_second if self.per_second else None


@dataclass(slots=True)
class Verdict:
    """The result of one run; complete once the iteration over its `Verification` has ended without an error."""

    tallies: list[Tally]
    """One for each pair, in the order of the pairs."""
    began: float = field(default_factory=time.monotonic)
    """`time.monotonic()` when the run was set up."""
    since: float = field(default_factory=time.time)
    """When the first comparison began, in seconds since the epoch; of a resumed run, that of the first run."""
    seconds: float = 0.0
    """How long the run took; 0 until it has ended."""

    def total(self, kind: Kind) -> int:
        """Proven differences of this kind."""
        return sum(tally.kinds[kind] for tally in self.tallies)

    @property
    def compared(self) -> int:
        """Documents compared."""
        return sum(tally.documents for tally in self.tallies)

    @property
    def read(self) -> int:
        """Bytes of BSON that both servers sent, re-reads not included."""
        return sum(tally.read for tally in self.tallies)

    @property
    def differences(self) -> int:
        """Number of proven differences."""
        return sum(tally.kinds.total() for tally in self.tallies)

    @property
    def trouble(self) -> list[str]:
        """Why there is no verdict on part of the documents; empty if there is one on all."""
        return [reason for tally in self.tallies for reason in _troubles(tally)]

    @property
    def clean(self) -> bool:
        """Whether nothing differs and nothing was left without a verdict; digests alone can make it true."""
        return not self.differences and not self.trouble


def _troubles(tally: Tally) -> Iterable[str]:
    yield from tally.trouble
    if tally.unsettled:
        yield f"{tally.unsettled:,} documents of {tally.pair.source} could not be judged"
