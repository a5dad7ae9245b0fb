"""`scripts/bench WHAT`: an embedded stack of its own, the sides in turn, a table, and the figures as JSON."""

from __future__ import annotations

import argparse
import json
import shlex
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from confluent_kafka import KafkaException
from pymongo.errors import PyMongoError

from tests.bench import __doc__ as about
from tests.bench import arrays, copying, draining, indexing, loading, page, replaying, report, streaming, verifying
from tests.bench.pairs import say
from towpath import stack as embedded
from towpath.errors import TowpathError

_RESULTS = Path(__file__).parent.parent.parent / "docs" / "benchmarks"
#: A sink's tasks that join at once get their partitions at once, and not one of them all before the others come.
_TOGETHER = {"group.initial.rebalance.delay.ms": "1000"}


#: What a benchmark may fail with; the others go on.
_TROUBLE = (
    TowpathError, embedded.StackError, PyMongoError, KafkaException, httpx.HTTPError, ValueError, AssertionError,
    TimeoutError,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Bench:
    """`options` are the arguments of `measure` and their defaults; `small` are those that only show that it works."""

    about: str
    measure: Callable[..., report.Found]
    options: Mapping[str, int]
    small: Mapping[str, int]
    broker: Mapping[str, str] = field(default_factory=dict)


BENCHES = {
    "arrays": Bench(
        "pushes into growing arrays: bytes at each hop, CPU",
        arrays.bench,
        {"devices": 20, "pushes": 60, "length": 1800, "cap": 1000, "steps": 12, "schemas": 0, "seed": 1},
        {"devices": 3, "pushes": 10, "length": 200, "cap": 100, "steps": 2},
    ),
    "load": Bench(
        "the first copy, from end to end",
        loading.bench,
        {"documents": 50_000, "tiny": 10_000, "threads": 4, "repetitions": 5, "seed": 1},
        {"documents": 2_000, "tiny": 500, "repetitions": 1},
    ),
    "stream": Bench(
        "a mixed workload through the change stream: rate, lag",
        streaming.bench,
        {"documents": 5_000, "changes": 30_000, "seconds": 20, "repetitions": 3, "seed": 1},
        {"documents": 500, "changes": 5_000, "seconds": 5, "repetitions": 1},
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
}


_WORDS = {
    "cap": "readings that a capped array keeps",
    "changes": "written in all",
    "devices": "documents that grow",
    "documents": "there are before the first change",
    "length": "readings that a document holds already",
    "processes": "that read; 0: as many as there are cores",
    "pushes": "of each device",
    "repetitions": "runs of each side",
    "schemas": "1: stock's JsonConverter with schemas.enable=true",
    "seconds": "that changes are written at a pace",
    "seed": "of all that is drawn at random",
    "steps": "at which a growing document is looked at",
    "threads": "that MongoSource copies with",
    "tiny": "documents in each of four collections",
}


def main() -> int:
    signal.signal(signal.SIGTERM, lambda *about: sys.exit(128 + signal.SIGTERM))  # the stack is stopped then, too
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
        except _TROUBLE as error:
            say(f"{name}: {error}")
            failed.append(name)
    if what == "all":
        say(f"wrote {page.write(results, list(BENCHES))}")
    return 2 if failed else 0


def _one(name: str, options: Mapping[str, int], directory: Path | None, results: Path) -> None:
    bench, begun = BENCHES[name], time.monotonic()
    say(f"{name}: {', '.join(f'{key} {value}' for key, value in options.items())}")
    with _stack(directory / name if directory else None, bench.broker) as stack:
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
            least = 0 if option in ("processes", "schemas", "seed") else 1
            way.add_argument(
                f"--{option}", type=_number(least), metavar="N", help=f"{_WORDS[option]}; default: {default}"
            )
    _way(ways, "all", "all of these with their defaults, and the report of them")
    _way(ways, "report", "make the report again, from the results that are there")
    return parser


def _way(ways: Any, name: str, words: str) -> argparse.ArgumentParser:
    way: argparse.ArgumentParser = ways.add_parser(name, help=words, description=words, allow_abbrev=False)
    way.add_argument("--results", type=Path, default=_RESULTS, metavar="DIR", help=f"default: {_RESULTS}")
    way.add_argument("--directory", type=Path, metavar="DIR", help="where stacks are made; default: a temporary one")
    way.add_argument("--small", action="store_true", help="as little as shows that it works; the figures mean nothing")
    return way


def _number(least: int) -> Callable[[str], int]:
    def number(text: str) -> int:
        if not text.isdecimal() or int(text) < least:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least {least}")
        return int(text)

    return number


@contextmanager
def _stack(directory: Path | None, broker: Mapping[str, str]) -> Iterator[embedded.Stack]:
    with tempfile.TemporaryDirectory(prefix="towpath-bench-") as temporary:
        place = directory or Path(temporary)
        if embedded.options_of(place) is not None:
            raise ValueError(
                f"{place} holds a stack already, which would be stopped at the end; name another --directory"
            )
        options = embedded.StackOptions(place, connect_heap_mb=4096, oplog_mb=4096, metrics=True, broker=broker)
        try:
            yield embedded.up(options, say)
        finally:
            embedded.down(place)


if __name__ == "__main__":
    sys.exit(main())
