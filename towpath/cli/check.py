"""`towpath check`"""

from __future__ import annotations

from pathlib import Path

import click

from towpath.checks.facts import Facts
from towpath.checks.rule import LEVELS, Finding
from towpath.cli.options import json_option, opened, pipeline_argument, print_json
from towpath.config.text import counted
from towpath.deploy import deployment

_COLOURS = {"error": "red", "warning": "yellow", "ok": "green"}


@click.command()
@pipeline_argument
@json_option
def check(file: Path, as_json: bool) -> None:
    """Check the file PIPELINE and all servers that it names, and print advice for each error and warning.

    Run it before the first `deploy` and after each change of the file. It changes nothing.

    Exit codes: 0 no errors (warnings are allowed); 1 errors; 2 the file cannot be read.
    """
    with opened(file) as session:
        findings = sorted(deployment.findings(Facts(session)), key=lambda finding: LEVELS.index(finding.level))
    for finding in findings:
        print_json(finding.as_json()) if as_json else click.echo(_lines(finding))
    counts = {level: sum(finding.level == level for finding in findings) for level in LEVELS}
    if not as_json:
        click.echo(f"{counted(counts['error'], 'error')}, {counted(counts['warning'], 'warning')}")
    if counts["error"]:
        raise click.exceptions.Exit(1)


def _lines(finding: Finding) -> str:
    level = click.style(f"{finding.level:<8}", fg=_COLOURS[finding.level], bold=finding.level == "error")
    line = f"{level} {finding.subject}: {finding.finding}"
    return f"{line}\n         → {finding.advice}" if finding.advice else line
