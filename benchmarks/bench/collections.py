"""`collections`: how long each look at a pipeline of many collections takes, and the pause of its cutover."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from statistics import median

from benchmarks.bench.measured import Client, Run
from benchmarks.bench.pairs import say
from benchmarks.bench.report import BASE, Found, Part, at_most, told
from benchmarks.bench.sides import COMMAND, Settings, is_streaming, pipeline_file, way
from benchmarks.bench.switching import PAUSE, cut_over, removed
from tests.support.awaited import until
from towpath import stack as embedded
from towpath.checks.facts import Facts
from towpath.deploy import deployment
from towpath.deploy.schema import metadata
from towpath.run.status.gather import read_log, read_status
from towpath.session import Session, opened
from towpath.verify.full_verdict import VerdictContext

_FEW = 10  # collections that the many are compared with
_LOOKS = 3  # of each kind, of which the median counts
_LONGEST_S = 2.0  # of one look
_CREATORS = 4  # threads that create collections
_COPY_S = 3_600  # seconds until the copy has to be done

#: What `status` and `run` do, each time that they look.
_STATUS, _WARNINGS, _VERDICT = "status", "settings and size of the log", "what a verdict belongs to"
_LOOKED = (_STATUS, _WARNINGS, _VERDICT)
_COMMAND, _SCHEMAS, _CHECK = "`towpath status --json`", "options and indexes of both sides", "`towpath check`"


def bench(stack: embedded.Stack, *, collections: int, listed: int, seed: int) -> Found:
    runs = []
    for name, count in (("few", _FEW), ("many", max(collections, _FEW + 1))):
        share = min(count - 1, max(1, count * listed // collections))  # a pattern that matches nothing is refused
        runs.append(_run(stack, name, f"{BASE}, {count:,} collections", count, share, seed))
    few, many = runs
    goals = [
        at_most(f"{look}, {collections:,} collections", many.figures[f"{look} s"], _LONGEST_S, "s") for look in _LOOKED
    ]
    longer = many.figures[PAUSE] - few.figures[PAUSE]
    goals.append(at_most(f"by which the pause is longer than with {_FEW} collections", longer, 1.0, "s"))
    goals += [told(look, f"{many.figures[f'{look} s']:.2f} s") for look in (_COMMAND, _SCHEMAS, _CHECK)]
    title = f"{collections:,} collections with an index and one document each, {listed:,} of them listed by name"
    return Found([Part(title, "collection", runs, rated=False)], goals)


def _run(stack: embedded.Stack, name: str, side: str, count: int, listed: int, seed: int) -> Run:
    database = f"{name}{seed}"
    names = [f"{database}.{'listed' if number < listed else 'matched'}_{number}" for number in range(count)]
    _fill(stack, names)
    say(f"collections: {count:,} are there")
    patterns = [*names[:listed], f"{database}.matched_*"]
    began = time.monotonic()
    with way(stack, name, "towpath", Settings(patterns, partitions=1, topics=names)) as it:
        it.start(it.source, it.sink)
        until("the stream", lambda: is_streaming(it.connect, it.source), _COPY_S, 1.0)
        file, copied = pipeline_file(stack, name), time.monotonic() - began
        say(f"collections: copied after {copied:.0f} s")
        subprocess.run([COMMAND, "wait", file, "--timeout", str(_COPY_S)], check=True, stdout=sys.stderr)
        with opened(file) as session:
            figures = _looks(session)
        figures[f"{_COMMAND} s"] = _timed(
            lambda: subprocess.run([COMMAND, "status", file, "--json"], stdout=subprocess.DEVNULL)
        )
        for verb in ("prepare", "verify"):
            subprocess.run([COMMAND, verb, file], check=True, stdout=sys.stderr)
        with removed(file.with_name(f"{name}-back.toml")):
            figures |= cut_over(file, None)
    return Run(side, count, copied, {}, {"until the stream s": copied, **figures})


def _fill(stack: embedded.Stack, names: Sequence[str]) -> None:
    with Client(stack.source) as client:

        def create(namespace: str) -> None:
            database, name = namespace.split(".", 1)
            client[database][name].insert_one({"_id": namespace, "n": 1})
            client[database][name].create_index("n")

        with ThreadPoolExecutor(_CREATORS) as threads:
            list(threads.map(create, names))


def _looks(session: Session) -> dict[str, float]:
    """Seconds of each kind of look, on an open session as in `run`."""
    status = read_status(session)
    kinds: dict[str, Callable[[], object]] = {
        _STATUS: lambda: read_status(session),
        _WARNINGS: lambda: read_log(session, status.ends),
        _VERDICT: lambda: VerdictContext.read(session, status.topic_ids),
        _SCHEMAS: lambda: metadata(session, ()),
        _CHECK: lambda: deployment.findings(Facts(session)),
    }
    return {f"{kind} s": _timed(look) for kind, look in kinds.items()}


def _timed(look: Callable[[], object]) -> float:
    seconds = []
    for _ in range(_LOOKS):
        began = time.monotonic()
        look()
        seconds.append(time.monotonic() - began)
    return median(seconds)
