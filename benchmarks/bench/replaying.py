"""`replay`: a destination rebuilt from the log by `towpath replay`, against the first copy of the same documents."""

from __future__ import annotations

import subprocess
import sys
import time
from statistics import median

from benchmarks.bench import load
from benchmarks.bench.loading import first_copy
from benchmarks.bench.measured import BROKER, SOURCE, WORKER, Client, Run, last_write, newest, processor, used_since
from benchmarks.bench.pairs import say
from benchmarks.bench.report import BASE, Found, Part, at_least
from benchmarks.bench.sides import COLLECTION, COMMAND, DATABASE, NAMESPACE, Settings, Way, pipeline_file, way
from tests.support import oracle
from tests.support.mongod import start_replica_set
from towpath import stack as embedded

_REPLAY = f"{BASE} replay"


def bench(stack: embedded.Stack, *, documents: int, threads: int, repetitions: int, seed: int) -> Found:
    with Client(stack.source) as client:
        load.fill(client[DATABASE][COLLECTION], seed, documents)
    runs: list[Run] = []
    with start_replica_set(stack.directory / "third", name="third") as third:
        for turn in range(repetitions + 1):
            found = _pair(stack, third.uri, f"replay-{turn}", documents, threads)
            for run in found:
                kind = f"run {turn}" if turn else "warm-up"
                say(f"replay: {kind} of {run.side}: {run.per_second:,.0f} a second")
            runs += found if turn else []
    copies, replays = ([run for run in runs if run.side == side] for side in (BASE, _REPLAY))
    ratio = median(b.per_second / a.per_second for a, b in zip(copies, replays, strict=True))
    title = f"{documents:,} documents of 1 KB: first copy ({BASE}), then a replay into a third replica set"
    goal = at_least("rate of a replay, its checks included, against the first copy", ratio, 1)
    return Found([Part(title, "document", runs)], [goal])


def _pair(stack: embedded.Stack, third: str, name: str, documents: int, threads: int) -> list[Run]:
    with way(stack, name, "towpath", Settings(threads=threads)) as it:
        return [_copied(stack, it, documents), _replayed(stack, third, name, documents)]


def _copied(stack: embedded.Stack, it: Way, documents: int) -> Run:
    with Client(stack.destination) as client:
        client.drop_database(DATABASE)
        seconds, cpu = first_copy(stack, client, it, documents)
    return Run(BASE, documents, seconds, {process: cpu[process] for process in (SOURCE, WORKER, BROKER)})


def _replayed(stack: embedded.Stack, third: str, name: str, documents: int) -> Run:
    """From the start of the command to the last write; the reading of the log and the connector's start are in it."""
    with Client(third) as client:
        client.drop_database(DATABASE)
        before, after, start = processor(stack, SOURCE, WORKER, BROKER), newest(client), time.time()
        subprocess.run(
            [COMMAND, "replay", pipeline_file(stack, name), "--destination", third], check=True, stdout=sys.stderr
        )
        seconds, cpu = last_write(client, DATABASE, after) - start, used_since(stack, before)
    oracle.assert_same(stack.source, third, [NAMESPACE], at_least=documents)
    return Run(_REPLAY, documents, seconds, cpu)
