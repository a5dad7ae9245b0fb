"""`stream`: a mixed workload through the change stream. How many changes a second a side sustains, and how far it lags.

Sustained: changes are written while capture is stopped; then it continues, and the time counts from the first append to
the log to the last write at the destination. Nothing else uses the machine during this, and nothing has to keep a pace.

Lag: changes are written at a fixed rate, and among them marker documents. The lag of a marker is the time between its
entries in the oplogs of both primaries; a change is visible from that on.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from statistics import quantiles
from typing import Any

from bson import Timestamp
from pymongo import InsertOne

from benchmarks.bench import load
from benchmarks.bench.measured import (
    PROCESSES,
    Client,
    Run,
    await_fact,
    last_write,
    logged,
    newest,
    processor,
    steady,
    used_since,
    watched,
)
from benchmarks.bench.pairs import pairs, say
from benchmarks.bench.report import Found, Part, at_least, at_most
from benchmarks.bench.sides import COLLECTION, DATABASE, NAMESPACE, Settings, Side, Way, is_streaming, way
from tests.support import oracle
from tests.support.checkout import Checkout
from towpath import stack as embedded
from towpath.clients.mongo.replica_set import operation_time

_SIDES: tuple[Side, ...] = ("towpath", "stock")
_TICK = 0.02  # seconds; one marker a tick
MARKER = "marker-"


def bench(stack: embedded.Stack, *, documents: int, changes: int, seconds: int, repetitions: int, seed: int) -> Found:
    def one(name: str, side: Side, warming: bool) -> Run:
        return run_backlog(stack, name, side, seed, documents, changes // 5 if warming else changes)

    sustained = Part(f"{changes:,} mixed changes from a backlog", "change", pairs("stream", _SIDES, repetitions, one))
    rates = {side: found["changes/s"] for side, found in sustained.medians().items()}
    paced: list[tuple[Side, float]] = [
        ("stock", rates["stock"] / 2),
        ("towpath", rates["stock"] / 2),
        ("towpath", rates["towpath"] / 2),
    ]
    lags: dict[str, list[float]] = {}
    runs = []
    for number, (side, rate) in enumerate(paced):
        label = f"{side} at {rate:,.0f}/s"
        run, lags[label] = run_paced(stack, f"stream-paced-{number}", side, label, seed, documents, rate, seconds)
        runs.append(run)
    own = runs[-1].numbers["lag p99, ms"]
    goals = [
        at_least("sustained changes a second against stock", rates["towpath"] / rates["stock"], 2),
        at_most("p99 lag at half of Towpath's own sustained rate", own / 1000, 1, "s"),
    ]
    lagging = Part(f"lag over {seconds} s, at half of what stock and what Towpath sustain", "change", runs)
    return Found([sustained, lagging], goals, _NOTES, {"lags": lags})


MIX = "Of 100 changes 30 are inserts, 35 $set with $inc, 20 $push, 10 replaces and 5 deletes."
_NOTES = (
    f"{MIX} Only documents that were never updated are deleted: at a look-up that finds nothing mongo-kafka's handler"
    " stops.",
    "Sustained: a backlog in the source's oplog, from the first append to the log to the last write at the other side.",
    "Lag: from the entry in the source's oplog to that in the destination's, of one marker document every 20 ms.",
)


def run_backlog(
    stack: embedded.Stack,
    name: str,
    side: Side,
    seed: int,
    documents: int,
    changes: int,
    checkout: Checkout | None = None,
) -> Run:
    """Changes from a backlog in the source's oplog; another version's, if one is given."""
    with in_step(stack, name, side, seed, documents, checkout) as (it, source, destination):
        it.stop_source()
        it.await_applied()
        load.write_fast(source[DATABASE][COLLECTION], load.changes(seed, documents), changes)
        moment, starts = operation_time(source), {place: end for place, (_, end) in it.ends().items()}
        after, before = newest(destination), processor(stack, *PROCESSES)

        def applied() -> int:
            done = it.applied()
            return sum(done.get(place, start) - start for place, start in starts.items())

        with watched(stack, applied) as samples:
            it.connect.resume(it.source)
            it.await_captured(moment)
            it.await_applied()
        cpu = used_since(stack, before)
        seconds = last_write(destination, DATABASE, after) - logged(it.topics, starts).began
        _same(stack, side, documents)
    return Run(side, changes, seconds, cpu, steady=steady(side, changes, samples))


@contextmanager
def in_step(
    stack: embedded.Stack, name: str, side: Side, seed: int, documents: int, checkout: Checkout | None = None
) -> Iterator[tuple[Way, Client, Client]]:
    """A side that streams, as another version deploys it if one is given, with so many documents on both sides."""
    with ExitStack() as opened:
        source, destination = (opened.enter_context(Client(uri)) for uri in (stack.source, stack.destination))
        for client in (source, destination):
            client.drop_database(DATABASE)
        load.fill(source[DATABASE][COLLECTION], seed, documents)
        it = opened.enter_context(way(stack, name, side, Settings(checkout=checkout)))
        it.start(it.source, it.sink)
        await_fact("the end of the copy", lambda: is_streaming(it.connect, it.source))
        copied = destination[DATABASE][COLLECTION]
        await_fact("the documents at the destination", lambda: copied.estimated_document_count() == documents)
        yield it, source, destination


def _same(stack: embedded.Stack, side: Side, documents: int) -> None:
    """Towpath promises equal bytes; of stock, which changes types, only the numbers of documents are compared."""
    if side != "stock":
        oracle.assert_same(stack.source, stack.destination, [NAMESPACE], at_least=documents)
        return
    counts = []
    for uri in (stack.source, stack.destination):
        with Client(uri) as client:
            counts.append(client[DATABASE][COLLECTION].count_documents({}))
    if counts[0] != counts[1]:
        raise ValueError(f"stock: {counts[1]:,} documents at the destination, {counts[0]:,} at the source")


def run_paced(
    stack: embedded.Stack, name: str, side: Side, label: str, seed: int, documents: int, rate: float, seconds: int
) -> tuple[Run, list[float]]:
    with in_step(stack, name, side, seed, documents) as (it, source, destination):
        begun = newest(source), newest(destination)
        before = processor(stack, *PROCESSES)
        written, took = write_paced(source, seed, documents, rate, seconds)
        it.await_captured(operation_time(source))
        it.await_applied()
        cpu = used_since(stack, before)
        lags = lags_of(source, destination, begun)
        _same(stack, side, documents)
    numbers = lag_numbers(lags)
    say(f"{name}: {label}: p99 {numbers['lag p99, ms']:,.0f} ms")
    return Run(label, written, took, cpu, numbers), lags


def lags_of(source: Client, destination: Client, since: tuple[Timestamp, Timestamp]) -> list[float]:
    """Every percentile of the lag of the markers that were written since then, in milliseconds."""
    there, here = (_markers(client, at) for client, at in zip((source, destination), since, strict=True))
    if there.keys() != here.keys():
        raise ValueError(f"{len(there):,} markers at the source, {len(here):,} at the destination")
    return hundredths([1000 * (here[marker] - there[marker]) for marker in there])


def lag_numbers(lags: Sequence[float]) -> dict[str, float]:
    return {f"lag {name}, ms": value for name, value in percentiles(lags).items()}


def write_paced(source: Client, seed: int, documents: int, rate: float, seconds: int) -> tuple[int, float]:
    """Write at so many changes a second, one marker a tick among them; how many, and in how many seconds."""
    some, written, start = load.changes(seed, documents), 0, time.monotonic()
    for tick in range(round(seconds / _TICK)):
        due = max(1, round(rate * (tick + 1) * _TICK) - written)
        marker = InsertOne({"_id": f"{MARKER}{tick:06}"})
        source[DATABASE][COLLECTION].bulk_write([*(next(some) for _ in range(due - 1)), marker], ordered=False)
        written += due
        time.sleep(max(0.0, start + (tick + 1) * _TICK - time.monotonic()))
    return written, time.monotonic() - start


def _markers(client: Client, after: Timestamp) -> dict[str, float]:
    """Marker → when (seconds since 1970) it was written, as the server's change stream tells afterwards."""
    wanted: list[dict[str, Any]] = [
        {"$match": {"documentKey._id": {"$regex": f"^{re.escape(MARKER)}"}}},
        {"$project": {"wallTime": 1, "documentKey": 1}},
    ]
    found: dict[str, float] = {}
    end = newest(client)
    with client[DATABASE][COLLECTION].watch(wanted, start_at_operation_time=after, max_await_time_ms=100) as events:
        while True:
            event = events.try_next()
            if event is not None:
                found.setdefault(event["documentKey"]["_id"], event["wallTime"].timestamp())
            elif found and _passed(events.resume_token, end):
                return found


def _passed(token: Mapping[str, str] | None, end: Timestamp) -> bool:
    """Whether a resume token is past a time, which it holds in its first nine bytes (see connectors.position)."""
    return token is not None and int(token["_data"][2:18], 16) >= (end.time << 32) + end.inc


def percentiles(cuts: Sequence[float]) -> dict[str, float]:
    """Those that tables tell, of 0 to 100."""
    return {"p50": cuts[50], "p95": cuts[95], "p99": cuts[99], "max": cuts[100]}


def hundredths(lags: Sequence[float]) -> list[float]:
    """Every percentile from 0, the least, to 100, the most."""
    cuts = quantiles(lags, n=100, method="inclusive")
    return [round(lag, 1) for lag in (min(lags), *cuts, max(lags))]
