"""Are two collections the same, byte for byte? Field order and BSON types count."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pymongo.collection import Collection
from pymongo.errors import PyMongoError

from verifier.differences import Difference, Pair, difference
from verifier.errors import VerifierError
from verifier.known_documents import outcomes
from verifier.merge import Equal, Side, Unequal, merged
from verifier.order import Key, id_key
from verifier.proof import Same, Unsettled
from verifier.reads import in_id_order
from verifier.recheck import Passed, Recheck
from verifier.server_loss import in_words
from verifier.settlement import Settling

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
