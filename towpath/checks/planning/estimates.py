"""Estimates from the facts: the time for the copy, and what the log, the oplog and the destination need.

They are ranges, with what they are made from. Figures of Connect, Kafka and the destination come from a benchmark; only
the source is measured.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from towpath.checks.planning.facts import Disk, Facts, Sample, Unknown
from towpath.config.text import counted, duration, size

Estimate = tuple[float, float]
"""The smallest and the largest value."""


@dataclass(frozen=True, slots=True)
class Cost:
    """Seconds of CPU for a document of `BENCHMARKED` bytes: on a warm worker, and on one that has just started."""

    warm: float
    cold: float


#: From docs/benchmarks/load.json, documents of 0.9 KB on 2 cores of an AMD EPYC: warm is the median of `large`
#: (1,500,000 documents, rising `_id`s); cold the largest one: Connect's first load, Kafka's of `mixed`, the
#: destination's of `scattered` (random `_id`s). A test compares them.
CONNECT, KAFKA, DESTINATION = Cost(13.7e-6, 30.6e-6), Cost(3.3e-6, 6.0e-6), Cost(17.1e-6, 24.4e-6)
BENCHMARKED = 864
#: The share of these costs that grows with a document's size.
_BY_SIZE = 0.5
#: How many times slower than the benchmark's machine the slowest one is.
_SLOWER = 2
#: How many times the longest copy the oplog should hold: the copy is an estimate, and something may fail meanwhile.
SAFETY = 3
#: How many times more CPU stock connectors take for a document (docs/benchmarks/copy.json).
_STOCK = 2
_DAY = 86_400


@dataclass(frozen=True, slots=True)
class CopyTime:
    seconds: Estimate
    basis: tuple[str, ...]
    """What the estimate is made from, and what is not in it."""


@dataclass(frozen=True, slots=True)
class LogSize:
    copy: int
    """Bytes on all brokers together: all replicas of the copy's records."""
    day: int | None
    """Bytes that the changes of a day add, taking a record to be as large as its oplog entry; None if unknown."""
    replicas: int
    ratio: float
    free: int | None
    """Of the brokers' disks together; None if one of them is unknown."""


@dataclass(frozen=True, slots=True)
class OplogNeed:
    hours: float
    """That it reaches back."""
    bytes: int
    """Its maximum size."""
    young: bool
    """The hours are a guess from little."""
    needed_hours: float | None
    """None when the copy's time is unknown."""


@dataclass(frozen=True, slots=True)
class DestinationSize:
    documents: int
    """Bytes on disk."""
    indexes: int
    disk: Disk | None


def total(facts: Facts) -> tuple[int, int] | Unknown:
    """(documents, bytes) to copy; bytes from the sample where the server does not report them."""
    if isinstance(facts.collections, Unknown):
        return facts.collections
    documents = sum(collection.documents for collection in facts.collections)
    sizes = [collection.bytes for collection in facts.collections]
    if None not in sizes:
        return documents, sum(size for size in sizes if size is not None)
    if isinstance(facts.sample, Unknown):
        return Unknown("the user may not run $collStats on all collections, so their sizes are unknown")
    return documents, round(documents * facts.sample.bytes / facts.sample.documents)


def copy_time(facts: Facts) -> CopyTime | Unknown:
    capture = facts.pipeline.capture
    if facts.pipeline.copy_method == "none":
        return CopyTime((0, 0), ('[capture] copy = "none": nothing is copied',))
    extent = total(facts)
    if isinstance(extent, Unknown):
        return extent
    documents, of_bytes = extent
    if not documents:
        return CopyTime((0, 0), ("the collections hold no documents",))
    if isinstance(facts.sample, Unknown):
        return facts.sample
    sample = facts.sample
    reading = max(of_bytes / sample.bytes, documents / sample.documents) * sample.seconds
    scale = 1 - _BY_SIZE + _BY_SIZE * of_bytes / documents / BENCHMARKED
    if not facts.pipeline.exactly_once:
        scale *= _STOCK
    costs = (CONNECT, KAFKA, DESTINATION)
    limits = ((documents, capture.documents_per_second), (of_bytes, capture.bytes_per_second))
    limited = max((amount / rate for amount, rate in limits if rate), default=0.0)
    fastest = max(reading, documents * scale * CONNECT.warm, limited)
    slowest = max(reading + documents * scale * sum(cost.cold for cost in costs) * _SLOWER, limited)
    return CopyTime((fastest, slowest), tuple(_basis(sample, scale, limited)))


def _basis(sample: Sample, scale: float, limited: float) -> Iterator[str]:
    rate, speed = sample.documents / sample.seconds, size(round(sample.bytes / sample.seconds))
    way = "by _id" if not sample.natural else f"{', '.join(sample.natural)} in natural order, others by _id"
    yield (
        f"sampled {sample.seconds:.1f} s with {counted(sample.threads, 'thread')} from this machine, {way}:"
        f" {rate:,.0f} documents/s, {speed}/s"
    )
    costs = " and ".join(f"{cost * scale * 1e6:,.0f}" for cost in (CONNECT.warm, CONNECT.cold))
    others = (KAFKA.cold + DESTINATION.cold) * scale * 1e6
    yield (
        f"for documents of this size: Connect between {costs} µs of CPU a document, Kafka and the destination"
        f" {others:,.0f} µs (our benchmark, 0.9 KB documents on 2 cores of an AMD EPYC, scaled)"
    )
    yield "shortest: the slower one of reading and of Connect on one core, on a warm worker"
    yield "longest: reading, Connect, Kafka and the destination one after another on one core, half as fast"
    if limited:
        yield f"the limits in [capture] alone take {duration(limited)}"
    yield "not in it: the start of the connectors, other load, the network of the workers, indexes at the destination"


def log_size(facts: Facts) -> LogSize | Unknown:
    extent, sample, replicas = total(facts), facts.sample, facts.replicas
    for part in (extent, replicas):
        if isinstance(part, Unknown):
            return part
    assert not isinstance(extent, Unknown) and not isinstance(replicas, Unknown)
    documents, of_bytes = extent
    if isinstance(sample, Unknown) and documents:
        return sample
    ratio = 1.0 if isinstance(sample, Unknown) else sample.ratio
    copied = 0 if facts.pipeline.copy_method == "none" else of_bytes
    rate = _own_rate(facts)
    day = None if rate is None else round(rate * _DAY * ratio * replicas)
    disks = () if isinstance(facts.kafka_disks, Unknown) else facts.kafka_disks
    free = [disk.free for disk in disks if disk.free is not None]
    whole = free and len(free) == len(disks)
    return LogSize(round(copied * ratio * replicas), day, replicas, ratio, sum(free) if whole else None)


def _own_rate(facts: Facts) -> float | None:
    """Bytes a second of the pipeline's changes in the oplog: their share of late, of what all of it holds."""
    writes, oplog = facts.writes, facts.oplog
    if isinstance(writes, Unknown):
        return None
    if isinstance(oplog, Unknown) or oplog.young:
        return writes.own_bytes / writes.seconds
    return writes.own_bytes / max(writes.bytes, 1) * oplog.size / max(oplog.span, 1)


def oplog_need(facts: Facts, copy: CopyTime | Unknown) -> OplogNeed | Unknown:
    oplog = facts.oplog
    if isinstance(oplog, Unknown):
        return oplog
    needed = None if isinstance(copy, Unknown) else copy.seconds[1] * SAFETY / 3600
    return OplogNeed(oplog.hours, oplog.limit, oplog.young, needed)


def destination_size(facts: Facts) -> DestinationSize | Unknown:
    if isinstance(facts.collections, Unknown):
        return facts.collections
    if any(collection.storage is None for collection in facts.collections):
        return Unknown("the user may not run $collStats on all collections, so their sizes are unknown")
    return DestinationSize(
        documents=sum(collection.storage or 0 for collection in facts.collections),
        indexes=sum(collection.index_bytes or 0 for collection in facts.collections),
        disk=None if isinstance(facts.destination_disk, Unknown) else facts.destination_disk,
    )
