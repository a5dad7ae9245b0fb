"""`load`: the first copy from end to end: from the beginning of the deployment until all is at the destination."""

from __future__ import annotations

import resource
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from random import Random
from typing import Any

from bson import ObjectId

from benchmarks.bench import load
from benchmarks.bench.measured import (
    DESTINATION,
    PROCESSES,
    SOURCE,
    WORKER,
    Client,
    Run,
    await_fact,
    last_write,
    newest,
    processor,
    steady,
    used_since,
    watched,
)
from benchmarks.bench.pairs import pairs
from benchmarks.bench.report import BASE, IN_ALL, STEADY, Found, Goal, Part, at_least, at_most, number, told
from benchmarks.bench.sides import COLLECTION, DATABASE, Settings, Side, Way, is_state, way
from tests.support import control
from towpath import stack as embedded

DUMP, _TOOLS = "mongodump to mongorestore", "tools"
_TINY = tuple(f"tiny{number}" for number in range(4))
_RATE = "documents/s"
_Check = Callable[[], None]


@dataclass(frozen=True, slots=True)
class DataSet:
    """What is copied: `documents` of 0.9 KB, `tiny` ones in each of four collections.

    `wanted`: the rate that Towpath should have against mongodump and mongorestore.
    """

    name: str
    title: str
    documents: int = 0
    tiny: int = 0
    identify: Callable[[int], Any] = load.identity
    sides: Sequence[str] = (BASE,)
    wanted: float | None = None

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
    random, stock = Random(seed), (BASE, "stock")
    sets = [
        DataSet("documents", "of mixed _ids", documents, sides=stock),
        DataSet("tiny", "", tiny=tiny, sides=stock),
        DataSet("mixed", "of mixed _ids", mixed, mixed // 3, wanted=1),
        DataSet("large", "whose _ids rise", large, identify=load.rising, wanted=1.2),
        DataSet("scattered", "of random _ids", scattered, identify=lambda _: ObjectId(random.randbytes(12)), wanted=1),
    ]
    parts: list[Part] = []
    goals: list[Goal] = []
    for data in (one for one in sets if one.count):
        part, first = _part(stack, data, seed, repetitions, threads)
        parts.append(part)
        goals += [*_goals(data, part.medians()), _cold(data, first)]
    return Found(parts, goals, list(_notes()))


def _notes() -> Iterator[str]:
    yield "From the beginning of the deployment, on a running worker, to the last write at the destination."
    yield "Steady: from a third to nine tenths of the documents at the destination."
    if _has_tools():
        version = subprocess.run(["mongodump", "--version"], capture_output=True, text=True, check=True).stdout
        yield f"{version.splitlines()[0]}; both tools with their default options, `--archive` between them."


def _part(stack: embedded.Stack, data: DataSet, seed: int, repetitions: int, threads: int) -> tuple[Part, Run]:
    """The measured runs of one set, and the first run before them, on a worker that has just started."""
    control.restart(stack.directory, WORKER)
    stack, first = embedded.status(stack.directory), list[Run]()
    with Client(stack.source) as source, Client(stack.destination) as destination:
        load.fill(source[DATABASE][COLLECTION], seed, data.documents, data.identify)
        for name in _TINY:
            load.fill_tiny(source[DATABASE][name], data.tiny)
        wanted = _hashes(source, data)

        def one(name: str, side: str, warming: bool) -> Run:
            destination.drop_database(DATABASE)
            if side == DUMP:
                run = _dumped(stack, destination, data)
            else:
                run = _loaded(stack, destination, data, name, side, threads)  # type: ignore[arg-type]
            if side != "stock" and _hashes(destination, data) != wanted:  # stock changes types
                raise ValueError(f"{side}: the destination is not the same as the source after a load of {data.name}")
            first.append(run)
            return run

        runs = pairs(f"load-{data.name}", [*data.sides, *([DUMP] if _has_tools() else [])], repetitions, one)
        for client in (source, destination):
            client.drop_database(DATABASE)
    return Part(f"load of {_words(data)}", "document", runs), first[0]


def _words(data: DataSet) -> str:
    each = f"{data.tiny:,} tiny documents in each of {len(_TINY)} collections"
    many = f"{data.documents:,} documents of 0.9 KB {data.title}"
    return f"{data.name}: {' and '.join([*([many] if data.documents else []), *([each] if data.tiny else [])])}"


def _has_tools() -> bool:
    return bool(shutil.which("mongodump") and shutil.which("mongorestore"))


def _hashes(client: Client, data: DataSet) -> Mapping[str, str]:
    """Collection → the server's hash of all documents, in the order of `_id`."""
    found: Mapping[str, str] = client[DATABASE].command("dbHash", collections=data.collections)["collections"]
    return found


def _loaded(stack: embedded.Stack, client: Client, data: DataSet, name: str, side: Side, threads: int) -> Run:
    namespaces = [f"{DATABASE}.{collection}" for collection in data.collections]
    with ExitStack() as opened:

        def deploy() -> _Check:
            return _create(opened.enter_context(way(stack, name, side, Settings(namespaces, threads=threads))))

        with watched(stack, lambda: _count(client, data.collections)) as samples:
            seconds, cpu = _timed(stack, client, data.collections, data.count, deploy)
    return Run(side, data.count, seconds, cpu, steady=steady(side, data.count, samples))


def _create(it: Way) -> _Check:
    """Create the connectors; the function that is returned raises ValueError when one has failed."""
    for connector in (it.source, it.sink):
        it.connect.put(connector, it.definitions[connector])

    def check() -> None:
        for connector in (it.source, it.sink):
            is_state(it.connect, connector, "RUNNING")

    return check


def first_copy(stack: embedded.Stack, client: Client, it: Way, documents: int) -> tuple[float, dict[str, float]]:
    """Seconds from the creation of the connectors to the last write, and processor time."""
    return _timed(stack, client, [COLLECTION], documents, lambda: _create(it))


def _timed(
    stack: embedded.Stack, client: Client, collections: Sequence[str], documents: int, begin: Callable[[], _Check]
) -> tuple[float, dict[str, float]]:
    """Seconds until the last write at the destination, and processor time until it holds so many documents."""
    before, after, start = processor(stack, *PROCESSES), newest(client), time.time()
    check = begin()

    def is_there() -> bool:
        check()
        return _count(client, collections) >= documents

    await_fact(f"{documents:,} documents at the destination", is_there, timeout=1800, pause=0.2)
    cpu = used_since(stack, before)
    return last_write(client, DATABASE, after) - start, cpu


def _count(client: Client, collections: Sequence[str]) -> int:
    return sum(client[DATABASE][name].estimated_document_count() for name in collections)


def _dumped(stack: embedded.Stack, client: Client, data: DataSet) -> Run:
    """MongoDB's own tools, one into the other."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)

    def begin() -> _Check:
        dump = ["mongodump", f"--uri={stack.source}", f"--db={DATABASE}", "--archive", "--quiet"]
        with subprocess.Popen(dump, stdout=subprocess.PIPE) as dumping:
            restore = ["mongorestore", f"--uri={stack.destination}", "--archive", "--quiet"]
            subprocess.run(restore, stdin=dumping.stdout, check=True)
        if dumping.returncode:
            raise ValueError(f"mongodump ended with {dumping.returncode}")
        return lambda: None

    seconds, cpu = _timed(stack, client, data.collections, data.count, begin)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    tools = used.ru_utime + used.ru_stime - before.ru_utime - before.ru_stime
    return Run(DUMP, data.count, seconds, {SOURCE: cpu[SOURCE], DESTINATION: cpu[DESTINATION], _TOOLS: tools})


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
    if data.wanted and DUMP in medians:
        words = f"rate of the load against mongodump | mongorestore, {data.name}"
        yield at_least(words, towpath[_RATE] / medians[DUMP][_RATE], data.wanted)
    if data.name == "large":
        yield at_most("Connect's CPU per document, large, steady", towpath[f"{STEADY}: {_cpu(WORKER)}"], 20, "µs")
        yield at_most("CPU per document in all, large, steady", towpath[f"{STEADY}: {_cpu(IN_ALL)}"], 50, "µs")


def _cpu(process: str) -> str:
    return f"{process}: CPU µs/document"


def _cold(data: DataSet, run: Run) -> Goal:
    numbers = f"{run.per_second:,.0f} documents/s, Connect {number(run.micros(WORKER))} µs a document"
    return told(f"first load on a worker that has just started, {data.name}", numbers)
