"""`indexes`: those of the destination, built once the first copy is there, against built before it begins."""

from __future__ import annotations

import time
from statistics import median
from typing import Any

from benchmarks.bench import load
from benchmarks.bench.loading import first_copy
from benchmarks.bench.measured import DESTINATION, PROCESSES, Client, Run, processor, used_since
from benchmarks.bench.pairs import pairs
from benchmarks.bench.report import BASE, Found, Part, told
from benchmarks.bench.sides import COLLECTION, DATABASE, NAMESPACE, Settings, way
from tests.support import oracle
from towpath import stack as embedded
from towpath.deploy.schema import build
from towpath_verifier.repair_commands import Command

_BEFORE = f"{BASE}, before the copy"
_INDEXES: list[dict[str, Any]] = [
    {"key": {"at": 1}, "name": "at"},
    {"key": {"labels": 1, "total": -1}, "name": "labels"},
    {"key": {"owner": 1, "weight": 1}, "name": "owner"},
]


def bench(stack: embedded.Stack, *, documents: int, threads: int, repetitions: int, seed: int) -> Found:
    with Client(stack.source) as client:
        load.fill(client[DATABASE][COLLECTION], seed, documents)

    def one(name: str, side: str, _warm: bool) -> Run:
        return _run(stack, name, side, documents, threads)

    runs = pairs("indexes", [BASE, _BEFORE], repetitions, one)
    sides = [[run for run in runs if run.side == side] for side in (BASE, _BEFORE)]
    times = median(b.seconds / a.seconds for a, b in zip(*sides, strict=True))
    cpu = median(b.micros(DESTINATION) / a.micros(DESTINATION) for a, b in zip(*sides, strict=True))
    title = (
        f"{documents:,} documents of 1 KB and {len(_INDEXES)} indexes: built after the first copy ({BASE}), or before"
    )
    words = "indexes before the copy, against after it"
    return Found(
        [Part(title, "document", runs)],
        [
            told(f"time until all is there: {words}", f"{times:.2f} times"),
            told(f"destination's CPU: {words}", f"{cpu:.2f} times"),
        ],
    )


def _run(stack: embedded.Stack, name: str, side: str, documents: int, threads: int) -> Run:
    command = Command(DATABASE, {"createIndexes": COLLECTION, "indexes": _INDEXES})
    with Client(stack.destination) as client:
        client.drop_database(DATABASE)
        if side == _BEFORE:
            build(client, command, lambda done, total, description: None)
        with way(stack, name, "towpath", Settings(threads=threads)) as it:
            seconds, cpu = first_copy(stack, client, it, documents)
        if side == BASE:
            before, start = processor(stack, *PROCESSES), time.monotonic()
            build(client, command, lambda done, total, description: None)
            seconds += time.monotonic() - start
            used = used_since(stack, before)
            cpu = {process: cpu[process] + used[process] for process in cpu}
    oracle.assert_same(stack.source, stack.destination, [NAMESPACE], at_least=documents)
    return Run(side, documents, seconds, cpu)
