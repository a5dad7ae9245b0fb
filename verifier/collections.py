"""Are two collections the same, byte for byte? Field order and BSON types count."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from pymongo.collection import Collection
from pymongo.errors import PyMongoError

from verifier.differences import Difference, Pair, difference
from verifier.errors import VerifierError
from verifier.merge import Equal, Side, Unequal, merged
from verifier.order import Key, id_key
from verifier.proof import Outcome, Same, Unsettled
from verifier.reads import Client, chunks, in_id_order, in_words, patiently
from verifier.settlement import Passed, Recheck, Settling

_BATCH = 4_000  # documents


@dataclass(frozen=True, slots=True)
class Comparison:
    """What comparing two collections came to; `compared` counts documents that either side has."""

    compared: int
    differences: tuple[Difference, ...]

    @property
    def same(self) -> bool:
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

    Without `recheck` nobody may write meanwhile. With it, differences are read again until they are gone or proven,
    and `passed` tells whether what replicates the collection has passed a moment of the source. The differences
    are held, all documents are not. Raises `VerifierError` when a server cannot be read, or a document that keeps
    changing cannot be judged.
    """
    pair = Pair(source.full_name, destination.full_name)
    compared = 0
    unequal: dict[Key, Unequal] = {}
    try:
        for one in _merged(source, destination, ignore_field_order):
            if isinstance(one, Equal):
                compared += one.documents
            else:
                _keep(unequal, one)
    except PyMongoError as error:
        raise in_words(f"compare {pair.source} with {pair.destination}", error) from error
    compared += len(unequal)
    if recheck is not None:
        settling = Settling(source.database.client, destination.database.client, recheck, passed, ignore_field_order)
        return Comparison(compared, tuple(_settled(settling, pair, [one.id for one in unequal.values()])))
    different = (difference(pair.source, one.id, one.source, one.destination) for one in unequal.values())
    return Comparison(compared, tuple(one for one in different if one is not None))


def _keep(unequal: dict[Key, Unequal], one: Unequal) -> None:
    """Where a collation orders `_id`s, the two sides of a document may come one by one."""
    known = unequal.get(id_key(one.id))
    if known is not None:
        one = Unequal(known.id, known.source or one.source, known.destination or one.destination)
    unequal[id_key(one.id)] = one


def _merged(
    source: Collection[Any], destination: Collection[Any], ignore_field_order: bool
) -> Iterator[Equal | Unequal]:
    ours, theirs = (Side(in_id_order(documents, None, None, _BATCH)) for documents in (source, destination))
    return merged(ours, theirs, ignore_field_order=ignore_field_order)


def _settled(settling: Settling, pair: Pair, suspects: list[bytes]) -> Iterator[Difference]:
    for outcome in outcomes(settling, pair, suspects):
        if isinstance(outcome, Unsettled):
            raise VerifierError(f"a document of {pair.source} could not be judged in time: {outcome.why}")
        if not isinstance(outcome, Same):
            yield outcome


_DEFAULT = Recheck()
_HELD = 50_000  # ids that wait to be looked at again, at most


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
    """Compare just the documents of these ids (BSON `{_id: …}`), and yield what still differs once it has settled.

    Each is read at once, and again while it differs. `passed` tells whether the pipeline has passed a moment;
    without it a difference counts after all tries. Raises `VerifierError` for a document that cannot be judged.
    """
    settling = Settling(source_client, destination_client, recheck, passed, ignore_field_order)
    for outcome in outcomes(settling, pair, ids):
        if isinstance(outcome, Unsettled):
            raise VerifierError(
                f"a document of {outcome.namespace} could not be judged within {recheck.patience:g} s: {outcome.why}"
            )
        if not isinstance(outcome, Same):
            yield outcome


def outcomes(settling: Settling, pair: Pair, ids: Iterable[bytes]) -> Iterator[Outcome]:
    """What becomes of those of these documents that are not equal at once."""
    what = f"read documents of {pair.source}"
    for chunk in chunks(ids):

        def differing(chunk: list[bytes] = chunk) -> list[bytes]:
            return settling.differing(pair, chunk)

        found = patiently(what, settling.lost_for, differing)
        if found:
            settling.add(pair, found)
        while len(settling) > _HELD:
            yield from _next(settling)
    while len(settling):
        yield from _next(settling)


def _next(settling: Settling) -> Iterator[Outcome]:
    time.sleep(settling.pause() or 0)
    yield from (outcome for _, outcome in settling.step())
