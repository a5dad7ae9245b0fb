"""A short sample of the source, read as MongoSource copies: ranges by several threads, each in a snapshot session."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import bson
import lz4.block
from bson.codec_options import CodecOptions
from bson.raw_bson import RawBSONDocument
from pymongo.errors import OperationFailure
from pymongo.read_preferences import make_read_preference

from towpath.checks.planning.facts import Sample
from towpath.clients.mongo.client import Client
from towpath.clients.mongo.privileges import if_allowed
from towpath.config.pipeline import Pipeline
from towpath.deploy.inventory import Extent
from towpath.errors import TowpathError

#: The copy's own figures: RangeRead.java, SnapshotReads.java, RangeCutter.java, RecordIdCutter.java.
_RANGE_BYTES, _BATCHES_BYTES, _BATCH_DOCUMENTS = 16 << 20, 16 << 20, 4_000
_FEW, _CACHE_SHARE, _RISING, _COMPARED = 20_000, 0.5, 0.95, 200
#: MaxTimeMSExpired, KeyNotFound (a record id of another member), SnapshotTooOld, and SnapshotUnavailable (of a
#: collection that was just created or changed).
_PASSING = (50, 211, 239, 246)
_PATIENCE_S = 10  # for the first batch of a range, beyond the sample's time
_MOST_THREADS = 16
_MOST_READS = 400
#: A producer's batch as Kafka compresses it: in blocks of 64 KB, each by itself (connectors/source.json, KafkaLZ4).
_BLOCK = 64 << 10
_KEPT_BYTES = 4 << 20
#: A record's header and framing, about: docs/design/record.md#headers, Kafka's DefaultRecord.
_HEADER = b"........v.2 r 1700000000:7 1700000000123"
_RAW: CodecOptions[RawBSONDocument] = CodecOptions(document_class=RawBSONDocument)
_MODES = {"primary": 0, "primaryPreferred": 1, "secondary": 2, "secondaryPreferred": 3, "nearest": 4}


@dataclass(frozen=True, slots=True)
class _Read:
    """A range that a thread reads: from `_id` `start`, or from a record id; None: from the beginning."""

    namespace: str
    average: int
    start: Any = None
    natural: bool = False


def take(client: Client, collections: Sequence[Extent], pipeline: Pipeline, seconds: float) -> Sample:
    """Read for at most so many seconds, within the limits in [capture]. Raises `TowpathError` if there is nothing."""
    reads = [
        read for collection in collections if collection.documents for read in _reads(client, collection, pipeline)
    ]
    if not reads:
        raise TowpathError("the collections hold no documents")
    natural = tuple(sorted({read.namespace for read in reads if read.natural}))
    random.shuffle(reads)
    capture = pipeline.capture
    threads = 1 if pipeline.copy_method == "debezium" else min(capture.copy_threads * capture.copy_tasks, _MOST_THREADS)
    reader = _Reader(client, pipeline, reads, threads, seconds)
    with ThreadPoolExecutor(threads) as pool:
        for done in [pool.submit(reader.run) for _ in range(threads)]:
            done.result()
    if not reader.documents:
        raise TowpathError(f"the source returned no document within {seconds + _PATIENCE_S:.0f} s")
    kept = sum(len(document) for batch in reader.kept for document in batch)
    return Sample(reader.elapsed, threads, reader.documents, reader.bytes, natural, kept, compressed_size(reader.kept))


def _reads(client: Client, collection: Extent, pipeline: Pipeline) -> list[_Read]:
    """Ranges from random places. A small collection is one range."""
    average = collection.average or 1_000
    size = collection.documents * average
    if size <= _RANGE_BYTES:
        return [_Read(collection.namespace, average)]
    database, name = collection.namespace.split(".", 1)
    handle = client[database].get_collection(name, codec_options=_RAW, read_preference=_preference(pipeline))
    count = min(max(size // _RANGE_BYTES, 2), _MOST_READS)
    starts = _some_ids(handle, collection.documents, max(count, _COMPARED))
    is_large = collection.documents > _FEW and not _fits(client, size)
    order = pipeline.capture.copy_order
    if order != "id" and pipeline.copy_method == "towpath" and (order == "natural" or is_large):
        rows = handle.find(
            {"_id": {"$in": starts}}, {"_id": 1}, sort=[("_id", 1)], hint=[("_id", 1)], show_record_id=True
        )
        places = [row["$recordId"] for row in rows]
        if all(isinstance(place, int) for place in places) and (order == "natural" or scattered(places)):
            chosen = random.sample(places, min(count, len(places)))
            return [_Read(collection.namespace, average, place, natural=True) for place in chosen]
    return [_Read(collection.namespace, average, start) for start in starts[:count]]


def _preference(pipeline: Pipeline) -> Any:
    return make_read_preference(_MODES[pipeline.capture.read_preference], None)


def _some_ids(handle: Any, documents: int, count: int) -> list[Any]:
    """Random `_id`s. The server samples less than 5 % of a collection with a random cursor, else it would read all."""
    if documents > _FEW:
        return [key["_id"] for key in handle.aggregate([{"$sample": {"size": count}}, {"$project": {"_id": 1}}])]
    ids = [key["_id"] for key in handle.find({}, {"_id": 1}, sort=[("_id", 1)], hint=[("_id", 1)])]
    return random.sample(ids, min(count, len(ids)))


def _fits(client: Client, size: int) -> bool:
    """Whether reading by `_id` reads few blocks more than once."""
    server = if_allowed(lambda: client.admin.command("serverStatus")) or {}
    cache = server.get("wiredTiger", {}).get("cache", {}).get("maximum bytes configured")
    return cache is not None and size <= _CACHE_SHARE * int(cache)


def scattered(places: Sequence[int]) -> bool:
    """Whether record ids, in the order of their `_id`s, neither rise nor fall."""
    pairs = list(combinations(places, 2))
    rising = sum(earlier < later for earlier, later in pairs)
    return max(rising, len(pairs) - rising) < _RISING * len(pairs)


class _Reader:
    """What the threads share: ranges to read, and what they have read."""

    def __init__(self, client: Client, pipeline: Pipeline, reads: list[_Read], threads: int, seconds: float) -> None:
        self._client, self._capture, self._threads = client, pipeline.capture, threads
        self._lock, self._ranges = threading.Lock(), reads
        self._batch_bytes = _BATCHES_BYTES // threads
        self._preference = _preference(pipeline)
        self._seconds, self._begun = seconds, time.monotonic()
        self._limit_ms = int(1_000 * (seconds + _PATIENCE_S))
        self.documents = self.bytes = 0
        self.elapsed = 0.0
        self.kept: list[list[bytes]] = []
        """For each of the first reads, neighbouring documents, as a batch of the log has them."""

    def run(self) -> None:
        """Read ranges until none is left or the time is over."""
        while read := self._next():
            first, size = True, 0
            try:
                for batch in self._natural(read) if read.natural else self._by_id(read):
                    size += len(batch)
                    self._count(list(documents_in(batch)), keep=first)
                    first = False
                    if size >= _RANGE_BYTES or self._is_over():
                        break
            except OperationFailure as failure:
                if failure.code not in _PASSING:
                    raise

    def _next(self) -> _Read | None:
        with self._lock:
            return self._ranges.pop() if self._ranges and not self._is_over() else None

    def _is_over(self) -> bool:
        return time.monotonic() - self._begun > self._seconds

    def _count(self, documents: list[bytes], *, keep: bool) -> None:
        with self._lock:
            self.documents += len(documents)
            self.bytes += sum(map(len, documents))
            self.elapsed = time.monotonic() - self._begun
            if keep and sum(len(document) for batch in self.kept for document in batch) < _KEPT_BYTES:
                self.kept.append(neighbours(documents))
            limits = (
                (self.documents, self._capture.documents_per_second),
                (self.bytes, self._capture.bytes_per_second),
            )
            ahead = max((amount / rate for amount, rate in limits if rate), default=0.0) - self.elapsed
        if ahead > 0:  # the limits of the copy hold for its sample
            time.sleep(min(ahead, max(self._seconds - self.elapsed, 0)))

    def _batch_size(self, read: _Read) -> int:
        return max(2, min(_BATCH_DOCUMENTS, self._batch_bytes // max(read.average, 1)))

    def _by_id(self, read: _Read) -> Iterator[bytes]:
        database, name = read.namespace.split(".", 1)
        collection = self._client[database].get_collection(name, read_preference=self._preference)
        with self._client.start_session(snapshot=True) as session:
            found = collection.find_raw_batches(
                session=session,
                sort=[("_id", 1)],
                hint=[("_id", 1)],
                batch_size=self._batch_size(read),
                max_time_ms=self._limit_ms,
            )
            if read.start is not None:
                found.min([("_id", read.start)])
            yield from found

    def _natural(self, read: _Read) -> Iterator[bytes]:
        """Batch after batch from a record id on; the driver has no cursor that begins there."""
        database, name = read.namespace.split(".", 1)
        place = read.start
        while isinstance(place, int):
            find: dict[str, Any] = {
                "find": name,
                "hint": {"$natural": 1},
                "singleBatch": True,
                "batchSize": self._batch_size(read),
                "maxTimeMS": self._limit_ms,
                "$_requestResumeToken": True,
                "$_resumeAfter": {"$recordId": bson.Int64(place)},
            }
            answer = self._client[database].command(find, codec_options=_RAW, read_preference=self._preference)
            reply = answer["cursor"]
            batch = b"".join(document.raw for document in reply["firstBatch"])
            place = reply["postBatchResumeToken"]["$recordId"]
            if not batch:
                return
            yield batch


def documents_in(batch: bytes) -> Iterator[bytes]:
    """The documents of a batch, which begin with their lengths."""
    place = 0
    while place < len(batch):
        end = place + int.from_bytes(batch[place : place + 4], "little")
        yield batch[place:end]
        place = end


def neighbours(documents: Sequence[bytes]) -> list[bytes]:
    """The first documents, two of a producer's batches at least."""
    kept, size = [], 0
    for document in documents:
        kept.append(document)
        size += len(document)
        if size > 4 * _BLOCK:
            break
    return kept


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
