"""`scripts/bench WHAT`: a separate embedded stack, the sides in turn, a table, and the numbers as JSON."""

from __future__ import annotations

import argparse
import json
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from confluent_kafka import KafkaException
from pymongo.errors import PyMongoError

from benchmarks.bench import __doc__ as about
from benchmarks.bench import (
    arrays,
    backlog,
    collections,
    copying,
    draining,
    following,
    growing,
    indexing,
    lag,
    loading,
    page,
    replaying,
    report,
    ruling,
    streaming,
    taking,
    verifying,
)
from benchmarks.bench.pairs import say
from benchmarks.bench.switching import bench as cutover
from tests.support.checkout import NoRevision
from towpath import stack as embedded
from towpath.errors import TowpathError

_RESULTS = Path(__file__).parent.parent.parent / "docs" / "benchmarks"
#: A sink's tasks that join at once get their partitions at once, and not one of them all before the others come.
_TOGETHER = {"broker": {"group.initial.rebalance.delay.ms": "1000"}}
#: The heap that the embedded stack has unless told otherwise, and which the README advises.
_USUAL = {"connect_heap_mb": 1024}


#: What a benchmark may fail with; the others continue.
_ERRORS = (
    TowpathError, embedded.StackError, PyMongoError, KafkaException, httpx.HTTPError, ValueError, AssertionError,
    TimeoutError, NoRevision, subprocess.SubprocessError,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Bench:
    """`options` are the arguments of `measure` and their defaults; `small` are those that only show that it works.

    `stack`: what its `StackOptions` have in addition; `sets`: the options that are 0 when a set of data is left out.
    """

    about: str
    measure: Callable[..., report.Found]
    options: Mapping[str, int | str]
    small: Mapping[str, int]
    stack: Mapping[str, Any] = field(default_factory=dict)
    sets: Sequence[str] = ()


BENCHES = {
    "arrays": Bench(
        "pushes into growing arrays: bytes at each hop, CPU",
        arrays.bench,
        {
            **{"devices": 20, "pushes": 60, "length": 1800, "cap": 1000, "capped": 1400},
            **{"steps": 12, "schemas": 0, "seed": 1},
        },
        {"devices": 3, "pushes": 10, "length": 200, "cap": 100, "capped": 20, "steps": 2},
    ),
    "load": Bench(
        "the first copy, from end to end",
        loading.bench,
        {
            **{"documents": 50_000, "tiny": 1_000_000, "mixed": 300_000, "large": 1_500_000, "scattered": 1_000_000},
            **{"threads": 4, "repetitions": 3, "seed": 1},
        },
        {"documents": 2_000, "tiny": 500, "mixed": 3_000, "large": 4_000, "scattered": 2_000, "repetitions": 1},
        {**_USUAL, "metrics": False},  # so that worker and broker start as they do for users
        ("documents", "tiny", "mixed", "large", "scattered"),
    ),
    "growth": Bench(
        "the first copy of more documents, into more partitions, by more workers",
        growing.bench,
        {"documents": 1_000_000, "threads": 4, "repetitions": 2, "seed": 1},
        {"documents": 4_000, "repetitions": 1},
        {**_USUAL, "metrics": False, "connect_workers": 2},
    ),
    "stream": Bench(
        "a mixed workload through the change stream: rate, lag",
        streaming.bench,
        {"documents": 5_000, "changes": 30_000, "seconds": 20, "repetitions": 3, "seed": 1},
        {"documents": 500, "changes": 5_000, "seconds": 5, "repetitions": 1},
    ),
    "backlog": Bench(
        "a backlog, by this checkout's plugin and another revision's; how far behind a writer at full speed",
        backlog.bench,
        {"against": "", "documents": 20_000, "changes": 400_000, "repetitions": 3, "seed": 1},
        {"documents": 500, "changes": 5_000, "repetitions": 1},
        _USUAL,
    ),
    "lag": Bench(
        "the lag at a pace and of single changes, and how long `towpath wait` takes",
        lag.bench,
        {"documents": 5_000, "rate": 5_000, "seconds": 60, "singles": 50, "waits": 5, "seed": 1},
        {"documents": 500, "rate": 500, "seconds": 3, "singles": 3, "waits": 1},
        _USUAL,
    ),
    "bulking": Bench(
        "interleaved changes from a full log: commands and CPU at the destination",
        draining.bulking,
        {"documents": 5_000, "changes": 20_000, "repetitions": 3, "seed": 1},
        {"documents": 500, "changes": 3_000, "repetitions": 1},
        _TOGETHER,
    ),
    "write-concern": Bench(
        "out of the log, by write concern and number of tasks",
        draining.write_concern,
        {"documents": 5_000, "changes": 15_000, "repetitions": 2, "seed": 1},
        {"documents": 500, "changes": 3_000, "repetitions": 1},
        _TOGETHER,
    ),
    "rules": Bench(
        "what rules cost the source connector: the first copy, a backlog of updates",
        ruling.bench,
        {"documents": 100_000, "threads": 4, "repetitions": 4, "seed": 1},
        {"documents": 2_000, "repetitions": 1},
        _USUAL,
    ),
    "copy": Bench(
        "the first copy into the log, the source connector alone",
        copying.bench,
        {"documents": 60_000, "threads": 4, "repetitions": 3, "seed": 1},
        {"documents": 2_000, "repetitions": 1},
    ),
    "updates": Bench(
        "updates out of the log, the sink connector alone",
        draining.updates,
        {"documents": 10_000, "changes": 50_000, "repetitions": 3, "seed": 1},
        {"documents": 500, "changes": 3_000, "repetitions": 1},
        _TOGETHER,
    ),
    "replay": Bench(
        "a destination rebuilt from the log, against the first copy",
        replaying.bench,
        {"documents": 200_000, "threads": 4, "repetitions": 3, "seed": 1},
        {"documents": 2_000, "repetitions": 1},
    ),
    "indexes": Bench(
        "the destination's indexes, built before the first copy or after it",
        indexing.bench,
        {"documents": 150_000, "threads": 4, "repetitions": 3, "seed": 1},
        {"documents": 2_000, "repetitions": 1},
    ),
    "verify": Bench(
        "a full comparison, against merely reading both sides, and --screen",
        verifying.bench,
        {"documents": 500_000, "processes": 0, "repetitions": 3, "seed": 1},
        {"documents": 2_000, "repetitions": 1},
    ),
    "page": Bench(
        "what clients that follow the page cost `towpath run`: CPU, memory",
        following.bench,
        {"clients": 50, "documents": 5_000, "rate": 500, "seconds": 300, "seed": 1},
        {"clients": 5, "documents": 500, "rate": 100, "seconds": 6},
        _USUAL,
    ),
    "collections": Bench(
        "what each command takes with many collections: seconds, requests, memory, and the pause of a cutover",
        collections.bench,
        {"collections": 5_000, "listed": 1_000, "partitions": 1, "seed": 1},
        {"collections": 100, "listed": 20},
        {"connect_heap_mb": 2048, "kafka_heap_mb": 3072},
    ),
    "cutover": Bench(
        "how long writers wait in a cutover and back: few and many documents, a writer, many collections",
        cutover,
        {
            **{"documents": 20_000, "many": 5_000_000, "collections": 2_000},
            **{"writes": 1_000, "repetitions": 3, "seed": 1},
        },
        {"documents": 500, "many": 0, "collections": 0, "writes": 50, "repetitions": 1},
        _USUAL,
        ("many", "collections"),
    ),
    "takeover": Bench(
        "from the loss of the source until the destination is primary; the recovery point under a writer",
        taking.bench,
        {
            **{"documents": 1_000_000, "behind": 10_000, "writes": 1_000, "seconds": 20},
            **{"repetitions": 3, "seed": 1},
        },
        {"documents": 500, "behind": 100, "writes": 50, "seconds": 3, "repetitions": 1},
        _USUAL,
    ),
}


_WORDS = {
    "against": "revision of this repository to compare with, such as v1 or HEAD~3; empty: none",
    "behind": "changes that the destination has not applied when the source is killed",
    "cap": "readings that a capped array keeps",
    "capped": "pushes of each device into a capped array, where the sink is paused",
    "changes": "written in all",
    "clients": "that follow the page",
    "collections": "of the pipeline",
    "devices": "documents that grow",
    "documents": "there are before the first change",
    "large": "documents whose _ids rise; 0: not this set",
    "length": "readings that a document holds already",
    "listed": "of them that the pipeline file lists by name; a pattern matches the others",
    "many": "documents that the pause is compared with; 0: not this set",
    "mixed": "documents, and a third as many tiny ones in each of four collections; 0: not this set",
    "partitions": "of each topic",
    "processes": "that read; 0: as many as there are cores",
    "pushes": "of each device",
    "rate": "changes a second",
    "repetitions": "runs of each side",
    "scattered": "documents of random _ids, in random order; 0: not this set",
    "schemas": "1: stock's JsonConverter with schemas.enable=true",
    "seconds": "that changes are written at a pace",
    "seed": "of all that is drawn at random",
    "singles": "changes, a second apart, of an idle pipeline",
    "steps": "at which a growing document is looked at",
    "threads": "that MongoSource copies with",
    "tiny": "documents in each of four collections",
    "waits": "runs of `towpath wait`",
    "writes": "a second, until they are stopped",
}
#: Those that may be 0 in every benchmark.
_MAY_BE_ZERO = ("processes", "schemas", "seed")


def main() -> int:
    signal.signal(signal.SIGTERM, lambda *about: sys.exit(128 + signal.SIGTERM))  # the stack is also stopped then
    chosen = vars(_options().parse_args())
    what, results, directory, small = (chosen.pop(name) for name in ("what", "results", "directory", "small"))
    results.mkdir(parents=True, exist_ok=True)
    if what == "report":
        say(f"wrote {page.write(results, list(BENCHES))}")
        return 0
    failed = []
    for name in BENCHES if what == "all" else [what]:
        bench = BENCHES[name]
        options = {
            **bench.options,
            **(bench.small if small else {}),
            **{k: v for k, v in chosen.items() if v is not None},
        }
        try:
            _one(name, options, directory, results)
        except _ERRORS as error:
            say(f"{name}: {error}")
            failed.append(name)
    if what == "all":
        say(f"wrote {page.write(results, list(BENCHES))}")
    return 2 if failed else 0


def _one(name: str, options: Mapping[str, int | str], directory: Path | None, results: Path) -> None:
    bench, begun = BENCHES[name], time.monotonic()
    say(f"{name}: {', '.join(f'{key} {value}' for key, value in options.items())}")
    with _stack(directory / name if directory else None, bench.stack) as stack:
        found = bench.measure(stack, **options)
    told = report.as_json(name, _command(), options, found, time.monotonic() - begun)
    report.show(found)
    file = results / f"{name}.json"
    file.write_text(json.dumps(told, indent=1, ensure_ascii=False) + "\n")
    say(f"wrote {file}, after {told['seconds']} s")


def _command() -> str:
    return shlex.join(["scripts/bench", *sys.argv[1:]])


def _options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="scripts/bench", description=about)
    ways = parser.add_subparsers(dest="what", required=True, metavar="WHAT")
    for name, bench in BENCHES.items():
        way = _way(ways, name, bench.about)
        for option, default in bench.options.items():
            least = 0 if option in (*_MAY_BE_ZERO, *bench.sets) else 1
            kind, shown = (str, "REV") if isinstance(default, str) else (_number(least), "N")
            words = f"{_WORDS[option]}; default: {default}"
            way.add_argument(f"--{option}", type=kind, metavar=shown, help=words)
    _way(ways, "all", "all of these with their defaults, and the report of them")
    _way(ways, "report", "make the report again, from the results that are there")
    return parser


def _way(ways: Any, name: str, words: str) -> argparse.ArgumentParser:
    way: argparse.ArgumentParser = ways.add_parser(name, help=words, description=words, allow_abbrev=False)
    way.add_argument("--results", type=Path, default=_RESULTS, metavar="DIR", help=f"default: {_RESULTS}")
    way.add_argument("--directory", type=Path, metavar="DIR", help="where stacks are made; default: a temporary one")
    way.add_argument("--small", action="store_true", help="as little as shows that it works; the numbers mean nothing")
    return way


def _number(least: int) -> Callable[[str], int]:
    def number(text: str) -> int:
        if not text.isdecimal() or int(text) < least:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least {least}")
        return int(text)

    return number


@contextmanager
def _stack(directory: Path | None, own: Mapping[str, Any]) -> Iterator[embedded.Stack]:
    with tempfile.TemporaryDirectory(prefix="towpath-bench-") as temporary:
        place = directory or Path(temporary)
        if embedded.options_of(place) is not None:
            raise ValueError(
                f"{place} holds a stack already, which would be stopped at the end; name another --directory"
            )
        usual: dict[str, Any] = {"connect_heap_mb": 4096, "oplog_mb": 4096, "metrics": True}
        options = embedded.StackOptions(place, **{**usual, **own})
        try:
            yield embedded.up(options, say)
        finally:
            embedded.down(place)


if __name__ == "__main__":
    sys.exit(main())
