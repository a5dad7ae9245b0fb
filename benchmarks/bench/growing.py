"""`growth`: whether a document takes as long in the copy of more documents, into more partitions, by more workers."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace

from benchmarks.bench import load
from benchmarks.bench.loading import create, timed
from benchmarks.bench.measured import Client, Run, steady, watched
from benchmarks.bench.pairs import pairs
from benchmarks.bench.report import BASE, STEADY, Found, Goal, Part, at_most
from benchmarks.bench.sides import COLLECTION, DATABASE, Settings, way
from tests.support import control
from towpath import stack as embedded
from towpath.config.text import counted

_SIZES, _PARTITIONS, _WORKERS = (1, 2, 4), (1, 4, 16), (1, 2)
_SECOND = "connect-1"
_RATE = f"{STEADY}: documents/s"
#: Of the slowest against the fastest: a time of 10 % more or less than one in the middle.
_WANTED = 1.1 / 0.9


def bench(stack: embedded.Stack, *, documents: int, threads: int, repetitions: int, seed: int) -> Found:
    """`documents`: of 0.9 KB whose `_id`s rise, in the smallest copy; the others have two and four times as many."""
    sizes = {f"{size * documents:,} documents": size * documents for size in _SIZES}
    partitions = {counted(count, "partition"): count for count in _PARTITIONS}
    workers = {counted(count, "worker"): count for count in _WORKERS}
    with Client(stack.source) as source, Client(stack.destination) as destination:
        collection = source[DATABASE][COLLECTION]

        def copied(name: str, side: str, count: int, wide: int) -> Run:
            destination.drop_database(DATABASE)
            settings = Settings(threads=threads, partitions=wide)
            return replace(_copied(stack, destination, name, count, settings), side=side)

        def wider(name: str, side: str, warming: bool) -> Run:
            return copied(name, side, documents, partitions[side])

        def more_workers(name: str, side: str, warming: bool) -> Run:
            running = embedded.status(stack.directory).processes[_SECOND].running
            if running and workers[side] == 1:
                control.kill(stack.directory, _SECOND, signal.SIGTERM)
            elif not running and workers[side] == 2:
                control.start(stack.directory, _SECOND)
            return copied(name, side, documents, Settings().partitions)

        control.kill(stack.directory, _SECOND, signal.SIGTERM)
        load.fill(collection, seed, documents, load.rising)
        wide = pairs("wide", [*partitions], repetitions, wider)
        by = pairs("by", [*workers], repetitions, more_workers)
        if embedded.status(stack.directory).processes[_SECOND].running:
            control.kill(stack.directory, _SECOND, signal.SIGTERM)
        runs, there = list[Run](), documents
        for side, count in sizes.items():
            load.fill(collection, seed, count - there, _after(there))
            there = count
            runs += [copied(f"size-{count}-{turn}", side, count, Settings().partitions) for turn in range(repetitions)]
    parts = [
        Part("more documents, into four partitions", "document", runs),
        Part(f"{documents:,} documents, by partitions", "document", wide),
        Part(f"{documents:,} documents, by workers", "document", by),
    ]
    return Found(
        parts, list(_goals(parts)), ["Steady: from a third to nine tenths of the documents at the destination."]
    )


def _after(there: int) -> Callable[[int], object]:
    return lambda index: load.rising(there + index)


def _copied(stack: embedded.Stack, client: Client, name: str, count: int, settings: Settings) -> Run:
    running = embedded.status(stack.directory)
    with ExitStack() as opened:

        def deploy() -> Callable[[], None]:
            return create(opened.enter_context(way(running, name, BASE, settings)))

        with watched(running, lambda: client[DATABASE][COLLECTION].estimated_document_count()) as samples:
            seconds, cpu = timed(running, client, [COLLECTION], count, deploy)
    return Run(BASE, count, seconds, cpu, steady=steady(BASE, count, samples))


def _goals(parts: list[Part]) -> Iterator[Goal]:
    for part in parts:
        rates = [numbers[_RATE] for numbers in part.medians().values()]
        yield at_most(f"{part.title}: the fastest against the slowest", max(rates) / min(rates), _WANTED)
