"""The plan of a run: how to compare, what there is of each pair, and the ranges to read."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from bson import json_util
from bson.json_util import CANONICAL_JSON_OPTIONS
from pymongo.collection import Collection

from towpath_verifier.differences import Namespace, Pair
from towpath_verifier.progress import Compared, Journal, Range, Way
from towpath_verifier.reads import (
    Bounds,
    Client,
    Size,
    aggregated,
    by_database,
    collection,
    refuse_stale,
    size,
    with_retries,
)
from towpath_verifier.rereads import Passed, Recheck, Rereads


@dataclass(frozen=True, slots=True)
class Options:
    """How to compare. Raises `ValueError` for values out of range."""

    processes: int = field(default_factory=lambda: os.cpu_count() or 1)
    """Worker processes, 1 or more; no more than there are ranges are started."""
    recheck: Recheck = field(default_factory=Recheck)
    """Pauses between the reads of a document that differed; not used with `quiet`."""
    ignore_field_order: bool = False
    """Documents that differ in nothing but the order of fields are equal."""
    screen: bool = False
    """Compare digests that the servers compute (`$toHashedIndexKey`); they see only the integral part of a number. A
    pair with a mask or a filter is compared all the same."""
    quiet: bool = False
    """Nothing is written: compare whole collections by `dbHash`, and read only those that differ, or have a mask or
    a filter."""
    lost_for: float = 60.0
    """Seconds for which a server may be unreachable before the run ends with `ServerLost`."""
    range_bytes: int = 32 << 20
    """About how many bytes of documents one range has, by the server's count; 1 or more."""
    journal: Path | None = None
    """A file from which an interrupted run can resume; removed when all namespaces have a verdict. Not used with
    `quiet`."""
    resume: bool = False
    """Continue the run in `journal`; it must be a run over the same collections, compared in the same way."""
    origin: Any = None
    """What else both runs must agree in, as a JSON value: for example, what the destination was restored from."""

    @property
    def way(self) -> Way:
        """How documents are compared, unless their hashes are equal."""
        return "screened" if self.screen else self._one_by_one

    def way_of(self, pair: Pair) -> Way:
        """The same of one pair."""
        return self.way if pair.is_whole else self._one_by_one

    @property
    def _one_by_one(self) -> Way:
        return "unordered" if self.ignore_field_order else "compared"

    def rereads(
        self, source: Client, destination: Client, passed: Passed | None, say: Callable[[str], None]
    ) -> Rereads:
        """Re-reads with these options. `passed` as in `Passed`; `say` receives messages for people."""
        return Rereads(source, destination, self.recheck, passed, self.ignore_field_order, self.lost_for, say)

    @property
    def kept_journal(self) -> Journal | None:
        """The journal, if the run keeps one."""
        return Journal(self.journal) if self.journal and not self.quiet else None

    def __post_init__(self) -> None:
        if self.processes < 1 or self.range_bytes < 1 or not self.lost_for >= 0:  # which NaN is not either
            raise ValueError(f"{self} is not valid: processes and range_bytes are 1 or more, lost_for is 0 or more")


_NO_DOCUMENTS = {
    "view": "a view, which stores no documents",
    "timeseries": "a time-series collection, which has no index on _id",
}
#: An entry of the server's `listCollections`; None for a namespace that does not exist.
_Entry = Mapping[str, Any] | None


@dataclass(frozen=True, slots=True)
class ListedPair:
    """Both sides of a pair, as their servers list them."""

    pair: Pair
    source: _Entry
    destination: _Entry

    @property
    def obstacle(self) -> str:
        """Why the two cannot be compared; empty if they can."""
        for name, side, entry in self._sides():
            if entry and entry["type"] in _NO_DOCUMENTS:
                return f"{name} at the {side} is {_NO_DOCUMENTS[entry['type']]}: it is not compared"
        return ""

    @property
    def notes(self) -> Sequence[str]:
        """Notes that qualify the verdict."""
        return [f"{name} does not exist at the {side}" for name, side, entry in self._sides() if entry is None] + [
            f"{name} is capped at the {side}: it drops its oldest documents"
            for name, side, entry in self._sides()
            if entry and entry.get("options", {}).get("capped")
        ]

    @property
    def ordered_alike(self) -> bool:
        """Whether both sides keep `_id`s in the order that `raw` knows."""
        return not any(entry and "collation" in entry.get("options", {}) for _, _, entry in self._sides())

    def gone(self, later: ListedPair) -> Sequence[str]:
        """What was dropped, or dropped and created again, between this listing and a later one."""
        return [
            f"{name} was dropped{' and created again' if _uuid(after) else ''} at the {side} during the run"
            for (name, side, before), (_, _, after) in zip(self._sides(), later._sides(), strict=True)
            if before is not None and _uuid(before) != _uuid(after)
        ]

    @property
    def uuids(self) -> tuple[str | None, str | None]:
        """Of the collections at both sides."""
        return _uuid(self.source), _uuid(self.destination)

    @property
    def identity(self) -> Sequence[Any]:
        """What an interrupted run must have compared to be continued, as a JSON value."""
        names: list[Any] = [self.pair.source, self.pair.destination, *self.uuids]
        if self.pair.mask is not None:
            names.append(self.pair.mask.identity)
        return (
            names
            if self.pair.only is None
            else [*names, json_util.dumps(self.pair.only, json_options=CANONICAL_JSON_OPTIONS)]
        )

    def _sides(self) -> Iterable[tuple[Namespace, str, _Entry]]:
        return (self.pair.source, "source", self.source), (self.pair.destination, "destination", self.destination)


def _uuid(entry: _Entry) -> str | None:
    uuid = entry.get("info", {}).get("uuid") if entry else None
    return None if uuid is None else bytes(uuid).hex()


def list_pairs(source: Client, destination: Client, pairs: Sequence[Pair], lost_for: float) -> list[ListedPair]:
    """List the collections of these pairs at both sides. Raises `VerifierError`."""

    def read() -> list[ListedPair]:
        ours = _listed(source, {pair.source for pair in pairs})
        theirs = _listed(destination, {pair.destination for pair in pairs})
        return [ListedPair(pair, ours.get(pair.source), theirs.get(pair.destination)) for pair in pairs]

    return with_retries("list the collections of both sides", lost_for, read)


def _listed(client: Client, wanted: set[Namespace]) -> dict[Namespace, Mapping[str, Any]]:
    refuse_stale(client)
    return {
        namespace: entry
        for database in by_database(wanted)
        for entry in client[database].list_collections()
        if (namespace := f"{database}.{entry['name']}") in wanted
    }


@dataclass(slots=True)
class Plan:
    """The work of one run."""

    ranges: list[Range] = field(default_factory=list)
    """Those to read; of a resumed run, the unfinished ones."""
    finished: list[tuple[Range, Compared]] = field(default_factory=list)
    """Ranges that an interrupted run has finished."""
    expected: dict[Pair, int] = field(default_factory=dict)
    """About how many documents each pair has."""
    since: float = field(default_factory=time.time)
    """When the first run of this plan began, in seconds since the epoch."""


def plan(source: Client, destination: Client, listed: Sequence[ListedPair], options: Options) -> Plan:
    """Cut the collections into ranges, and write them to the journal; with `resume`, take the journal's if it has any.

    Raises `VerifierError`, also when the journal belongs to a run over other collections, or with other options.
    """
    journal = options.kept_journal
    about = {
        "origin": options.origin,
        "namespaces": [each.identity for each in listed],
        "ignore_field_order": options.ignore_field_order,
        "screen": options.screen,
    }
    interrupted = journal.read(about) if journal and options.resume else None
    new = Plan()
    for each in listed:
        measure = partial(_measured, source, destination, each, None if interrupted else options.range_bytes)
        action = f"split {each.pair.source} into ranges"
        cuts, batch, new.expected[each.pair] = with_retries(action, options.lost_for, measure)
        new.ranges += [
            Range(number, each.pair, bounds, batch, ordered=each.ordered_alike)
            for number, bounds in enumerate(cuts, len(new.ranges))
        ]
    if interrupted:
        new.since, planned, finished = interrupted
        pairs = {each.pair: each.pair for each in listed}  # the journal has neither masks nor filters
        planned = [replace(work, pair=pairs[work.pair]) for work in planned]
        new.ranges = [work for work in planned if work.number not in finished]
        new.finished = [(work, finished[work.number]) for work in planned if work.number in finished]
    elif journal:
        journal.begin(about, new.since, new.ranges)
    uuids = {each.pair: each.uuids for each in listed if new.expected[each.pair]}
    new.ranges = [replace(work, uuids=uuids.get(work.pair)) for work in new.ranges]
    return new


def _measured(
    source: Client, destination: Client, listed: ListedPair, range_bytes: int | None
) -> tuple[list[Bounds], int, int]:
    """Cut the side with more documents into ranges (into none without `range_bytes`).

    Returns them, the documents in a batch, and about how many documents there are to compare.
    """
    sides = collection(source, listed.pair.source), collection(destination, listed.pair.destination)
    sizes = [size(side) for side in sides]
    larger = 0 if sizes[0].documents >= sizes[1].documents else 1
    bounds: list[Bounds] = []
    if range_bytes is not None:
        # where a collation orders _ids, each side may have a bound in another place
        bounds = _cut(sides[larger], sizes[larger], range_bytes) if listed.ordered_alike else [Bounds()]
    return bounds, batch_size(*sizes), sizes[larger if listed.pair.only is None else 1].documents


_BATCH_BYTES, _BATCH_DOCUMENTS = 4 << 20, 16_000
_RANGE_DOCUMENTS = 100_000
_MAX_RANGES = 4_096
_SAMPLES_A_RANGE = 10
_FEW = 20_000  # up to so many documents, every `_id` is read, from the index alone; beyond that, a sample
_BOUND_BYTES = 1_024  # a longer `_id` is not used as a bound


def batch_size(*sizes: Size) -> int:
    """Documents in a batch of a few MB; the server ends a batch at 16 MB in any case."""
    average = max((size.bytes // size.documents for size in sizes if size.documents), default=0)
    return max(1, min(_BATCH_DOCUMENTS, _BATCH_BYTES // max(1, average)))


def _cut(documents: Collection[Any], whole: Size, range_bytes: int) -> list[Bounds]:
    """Ranges of about the same number of documents, which include every possible `_id`.

    `_id`s may have any types: the server sorts them, and the bounds are sent back to it with the bytes that they have.
    """
    needed = max(-(-whole.bytes // range_bytes), -(-whole.documents // _RANGE_DOCUMENTS))
    ranges = min(_MAX_RANGES, whole.documents, needed)
    if ranges < 2:
        return [Bounds()]
    ids = list(_ids(documents, whole, ranges))
    places = sorted({len(ids) * number // ranges for number in range(ranges)} - {0})
    return Bounds().split([ids[place] for place in places if len(ids[place]) <= _BOUND_BYTES])


def _ids(documents: Collection[Any], whole: Size, ranges: int) -> Iterator[bytes]:
    # the server takes a sample of under 5 % with a random cursor; for a larger one it would read the whole collection
    sample = min(whole.documents // 25, ranges * _SAMPLES_A_RANGE)
    stages = [] if whole.documents <= _FEW else [{"$sample": {"size": sample}}]
    hint: dict[str, Any] = {} if stages else {"hint": {"_id": 1}}
    last = None
    for identity in aggregated(documents, [*stages, {"$project": {"_id": 1}}, {"$sort": {"_id": 1}}], **hint):
        if identity != last:  # a sample may hold a document twice
            yield identity
        last = identity
