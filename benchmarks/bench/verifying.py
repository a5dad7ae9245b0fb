"""`verify`: a full comparison of two equal collections against merely reading both raw, with as many processes."""

from __future__ import annotations

import multiprocessing
import os
import resource
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.synchronize import Barrier
from statistics import median
from typing import Any

import psutil

from benchmarks.bench import load
from benchmarks.bench.measured import DESTINATION, SOURCE, Client, Run, processor, used_since
from benchmarks.bench.pairs import pairs, say
from benchmarks.bench.report import BASE, Found, Part, at_most
from benchmarks.bench.sides import COLLECTION, DATABASE
from towpath import stack as embedded
from towpath_verifier import Options, Pair, Recheck, Verification
from towpath_verifier.plan import list_pairs, plan
from towpath_verifier.progress import Range
from towpath_verifier.raw_batches import in_id_order
from towpath_verifier.reads import collection

_PAIR = Pair(f"{DATABASE}.{COLLECTION}", f"{DATABASE}.{COLLECTION}")
_READING, _SCREEN, _CLIENT = "reading", f"{BASE} --screen", "client"
_MOST_TIME, _MOST_MB, _MOST_SHARE = 1.5, 300, 5.0
_SAMPLES = 0.05  # seconds between samples of the memory of the processes


def bench(stack: embedded.Stack, *, documents: int, processes: int, repetitions: int, seed: int) -> Found:
    count = processes or os.cpu_count() or 1
    for uri in (stack.source, stack.destination):
        with Client(uri) as client:
            load.fill(client[DATABASE][COLLECTION], seed, documents)
            say(f"verify: {documents:,} documents are there")
    work = _ranges(stack)
    ways: dict[str, Callable[[], _Seen]] = {
        BASE: lambda: _verify(stack, Options(count)),
        _READING: lambda: _read(stack, work, count, documents),
        _SCREEN: lambda: _verify(stack, Options(count, Recheck(), screen=True)),
    }

    def one(name: str, side: str, warming: bool) -> Run:
        return _measured(stack, side, documents, ways[side])

    runs = pairs("verify", list(ways), repetitions, one)
    title = f"{documents:,} equal documents of 1 KB on both sides, {count} processes"
    return Found([Part(title, "document", runs)], _goals(runs))


def _goals(runs: list[Run]) -> list[Any]:
    mine, reading, screen = ([run for run in runs if run.side == side] for side in (BASE, _READING, _SCREEN))
    time_ratio = median(a.seconds / b.seconds for a, b in zip(mine, reading, strict=True))
    share = median(a.numbers[_BYTES] / b.numbers[_BYTES] for a, b in zip(screen, mine, strict=True))
    memory = max(run.numbers[_MEMORY] for run in (*mine, *screen))
    return [
        at_most("wall time of a full comparison against merely reading both sides", time_ratio, _MOST_TIME),
        at_most("memory of a worker process", memory, _MOST_MB, "MB"),
        at_most(
            "bytes through the servers' sockets with --screen against a full comparison", 100 * share, _MOST_SHARE, "%"
        ),
    ]


_MEMORY, _BYTES = "largest process MB", "through the servers' sockets B/document"


@dataclass(frozen=True, slots=True)
class _Seen:
    documents: int
    seconds: float


def _measured(stack: embedded.Stack, side: str, documents: int, work: Callable[[], _Seen]) -> Run:
    before, client, moved = processor(stack, SOURCE, DESTINATION), _used(), _moved(stack)
    with _watched() as memory:
        seen = work()
    cpu = {**used_since(stack, before), _CLIENT: _used() - client}
    if seen.documents != documents:
        raise ValueError(f"{side}: {seen.documents:,} documents were seen of {documents:,}")
    numbers = {_MEMORY: memory.most / 2**20, _BYTES: (_moved(stack) - moved) / documents}
    return Run(side, documents, seen.seconds, cpu, numbers)


def _used() -> float:
    """Processor time of this process and of all that it has waited for."""
    kinds = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(one.ru_utime + one.ru_stime for one in kinds)


def _moved(stack: embedded.Stack) -> int:
    """Bytes in and out of both servers, compressed as they are; the monitoring of servers is among them."""
    total = 0
    for uri in (stack.source, stack.destination):
        with Client(uri) as client:
            network = client.admin.command("serverStatus")["network"]
            total += network["physicalBytesIn"] + network["physicalBytesOut"]
    return total


@dataclass(slots=True)
class _Memory:
    most: int = 0


@contextmanager
def _watched() -> Iterator[_Memory]:
    """The largest resident memory of a process that is started during this, as far as samples find it."""
    found, ended, me = _Memory(), threading.Event(), psutil.Process()
    others = set(me.children(recursive=True))

    def watch() -> None:
        while not ended.wait(_SAMPLES):
            for child in set(me.children(recursive=True)) - others:
                try:
                    found.most = max(found.most, child.memory_info().rss)
                except psutil.NoSuchProcess:
                    continue

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield found
    finally:
        ended.set()
        watcher.join()


def _verify(stack: embedded.Stack, options: Options) -> _Seen:
    """Its time is that of everything, from the listing of the collections to the end of the processes."""
    verification = Verification(stack.source, stack.destination, [_PAIR], options)
    for difference in verification:
        raise ValueError(f"both sides are equal, and a difference was told: {difference.kind}")
    if verification.verdict.errors:
        raise ValueError("; ".join(verification.verdict.errors))
    return _Seen(verification.verdict.compared, verification.verdict.seconds)


def _ranges(stack: embedded.Stack) -> list[Range]:
    """Those that a comparison reads."""
    with Client(stack.source) as source, Client(stack.destination) as destination:
        looked = list_pairs(source, destination, [_PAIR], 60)
        return plan(source, destination, looked, Options()).ranges


def _read(stack: embedded.Stack, work: list[Range], processes: int, documents: int) -> _Seen:
    """Read every range of both sides, and compare nothing of it. Its time begins when the processes are ready."""
    ready = multiprocessing.get_context("spawn").Barrier(processes + 1)
    clients = (stack.source, stack.destination)
    with multiprocessing.get_context("spawn").Pool(processes, _connect, (ready, *clients)) as pool:
        ready.wait()
        start = time.monotonic()
        weights = list(pool.imap_unordered(_weigh, work))
        seconds = time.monotonic() - start
        pool.close()
        pool.join()
    found, held = [sum(side) for side in zip(*weights, strict=True)], _held(stack)
    if found != held:
        raise ValueError(f"{found} bytes of documents were read of {held}")
    return _Seen(documents, seconds)


def _held(stack: embedded.Stack) -> list[int]:
    """Bytes of all documents, as the servers count them."""
    held = []
    for uri in (stack.source, stack.destination):
        with Client(uri) as client:
            held.append(int(client[DATABASE].command("collStats", COLLECTION)["size"]))
    return held


_clients: list[Client] = []


def _connect(ready: Barrier, *uris: str) -> None:
    _clients.extend(Client(uri) for uri in uris)
    for client in _clients:
        client.admin.command("ping")
    ready.wait()


def _weigh(work: Range) -> list[int]:
    """Read a range on either side: how many bytes it has."""
    found = []
    for client, namespace in zip(_clients, (work.pair.source, work.pair.destination), strict=True):
        documents = collection(client, namespace)
        batches = in_id_order(documents, work.bounds.low, work.bounds.high, work.batch_size)
        found.append(sum(map(len, batches)))
    return found
