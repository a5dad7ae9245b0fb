"""`cutover`: how long writers have to wait, there and back: with few and many documents, a writer, many collections."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import bson

from benchmarks.bench.load import batches, joined
from benchmarks.bench.measured import Client, Run
from benchmarks.bench.pairs import in_turn, say
from benchmarks.bench.report import BASE, Found, Goal, Part, at_most, told
from benchmarks.bench.sides import COMMAND, DATABASE, NAMESPACE, Settings, is_streaming, pipeline_file, way
from tests.support import oracle, raw
from tests.support.acknowledged import AcknowledgedWriter
from tests.support.awaited import until
from towpath import stack as embedded

_WRITTEN = "written"
PAUSE, _WAITED, _BACK, _AFTER = "pause s", "writers waited s", "back, ", "converting indexes to unique s"
_QUIET_S, _WRITING_S, _COLLECTIONS_S, _GROWTH = 2.0, 2.5, 3.0, 1.2  # of a pause, at most
_UNIQUE = ("a", "b", "c")
_CREATORS = 4  # threads that create collections
COPY_S = 3_600  # seconds until the copy has to be done
_COMPARED = 100_000  # documents that the oracle compares, at most; `verify` has compared all before


@dataclass(frozen=True, slots=True)
class Data:
    """What is moved: so many documents in one collection with unique indexes, and so many collections with one."""

    documents: int
    collections: int = 0
    """Each has two indexes."""
    unique: bool = False
    """Whether one of the two is unique."""
    writes: int = 0
    """A second, until the writer is asked to stop."""

    @property
    def namespaces(self) -> list[str]:
        return [NAMESPACE, f"{DATABASE}.{_WRITTEN}", *(f"{DATABASE}.c{number}" for number in range(self.collections))]


def bench(
    stack: embedded.Stack, *, documents: int, many: int, collections: int, writes: int, repetitions: int, seed: int
) -> Found:
    few, grown = f"{BASE}, {documents:,} documents", f"{BASE}, {many:,} documents"
    writing, spread = f"{few}, {writes:,} writes/s", f"{BASE}, {collections:,} collections"
    each_unique = f"{spread} with a unique index"
    sides = {few: Data(documents), writing: Data(documents, writes=writes)}
    sides |= {grown: Data(many)} if many else {}
    if collections:
        sides |= {spread: Data(documents, collections), each_unique: Data(documents, collections, unique=True)}
    runs = []
    for turn in range(repetitions):
        for side in in_turn(list(sides), turn):
            name = re.sub(r"[^a-z0-9]+", "-", f"cutover-{side}-{turn}")[:50].strip("-")
            runs.append(_run(stack, name, side, sides[side], seed))
            say(f"cutover: {side}: {runs[-1].numbers}")
    goals: list[Goal] = []
    for direction in ("", _BACK):
        pauses = {side: median(run.numbers[direction + PAUSE] for run in runs if run.side == side) for side in sides}
        for side, limit in ((few, _QUIET_S), (writing, _WRITING_S), (spread, _COLLECTIONS_S)):
            if side in pauses:
                goals.append(at_most(f"{direction}pause, {side}", pauses[side], limit, "s"))
        if collections:
            goals.append(told(f"{direction}pause, {each_unique}", f"{pauses[each_unique]:.2f} s"))
        if many:
            goals.append(
                at_most(f"{direction}pause, {many:,} against {documents:,}", pauses[grown] / pauses[few], _GROWTH)
            )
    if many:
        after = median(run.numbers[_AFTER] for run in runs if run.side == grown)
        goals.append(told(f"after it, {many:,} documents' indexes become unique", f"{after:.1f} s"))
    title = f"documents of 0.1 KB with three unique indexes and one with TTL, there and back; {spread} have two indexes"
    return Found([Part(title, "cutover", runs, rated=False)], goals)


def fill(client: raw.Client, data: Data, seed: int) -> None:
    """Make what is to be moved, in place of what there was."""
    database = client[DATABASE]
    client.drop_database(DATABASE)
    for some in batches(data.documents):
        bodies = [bson.encode({**dict.fromkeys(_UNIQUE, number * 7 + seed), "text": "x" * 40}) for number in some]
        raw.insert_many(
            database[NAMESPACE.split(".")[1]], [joined(n, body) for n, body in zip(some, bodies, strict=True)]
        )
    for field in _UNIQUE:
        database[NAMESPACE.split(".")[1]].create_index(field, unique=True)
    database[NAMESPACE.split(".")[1]].create_index("at", expireAfterSeconds=10**9)

    def create(number: int) -> None:
        database[f"c{number}"].insert_one({"_id": number, "n": number})
        database[f"c{number}"].create_index("n")
        database[f"c{number}"].create_index("m", unique=data.unique)

    with ThreadPoolExecutor(_CREATORS) as threads:
        list(threads.map(create, range(data.collections)))


def _run(stack: embedded.Stack, name: str, side: str, data: Data, seed: int) -> Run:
    with Client(stack.source) as source, Client(stack.destination) as destination:
        destination.drop_database(DATABASE)
        fill(source, data, seed)
        writer = AcknowledgedWriter(source, DATABASE, _WRITTEN, per_second=max(1, data.writes))
        writer.fill()
        partitions = 1 if data.collections else 4
        settings = Settings([f"{DATABASE}.*"], topics=data.namespaces, partitions=partitions)
        with way(stack, name, "towpath", settings) as it:
            it.start(it.source, it.sink)
            until("the stream", lambda: is_streaming(it.connect, it.source), COPY_S, 0.2)
            file = pipeline_file(stack, name)
            make_ready(file)
            is_written = writer if data.writes else None
            with _writing(writer) if data.writes else nullcontext(), removed(file.with_name(f"{name}-back.toml")):
                numbers = cut_over(file, is_written, destination)
                if is_written is not None:
                    writer.wait_for_more(data.writes)
                back = cut_over(file, is_written, source, "--back")
            numbers |= {f"{_BACK}{name}": seconds for name, seconds in back.items()}
            subprocess.run([COMMAND, "wait", file, "--timeout", str(COPY_S)], check=True, stdout=sys.stderr)
            if data.writes:
                writer.assert_all_at(source)
        if data.documents <= _COMPARED:
            oracle.assert_same(stack.source, stack.destination, data.namespaces, at_least=data.documents)
    return Run(side, 1, numbers[PAUSE], {}, numbers)


def make_ready(file: Path) -> None:
    """Both sides are the same, and it is known: a cutover could begin."""
    for command in (("wait", "--timeout", str(COPY_S)), ("prepare",), ("verify",)):
        subprocess.run([COMMAND, command[0], file, *command[1:]], check=True, stdout=sys.stderr)


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
            subprocess.run([COMMAND, "remove", file, "--topics", "--yes"], check=True, stdout=sys.stderr)


def cut_over(
    file: Path, writer: AcknowledgedWriter | None, new: raw.Client | None = None, *options: str
) -> dict[str, float]:
    """The seconds of the pause, of each step in it and after it. The writer continues at `new`."""
    command: list[str | Path] = [COMMAND, "cutover", file, "--json", *options]
    numbers: dict[str, float] = {}
    stopped = 0.0
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None and process.stdout is not None
        for event in map(json.loads, process.stdout):
            match event["event"]:
                case "stop writes":
                    stopped = time.monotonic()
                    if writer is not None:
                        writer.pause()
                    print(file=process.stdin, flush=True)
                case "step" if stopped:
                    numbers[f"{event['step']} s"] = event["seconds"]
                case "switch":
                    numbers = {PAUSE: event["pause_seconds"], _WAITED: time.monotonic() - stopped, **numbers}
                    if writer is not None and new is not None:
                        writer.send(new)
                case "gate" | "end" | "not converted":
                    say(f"cutover: {event['words'] or event['findings']}")
    if process.returncode or PAUSE not in numbers:
        raise ValueError(f"the cutover ended with {process.returncode}")
    return numbers
