"""`lag`: how long a change takes to the destination, at a pace and one by one; and how long `towpath wait` takes."""

from __future__ import annotations

import subprocess
import sys
import time
from random import Random

from benchmarks.bench.measured import PROCESSES, Client, Run, newest, processor, used_since
from benchmarks.bench.pairs import say
from benchmarks.bench.report import BASE, Found, Part, at_least, at_most
from benchmarks.bench.sides import COLLECTION, COMMAND, DATABASE, Way, pipeline_file
from benchmarks.bench.streaming import MARKER, MIX, in_step, lag_numbers, lags_of, run_paced
from towpath import stack as embedded
from towpath.clients.mongo.replica_set import operation_time

_WAIT = f"{BASE} wait"


def bench(
    stack: embedded.Stack, *, documents: int, rate: int, seconds: int, singles: int, waits: int, seed: int
) -> Found:
    label = f"{BASE} at {rate:,}/s"
    paced, lags = [], {}
    for name, when in _RUNS.items():
        run, lags[when] = run_paced(stack, name, BASE, f"{label}, {when}", seed, documents, rate, seconds)
        paced.append(run)
    with in_step(stack, "lag-idle", BASE, seed, documents) as (it, source, destination):
        _wait(stack, "lag-idle")
        single = _singles(stack, it, source, destination, seed, singles)
        waited = [_wait(stack, "lag-idle") for _ in range(waits)]
    say(f"lag: single changes: at most {single.numbers['lag max, ms']:,.0f} ms")
    goals = [
        at_least("changes a second that were written, of those wanted", 100 * paced[-1].per_second / rate, 99, "%"),
        at_most(f"p99 lag at {rate:,} changes a second, warm", paced[-1].numbers["lag p99, ms"], 250, "ms"),
        at_most(
            f"lag of the slowest of {singles} changes of an idle pipeline", single.numbers["lag max, ms"], 150, "ms"
        ),
        at_most(
            f"slowest of {waits} runs of `{_WAIT}` on an idle pipeline", max(run.seconds for run in waited), 0.8, "s"
        ),
    ]
    parts = [
        Part(f"lag over {seconds} s at {rate:,} changes a second", "change", paced),
        Part(f"lag of {singles} changes, about a second apart, of an idle pipeline", "change", [single], rated=False),
        Part(f"`{_WAIT}` on an idle pipeline", "run", waited, rated=False),
    ]
    return Found(parts, goals, _NOTES, {"lags": lags})


#: Pipelines in turn on one worker, which compiles its code during this: the first is of a worker that has just started.
_RUNS = {"lag-cold": "cold", "lag-warmer": "warmer", "lag": "warm"}

_NOTES = (
    MIX,
    "Lag: from the entry in the source's oplog to that in the destination's, of marker documents: one every 20 ms among"
    " the changes. Cold: the first changes of a worker that has just started; warm: after two as long runs.",
    f"`{_WAIT}`: from the start of the command to its end. The processor time is that of the stack alone.",
)


def _singles(stack: embedded.Stack, it: Way, source: Client, destination: Client, seed: int, count: int) -> Run:
    """Insert markers a second apart, more or less, so that they do not keep step with anything that repeats."""
    random, begun, before = Random(seed), (newest(source), newest(destination)), processor(stack, *PROCESSES)
    start = time.monotonic()
    for number in range(count):
        source[DATABASE][COLLECTION].insert_one({"_id": f"{MARKER}{number:06}"})
        time.sleep(random.uniform(0.5, 1.5))
    took = time.monotonic() - start
    it.await_captured(operation_time(source))
    it.await_applied()
    cpu = used_since(stack, before)
    return Run(BASE, count, took, cpu, lag_numbers(lags_of(source, destination, begun)))


def _wait(stack: embedded.Stack, name: str) -> Run:
    before, start = processor(stack, *PROCESSES), time.monotonic()
    subprocess.run([COMMAND, "wait", pipeline_file(stack, name)], check=True, stdout=sys.stderr)
    seconds = time.monotonic() - start
    return Run(_WAIT, 1, seconds, used_since(stack, before), {"seconds": seconds})
