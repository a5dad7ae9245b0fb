"""`backlog`: changes from a backlog, and changes written at full speed beside a running pipeline; by the plugin of this
checkout and by that of another revision in turn, each on a separate stack.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from itertools import islice

from benchmarks.bench import load
from benchmarks.bench.measured import PROCESSES, WORKER, Run, last_write, newest, processor, used_since
from benchmarks.bench.pairs import pairs
from benchmarks.bench.report import BASE, STEADY, Found, Goal, Part, at_least, at_most
from benchmarks.bench.sides import COLLECTION, DATABASE
from benchmarks.bench.streaming import MIX, in_step, run_backlog
from tests.support.checkout import Checkout, checkout
from towpath import stack as embedded
from towpath.clients.mongo.replica_set import operation_time

_BEHIND = "behind at the end, s"
_Place = tuple[embedded.Stack, Checkout | None]


def bench(stack: embedded.Stack, *, against: str, documents: int, changes: int, repetitions: int, seed: int) -> Found:
    places: dict[str, _Place] = {BASE: (stack, None)}
    older, written = f"{BASE} of {against}", max(1, changes // 4)

    def drain(name: str, side: str, warming: bool) -> Run:
        at, version = places[side]
        return replace(run_backlog(at, name, BASE, seed, documents, changes, version), side=side)

    def follow(name: str, side: str, warming: bool) -> Run:
        at, version = places[side]
        return replace(_followed(at, name, seed, documents, written, version), side=side)

    with ExitStack() as opened:
        if against:
            places[older] = opened.enter_context(_other(stack, against))
        drained = pairs("backlog", [*places], repetitions, drain)
        followed = pairs("beside", [*places], repetitions, follow)
    parts = [
        Part(f"{changes:,} mixed changes from a backlog", "change", drained),
        Part(f"{written:,} mixed changes, written at full speed beside a running pipeline", "change", followed),
    ]
    return Found(parts, list(_goals(parts[0].medians(), parts[1].medians(), older)), _NOTES)


_NOTES = (
    MIX,
    "Backlog: from the first append to the log to the last write at the destination.",
    "Full speed: one process writes, twenty changes a command; changes/s is what it wrote. Behind at the end: the time"
    " from the last write at the source to the last at the destination.",
)


@contextmanager
def _other(stack: embedded.Stack, revision: str) -> Iterator[_Place]:
    """A second stack as the first, but with the plugin and the JVM settings of a revision, and that revision's tool."""
    place = stack.directory / "against"
    version = checkout(revision, place / "checkout", place / "state")
    version("stack", "plugin", "--dir", place / "plugins")
    options = embedded.options_of(stack.directory)
    assert options is not None
    try:
        yield version.start_stack(replace(options, directory=place / "stack", plugins=place / "plugins")), version
    finally:
        embedded.down(place / "stack")


def _followed(
    stack: embedded.Stack, name: str, seed: int, documents: int, changes: int, version: Checkout | None
) -> Run:
    """Write as fast as one process can, while the pipeline runs."""
    with in_step(stack, name, BASE, seed, documents, version) as (it, source, destination):
        some = list(islice(load.changes(seed, documents), changes))  # drawn before, so that the writer only writes
        begun, before = (newest(source), newest(destination)), processor(stack, *PROCESSES)
        start = time.monotonic()
        load.write_fast(source[DATABASE][COLLECTION], iter(some), changes)
        took = time.monotonic() - start
        it.await_captured(operation_time(source))
        it.await_applied()
        cpu = used_since(stack, before)
        there, here = (
            last_write(client, DATABASE, at) for client, at in zip((source, destination), begun, strict=True)
        )
    return Run(BASE, changes, took, cpu, {_BEHIND: here - there})


_Medians = Mapping[str, Mapping[str, float]]


def _goals(drained: _Medians, followed: _Medians, older: str) -> Iterator[Goal]:
    mine = drained[BASE]
    yield at_most("Connect's CPU per change of a backlog, steady", mine[f"{STEADY}: {WORKER}: CPU µs/change"], 45, "µs")
    if older in drained:
        yield at_least(f"rate of a backlog against {older}", mine["changes/s"] / drained[older]["changes/s"], 0.9)
    yield at_most("how far behind when a writer at full speed ends", followed[BASE][_BEHIND], 3, "s")
