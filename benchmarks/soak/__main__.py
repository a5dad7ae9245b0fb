"""`scripts/soak`: faults at random moments, one run after another, each compared byte for byte."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from random import Random, SystemRandom
from typing import get_args

import click
import httpx
from confluent_kafka import KafkaException
from pymongo.errors import PyMongoError

from benchmarks.soak.faults import FAULTS
from benchmarks.soak.hits import Hits
from benchmarks.soak.runs import Plan, Strike, describe, run, strikes
from benchmarks.soak.states import MIDDLE, STATES
from tests.support.guard import guarded
from tests.support.shapes import SHAPES, ShapeName
from tests.support.site import Site, site
from towpath.errors import TowpathError

#: All documents match: without a filter, all changes as whole documents, updates as updates.
_FILTERS = ("", '{"$expr": true}', '{"_id": {"$exists": true}}')
#: What ends a round, beside what it found out: a part that cannot be reached any more.
_FAILURES = (
    AssertionError,
    TowpathError,
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
    strikes: int
    plugins: Path | None
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
    help="Only this stack: sets of three nodes, three brokers and workers, or proxies in between; again for more.",
)
@click.option(
    "--strikes", default=6, show_default=True, type=click.IntRange(1, 20), help="Faults in a round, one after another."
)
@click.option(
    "--large-bytes",
    default=15_000_000,
    show_default=True,
    type=click.IntRange(1000, 15_000_000),
    help="How large the largest documents are.",
)
@click.option(
    "--plugins",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    help="The folder for Connect's plugin.path, instead of this checkout's plugin.",
)
@click.option("--keep-going", is_flag=True, help="Go on, with a new stack, after a round that failed.")
@click.option(
    "--hits",
    "file",
    default=Path("soak.json"),
    show_default=True,
    type=click.Path(path_type=Path, dir_okay=False),
    help="Where the table of hits goes; with --matrix, what is in it already counts.",
)
def main(
    minutes: float | None,
    rounds: int | None,
    matrix: int | None,
    seed: int | None,
    faults: tuple[str, ...],
    states: tuple[str, ...],
    shapes: tuple[ShapeName, ...],
    strikes: int,
    large_bytes: int,
    plugins: Path | None,
    keep_going: bool,
    file: Path,
) -> None:
    """Break a separate stack, in a temporary folder, again and again, and compare both sides after each time.

    Every round prints its seed. Ends with 0 when all held, with 1 at the first round that did not; with --keep-going
    after the last one.
    """
    seed = SystemRandom().randrange(2**31) if seed is None else seed
    end = time.monotonic() + 60 * (minutes or (24 * 60 if matrix or rounds else 60))
    os.environ.setdefault("JAVA_TOOL_OPTIONS", "-XX:TieredStopAtLevel=1")  # what is killed soon earns no more back
    chosen_faults, chosen_states = frozenset(faults or FAULTS), frozenset(states or STATES)
    asked = Asked(seed, rounds, end, matrix, chosen_faults, chosen_states, large_bytes, strikes, plugins, keep_going)
    hits, place = _before(file), Path(tempfile.mkdtemp(prefix="towpath-soak-"))
    click.echo(f"seed {seed}, commit {_commit()}")
    first = len(hits.runs)
    try:
        with guarded(place):
            _soak(asked, shapes or get_args(ShapeName), place, hits, file)
    finally:
        hits.write(file)
        failed = [str(one["failed"]) for one in hits.runs[first:] if "failed" in one]
        click.echo(f"{hits.table()}\n{len(hits.runs) - first} runs, {len(failed)} failed; written to {file}")
        if failed:
            click.echo(f"the logs of what ran are kept in {place}")
        else:
            shutil.rmtree(place, ignore_errors=True)
    sys.exit(1 if failed else 0)


def _before(file: Path) -> Hits:
    try:
        return Hits.read(file)
    except ValueError as error:
        raise click.UsageError(f"{error}; name another file with --hits") from error


def _commit() -> str:
    """What is broken: the commit, `-dirty` with changes that are not in it."""
    words = ["git", "describe", "--always", "--dirty", "--abbrev=10"]
    return subprocess.run(words, capture_output=True, text=True, check=False).stdout.strip() or "unknown"


def _soak(asked: Asked, shapes: Sequence[ShapeName], place: Path, hits: Hits, file: Path) -> None:
    """A stack for each shape, and another one after a round that failed."""
    random, first = Random(asked.seed), len(hits.runs)
    for turn, shape in enumerate(shapes):
        end = time.monotonic() + (asked.end - time.monotonic()) / (len(shapes) - turn)
        most = None if asked.rounds is None else first + asked.rounds * (turn + 1) // len(shapes)
        goes_on = True
        while goes_on:
            folder = place / f"{shape}-{len(hits.runs)}"
            with site(SHAPES[shape], folder, asked.plugins) as there:
                goes_on = _rounds(there, _plans(there, asked, random, hits, end, most), hits, file)
            _drop_data(folder)
            if goes_on and not asked.keep_going:
                return


def _drop_data(folder: Path) -> None:
    """What is kept of a stack are its logs and what commands have said: the rest is gigabytes."""
    for place in folder.iterdir():
        if place.is_dir() and place.name != "logs" and not place.name.startswith("round-"):
            shutil.rmtree(place, ignore_errors=True)


def _rounds(there: Site, plans: Iterator[Plan], hits: Hits, file: Path) -> bool:
    """Whether a round failed."""
    commit = _commit()
    for plan in plans:
        begun, number = time.monotonic(), len(hits.runs) + 1
        click.echo(f"round {number}, {there.shape.name}, {plan}")
        told: dict[str, object] = {"commit": commit, "shape": there.shape.name}
        try:
            result = run(there, plan, hits, there.directory / f"round-{number}")
        except _FAILURES as error:
            hits.runs.append(told | describe(plan) | {"failed": f"{type(error).__name__}: {error}"})
            click.echo(f"round {number} FAILED: {plan}: {type(error).__name__}: {error}")
            hits.write(file)
            return True
        hits.runs.append(told | describe(plan) | result.as_json())
        hits.write(file)
        met = sum(one.hit for one in result.struck)
        click.echo(
            f"round {number}: same ({met} of {len(result.struck)} hit); {result.operations} operations, {result.events}"
            f" changes at the destination; {result.lists.appends} appends, {result.lists.points} times as of one time;"
            f" flowing again after {result.recovered_s:.1f} s at most;"
            f" {time.monotonic() - begun:.0f} s"
        )
    return False


def _plans(there: Site, asked: Asked, random: Random, hits: Hits, end: float, most: int | None) -> Iterator[Plan]:
    """What comes next: any pairs, or with a matrix those that were hit least."""
    chosen = [it for it in strikes(there.shape.name) if it.fault.name in asked.faults and it.state.name in asked.states]
    filters = cycle(random.sample(_FILTERS, len(_FILTERS)))
    while time.monotonic() < end and (most is None or len(hits.runs) < most):
        left = [it for it in chosen if asked.matrix is None or hits.hit[it.pair] < asked.matrix]
        if not left:
            return
        random.shuffle(left)
        if asked.matrix is not None:
            left.sort(key=lambda it: hits.hit[it.pair])
        seed = random.randrange(2**31)
        yield Plan(seed, _row(left, asked.strikes), large_bytes=asked.large_bytes, only=next(filters))


def _row(wanted: Sequence[Strike], most: int) -> tuple[Strike, ...]:
    """The first of these that fit into one round, each in its turn."""
    chosen: list[Strike] = []
    for one in wanted:
        same = [it for it in chosen if it.state.turn == one.state.turn]
        if len(chosen) < most and (one.state.turn == MIDDLE or not same):
            chosen.append(one)
    return tuple(sorted(chosen, key=lambda it: it.state.turn))


if __name__ == "__main__":
    main(prog_name="scripts/soak")
