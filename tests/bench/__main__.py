"""`scripts/bench copy` and `scripts/bench updates`: an embedded stack of its own, and both sides in alternation."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pymongo import MongoClient

import stack as embedded
from tests.bench import __doc__ as about
from tests.bench import load, report
from tests.bench.copying import copy
from tests.bench.measured import Run
from tests.bench.sides import COLLECTION, DATABASE, SIDES
from tests.bench.updating import updates

_WARM = 10  # before the first pair both sides run once, with this part of the updates: the worker compiles its classes


def main() -> None:
    chosen = _options().parse_args()
    with _stack(chosen.directory) as stack:
        with MongoClient[dict[str, Any]](stack.source) as client:
            load.fill(client[DATABASE][COLLECTION], chosen.seed, chosen.documents)
        runs = _runs(chosen, _one(chosen, stack))
    found = report.as_json(chosen.what, _told(chosen), runs)
    report.show(*_title(chosen), runs)
    if chosen.json:
        chosen.json.write_text(json.dumps(found, indent=2) + "\n")


def _options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="scripts/bench", description=about)
    ways = parser.add_subparsers(dest="what", required=True)
    first, second = ways.add_parser("copy", help="the first copy"), ways.add_parser("updates", help="out of the log")
    for way, documents in ((first, 100_000), (second, 20_000)):
        way.add_argument("--documents", type=int, default=documents, help=f"at the source; default: {documents}")
        way.add_argument("--repetitions", type=int, default=3, help="pairs of runs; default: 3")
        way.add_argument("--seed", type=int, default=1)
        way.add_argument("--json", type=Path, metavar="FILE", help="write the figures there")
        way.add_argument("--directory", type=Path, help="of the stack; default: a temporary one")
    first.add_argument("--threads", type=int, default=4, help="that MongoSource copies with; default: 4")
    second.add_argument("--updates", type=int, default=100_000, help="of documents drawn at random; default: 100000")
    return parser


def _title(chosen: argparse.Namespace) -> tuple[str, str]:
    if chosen.what == "copy":
        return f"first copy of {chosen.documents:,} documents", "document"
    return f"{chosen.updates:,} updates of {chosen.documents:,} documents", "record"


def _told(chosen: argparse.Namespace) -> dict[str, Any]:
    return {key: value for key, value in vars(chosen).items() if key not in ("what", "json", "directory")}


def _one(chosen: argparse.Namespace, stack: embedded.Stack) -> Callable[[str, str, int], Run]:
    """One run: of a name, a side and a divisor of the updates."""
    if chosen.what == "copy":
        return lambda name, side, part: copy(stack, name, side, chosen.documents, chosen.threads)
    seed, existing = chosen.seed, chosen.documents
    return lambda name, side, part: updates(stack, name, side, seed, existing, chosen.updates // part)


def _runs(chosen: argparse.Namespace, one: Callable[[str, str, int], Run]) -> list[Run]:
    """Both sides once to warm up, then in pairs, each time in the other order."""
    runs = []
    for pair in range(chosen.repetitions + 1):
        for side in SIDES if pair % 2 else reversed(SIDES):
            run = one(f"bench-{chosen.what}-{side}-{pair}", side, 1 if pair else _WARM)
            _say(f"{'run' if pair else 'warm-up'} {pair} {side}: {run.per_second:,.0f} a second")
            runs += [run] if pair else []
    return runs


@contextmanager
def _stack(directory: Path | None) -> Iterator[embedded.Stack]:
    with tempfile.TemporaryDirectory(prefix="towpath-bench-") as temporary:
        place = directory or Path(temporary)
        try:
            yield embedded.up(embedded.StackOptions(directory=place), _say)
        finally:
            embedded.down(place)


def _say(words: str) -> None:
    print(words, file=sys.stderr)


if __name__ == "__main__":
    main()
