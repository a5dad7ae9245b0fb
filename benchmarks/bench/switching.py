"""`cutover`: how long writers have to wait, with nobody writing until then and with a writer at a pace."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from statistics import median

from benchmarks.bench import load
from benchmarks.bench.measured import Client, Run
from benchmarks.bench.pairs import pairs
from benchmarks.bench.report import BASE, Found, Part, at_most
from benchmarks.bench.sides import COLLECTION, DATABASE, NAMESPACE, Settings, is_streaming, pipeline_file, way
from tests.support import oracle
from tests.support.acknowledged import AcknowledgedWriter
from tests.support.awaited import until
from towpath import stack as embedded

_TOWPATH = Path(sys.executable).parent / "towpath"
_WRITTEN = "written"
PAUSE, _WAITED = "pause s", "writers waited s"
_QUIET_S, _WRITING_S = 2.0, 3.0  # of a pause, at most


def bench(stack: embedded.Stack, *, documents: int, writes: int, repetitions: int, seed: int) -> Found:
    writing = f"{BASE}, {writes:,} writes/s"
    paces = {BASE: 0, writing: writes}
    with Client(stack.source) as client:
        load.fill(client[DATABASE][COLLECTION], seed, documents)
        client[DATABASE][COLLECTION].create_index(["number", "_id"], unique=True)  # numbers repeat
        client[DATABASE][COLLECTION].create_index("at", expireAfterSeconds=10**9)

    def one(name: str, side: str, _warm: bool) -> Run:
        return _run(stack, re.sub(r"[^a-z0-9]+", "-", name), side, documents, paces[side])

    runs = pairs("cutover", list(paces), repetitions, one)
    goals = [
        at_most(f"pause, {words}", median(run.figures[PAUSE] for run in runs if run.side == side), limit, "s")
        for side, words, limit in (
            (BASE, "nobody writes", _QUIET_S),
            (writing, f"{writes:,} writes/s until it begins", _WRITING_S),
        )
    ]
    title = (
        f"{documents:,} documents of 1 KB, a unique index and one with TTL; nobody writes ({BASE}), or somebody does"
    )
    return Found([Part(title, "cutover", runs, rated=False)], goals)


def _run(stack: embedded.Stack, name: str, side: str, documents: int, writes: int) -> Run:
    namespaces = [NAMESPACE, f"{DATABASE}.{_WRITTEN}"]
    with Client(stack.source) as source, Client(stack.destination) as destination:
        destination.drop_database(DATABASE)
        source[DATABASE][_WRITTEN].drop()
        writer = AcknowledgedWriter(source, DATABASE, _WRITTEN, per_second=max(1, writes))
        writer.fill()
        with way(stack, name, "towpath", Settings(namespaces)) as it:
            it.start(it.source, it.sink)
            until("the stream", lambda: is_streaming(it.connect, it.source), 300, 0.2)
            file = pipeline_file(stack, name)
            for verb in ("wait", "prepare", "verify"):
                subprocess.run([_TOWPATH, verb, file], check=True, stdout=sys.stderr)
            with _writing(writer) if writes else nullcontext(), removed(file.with_name(f"{name}-back.toml")):
                figures = cut_over(file, writer if writes else None)
        oracle.assert_same(stack.source, stack.destination, namespaces, at_least=documents)
    return Run(side, 1, figures[PAUSE], {}, figures)


@contextmanager
def _writing(writer: AcknowledgedWriter) -> Iterator[None]:
    with writer:
        writer.wait_for_more(100)
        yield


@contextmanager
def removed(file: Path) -> Iterator[None]:
    """The reverse pipeline of that file is removed at the end, if there is one."""
    try:
        yield
    finally:
        if file.exists():
            subprocess.run([_TOWPATH, "remove", file, "--topics", "--yes"], check=True, stdout=sys.stderr)


def cut_over(file: Path, writer: AcknowledgedWriter | None) -> dict[str, float]:
    """The seconds of the pause, and of each step in it."""
    command: list[str | Path] = [_TOWPATH, "cutover", file, "--json"]
    figures: dict[str, float] = {}
    stopped = 0.0
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None and process.stdout is not None
        for event in map(json.loads, process.stdout):
            match event["event"]:
                case "stop writes":
                    if writer is not None:
                        writer.pause()
                    stopped = time.monotonic()
                    print(file=process.stdin, flush=True)
                case "step" if stopped:
                    figures[f"{event['step']} s"] = event["seconds"]
                case "switch":
                    figures = {PAUSE: event["pause_seconds"], _WAITED: time.monotonic() - stopped, **figures}
    if process.returncode or PAUSE not in figures:
        raise ValueError(f"the cutover ended with {process.returncode}")
    return figures
