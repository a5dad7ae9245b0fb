"""The plan of a run: the kind of each pair, and the ranges to read (with resume, only the unfinished ones)."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from towpath_verifier.differences import Namespace, Pair
from towpath_verifier.journal import FinishedRange, Journal
from towpath_verifier.ranges import Bounds, batch_size, cut, size
from towpath_verifier.reads import Client, collection, existing, with_retries
from towpath_verifier.workers import Range


@dataclass(slots=True)
class Plan:
    """The work of one run."""

    ranges: list[Range] = field(default_factory=list)
    finished: list[tuple[Range, FinishedRange]] = field(default_factory=list)
    """Ranges that an interrupted run has finished."""
    expected: dict[Pair, int] = field(default_factory=dict)
    """About how many documents each pair has."""
    since: float = field(default_factory=time.time)
    """When the first run of this plan began, in seconds since the epoch."""


def about(listed: Sequence[ListedPair], *, ignore_field_order: bool, screen: bool, origin: Any) -> Mapping[str, Any]:
    """The identity of a run: the collections, by name and UUID, how they are compared, and `Options.origin`."""
    return {
        "origin": origin,
        "namespaces": [
            [each.pair.source, each.pair.destination, each.source.uuid, each.destination.uuid] for each in listed
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

    Raises `VerifierError`, also when the journal belongs to another run than `run` (see `about`).
    """
    interrupted = journal.read(run) if journal and resume else None
    new = Plan()
    for each in listed:
        size_and_cut = partial(_cut, source, destination, each, None if interrupted else range_bytes)
        action = f"split {each.pair.source} into ranges"
        cuts, batch, new.expected[each.pair] = with_retries(action, lost_for, size_and_cut)
        new.ranges += [
            Range(number, each.pair, bounds, batch, ordered=each.ordered_alike)
            for number, bounds in enumerate(cuts, len(new.ranges))
        ]
    if interrupted:
        new.since, planned, finished = interrupted
        new.ranges = [work for work in planned if work.number not in finished]
        new.finished = [(work, finished[work.number]) for work in planned if work.number in finished]
    elif journal:
        journal.begin(run, new.since, new.ranges)
    return new


def _cut(
    source: Client, destination: Client, listed: ListedPair, range_bytes: int | None
) -> tuple[list[Bounds], int, int]:
    """Cut the side with more documents into ranges (into none without `range_bytes`).

    Returns them, the documents in a batch, and about how many documents that side has.
    """
    sides = collection(source, listed.pair.source), collection(destination, listed.pair.destination)
    sizes = [size(side) for side in sides]
    larger = 0 if sizes[0].documents >= sizes[1].documents else 1
    bounds: list[Bounds] = []
    if range_bytes is not None:
        # where a collation orders _ids, each side may have a bound in another place
        bounds = cut(sides[larger], sizes[larger], range_bytes=range_bytes) if listed.ordered_alike else [Bounds()]
    return bounds, batch_size(*sizes), sizes[larger].documents


_NO_DOCUMENTS = {
    "view": "a view, which holds no documents of its own",
    "timeseries": "a time-series collection, which has no index on _id",
}


@dataclass(frozen=True, slots=True)
class Listed:
    """A namespace at one side; `kind` is `none` if it does not exist. `uuid` is hexadecimal, None if there is none."""

    kind: str
    uuid: str | None
    options: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ListedPair:
    """Both sides of a pair."""

    pair: Pair
    source: Listed
    destination: Listed

    @property
    def obstacle(self) -> str:
        """Why the two cannot be compared; empty if they can."""
        for name, side, listed in self._sides():
            if listed.kind in _NO_DOCUMENTS:
                return f"{name} at the {side} is {_NO_DOCUMENTS[listed.kind]}: it is not compared"
        return ""

    @property
    def notes(self) -> Sequence[str]:
        """Notes that qualify the verdict."""
        return [
            f"{name} does not exist at the {side}" for name, side, listed in self._sides() if listed.kind == "none"
        ] + [
            f"{name} is capped at the {side}: it drops its oldest documents by itself"
            for name, side, listed in self._sides()
            if listed.options.get("capped")
        ]

    @property
    def ordered_alike(self) -> bool:
        """Whether both sides keep `_id`s in the order that `verifier.raw` knows."""
        return not any("collation" in listed.options for _, _, listed in self._sides())

    def gone(self, later: ListedPair) -> Sequence[str]:
        """What was dropped, or dropped and created again, between this listing and a later one."""
        return [
            f"{name} was dropped{' and created again' if after.uuid else ''} at the {side} during the run"
            for (name, side, before), (_, _, after) in zip(self._sides(), later._sides(), strict=True)
            if before.uuid is not None and before.uuid != after.uuid
        ]

    def _sides(self) -> Iterable[tuple[Namespace, str, Listed]]:
        return (self.pair.source, "source", self.source), (self.pair.destination, "destination", self.destination)


def list_pairs(source: Client, destination: Client, pairs: Sequence[Pair], lost_for: float) -> list[ListedPair]:
    """List the collections of these pairs at both sides. Raises `VerifierError`."""

    def read() -> list[ListedPair]:
        ours = existing(source, [pair.source for pair in pairs])
        theirs = existing(destination, [pair.destination for pair in pairs])
        return [ListedPair(p, _listed(ours.get(p.source)), _listed(theirs.get(p.destination))) for p in pairs]

    return with_retries("list the collections of both sides", lost_for, read)


def _listed(entry: Mapping[str, Any] | None) -> Listed:
    """`entry` is the server's, of `listCollections`."""
    if entry is None:
        return Listed("none", None, {})
    uuid = entry.get("info", {}).get("uuid")
    return Listed(entry["type"], None if uuid is None else bytes(uuid).hex(), entry.get("options", {}))
