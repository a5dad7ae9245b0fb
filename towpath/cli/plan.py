"""`towpath plan`"""

from __future__ import annotations

from pathlib import Path

import click

from towpath.checks.planning.decide import decide
from towpath.checks.planning.gather import gather
from towpath.checks.planning.render import json_fields, text
from towpath.cli import DIFFERENT, TROUBLE
from towpath.cli.options import FILE, json_option, opened, pipeline_argument, print_json, say
from towpath.cli.report.plan import write_report


@click.command()
@pipeline_argument
@click.option(
    "--sample",
    "seconds",
    default=3.0,
    type=click.FloatRange(0, 60),
    metavar="SECONDS",
    help="How long to read from the source, within the limits in [capture]; 0: no sample, and no time for the copy.",
)
@click.option("--html", "report", type=FILE, help="Also write an HTML page, for a change ticket.")
@json_option
def plan(file: Path, seconds: float, report: Path | None, as_json: bool) -> None:
    """Estimate what PIPELINE needs, find what stops it, and print the commands to run next.

    Run it before the first `deploy`. It changes nothing: it counts documents and bytes, reads from the source for some
    seconds as the copy would, and estimates the time for the copy, the disk that the log and the destination need, and
    how far the oplog must reach back. It includes all that `check` finds. What cannot be found out is shown as unknown,
    with the reason.

    Exit codes: 0 it could begin; 1 errors stop it; 2 a server does not answer, or the file cannot be read.
    """
    with opened(file) as session:
        found = decide(gather(session, file, seconds), file)
    if as_json:
        print_json(json_fields(found))
    else:
        click.echo(text(found))
    if report is not None:
        write_report(report, found)
        say(f"wrote {report}")
    if found.facts.unreachable:
        raise click.exceptions.Exit(TROUBLE)
    if found.errors:
        raise click.exceptions.Exit(DIFFERENT)
