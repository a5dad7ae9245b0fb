"""`load`: the first copy from end to end: from the beginning of the deployment until all is at the destination."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from bson import ObjectId

from benchmarks.bench import load, peers
from benchmarks.bench.measured import (
    DESTINATION,
    SOURCE,
    WORKER,
    Client,
    Run,
    await_fact,
    last_write,
    newest,
    processor,
    running,
    steady,
    used_since,
    watched,
)
from benchmarks.bench.pairs import pairs
from benchmarks.bench.peers import CLUSTERSYNC, DUMP
from benchmarks.bench.report import BASE, IN_ALL, STEADY, Found, Goal, Part, at_least, at_most
from benchmarks.bench.sides import COLLECTION, DATABASE, Settings, Side, Way, is_state, way
from tests.support import control
from towpath import stack as embedded

#: Towpath on a worker that has copied nothing before. The worker of `BASE` has copied the same twice at least.
COLD = f"{BASE}, worker just started"
_TOOLS = "tools"
_TINY = tuple(f"tiny{number}" for number in range(4))
_RATE = "documents/s"
_Check = Callable[[], None]


@dataclass(frozen=True, slots=True)
class DataSet:
    """What is copied: `documents` of 0.9 KB, `tiny` ones in each of four collections.

    `wanted`: the least rate of the first side against the second one, for sets on which other tools are compared.
    """

    name: str
    title: str
    documents: int = 0
    tiny: int = 0
    identify: Callable[[int], Any] = load.identity
    wanted: Mapping[tuple[str, str], float] = field(default_factory=dict)

    @property
    def count(self) -> int:
        return self.documents + self.tiny * len(_TINY)

    @property
    def collections(self) -> list[str]:
        return [*([COLLECTION] if self.documents else []), *(_TINY if self.tiny else [])]


def bench(
    stack: embedded.Stack,
    *,
    documents: int,
    tiny: int,
    mixed: int,
    large: int,
    scattered: int,
    threads: int,
    repetitions: int,
    seed: int,
) -> Found:
    random = Random(seed)
    sets = [
        DataSet("documents", "of mixed _ids", documents),
        DataSet("tiny", "", tiny=tiny, wanted=_wanted(cold=1, warm=1.3)),
        DataSet("mixed", "of mixed _ids", mixed, mixed // 3, wanted=_wanted(cold=0.9, warm=1.15, clustersync=0.7)),
        DataSet(
            "large",
            "whose _ids rise",
            large,
            identify=load.rising,
            wanted=_wanted(cold=1.2, warm=1.5, clustersync=1.1),
        ),
        DataSet(
            "scattered",
            "of random _ids",
            scattered,
            identify=lambda _: ObjectId(random.randbytes(12)),
            wanted=_wanted(cold=1, warm=1.3, clustersync=1.05),
        ),
    ]
    parts = [(data, _part(stack, data, seed, repetitions, threads)) for data in sets if data.count]
    goals = [goal for data, part in parts for goal in _goals(data, part.medians())]
    return Found([part for _, part in parts], goals, [*_NOTES, *peers.versions()])


def _wanted(*, cold: float, warm: float, clustersync: float | None = None) -> dict[tuple[str, str], float]:
    against = {(BASE, CLUSTERSYNC): clustersync} if clustersync else {}
    return {(COLD, DUMP): cold, (BASE, DUMP): warm, **against}


_NOTES = (
    "From the beginning of the deployment, on a running worker, to the last write at the destination.",
    "Steady: from a third to nine tenths of the documents at the destination.",
)


def _part(stack: embedded.Stack, data: DataSet, seed: int, repetitions: int, threads: int) -> Part:
    tools = peers.present()
    sides = [BASE, COLD, *tools] if data.wanted else [BASE, "stock"]
    with Client(stack.source) as source, Client(stack.destination) as destination:
        load.fill(source[DATABASE][COLLECTION], seed, data.documents, data.identify)
        for name in _TINY:
            load.fill_tiny(source[DATABASE][name], data.tiny)
        wanted = _hashes(source, data)

        def towpath(name: str, side: Side = BASE) -> Run:
            destination.drop_database(DATABASE)
            return _loaded(embedded.status(stack.directory), destination, data, name, side, threads)

        def one(name: str, side: str, warming: bool) -> Run:
            destination.drop_database(DATABASE)
            if side in tools:
                run = _copied(embedded.status(stack.directory), destination, data, side, tools[side])
            elif side == COLD:
                control.restart(stack.directory, WORKER)
                run = replace(towpath(name), side=COLD)
                towpath(f"{name}-again")  # so that the next one is the third
            else:
                run = towpath(name, side)  # type: ignore[arg-type]
            if side != "stock" and _hashes(destination, data) != wanted:  # stock changes types
                raise ValueError(f"{side}: the destination is not the same as the source after a load of {data.name}")
            return run

        runs = pairs(f"load-{data.name}", sides, repetitions, one)
        for client in (source, destination):
            client.drop_database(DATABASE)
    return Part(f"load of {_words(data)}", "document", runs)


def _words(data: DataSet) -> str:
    each = f"{data.tiny:,} tiny documents in each of {len(_TINY)} collections"
    many = f"{data.documents:,} documents of 0.9 KB {data.title}"
    return f"{data.name}: {' and '.join([*([many] if data.documents else []), *([each] if data.tiny else [])])}"


def _hashes(client: Client, data: DataSet) -> Mapping[str, str]:
    """Collection → the server's hash of all documents, in the order of `_id`."""
    found: Mapping[str, str] = client[DATABASE].command("dbHash", collections=data.collections)["collections"]
    return found


def _loaded(stack: embedded.Stack, client: Client, data: DataSet, name: str, side: Side, threads: int) -> Run:
    namespaces = [f"{DATABASE}.{collection}" for collection in data.collections]
    with ExitStack() as opened:

        def deploy() -> _Check:
            return create(opened.enter_context(way(stack, name, side, Settings(namespaces, threads=threads))))

        with watched(stack, lambda: _count(client, data.collections)) as samples:
            seconds, cpu = timed(stack, client, data.collections, data.count, deploy)
    return Run(side, data.count, seconds, cpu, steady=steady(side, data.count, samples))


def create(it: Way) -> _Check:
    """Create the connectors; the function that is returned raises ValueError when one has failed."""
    for connector in (it.source, it.sink):
        it.connect.put(connector, it.definitions[connector])

    def check() -> None:
        for connector in (it.source, it.sink):
            is_state(it.connect, connector, "RUNNING")

    return check


def first_copy(stack: embedded.Stack, client: Client, it: Way, documents: int) -> tuple[float, dict[str, float]]:
    """Seconds from the creation of the connectors to the last write, and processor time."""
    return timed(stack, client, [COLLECTION], documents, lambda: create(it))


def timed(
    stack: embedded.Stack, client: Client, collections: Sequence[str], documents: int, begin: Callable[[], _Check]
) -> tuple[float, dict[str, float]]:
    """Seconds until the last write at the destination, and processor time until it holds so many documents."""
    before, after, start = processor(stack, *running(stack)), newest(client), time.time()
    check = begin()

    def is_there() -> bool:
        check()
        return _count(client, collections) >= documents

    await_fact(f"{documents:,} documents at the destination", is_there, timeout=1800, pause=0.2)
    cpu = used_since(stack, before)
    return last_write(client, DATABASE, after) - start, cpu


def _count(client: Client, collections: Sequence[str]) -> int:
    return sum(client[DATABASE][name].estimated_document_count() for name in collections)


def _copied(stack: embedded.Stack, client: Client, data: DataSet, side: str, peer: peers.Peer) -> Run:
    """By another tool."""
    before = peers.processor_of_children()
    with peer(stack.source, stack.destination) as start:

        def begin() -> _Check:
            start()
            return lambda: None

        seconds, cpu = timed(stack, client, data.collections, data.count, begin)
    used = {SOURCE: cpu[SOURCE], DESTINATION: cpu[DESTINATION], _TOOLS: peers.processor_of_children() - before}
    return Run(side, data.count, seconds, used)


def _goals(data: DataSet, medians: Mapping[str, Mapping[str, float]]) -> Iterator[Goal]:
    towpath = medians[BASE]
    if data.name == "documents":
        stock = medians["stock"]
        used, used_by_stock = (
            sum(side[_cpu(process)] for process in (WORKER, DESTINATION)) for side in (towpath, stock)
        )
        yield at_least("rate of the load against stock", towpath[_RATE] / stock[_RATE], 2.5)
        words = "CPU of Connect and destination per document against stock"
        yield at_most(words, 100 * used / used_by_stock, 40, "%")
    for (side, other), wanted in data.wanted.items():
        if other in medians:
            words = f"{data.name}: rate of {side} against {other}"
            yield at_least(words, medians[side][_RATE] / medians[other][_RATE], wanted)
    if data.name == "mixed":
        yield at_most("mixed: Connect's CPU per document", towpath[_cpu(WORKER)], 10, "µs")
        yield at_most("mixed: Connect's CPU per document, worker just started", medians[COLD][_cpu(WORKER)], 20, "µs")
        yield at_most("mixed: CPU per document in all", towpath[_cpu(IN_ALL)], 33, "µs")
    if data.name == "large":
        yield at_most("Connect's CPU per document, large, steady", towpath[f"{STEADY}: {_cpu(WORKER)}"], 20, "µs")
        yield at_most("CPU per document in all, large, steady", towpath[f"{STEADY}: {_cpu(IN_ALL)}"], 50, "µs")


def _cpu(process: str) -> str:
    return f"{process}: CPU µs/document"
