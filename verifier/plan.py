"""Which ranges of which namespaces a run reads: all, or those that an interrupted run has left."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from verifier.differences import Pair
from verifier.journal import Done, Journal
from verifier.pairs import ListedPair
from verifier.ranges import Bounds, batch_size, cut, size
from verifier.reads import Client, collection, patiently
from verifier.workers import Range


@dataclass(slots=True)
class Plan:
    """The work of one run."""

    ranges: list[Range] = field(default_factory=list)
    done: list[tuple[Range, Done]] = field(default_factory=list)
    """Ranges that an interrupted run has finished."""
    expected: dict[Pair, int] = field(default_factory=dict)
    """About how many documents each pair has."""


def about(listed: Sequence[ListedPair], *, ignore_field_order: bool, screen: bool) -> Mapping[str, Any]:
    """What identifies a run: the collections, by name and UUID, and how they are compared."""
    return {
        "namespaces": [
            [each.pair.source, each.pair.destination, _hex(each.source.uuid), _hex(each.destination.uuid)]
            for each in listed
        ],
        "ignore_field_order": ignore_field_order,
        "screen": screen,
    }


def plan(
    source: Client,
    destination: Client,
    listed: Sequence[ListedPair],
    *,
    range_bytes: int,
    lost_for: float,
    journal: Journal | None,
    resume: bool,
    run: Mapping[str, Any],
) -> Plan:
    """Cut the collections into ranges, and write them to the journal; with `resume`, take the journal's if it has any.

    Raises `VerifierError`, also when the journal is of another run than `run` (see `about`).
    """
    left = journal.read(run) if journal and resume else None
    new = Plan()
    for each in listed:
        cutting = _Cut(source, destination, each, None if left else range_bytes)
        cuts, new.expected[each.pair] = patiently(f"split {each.pair.source} into ranges", lost_for, cutting)
        new.ranges += [
            Range(len(new.ranges) + n, each.pair, bounds, batch, ordered=each.ordered_alike)
            for n, (bounds, batch) in enumerate(cuts)
        ]
    if left:
        planned, done = left
        new.ranges = [work for work in planned if work.number not in done]
        new.done = [(work, done[work.number]) for work in planned if work.number in done]
    elif journal:
        journal.begin(run, new.ranges)
    return new


@dataclass(frozen=True, slots=True)
class _Cut:
    """Sizes one pair, and cuts the side with more documents into ranges; into none without `range_bytes`."""

    source: Client
    destination: Client
    listed: ListedPair
    range_bytes: int | None

    def __call__(self) -> tuple[list[tuple[Bounds, int]], int]:
        pair = self.listed.pair
        sides = (collection(self.source, pair.source), collection(self.destination, pair.destination))
        sizes = [size(side) for side in sides]
        larger = 0 if sizes[0].documents >= sizes[1].documents else 1
        bounds: list[Bounds] = []
        if self.range_bytes is not None:
            # where a collation orders _ids, each side may have a bound in another place
            whole = not self.listed.ordered_alike
            bounds = [Bounds()] if whole else cut(sides[larger], sizes[larger], range_bytes=self.range_bytes)
        documents = batch_size(*sizes)
        return [(each, documents) for each in bounds], sizes[larger].documents


def _hex(uuid: bytes | None) -> str | None:
    return None if uuid is None else uuid.hex()
