"""A short sample of the source, with one thread: how fast it reads, and how far its documents compress in the log."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import bson
import lz4.block
from bson.raw_bson import RawBSONDocument
from pymongo.errors import ExecutionTimeout
from pymongo.read_preferences import make_read_preference

from towpath.checks.facts import Extent
from towpath.clients.mongo.client import Client
from towpath.config.pipeline import Capture
from towpath.errors import TowpathError

_RANGE_BYTES, _BATCH_DOCUMENTS = 16 << 20, 4_000  # as the copy (RangeRead.java)
_MOST_READS = 400
_FEW = 20_000  # documents; of more, the server picks random ones without reading all
_PATIENCE_S = 10  # for the first batch of a range, beyond the sample's time
#: A producer's batch as Kafka compresses it: in blocks of 64 KB, each separately (connectors/source.json, KafkaLZ4).
_BLOCK = 64 << 10
_KEPT_BYTES = 4 << 20
#: A record's header and framing, about: docs/design/record.md#headers, Kafka's DefaultRecord.
_HEADER = b"........v.1 r 1700000000:7 1700000000123"
_MODES = {"primary": 0, "primaryPreferred": 1, "secondary": 2, "secondaryPreferred": 3, "nearest": 4}


@dataclass(frozen=True, slots=True)
class Sample:
    """What was read for some seconds, in ranges of `_id` from random places."""

    seconds: float
    documents: int
    bytes: int
    log_ratio: float
    """Bytes on disk in the log for each byte of a document: with key and header, after lz4."""


def take(client: Client, collections: Sequence[Extent], capture: Capture, seconds: float) -> Sample:
    """Read for at most so many seconds, within the limits in [capture]. Raises `TowpathError` if there is nothing."""
    preference = make_read_preference(_MODES[capture.read_preference], None)
    ranges = [(one, start) for one in collections if one.documents for start in _starts(client, one)]
    if not ranges:
        raise TowpathError("the collections hold no documents")
    random.shuffle(ranges)
    begun, elapsed, documents, size = time.monotonic(), 0.0, 0, 0
    kept: list[list[bytes]] = []
    kept_bytes = 0
    for collection, start in ranges:
        read = 0
        for batch in _batches(client, collection, start, preference, seconds):
            found = list(documents_in(batch))
            documents, size, read = documents + len(found), size + len(batch), read + len(batch)
            if read == len(batch) and kept_bytes < _KEPT_BYTES:
                kept.append(found)
                kept_bytes += len(batch)
            elapsed = time.monotonic() - begun
            limits = ((documents, capture.documents_per_second), (size, capture.bytes_per_second))
            ahead = max((amount / rate for amount, rate in limits if rate), default=0.0) - elapsed
            time.sleep(max(min(ahead, seconds - elapsed), 0))
            if read >= _RANGE_BYTES or time.monotonic() - begun > seconds:
                break
        if time.monotonic() - begun > seconds:
            break
    if not documents:
        raise TowpathError(f"the source returned no document within {seconds + _PATIENCE_S:.0f} s")
    return Sample(elapsed, documents, size, compressed_size(kept) / kept_bytes)


def _starts(client: Client, collection: Extent) -> list[Any]:
    """Random `_id`s at which ranges begin; None, the beginning, of a small collection."""
    size = collection.documents * (collection.average_bytes or 1_000)
    if size <= _RANGE_BYTES or collection.documents <= _FEW:
        return [None]
    database, name = collection.namespace.split(".", 1)
    count = min(max(size // _RANGE_BYTES, 2), _MOST_READS)
    found = client[database][name].aggregate([{"$sample": {"size": count}}, {"$project": {"_id": 1}}])
    return [row["_id"] for row in found]


def _batches(client: Client, collection: Extent, start: Any, preference: Any, seconds: float) -> Iterator[bytes]:
    database, name = collection.namespace.split(".", 1)
    size = max(2, min(_BATCH_DOCUMENTS, _RANGE_BYTES // (collection.average_bytes or 1_000)))
    longest = int(1_000 * (seconds + _PATIENCE_S))
    found = (
        client[database]
        .get_collection(name, read_preference=preference)
        .find_raw_batches(sort=[("_id", 1)], hint=[("_id", 1)], batch_size=size, max_time_ms=longest)
    )
    if start is not None:
        found.min([("_id", start)])
    try:
        yield from found
    except ExecutionTimeout:
        return


def documents_in(batch: bytes) -> Iterator[bytes]:
    """The documents of a batch, which begin with their lengths."""
    place = 0
    while place < len(batch):
        end = place + int.from_bytes(batch[place : place + 4], "little")
        yield batch[place:end]
        place = end


def compressed_size(batches: Sequence[Sequence[bytes]]) -> int:
    """Bytes of the log's records of these documents after lz4."""
    compressed = 0
    for documents in batches:
        records = b"".join(_HEADER + _key(document) + document for document in documents)
        for place in range(0, len(records), _BLOCK):
            block = records[place : place + _BLOCK]
            compressed += min(len(block), len(lz4.block.compress(block, store_size=False)))
    return compressed


def _key(document: bytes) -> bytes:
    """`{_id: …}`; a stored document begins with its `_id`."""
    return bytes(bson.encode({"_id": RawBSONDocument(document)["_id"]}))
