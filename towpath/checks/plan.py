"""What is there before a pipeline is made: extents, rates, disks, and what `check` finds. Every query only reads.

A short sample of the source, with one thread, tells how fast it reads, and how far its documents compress in the log.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Any, TypeVar

import lz4.block
from bson.timestamp import Timestamp
from pymongo.errors import ExecutionTimeout
from pymongo.read_preferences import make_read_preference

from towpath.checks import capture, source
from towpath.checks.capture import Oplog
from towpath.checks.facts import Extent, Facts
from towpath.checks.rule import LEVELS, Finding, about, error, ok, warning
from towpath.clients.mongo.client import Client
from towpath.clients.mongo.privileges import if_allowed
from towpath.clients.mongo.versions import UNIQUE_IN_PLACE
from towpath.config.pipeline import Pipeline
from towpath.config.text import duration, size
from towpath.errors import TowpathError
from towpath.log.field_rules import pair_of, selected
from towpath.store.positions import DATABASE
from towpath_verifier import feature_version, id_document

Value = TypeVar("Value")
#: The newest entries of the oplog that are read: so many, of so many hours, for so many milliseconds.
_ENTRIES, _HOURS, _ENTRIES_MS = 50_000, 24, 3_000
#: If they are all that the oplog holds, and of a shorter time, they tell nothing of a day.
_SHORTEST_S = 60
_DAY = 86_400
#: Disks need more than is written: segments and files grow in steps, and other writers continue.
_SPARE = 1.5
#: Seconds, the default of `--max-pause`.
LONGEST_S = 30.0
#: Seconds on two cores, from single runs of `scripts/bench cutover` and `collections`: the sink's stop and the start of
#: the capture of the reverse pipeline, at Connect; what is read of a partition of the log; a command that changes an
#: option or an index.
_CONNECT_S, _PARTITION_S, _COMMAND_S = 1.5, 0.0005, 0.003
#: Of a conversion, alone and for each entry of the index. A rebuild, for each entry, is an estimate.
_CONVERSION_S, _CONVERTED_S, _REBUILT_S = 0.01, 4e-7, 2e-6
_PINGS = 5
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
class Unknown:
    """What could not be found out, and why."""

    reason: str


@dataclass(frozen=True, slots=True)
class Sample:
    """What was read for some seconds, in ranges of `_id` from random places."""

    seconds: float
    documents: int
    bytes: int
    log_ratio: float
    """Bytes on disk in the log for each byte of a document: as the rules leave it, with key and header, after lz4."""
    left: float = 1.0
    """Bytes that the rules leave, for each byte of a document."""
    largest: int = 0
    """Bytes of the largest document that was read."""


@dataclass(frozen=True, slots=True)
class Writes:
    """The newest entries of the oplog."""

    seconds: int
    """Between the first and the last of them."""
    entries: int
    bytes: int
    own_entries: int
    """Of the collections to replicate."""
    own_bytes: int


@dataclass(frozen=True, slots=True)
class Disk:
    """A file system. None: the server does not report it."""

    name: str
    free: int | None
    total: int | None


@dataclass(frozen=True, slots=True)
class LogSize:
    """The disk that the log needs, on all brokers together."""

    copy_bytes: int
    day_bytes: int | None
    """That the changes of a day add, taking a record to be as large as its oplog entry; None if unknown."""
    replicas: int
    free_bytes: int | None
    """None if a broker does not report it."""


@dataclass(frozen=True, slots=True)
class Pause:
    """How long writes will stop in a cutover, estimated from counts and a measured way to the server.

    Entries are counted once for each index.
    """

    unique_indexes: int
    entries: int
    """Of these indexes."""
    commands: int
    """That the pause runs to change indexes, TTL and validators."""
    rebuilt_entries: int
    """Of the indexes that are rebuilt in the pause, before MongoDB 6.0."""
    round_trip: float
    """To the server that gets the schema, in seconds."""
    lag: float = 0.0
    """In seconds."""
    partitions: int = 0
    """Of the log."""

    @property
    def seconds(self) -> float:
        """Of the pause, about."""
        commands = self.commands * (_COMMAND_S + self.round_trip)
        log = self.partitions * _PARTITION_S
        return round(_CONNECT_S + self.lag + log + commands + self.rebuilt_entries * _REBUILT_S, 1)

    @property
    def seconds_after(self) -> float:
        """Of the conversions after the switch, about."""
        if self.rebuilt_entries:
            return 0.0
        return round(self.unique_indexes * _CONVERSION_S + self.entries * _CONVERTED_S, 1)


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything to know before anything is made."""

    pipeline: Pipeline
    found: tuple[Finding, ...]
    """By `towpath check`."""
    unreachable: Mapping[str, str]
    """Server → why it cannot be read: it does not answer, or refuses."""
    deployed: bool | Unknown
    collections: tuple[Extent, ...] | Unknown
    sample: Sample | Unknown
    oplog: Oplog | Unknown
    changes: Writes | Unknown
    replicas: int | Unknown
    """Of each partition of the log."""
    kafka_disks: tuple[Disk, ...] | Unknown
    destination_disk: Disk | Unknown
    pause: Pause | Unknown

    @property
    def total(self) -> tuple[int, int] | Unknown:
        """(documents, bytes) to copy; bytes from the sample where the server does not report them."""
        if isinstance(self.collections, Unknown):
            return self.collections
        documents = sum(collection.documents for collection in self.collections)
        sizes = [collection.bytes for collection in self.collections if collection.bytes is not None]
        if len(sizes) == len(self.collections):
            return documents, sum(sizes)
        if isinstance(self.sample, Unknown):
            return _NO_SIZES
        return documents, round(documents * self.sample.bytes / self.sample.documents)

    @property
    def log(self) -> LogSize | Unknown:
        total, sample, replicas = self.total, self.sample, self.replicas
        if isinstance(total, Unknown):
            return total
        if isinstance(replicas, Unknown):
            return replicas
        if isinstance(sample, Unknown) and total[0]:
            return sample
        ratio = 1.0 if isinstance(sample, Unknown) else sample.log_ratio
        copied = 0 if self.pipeline.copy_method == "none" else total[1]
        rate = self._own_rate()
        day = None if rate is None else round(rate * _DAY * ratio * replicas)
        disks = () if isinstance(self.kafka_disks, Unknown) else self.kafka_disks
        free = [disk.free for disk in disks if disk.free is not None]
        is_whole = bool(free) and len(free) == len(disks)
        return LogSize(round(copied * ratio * replicas), day, replicas, sum(free) if is_whole else None)

    def _own_rate(self) -> float | None:
        """Bytes a second of the pipeline's changes in the oplog: their share of late, of what all of it holds."""
        writes, oplog = self.changes, self.oplog
        if isinstance(writes, Unknown):
            return None
        if isinstance(oplog, Unknown) or oplog.young:
            return writes.own_bytes / writes.seconds
        share = writes.own_bytes / max(writes.bytes, 1)
        return float(share * oplog.size / max(oplog.span, 1))

    @property
    def destination(self) -> tuple[int, int] | Unknown:
        """Bytes on disk of (documents, indexes), as at the source, for what the rules leave of documents."""
        if isinstance(self.collections, Unknown):
            return self.collections
        if any(collection.storage_bytes is None for collection in self.collections):
            return _NO_SIZES
        left = 1.0 if isinstance(self.sample, Unknown) else self.sample.left
        return (
            round(left * sum(collection.storage_bytes or 0 for collection in self.collections)),
            sum(collection.index_bytes or 0 for collection in self.collections),
        )

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Errors first. The disks of a deployed pipeline hold what is copied already."""
        of_disks = () if self.deployed is True else self._disk_findings()
        found = (*self.found, *of_disks, *self._long_pause())
        return tuple(dict.fromkeys(sorted(found, key=lambda finding: LEVELS.index(finding.level))))

    def _disk_findings(self) -> Iterator[Finding]:
        log, destination, disk = self.log, self.destination, self.destination_disk
        if isinstance(log, LogSize) and log.free_bytes is not None:
            yield from about("plan log", _space("the brokers' disks", log.copy_bytes, log.free_bytes))
        if not isinstance(destination, Unknown) and isinstance(disk, Disk) and disk.free is not None:
            yield from about("plan destination", _space(f"the {disk.name}", sum(destination), disk.free))

    def _long_pause(self) -> Iterator[Finding]:
        pause, advice = self.pause, "allow more: cutover --max-pause"
        if isinstance(pause, Pause) and pause.seconds > LONGEST_S:
            yield warning(
                f"a cutover stops writes for about {duration(pause.seconds)}, and its limit is {duration(LONGEST_S)}",
                f"{advice}; or rebuild indexes after the switch: --rebuild-later" if pause.rebuilt_entries else advice,
                about="plan pause",
            )

    @property
    def errors(self) -> int:
        return sum(finding.level == "error" for finding in self.findings)

    @property
    def unknown(self) -> dict[str, str]:
        """Part of the plan → why it is not known."""
        names = ("deployed", "collections", "sample", "oplog", "changes", "log", "kafka_disks", "destination")
        parts = {name: getattr(self, name) for name in (*names, "destination_disk", "pause")}
        return {name: part.reason for name, part in parts.items() if isinstance(part, Unknown)}


_NO_SIZES = Unknown("the user may not run $collStats on all collections, so their sizes are unknown")


def _space(what: str, needed: int, free: int) -> Iterator[Finding]:
    numbers = f"{what}: {size(free)} free for about {size(needed)}"
    if needed > free:
        yield error(numbers, "free space there, or replicate fewer collections")
    elif needed * _SPARE > free:
        yield warning(f"{numbers}, which leaves little", "free space there before the copy begins")
    else:
        yield ok(numbers)


def gather(facts: Facts, findings: Sequence[Finding], seconds: float) -> Plan:
    """The plan of a pipeline that `check` has checked. `seconds`: of the sample; 0 for none."""
    pipeline = facts.pipeline

    def known(query: Callable[[], Value]) -> Value | Unknown:
        try:
            return query()
        except TowpathError as failure:
            away = next((server for server, known in facts.unreachable.items() if known is failure), "")
            names = {"": failure.sentence, "kafka": "Kafka cannot be read", "connect": "Kafka Connect cannot be read"}
            return Unknown(names.get(away, f"the {away} cannot be read"))

    collections = known(lambda: _collections(facts))
    extents = () if isinstance(collections, Unknown) else collections
    sampled = partial(take, collections=extents, pipeline=pipeline, seconds=seconds)
    return Plan(
        pipeline=pipeline,
        found=tuple(findings),
        unreachable={subject: failure.sentence for subject, failure in facts.unreachable.items()},
        deployed=known(lambda: facts.is_deployed),
        collections=collections,
        sample=known(lambda: facts.source.ask(sampled)) if seconds else Unknown("no sample was taken (--sample 0)"),
        oplog=known(lambda: _oplog(facts)),
        changes=known(lambda: facts.source.ask(partial(_writes, regex=pipeline.selection.namespace_regex))),
        replicas=known(lambda: _replicas(facts)),
        kafka_disks=known(lambda: _kafka_disks(facts)),
        destination_disk=known(lambda: _destination_disk(facts, extents)),
        pause=known(lambda: _pause(facts, extents)) if not isinstance(collections, Unknown) else collections,
    )


def _collections(facts: Facts) -> tuple[Extent, ...]:
    user = facts.source.privileges
    if not source.listed(facts) and user and user.missing(("listCollections",), ""):
        raise TowpathError(f"the user {user.user} may not list the collections of every database")
    return tuple(facts.extents.values())


def _oplog(facts: Facts) -> Oplog:
    oplog = facts.source.ask(capture.read)
    if oplog is None:
        raise TowpathError(
            'the user may not read it: grant find and collStats on {db: "local", collection: "oplog.rs"}'
        )
    return oplog


def _writes(client: Client, regex: str) -> Writes:
    """What the newest entries hold. Of an entry of several changes, those of the pipeline count in proportion."""
    entries = client.local["oplog.rs"]
    last = if_allowed(lambda: entries.find_one({}, {"ts": 1}, sort=[("$natural", -1)]))
    if not last:
        raise TowpathError("the user may not read the oplog")
    names = {"$ifNull": ["$o.applyOps.ns", ["$ns"]]}
    is_own = {"$regexMatch": {"input": "$$this", "regex": regex}}
    stages: list[dict[str, Any]] = [
        {"$limit": _ENTRIES},
        {"$match": {"ts": {"$gte": Timestamp(last["ts"].time - _HOURS * 3_600, 0)}}},
        {
            "$project": {
                "ts": 1,
                "changes": {"$max": [1, {"$size": names}]},
                "own": {"$size": {"$filter": {"input": names, "as": "this", "cond": is_own}}},
                "bytes": {"$bsonSize": "$$ROOT"},
            }
        },
        {
            "$group": {
                "_id": None,
                "first": {"$min": "$ts"},
                "read": {"$sum": 1},
                "entries": {"$sum": "$changes"},
                "bytes": {"$sum": "$bytes"},
                "own_entries": {"$sum": "$own"},
                "own_bytes": {"$sum": {"$multiply": ["$bytes", {"$divide": ["$own", "$changes"]}]}},
            }
        },
    ]
    try:
        found = capture.despite_drops(
            lambda: next(iter(entries.aggregate(stages, hint={"$natural": -1}, maxTimeMS=_ENTRIES_MS)))
        )
    except ExecutionTimeout as failure:
        raise TowpathError(f"the source did not count its newest changes within {_ENTRIES_MS // 1000} s") from failure
    seconds = last["ts"].time - found["first"].time
    if found["read"] < _ENTRIES and seconds < _SHORTEST_S:
        raise TowpathError(f"the oplog began {seconds} s ago")
    return Writes(
        max(seconds, 1), found["entries"], round(found["bytes"]), found["own_entries"], round(found["own_bytes"])
    )


def _replicas(facts: Facts) -> int:
    if facts.pipeline.kafka.replication_factor > 0:
        return int(facts.pipeline.kafka.replication_factor)
    return int(facts.broker_settings(facts.brokers[0]).get("default.replication.factor", "1"))


def _kafka_disks(facts: Facts) -> tuple[Disk, ...]:
    disks = facts.once("kafka", "disks", facts.topics.disks)
    if disks is None:
        raise TowpathError("the brokers do not report their disks to this user (ACL: Describe on the cluster)")
    return tuple(Disk(name, *(sizes or (None, None))) for name, sizes in disks.items())


def _destination_disk(facts: Facts, captured: tuple[Extent, ...]) -> Disk:
    """The primary's. A database that does not exist yet shows none, so Towpath's and MongoDB's are also asked."""
    names = dict.fromkeys((*(one.destination_namespace.partition(".")[0] for one in captured), DATABASE, "admin"))
    answers = [facts.destination.ask(partial(_stats, name)) for name in names]
    if all(stats is None for stats in answers):
        raise TowpathError(f"the user may not run dbStats on {', '.join(names)}; the role read includes it")
    for stats in answers:
        if stats and stats.get("fsTotalSize"):
            total, used = int(stats["fsTotalSize"]), int(stats["fsUsedSize"])
            return Disk("disk of the destination's primary", total - used, total)
    raise TowpathError(f"the server reports no file system of the databases {', '.join(names)}")


def _stats(database: str, client: Client) -> dict[str, Any] | None:
    return if_allowed(lambda: client[database].command("dbStats"))


def _pause(facts: Facts, collections: Sequence[Extent]) -> Pause:
    """By the indexes of the source, which the destination gets."""
    unique, ttl, entries = facts.source.ask(partial(_indexes, collections=collections))
    in_place = facts.destination.ask(feature_version) >= UNIQUE_IN_PLACE
    rebuilt = 0 if in_place else entries
    partitions = len(collections) * facts.pipeline.kafka.partitions
    way = facts.destination.ask(round_trip)
    return Pause(unique, entries, unique + ttl, rebuilt, way, partitions=partitions)


def _indexes(client: Client, collections: Sequence[Extent]) -> tuple[int, int, int]:
    """(unique indexes, those with TTL, entries of the unique ones)"""
    unique = ttl = entries = 0
    for collection in collections:
        database, name = collection.namespace.split(".", 1)
        indexes = list(client[database][name].list_indexes())
        count = sum(bool(index.get("unique")) for index in indexes)
        ttl += sum("expireAfterSeconds" in index for index in indexes)
        unique, entries = unique + count, entries + count * collection.documents
    return unique, ttl, entries


def round_trip(client: Client) -> float:
    """Seconds for the shortest command, to the primary and back."""

    def one() -> float:
        began = time.monotonic()
        client.admin.command("ping")
        return time.monotonic() - began

    return median(one() for _ in range(_PINGS))


def take(client: Client, collections: Sequence[Extent], pipeline: Pipeline, seconds: float) -> Sample:
    """Read for at most so many seconds, within the limits in [capture]. Raises `TowpathError` if there is nothing."""
    capture = pipeline.capture
    preference = make_read_preference(_MODES[capture.read_preference], None)
    ranges = [(one, start) for one in collections if one.documents for start in _starts(client, one)]
    if not ranges:
        raise TowpathError("the collections hold no documents")
    random.shuffle(ranges)
    begun, elapsed, documents, size, largest = time.monotonic(), 0.0, 0, 0, 0
    kept: list[list[bytes]] = []
    kept_bytes = 0
    for collection, start in ranges:
        read, pair = 0, pair_of(pipeline, collection.namespace)
        database, name = collection.namespace.split(".", 1)
        for batch in _batches(client, collection, start, preference, seconds):
            found = list(documents_in(batch))
            documents, size, read = documents + len(found), size + len(batch), read + len(batch)
            largest = max(largest, *map(len, found))
            if read == len(batch) and kept_bytes < _KEPT_BYTES:
                leaving = selected(client[database][name], found, pair.only)
                kept.append([pair.left(document) for document in leaving])
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
    left_bytes = sum(len(document) for batch in kept for document in batch)
    log_ratio, left = compressed_size(kept) / kept_bytes, left_bytes / kept_bytes
    return Sample(elapsed, documents, size, log_ratio, left, largest)


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
        records = b"".join(_HEADER + id_document(document) + document for document in documents)
        for place in range(0, len(records), _BLOCK):
            block = records[place : place + _BLOCK]
            compressed += min(len(block), len(lz4.block.compress(block, store_size=False)))
    return compressed
