"""How far a run is: the verdict so far, and the file from which an interrupted run can resume."""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeAlias

from towpath_verifier.differences import Kind, Pair
from towpath_verifier.reads import Bounds, VerifierError

#: How a namespace was compared: all bytes, all bytes in any order of fields, hashes of whole collections, or digests,
#: which can miss differences.
Way: TypeAlias = Literal["compared", "unordered", "hashed", "screened"]
SCREENED = "screened"
"""A verdict that says less than `same`: equal by digests."""
UNORDERED = "same, field order ignored"
"""A verdict that says less than `same`: equal, perhaps with fields in another order."""
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
    read: int = 0
    """Bytes of BSON that both servers sent for it, re-reads not included."""
    kinds: Counter[Kind] = field(default_factory=Counter)
    """Proven differences by kind."""
    unresolved: int = 0
    """Documents that could not be judged in time."""
    notes: list[str] = field(default_factory=list)
    """Notes that qualify the verdict: a collection does not exist at one side, or is capped."""
    errors: list[str] = field(default_factory=list)
    """Why there is no verdict on the namespace."""

    @property
    def verdict(self) -> str:
        """`same`, `SCREENED`, `UNORDERED`, `not the same`, or `no verdict` (no difference, part not judged)."""
        if self.kinds.total():
            return "not the same"
        if self.errors or self.unresolved:
            return "no verdict"
        return _WORDS[self.way]


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a verification is, over all namespaces; the first two fields are sums of those of the tallies."""

    documents: int
    expected: int
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
    def errors(self) -> list[str]:
        """Why there is no verdict on part of the documents; empty if there is one on all."""
        return [reason for tally in self.tallies for reason in _errors(tally)]

    @property
    def clean(self) -> bool:
        """Whether nothing differs and nothing was left without a verdict; digests alone can make it true."""
        return not self.differences and not self.errors


def _errors(tally: Tally) -> Iterable[str]:
    yield from tally.errors
    if tally.unresolved:
        yield f"{tally.unresolved:,} documents of {tally.pair.source} could not be judged"


@dataclass(frozen=True, slots=True)
class Range:
    """A range of `_id`s of one pair, read by one worker."""

    number: int
    pair: Pair
    bounds: Bounds
    batch_size: int
    ordered: bool = True
    """Whether `raw` knows the order of the `_id`s; a collation has another."""
    uuids: tuple[str | None, str | None] | None = None
    """Of the collections at both sides, which must be there if nothing is read; None where nothing is expected."""


@dataclass(slots=True)
class Compared:
    """What a range or a part of it held; a resumed run re-reads only the documents that differed in a finished one."""

    documents: int = 0
    read: int = 0
    """Bytes that came over the network."""
    differing: list[bytes] = field(default_factory=list)
    """BSON `{_id: …}` of each."""
    away: bool = False
    """Nothing was read, and a collection was not there: the range is not compared."""


@dataclass(frozen=True, slots=True)
class Journal:
    """A file of JSON lines, the plan first.

    `about` identifies what a run compares, and how; only a run with the same `about` can resume it.

    `since` is when the first run began, in seconds since the epoch: a verdict is as old as the oldest range.

    Raises `VerifierError` when the file cannot be written.
    """

    path: Path

    def begin(self, about: Mapping[str, Any], since: float, ranges: Iterable[Range]) -> None:
        with self._writing():
            self.path.unlink(missing_ok=True)
            self.path.touch(mode=0o600)
        self._append({"about": about, "since": since, "ranges": list(map(_as_json, ranges))})

    def add(self, number: int, finished: Compared) -> None:
        counts, differing = (finished.documents, finished.read), [id.hex() for id in finished.differing]
        self._append({"range": number, "counts": counts, "differing": differing})

    def end(self) -> None:
        """Remove the file: the run is complete."""
        self.path.unlink(missing_ok=True)

    def about(self) -> Mapping[str, Any] | None:
        """What the interrupted run compares; None if no run was interrupted."""
        plan = self._read()
        return plan[0]["about"] if plan else None

    def read(self, about: Mapping[str, Any]) -> tuple[float, list[Range], dict[int, Compared]] | None:
        """When it began, the plan, and the finished ranges by number; None if no run was interrupted.

        Raises `VerifierError` when the interrupted run compared something else, or in another way.
        """
        lines = self._read()
        if lines is None:
            return None
        plan, others = lines
        if plan["about"] != json.loads(json.dumps(about)):
            raise VerifierError(
                f"cannot resume the run in {self.path}: it compared something else, or with other options",
                "use the same options, or start again without resume",
                where=str(self.path),
            )
        return plan["since"], list(map(_range, plan["ranges"])), dict(filter(None, map(_finished, others)))

    def _read(self) -> tuple[dict[str, Any], list[str]] | None:
        """The first line, and the others as text."""
        try:
            first, *others = self.path.read_text(encoding="utf-8").splitlines()
            return json.loads(first), others
        except (FileNotFoundError, ValueError):
            return None  # no file, or the run ended before it had written its plan

    def _append(self, line: Mapping[str, Any]) -> None:
        with self._writing(), self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
            file.flush()
            os.fsync(file.fileno())

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            what = f"cannot write the journal {self.path}: {error.strerror}"
            raise VerifierError(what, "make room there", where=str(self.path)) from error


def _as_json(work: Range) -> list[Any]:
    low, high = (None if bound is None else bound.hex() for bound in (work.bounds.low, work.bounds.high))
    return [work.number, work.pair.source, work.pair.destination, low, high, work.batch_size, work.ordered]


def _range(value: list[Any]) -> Range:
    number, source, destination, *bounds, batch_size, ordered = value
    low, high = (None if bound is None else bytes.fromhex(bound) for bound in bounds)
    return Range(number, Pair(source, destination), Bounds(low, high), batch_size, ordered)


def _finished(line: str) -> tuple[int, Compared] | None:
    try:
        entry = json.loads(line)
        documents, read = entry["counts"]
        return entry["range"], Compared(documents, read, list(map(bytes.fromhex, entry["differing"])))
    except (ValueError, KeyError, TypeError):
        return None  # the run ended while it wrote this line
