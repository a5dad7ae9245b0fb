"""`takeover`: from the loss of the source until the destination is primary; and the recovery point under a writer."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from benchmarks.bench.measured import Client, Run
from benchmarks.bench.pairs import say
from benchmarks.bench.report import BASE, Found, Part, at_most
from benchmarks.bench.sides import COMMAND, DATABASE, Settings, is_streaming, pipeline_file, way
from benchmarks.bench.switching import COPY_S, Data, fill, make_ready
from tests.support import control
from tests.support.acknowledged import AcknowledgedWriter
from tests.support.awaited import until
from towpath import stack as embedded
from towpath.clients.mongo.replica_set import operation_time

_WRITTEN, _BURST = "written", "burst"
_POINT, _TAKEN = "recovery point max s", "takeover s"
_TAKEN_S, _POINT_S = 10.0, 1.0


def bench(
    stack: embedded.Stack, *, documents: int, behind: int, writes: int, seconds: int, repetitions: int, seed: int
) -> Found:
    runs = []
    for turn in range(repetitions):
        runs.append(_run(stack, f"takeover-{turn}", documents, behind, writes, seconds, seed))
        say(f"takeover: {runs[-1].numbers}")
    middle = {name: median(run.numbers[name] for run in runs) for name in (_POINT, _TAKEN)}
    goals = [
        at_most(f"takeover of {documents:,} documents, {behind:,} changes behind", middle[_TAKEN], _TAKEN_S, "s"),
        at_most(f"recovery point at {writes:,} changes a second, at most", middle[_POINT], _POINT_S, "s"),
    ]
    title = (
        f"{documents:,} documents of 0.1 KB with three unique indexes and one with TTL; the source is killed while the"
        f" destination is {behind:,} changes behind"
    )
    return Found([Part(title, "takeover", runs, rated=False)], goals, _NOTES)


_NOTES = (
    "The takeover is that of `--source-is-lost`, from the start of the command to its end. Without the option, it first"
    " watches for 15 s whether the source still answers Connect's workers.",
    "The sink is paused until the source is killed, so that it is behind when the command starts.",
)


def _run(stack: embedded.Stack, name: str, documents: int, behind: int, writes: int, seconds: int, seed: int) -> Run:
    with Client(stack.source) as source, Client(stack.destination) as destination:
        destination.drop_database(DATABASE)
        data, burst = Data(documents, writes=writes), source[DATABASE][_BURST]
        fill(source, data, seed)
        burst.insert_one({"_id": -1})
        writer = AcknowledgedWriter(source, DATABASE, _WRITTEN, per_second=writes)
        writer.fill()
        settings = Settings([f"{DATABASE}.*"], topics=[*data.namespaces, f"{DATABASE}.{_BURST}"], partitions=4)
        with way(stack, name, "towpath", settings) as it:
            it.start(it.source, it.sink)
            until("the stream", lambda: is_streaming(it.connect, it.source), COPY_S, 0.2)
            file = pipeline_file(stack, name)
            make_ready(file)
            with writer:
                writer.wait_for_more(writes)
                point = max(_points(file, seconds))
            it.pause_sink()
            burst.insert_many([{"_id": number, "text": "x" * 40} for number in range(behind)])
            it.await_captured(operation_time(source))
            control.kill(stack.directory, "source-0")
            try:
                it.connect.resume(it.sink)
                numbers = _take_over(file)
            finally:
                control.start(stack.directory, "source-0")
            if (found := destination[DATABASE][_BURST].count_documents({})) != behind + 1:
                raise ValueError(f"{found:,} of {behind + 1:,} documents are at the destination")
    return Run(BASE, 1, numbers[_TAKEN], {}, {_POINT: point, **numbers})


def _points(file: Path, seconds: int) -> Iterator[float]:
    """The recovery point, as `status` tells it, again and again for so long."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        told = subprocess.run([COMMAND, "status", file, "--json"], check=True, stdout=subprocess.PIPE)
        yield float(json.loads(told.stdout)["lag"]["capture_seconds"])


def _take_over(file: Path) -> dict[str, float]:
    """The seconds of all, and of each step."""
    start = time.monotonic()
    command: list[str | Path] = [COMMAND, "takeover", file, "--source-is-lost", "--json"]
    told = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    seconds, events = time.monotonic() - start, [json.loads(line) for line in told.splitlines()]
    return {_TAKEN: seconds} | {f"{one['step']} s": one["seconds"] for one in events if one["event"] == "step"}
