"""`collections`: what each command takes with a pipeline of many collections: seconds, requests, memory, the pause."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from statistics import median

import psutil

from benchmarks.bench.measured import Client, Run
from benchmarks.bench.pairs import say
from benchmarks.bench.report import BASE, Found, Part, at_most, told
from benchmarks.bench.sides import COMMAND, Settings, is_streaming, write_file
from benchmarks.bench.switching import PAUSE, cut_over, removed
from tests.support.awaited import until
from tests.support.requests import counting
from towpath import stack as embedded
from towpath.checks.facts import Facts
from towpath.deploy import deployment
from towpath.deploy.schema import metadata
from towpath.run.status import read_log, read_status
from towpath.session import opened
from towpath.verify.verdict import VerdictContext

_FEW = 10  # collections that the many are compared with
_POLLS = 3  # of each kind, of which the median counts
_LONGEST_S = 2.0  # of one poll
_STATUS_S = 3.0  # of `towpath status`, at most
_LARGEST_MB = 300  # of memory, of any command
_CREATORS = 4  # threads that create collections
_PATIENCE_S = 3_600  # seconds that `wait`, and the copy, get
_SAMPLE_S = 0.05  # seconds between two samples of the memory of a command

#: What `status` and `run` do, at each poll.
_STATUS, _WARNINGS, _VERDICT = "status", "settings and size of the log", "what a verdict belongs to"
_POLLED = (_STATUS, _WARNINGS, _VERDICT)
_SCHEMAS, _CHECK = "options and indexes of both sides", "check"
_COMMANDS = ("check", "deploy", "wait", "status", "prepare", "verify")


def bench(stack: embedded.Stack, *, collections: int, listed: int, partitions: int, seed: int) -> Found:
    runs = []
    for name, count in (("few", _FEW), ("many", max(collections, _FEW + 1))):
        share = min(count - 1, max(1, count * listed // collections))  # a pattern that matches nothing is refused
        runs.append(_run(stack, name, f"{BASE}, {count:,} collections", count, share, partitions, seed))
    few, many = (run.numbers for run in runs)
    goals = [at_most(f"{poll}, {collections:,} collections", many[f"{poll} s"], _LONGEST_S, "s") for poll in _POLLED]
    goals.append(at_most(f"`towpath status`, {collections:,} collections", many[_seconds("status")], _STATUS_S, "s"))
    goals.append(at_most("memory of any command", max(many[_memory(name)] for name in _COMMANDS), _LARGEST_MB, "MB"))
    goals.append(
        at_most(f"by which the pause is longer than with {_FEW} collections", many[PAUSE] - few[PAUSE], 1.0, "s")
    )
    goals += [
        told(f"requests: {poll}", f"{few[f'{poll} requests']:.0f} → {many[f'{poll} requests']:.0f}")
        for poll in (*_POLLED, _SCHEMAS, _CHECK)
    ]
    title = (
        f"{collections:,} collections with an index and one document each, {listed:,} of them listed by name,"
        f" {partitions} partitions a topic"
    )
    return Found([Part(title, "collection", runs, rated=False)], goals)


def _run(stack: embedded.Stack, name: str, side: str, count: int, listed: int, partitions: int, seed: int) -> Run:
    database = f"{name}{seed}"
    names = [f"{database}.{'listed' if number < listed else 'matched'}_{number}" for number in range(count)]
    _fill(stack, names)
    say(f"collections: {count:,} are there")
    patterns = [*names[:listed], f"{database}.matched_*"]
    file = write_file(stack, name, "towpath", Settings(patterns, partitions=partitions))
    numbers: dict[str, float] = {}
    with removed(file):
        began = time.monotonic()
        numbers |= _command("check", file) | _command("deploy", file)
        with opened(file) as session:
            until(
                "the stream", lambda: is_streaming(session.connect, session.pipeline.source_connector), _PATIENCE_S, 1.0
            )
        copied = time.monotonic() - began
        say(f"collections: {count:,} copied after {copied:.0f} s")
        numbers |= _command("wait", file, "--timeout", str(_PATIENCE_S)) | _polls(file)
        for command in ("status", "prepare", "verify"):
            numbers |= _command(command, file)
        with removed(file.with_name(f"{name}-back.toml")):
            numbers |= cut_over(file, None)
    return Run(side, count, copied, {}, {"until the stream s": copied, **numbers})


def _seconds(command: str) -> str:
    return f"`towpath {command}` s"


def _memory(command: str) -> str:
    return f"`towpath {command}` MB"


def _command(command: str, file: Path, *more: str) -> dict[str, float]:
    """The seconds of a command, and the most memory that it had. Raises ValueError when it fails."""
    began, most = time.monotonic(), 0
    with psutil.Popen([COMMAND, command, file, *more], stdout=subprocess.DEVNULL) as process:
        while process.poll() is None:
            with suppress(psutil.Error):
                most = max(most, process.memory_info().rss)
            time.sleep(_SAMPLE_S)
    numbers = {_seconds(command): time.monotonic() - began, _memory(command): most / 2**20}
    say(f"collections: {command} ended with {process.returncode}: {numbers}")
    if process.returncode:
        raise ValueError(f"towpath {command} ended with {process.returncode}")
    return numbers


def _fill(stack: embedded.Stack, names: Sequence[str]) -> None:
    with Client(stack.source) as client:

        def create(namespace: str) -> None:
            database, name = namespace.split(".", 1)
            client[database][name].insert_one({"_id": namespace, "n": 1})
            client[database][name].create_index("n")

        with ThreadPoolExecutor(_CREATORS) as threads:
            list(threads.map(create, names))


def _polls(file: Path) -> dict[str, float]:
    """Seconds and requests of each kind of poll, on an open session as in `run`."""
    numbers: dict[str, float] = {}
    with counting(file) as (session, asked):
        status = read_status(session)
        kinds: dict[str, Callable[[], object]] = {
            _STATUS: lambda: read_status(session),
            _WARNINGS: lambda: read_log(session, status.raw),
            _VERDICT: lambda: VerdictContext.read(session, status.raw.topic_ids),
            _SCHEMAS: lambda: metadata(session, ()),
            _CHECK: lambda: deployment.findings(Facts(session)),
        }
        for kind, poll in kinds.items():
            asked.clear()
            numbers[f"{kind} s"] = _timed(poll)
            numbers[f"{kind} requests"] = asked.total() / _POLLS
    return numbers


def _timed(poll: Callable[[], object]) -> float:
    seconds = []
    for _ in range(_POLLS):
        began = time.monotonic()
        poll()
        seconds.append(time.monotonic() - began)
    return median(seconds)
