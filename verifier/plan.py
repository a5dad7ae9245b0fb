"""Which ranges of which namespaces are to be read: all, or what an interrupted run has left."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from verifier.differences import Pair
from verifier.journal import Done, Journal
from verifier.pairs import Looked
from verifier.ranges import Bounds, batch_size, cut, size
from verifier.reads import Client, collection, patiently
from verifier.workers import Range


@dataclass(slots=True)
class Plan:
    """`done` was read by an earlier run. `expected`: about how many documents a pair has."""

    ranges: list[Range] = field(default_factory=list)
    done: list[tuple[Range, Done]] = field(default_factory=list)
    expected: dict[Pair, int] = field(default_factory=dict)


def about(looked: Sequence[Looked], *, ignore_field_order: bool, screen: bool) -> Mapping[str, Any]:
    """What tells a run from others: which collections, by name and identity, and how they are compared."""
    return {
        "namespaces": [
            [one.pair.source, one.pair.destination, *(_hex(found.uuid) for found in (one.source, one.destination))]
            for one in looked
        ],
        "ignore_field_order": ignore_field_order,
        "screen": screen,
    }


def plan(
    source: Client,
    destination: Client,
    looked: Sequence[Looked],
    *,
    range_bytes: int,
    lost_for: float,
    journal: Journal | None,
    resume: bool,
    run: Mapping[str, Any],
) -> Plan:
    """Cut the collections, and note the plan in the journal; with `resume`, take up what the journal holds of `run`."""
    left = journal.read(run) if journal and resume else None
    found = Plan()
    for one in looked:
        cutting = _Cut(source, destination, one, None if left else range_bytes)
        ranges, found.expected[one.pair] = patiently(f"size and cut {one.pair.source}", lost_for, cutting)
        found.ranges += [
            Range(len(found.ranges) + n, one.pair, *how, ordered=one.ordered_alike) for n, how in enumerate(ranges)
        ]
    if left:
        planned, done = left
        found.ranges = [one for one in planned if one.number not in done]
        found.done = [(one, done[one.number]) for one in planned if one.number in done]
    elif journal:
        journal.begin(run, found.ranges)
    return found


@dataclass(frozen=True, slots=True)
class _Cut:
    """Sizes one pair, and cuts it by the side that holds more documents; not without `range_bytes`."""

    source: Client
    destination: Client
    looked: Looked
    range_bytes: int | None

    def __call__(self) -> tuple[list[tuple[Bounds, int]], int]:
        pair = self.looked.pair
        sides = (collection(self.source, pair.source), collection(self.destination, pair.destination))
        sizes = [size(side) for side in sides]
        larger = 0 if sizes[0].documents >= sizes[1].documents else 1
        bounds: list[Bounds] = []
        if self.range_bytes is not None:
            # where a collation orders _ids, either side may put a bound at another place
            whole = not self.looked.ordered_alike
            bounds = [Bounds()] if whole else cut(sides[larger], sizes[larger], range_bytes=self.range_bytes)
        documents = batch_size(*sizes)
        return [(one, documents) for one in bounds], sizes[larger].documents


def _hex(uuid: bytes | None) -> str | None:
    return None if uuid is None else uuid.hex()
