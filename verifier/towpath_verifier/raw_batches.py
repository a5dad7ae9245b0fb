"""Batches of raw documents in `_id` order: the only module that uses PyMongo's private parts.

PyMongo's own cursor for raw batches makes an object of each document before it joins their bytes again, which takes
five times the CPU. `tests/verifier/test_raw_batches.py` compares both.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, cast

import bson
from bson.max_key import MaxKey
from bson.raw_bson import _RAW_ARRAY_BSON_OPTIONS, RawBSONDocument
from pymongo.collection import Collection
from pymongo.cursor import RawBatchCursor

from towpath_verifier.reads import RAW, matching, refuse_stale

#: The version of PyMongo that this file was compared with.
PYMONGO: Final = "4.20.0"


class _RawBatches(RawBatchCursor[Any]):
    """The cursor of `find_raw_batches`, without an object of each document."""

    def _unpack_response(self, response: Any, *_: Any, **__: Any) -> list[Any]:
        reply = dict(bson.decode(response.raw_command_response(), _RAW_ARRAY_BSON_OPTIONS))
        if "cursor" in reply:  # which an error has not
            reply["cursor"] = dict(reply["cursor"])
        bson._convert_raw_document_lists_to_streams(reply)
        return [reply]


def in_id_order(
    documents: Collection[Any],
    low: bytes | None,
    high: bytes | None,
    batch_size: int,
    only: Mapping[str, Any] | None = None,
) -> Iterator[bytes]:
    """Batches of the documents from one `_id` (inclusive) to another (exclusive), in the order of the index on `_id`.

    With a filter, those that it matches.

    Bounds are BSON `{_id: …}`, None for an end of the collection. `min` and `max` have no type bracketing; a read with
    `min` and without `max` ends before MaxKey, which may be an `_id` and is read separately.
    """
    refuse_stale(documents.database.client)
    bounds = {name: RawBSONDocument(bound) for name, bound in (("min", low), ("max", high)) if bound is not None}
    raw_documents = documents.with_options(codec_options=RAW)
    sort = None if bounds else [("_id", 1)]
    with _RawBatches(
        raw_documents, matching(only), hint=[("_id", 1)], sort=sort, batch_size=batch_size, **cast(Any, bounds)
    ) as cursor:
        yield from cursor
    if low is not None and high is None:
        with _RawBatches(raw_documents, matching({"_id": MaxKey()}, only)) as cursor:
            yield from cursor
