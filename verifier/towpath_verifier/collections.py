"""Are two collections the same, byte for byte? Field order and BSON types count."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from pymongo.collection import Collection
from pymongo.errors import PyMongoError

from towpath_verifier.differences import Difference, Pair, difference
from towpath_verifier.errors import VerifierError
from towpath_verifier.merge import Equal, Side, Unequal, merged
from towpath_verifier.proof import Outcome, Same, Unsettled
from towpath_verifier.raw import Key, id_key
from towpath_verifier.reads import Client, chunks, in_id_order, verifier_error
from towpath_verifier.settlement import Passed, Recheck, Settling

_BATCH = 4_000  # documents


@dataclass(frozen=True, slots=True)
class Comparison:
    """The result of `compare`."""

    compared: int
    """Number of documents that at least one side has; one `_id` counts once."""
    differences: tuple[Difference, ...]
    """In `_id` order; with `recheck` in the order in which they settled."""

    @property
    def same(self) -> bool:
        """Whether there is no difference."""
        return not self.differences


def compare(
    source: Collection[Any],
    destination: Collection[Any],
    *,
    recheck: Recheck | None = None,
    passed: Passed | None = None,
    ignore_field_order: bool = False,
) -> Comparison:
    """Compare all documents of two collections, in this process.

    Without `recheck` the result is right only if nobody writes meanwhile. With it, documents that differ are re-read
    until they are equal or proven to differ; `passed` (see `Passed`) makes that proof hold for any replication lag. A
    collection that does not exist counts as empty. Memory holds the documents that differ, not the others.

    `ignore_field_order`: documents that differ in nothing but the order of fields are equal.

    Raises `ServerLost` when a server is unreachable, `VerifierError` when it refuses, or when a document cannot be
    judged within `recheck.patience` seconds.
    """
    pair = Pair(source.full_name, destination.full_name)
    compared = 0
    unequal: dict[Key, Unequal] = {}
    try:
        ours, theirs = (Side(in_id_order(documents, None, None, _BATCH)) for documents in (source, destination))
        for stretch in merged(ours, theirs, ignore_field_order=ignore_field_order):
            if isinstance(stretch, Equal):
                compared += stretch.documents
            else:
                _keep(unequal, stretch)
    except PyMongoError as error:
        raise verifier_error(f"compare {pair.source} with {pair.destination}", error) from error
    compared += len(unequal)
    if recheck is not None:
        settling = Settling(source.database.client, destination.database.client, recheck, passed, ignore_field_order)
        return Comparison(compared, tuple(_settled(settling, pair, [document.id for document in unequal.values()])))
    differences = (difference(pair.source, each.id, each.source, each.destination) for each in unequal.values())
    return Comparison(compared, tuple(each for each in differences if each is not None))


def _keep(unequal: dict[Key, Unequal], document: Unequal) -> None:
    """Where a collation orders `_id`s, the two sides of a document may arrive separately."""
    known = unequal.get(id_key(document.id))
    if known is not None:
        document = Unequal(known.id, known.source or document.source, known.destination or document.destination)
    unequal[id_key(document.id)] = document


def _settled(settling: Settling, pair: Pair, ids: Iterable[bytes]) -> Iterator[Difference]:
    for outcome in outcomes(settling, pair, ids):
        if isinstance(outcome, Unsettled):
            raise VerifierError(
                f"a document of {pair.source} could not be judged within {settling.recheck.patience:g} s: {outcome.why}"
            )
        if not isinstance(outcome, Same):
            yield outcome


_DEFAULT = Recheck()
_HELD = 50_000  # at most so many ids wait for a re-read


def check_ids(
    source_client: Client,
    destination_client: Client,
    pair: Pair,
    ids: Iterable[bytes],
    recheck: Recheck = _DEFAULT,
    passed: Passed | None = None,
    *,
    ignore_field_order: bool = False,
) -> Iterator[Difference]:
    """Compare only the documents of these ids, and yield the differences as they are proven.

    Each id is a BSON document `{_id: …}`, such as `Difference.id`; those of documents that neither side has are equal.
    Every document is read once, and again while it differs, with the pauses of `recheck`. Without `passed` (see
    `Passed`) a difference counts after all tries.

    Raises `ServerLost` when a server is unreachable for 60 s, `VerifierError` when it refuses, or when a document
    cannot be judged within `recheck.patience` seconds.
    """
    settling = Settling(source_client, destination_client, recheck, passed, ignore_field_order)
    yield from _settled(settling, pair, ids)


def outcomes(settling: Settling, pair: Pair, ids: Iterable[bytes]) -> Iterator[Outcome]:
    """The outcome for each of these documents that differs at the first read."""
    for chunk in chunks(ids):
        if suspects := settling.differing_with_retries(pair, chunk):
            settling.add(pair, suspects)
        while len(settling) > _HELD:
            yield from _next(settling)
    while len(settling):
        yield from _next(settling)


def _next(settling: Settling) -> Iterator[Outcome]:
    time.sleep(settling.pause() or 0)
    yield from (outcome for _, outcome in settling.step())
