"""`towpath check`"""

from __future__ import annotations

import json
from pathlib import Path

import click

from towpath.cli.options import json_option, opened, pipeline_argument
from towpath.finding import LEVELS, Finding
from towpath.preflight.everything import everything
from towpath.text import counted

_COLOURS = {"error": "red", "warning": "yellow", "ok": "green"}


@click.command()
@pipeline_argument
@json_option
def check(file: Path, as_json: bool) -> None:
    """Look at PIPELINE and at all servers that it names, and say what to do. Changes nothing.

    Exit 0 when no error was found, 1 when one was, 2 when the file cannot be read. Warnings are traps, not errors.
    """
    with opened(file) as it:
        found = sorted(everything(it, file), key=lambda finding: LEVELS.index(finding.level))
    for finding in found:
        click.echo(json.dumps(finding.as_json(), ensure_ascii=False) if as_json else _lines(finding))
    counts = {level: sum(finding.level == level for finding in found) for level in LEVELS}
    if not as_json:
        click.echo(f"{counted(counts['error'], 'error')}, {counted(counts['warning'], 'warning')}")
    if counts["error"]:
        raise click.exceptions.Exit(1)


def _lines(finding: Finding) -> str:
    level = click.style(f"{finding.level:<8}", fg=_COLOURS[finding.level], bold=finding.level == "error")
    line = f"{level} {finding.subject}: {finding.finding}"
    return f"{line}\n         → {finding.advice}" if finding.advice else line
