"""Comparing documents whose `_id`s are known: those that changed last, or those that a verdict named."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator

from verifier.differences import Difference, Pair
from verifier.errors import VerifierError
from verifier.proof import Outcome, Same, Unsettled
from verifier.reads import Client, chunks
from verifier.recheck import Passed, Recheck
from verifier.server_loss import patiently
from verifier.settlement import Settling

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
