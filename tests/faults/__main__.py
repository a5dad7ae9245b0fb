"""`scripts/soak`: faults at random moments, one run after another, each compared byte for byte."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random, SystemRandom
from typing import get_args

import click
import httpx
from confluent_kafka import KafkaException
from pymongo.errors import PyMongoError

from stack import StackError
from tests.faults.faults import FAULTS, Fault
from tests.faults.hits import Hits, Pair
from tests.faults.runs import Plan, describe, pairs, run
from tests.faults.shapes import SHAPES, ShapeName
from tests.faults.site import Site, site
from tests.faults.states import STATES, State
from tests.support.guard import guarded

#: What ends a round, beside what it found out: a part that cannot be reached any more.
_FAILURES = (
    AssertionError,
    StackError,
    PyMongoError,
    KafkaException,
    httpx.HTTPError,
    subprocess.TimeoutExpired,
)


@dataclass(frozen=True, slots=True)
class Asked:
    """What the command line asks for."""

    seed: int
    rounds: int | None
    end: float
    """On the monotonic clock."""
    matrix: int | None
    faults: frozenset[str]
    states: frozenset[str]
    large_bytes: int
    keep_going: bool


def _names(known: dict[str, object]) -> click.Choice[str]:
    return click.Choice(list(known))


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--minutes", type=click.FloatRange(min=0.1), help="No round begins after so many minutes. [default: 60]")
@click.option("--rounds", type=click.IntRange(min=1), help="No more rounds than these.")
@click.option("--matrix", type=click.IntRange(min=1), metavar="N", help="Until every pair was hit N times.")
@click.option(
    "--seed", type=click.IntRange(min=0), help="Of everything that is random; default: a random one, which is printed."
)
@click.option("--fault", "faults", multiple=True, type=_names({**FAULTS}), help="Only this fault; again for more.")
@click.option("--state", "states", multiple=True, type=_names({**STATES}), help="Only this state; again for more.")
@click.option(
    "--shape",
    "shapes",
    multiple=True,
    type=click.Choice(get_args(ShapeName)),
    help="Only this stack: one broker and worker, three of each, or proxies in between; again for more.",
)
@click.option(
    "--large-bytes",
    default=15_000_000,
    show_default=True,
    type=click.IntRange(1000, 15_000_000),
    help="How large the largest documents are.",
)
@click.option("--keep-going", is_flag=True, help="Go on, with a new stack, after a round that failed.")
@click.option(
    "--hits",
    "file",
    default=Path("soak.json"),
    show_default=True,
    type=click.Path(path_type=Path, dir_okay=False),
    help="Where the table of hits goes.",
)
def main(
    minutes: float | None,
    rounds: int | None,
    matrix: int | None,
    seed: int | None,
    faults: tuple[str, ...],
    states: tuple[str, ...],
    shapes: tuple[ShapeName, ...],
    large_bytes: int,
    keep_going: bool,
    file: Path,
) -> None:
    """Break a stack of its own, in a temporary folder, again and again, and compare both sides after each time.

    Every round prints its seed. Ends with 0 when all held, with 1 at the first round that did not; with --keep-going
    after the last one.
    """
    seed = SystemRandom().randrange(2**31) if seed is None else seed
    end = time.monotonic() + 60 * (minutes or (24 * 60 if matrix or rounds else 60))
    asked = Asked(
        seed, rounds, end, matrix, frozenset(faults or FAULTS), frozenset(states or STATES), large_bytes, keep_going
    )
    click.echo(f"seed {seed}")
    hits, place = Hits(), Path(tempfile.mkdtemp(prefix="towpath-soak-"))
    try:
        with guarded(place):
            _soak(asked, shapes or get_args(ShapeName), place, hits)
    finally:
        hits.write(file)
        failed = [str(one["failed"]) for one in hits.runs if "failed" in one]
        click.echo(f"{hits.table()}\n{len(hits.runs)} runs, {len(failed)} failed; written to {file}")
        if failed:
            click.echo(f"the logs of what ran are kept in {place}")
        else:
            shutil.rmtree(place, ignore_errors=True)
    sys.exit(1 if failed else 0)


def _soak(asked: Asked, shapes: Sequence[ShapeName], place: Path, hits: Hits) -> None:
    """A stack for each shape, and another one after a round that failed."""
    random = Random(asked.seed)
    for turn, shape in enumerate(shapes):
        end = time.monotonic() + (asked.end - time.monotonic()) / (len(shapes) - turn)
        most = None if asked.rounds is None else asked.rounds * (turn + 1) // len(shapes)
        before, goes_on = hits.hit.copy(), True
        while goes_on:
            folder = place / f"{shape}-{len(hits.runs)}"
            with site(SHAPES[shape], folder) as there:
                goes_on = _rounds(there, _plans(there, asked, random, hits, before, end, most), hits)
                if not goes_on or asked.keep_going:
                    continue
                return


def _rounds(there: Site, plans: Iterator[Plan], hits: Hits) -> bool:
    """Whether a round failed."""
    for plan in plans:
        begun, number = time.monotonic(), len(hits.runs) + 1
        click.echo(f"round {number}, {there.shape.name}, {plan}")
        told: dict[str, object] = {"shape": there.shape.name}
        try:
            result = run(there, plan, hits, there.directory / f"round-{number}")
        except _FAILURES as error:
            hits.runs.append(told | describe(plan) | {"failed": f"{type(error).__name__}: {error}"})
            click.echo(f"round {number} FAILED: {plan}: {type(error).__name__}: {error}")
            return True
        hits.runs.append(told | describe(plan) | result.as_json())
        word = "hit" if result.hit else "missed"
        click.echo(
            f"round {number}: same ({word}); {result.operations} operations, {result.events} changes at the"
            f" destination; flowing again after {result.recovered_s:.1f} s; {time.monotonic() - begun:.0f} s"
        )
    return False


def _plans(
    there: Site, asked: Asked, random: Random, hits: Hits, before: Counter[Pair], end: float, most: int | None
) -> Iterator[Plan]:
    """What comes next: any pair, or with a matrix one of those that were hit least."""
    chosen = [(f, s) for f, s in pairs(there) if f.name in asked.faults and s.name in asked.states]

    def times(pair: tuple[Fault, State]) -> int:
        key = pair[0].name, pair[1].name
        return hits.hit[key] - before[key]

    while chosen and time.monotonic() < end and (most is None or len(hits.runs) < most):
        least = min(map(times, chosen))
        if asked.matrix is not None and least >= asked.matrix:
            return
        fault, state = random.choice([pair for pair in chosen if asked.matrix is None or times(pair) == least])
        yield Plan(random.randrange(2**31), fault, state, large_bytes=asked.large_bytes)


if __name__ == "__main__":
    main(prog_name="scripts/soak")
