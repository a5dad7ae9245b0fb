"""`copy`: the first copy into the log. MongoSource in ranges of `_id`, against Debezium's snapshot with our hook."""

from __future__ import annotations

from benchmarks.bench import load
from benchmarks.bench.measured import BROKER, SOURCE, WORKER, Client, Run, await_fact, logged, processor, used_since
from benchmarks.bench.pairs import pairs
from benchmarks.bench.report import Found, Part
from benchmarks.bench.sides import COLLECTION, DATABASE, Settings, Side, is_streaming, way
from towpath import stack as embedded

_SIDES: tuple[Side, ...] = ("towpath", "plain")


def bench(stack: embedded.Stack, *, documents: int, threads: int, repetitions: int, seed: int) -> Found:
    with Client(stack.source) as client:
        load.fill(client[DATABASE][COLLECTION], seed, documents)

    def one(name: str, side: Side, warming: bool) -> Run:
        return copy(stack, name, side, documents, Settings(threads=threads))

    title = f"first copy of {documents:,} documents into the log"
    return Found([Part(title, "document", pairs("copy", _SIDES, repetitions, one))])


def copy(stack: embedded.Stack, name: str, side: Side, documents: int, settings: Settings) -> Run:
    """Copy all documents once, only the source connector running.

    The time is that from the first append to the last. Processor time counts from the connector's creation to the
    moment when it has committed that the copy is over.
    """
    with way(stack, name, side, settings) as it:
        before = processor(stack, SOURCE, WORKER, BROKER)
        it.connect.put(it.source, it.definitions[it.source])
        await_fact("the end of the copy", lambda: is_streaming(it.connect, it.source))
        cpu = used_since(stack, before)
        it.stop_source()
        found = logged(it.topics, {place: first for place, (first, _) in it.ends().items()})
    if found.records != documents:
        raise ValueError(f"{side}: {found.records:,} records in the log for {documents:,} documents")
    return Run(side, documents, found.seconds, cpu)
