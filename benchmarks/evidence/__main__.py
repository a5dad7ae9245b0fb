"""`scripts/evidence`: the fault suite with the history check, then each planted fault; and a page of what they show."""

from __future__ import annotations

import json
import shlex
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from random import SystemRandom

import click

from benchmarks.bench.report import commit, machine
from benchmarks.evidence import page, runs
from benchmarks.evidence.planted import PLANTED, ROOT
from benchmarks.evidence.runs import Soak, Tried
from benchmarks.soak.runs import strikes
from tests.support.guard import guarded
from tests.support.shapes import SHAPES
from towpath.stack.tools import versions

_RESULTS = ROOT / "docs" / "evidence.json"


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--minutes",
    default=120.0,
    show_default=True,
    type=click.FloatRange(min=1),
    help="Half of them for the fault suite; no planted fault begins after the other half.",
)
@click.option(
    "--rounds", default=10, show_default=True, type=click.IntRange(1), help="The most for each planted fault."
)
@click.option("--seed", type=click.IntRange(min=0), help="Of everything that is random; default: a random one.")
@click.option("--planted", "chosen", multiple=True, metavar="WORDS", help="Only faults with these words in their name.")
@click.option(
    "--results",
    default=_RESULTS,
    show_default=True,
    type=click.Path(path_type=Path, dir_okay=False),
    help="The JSON; the page is written beside it.",
)
@click.option("--page", "only_page", is_flag=True, help="Only write the page, from the results that are there.")
def main(
    minutes: float, rounds: int, seed: int | None, chosen: tuple[str, ...], results: Path, only_page: bool
) -> None:
    """Run again what the guarantees rest on, and write the results with a page of them.

    The fault suite is scripts/soak on all stacks. Of the pairs of a fault and a state, those that were hit least come
    next, and each round includes the history check.
    Then each planted fault is built into a plugin, and a soak of that plugin has to fail. A round with the plugin as it
    is shows that it is the fault that was noticed.

    Everything runs on 127.0.0.1 in a temporary folder, and ends with this command. Exit code 0: every round held, and
    every planted fault was noticed; 1: not so, or not all were run; 2: something could not run.
    """
    if only_page:
        click.echo(f"wrote {page.write(results)}")
        return
    signal.signal(signal.SIGTERM, lambda *about: sys.exit(128 + signal.SIGTERM))  # what it started is stopped then
    seed = SystemRandom().randrange(2**31) if seed is None else seed
    begun, place = time.monotonic(), Path(tempfile.mkdtemp(prefix="towpath-evidence-"))
    measured = commit()
    click.echo(f"seed {seed}, commit {measured}; logs in {place}")
    tried = list[Tried]()
    with guarded(place):
        suite = runs.suite(place, seed, minutes / 2)
        click.echo(f"fault suite: {len(suite.rounds)} rounds; {suite.failed or 'all held'}")
        wanted = [one for one in PLANTED if not chosen or any(words in one.name for words in chosen)]
        for one in runs.tried(wanted, place, seed, rounds, begun + 60 * minutes):
            click.echo(f"{one.verdict}: {one.name}{f' ({one.by})' if one.by else ''}")
            tried.append(one)
    found = {
        "command": shlex.join(["scripts/evidence", *sys.argv[1:]]),
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": measured,
        "seed": seed,
        "seconds": round(time.monotonic() - begun),
        "machine": machine(),
        "versions": dict(versions()),
        "pairs": [strike.pair for shape in SHAPES for strike in strikes(shape)],
        "suite": asdict(suite),
        "planted": [asdict(one) for one in tried],
    }
    results.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    click.echo(f"wrote {results} and {page.write(results)}")
    code = exit_code(suite, tried)
    if not code:
        shutil.rmtree(place, ignore_errors=True)
    sys.exit(code)


def exit_code(suite: Soak, tried: Sequence[Tried]) -> int:
    verdicts = {one.verdict for one in tried}
    if suite.ended not in (0, 1) or not suite.rounds or "could not run" in verdicts:
        return 2
    return int(bool(suite.failed) or verdicts != {"noticed"})


if __name__ == "__main__":
    main(prog_name="scripts/evidence")
