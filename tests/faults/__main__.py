"""`scripts/soak`: faults at random moments, one run after another, each compared byte for byte."""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random, SystemRandom
from typing import get_args

import click

from tests.faults.faults import FAULTS, Fault
from tests.faults.hits import Hits
from tests.faults.runs import Plan, pairs, record, run
from tests.faults.shapes import SHAPES, ShapeName
from tests.faults.site import Site, site
from tests.faults.states import STATES, State
from tests.support.guard import guarded


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
    file: Path,
) -> None:
    """Break a stack of its own, in a temporary folder, again and again, and compare both sides after each time.

    Every round prints its seed. Ends with 0 when all held, with 1 at the first round that did not.
    """
    seed = SystemRandom().randrange(2**31) if seed is None else seed
    end = time.monotonic() + 60 * (minutes or (24 * 60 if matrix or rounds else 60))
    asked = Asked(seed, rounds, end, matrix, frozenset(faults or FAULTS), frozenset(states or STATES), large_bytes)
    click.echo(f"seed {seed}")
    hits = Hits()
    try:
        with tempfile.TemporaryDirectory(prefix="towpath-soak-") as place, guarded(Path(place)):
            _soak(asked, shapes or get_args(ShapeName), Path(place), hits)
    except AssertionError as error:
        click.echo(f"FAILED: {error}")
        sys.exit(1)
    finally:
        hits.write(file)
        click.echo(f"{hits.table()}\n{len(hits.runs)} runs; written to {file}")


def _soak(asked: Asked, shapes: tuple[ShapeName, ...], place: Path, hits: Hits) -> None:
    random, number = Random(asked.seed), 0
    for turn, shape in enumerate(shapes):
        share = (asked.end - time.monotonic()) / (len(shapes) - turn)
        until = time.monotonic() + share
        wanted = None if asked.rounds is None else asked.rounds * (turn + 1) // len(shapes) - number
        with site(SHAPES[shape], place / shape) as there:
            for plan in _plans(there, asked, random, hits, until, wanted):
                number += 1
                _round(there, plan, number, hits, place / f"round-{number}")


def _plans(there: Site, asked: Asked, random: Random, hits: Hits, end: float, most: int | None) -> Iterator[Plan]:
    """What comes next: any pair, or with a matrix one of those that were hit least."""
    chosen = [(f, s) for f, s in pairs(there) if f.name in asked.faults and s.name in asked.states]
    number, before = 0, hits.hit.copy()

    def times(pair: tuple[Fault, State]) -> int:
        key = pair[0].name, pair[1].name
        return hits.hit[key] - before[key]

    while chosen and time.monotonic() < end and (most is None or number < most):
        least = min(map(times, chosen))
        if asked.matrix is not None and least >= asked.matrix:
            return
        fault, state = random.choice([pair for pair in chosen if asked.matrix is None or times(pair) == least])
        number += 1
        yield Plan(random.randrange(2**31), fault, state, large_bytes=asked.large_bytes)


def _round(there: Site, plan: Plan, number: int, hits: Hits, folder: Path) -> None:
    begun = time.monotonic()
    click.echo(f"round {number}, {there.shape.name}, {plan}")
    result = run(there, plan, hits, folder)
    hits.runs.append(record(plan, result) | {"shape": there.shape.name, "seconds": round(time.monotonic() - begun)})
    word = "hit" if result.hit else "missed"
    click.echo(
        f"round {number}: same ({word}); {result.operations} operations, {result.events} changes at the destination;"
        f" flowing {result.recovered_s:.1f} s after the fault; {time.monotonic() - begun:.0f} s"
    )


if __name__ == "__main__":
    main(prog_name="scripts/soak")
