"""`load`: the first copy from end to end: from the creation of the connectors until all is at the destination."""

from __future__ import annotations

import resource
import shutil
import subprocess
import time
from collections.abc import Callable, Sequence

from tests.bench import load
from tests.bench.measured import (
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
    used_since,
)
from tests.bench.pairs import pairs
from tests.bench.report import Found, Goal, Part, at_least, at_most
from tests.bench.sides import COLLECTION, DATABASE, NAMESPACE, Settings, Side, Way, is_state, way
from tests.support import oracle
from towpath import stack as embedded

DUMP = "mongodump to mongorestore"
_TINY = tuple(f"tiny{number}" for number in range(4))
_Work = Callable[[], None]


def bench(stack: embedded.Stack, *, documents: int, tiny: int, threads: int, repetitions: int, seed: int) -> Found:
    sides: list[str] = [
        "towpath",
        "stock",
        *([DUMP] if shutil.which("mongodump") and shutil.which("mongorestore") else []),
    ]
    with Client(stack.source) as client:
        load.fill(client[DATABASE][COLLECTION], seed, documents)
        for name in _TINY:
            load.fill_tiny(client[DATABASE][name], tiny)
    mixed = _part(stack, f"{documents:,} documents of 1 KB", [NAMESPACE], documents, sides, repetitions, threads)
    names = [f"{DATABASE}.{name}" for name in _TINY]
    small = _part(
        stack, f"{tiny:,} tiny documents in each of 4 collections", names, 4 * tiny, sides, repetitions, threads
    )
    return Found([mixed, small], _goals(mixed))


def _part(
    stack: embedded.Stack,
    title: str,
    namespaces: Sequence[str],
    documents: int,
    sides: Sequence[str],
    repetitions: int,
    threads: int,
) -> Part:
    def one(name: str, side: str, warming: bool) -> Run:
        if side == DUMP:
            return _dumped(stack, namespaces, documents)
        return _loaded(stack, name, side, Settings(namespaces, threads=threads), documents)  # type: ignore[arg-type]

    return Part(f"load of {title}", "document", pairs(f"load-{len(namespaces)}", sides, repetitions, one))


def _loaded(stack: embedded.Stack, name: str, side: Side, settings: Settings, documents: int) -> Run:
    with Client(stack.destination) as client:
        client.drop_database(DATABASE)
        with way(stack, name, side, settings) as it:
            seconds, cpu = first_copy(stack, client, it, settings.namespaces, documents)
        if side != "stock":  # which changes types
            oracle.assert_same(stack.source, stack.destination, settings.namespaces, at_least=documents)
    return Run(side, documents, seconds, cpu)


def first_copy(
    stack: embedded.Stack, client: Client, it: Way, namespaces: Sequence[str], documents: int
) -> tuple[float, dict[str, float]]:
    """Seconds from the creation of the connectors to the last write, and processor time."""

    def make() -> None:
        for connector in (it.source, it.sink):
            it.connect.put(connector, it.definitions[connector])

    def is_well() -> None:
        for connector in (it.source, it.sink):
            is_state(it.connect, connector, "RUNNING")

    return _timed(stack, client, namespaces, documents, make, is_well)


def _timed(
    stack: embedded.Stack, client: Client, namespaces: Sequence[str], documents: int, begin: _Work, look: _Work
) -> tuple[float, dict[str, float]]:
    """Seconds until the last write at the destination, and processor time until it holds so many documents."""

    def is_there() -> bool:
        look()
        collections = (client[DATABASE][namespace.partition(".")[2]] for namespace in namespaces)
        return sum(one.estimated_document_count() for one in collections) >= documents

    before, after, start = processor(stack, *PROCESSES), newest(client), time.time()
    begin()
    await_fact(f"{documents:,} documents at the destination", is_there, pause=0.2)
    cpu = used_since(stack, before)
    return last_write(client, DATABASE, after) - start, cpu


def _dumped(stack: embedded.Stack, namespaces: Sequence[str], documents: int) -> Run:
    """MongoDB's own tools, one into the other."""
    with Client(stack.destination) as client:
        client.drop_database(DATABASE)
        before = resource.getrusage(resource.RUSAGE_CHILDREN)

        def begin() -> None:
            wanted = [f"--nsInclude={namespace}" for namespace in namespaces]
            dump = ["mongodump", f"--uri={stack.source}", f"--db={DATABASE}", "--archive", "--quiet"]
            with subprocess.Popen(dump, stdout=subprocess.PIPE) as dumping:
                restore = ["mongorestore", f"--uri={stack.destination}", "--archive", "--quiet", *wanted]
                subprocess.run(restore, stdin=dumping.stdout, check=True)

        seconds, cpu = _timed(stack, client, namespaces, documents, begin, lambda: None)
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        oracle.assert_same(stack.source, stack.destination, namespaces, at_least=documents)
    tools = used.ru_utime + used.ru_stime - before.ru_utime - before.ru_stime
    return Run(DUMP, documents, seconds, {SOURCE: cpu[SOURCE], DESTINATION: cpu[DESTINATION], DUMP: tools})


def _goals(mixed: Part) -> list[Goal]:
    medians = mixed.medians()

    def cpu(side: str) -> float:
        return sum(medians[side][f"{process}: CPU µs/document"] for process in (WORKER, DESTINATION))

    towpath, stock = medians["towpath"], medians["stock"]
    share = 100 * cpu("towpath") / cpu("stock")
    return [
        at_least("rate of the load against stock", towpath["documents/s"] / stock["documents/s"], 2.5),
        at_most("CPU of Connect and destination per document against stock", share, 40, "%"),
    ]
