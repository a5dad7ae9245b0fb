"""`towpath check` and `towpath doctor`"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import click

from towpath.checks.facts import Facts
from towpath.checks.rule import LEVELS, Finding
from towpath.cli import launcher
from towpath.cli.options import FILE, json_option, opened, pipeline_argument, print_json, say
from towpath.config.text import counted
from towpath.deploy import deployment
from towpath.run import doctor as collected

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


@click.command()
@pipeline_argument
@click.option(
    "--log",
    "logs",
    multiple=True,
    type=click.Path(path_type=Path, exists=True),
    help="A log to add, such as a Connect worker's, or a folder of *.log; repeatable.",
)
@click.option("--output", type=FILE, help="The archive; default: towpath-doctor-NAME-TIME.zip in this folder.")
def doctor(file: Path, logs: tuple[Path, ...], output: Path | None) -> None:
    """Collect what a bug report about PIPELINE needs into a ZIP archive, and print its path.

    The archive has versions, the pipeline file, what `status` and `check` print, the connectors' configurations,
    states and offsets, the topics' settings, and the end of each log that --log names. Passwords and keys are
    replaced. Run it at any time, also when servers do not answer; it changes nothing.

    Exit codes: 0 written; 2 the pipeline file or a log cannot be read, or the archive cannot be written.
    """
    with opened(file) as session:
        archive = output or Path(f"towpath-doctor-{session.pipeline.name}-{datetime.now(UTC):%Y%m%dT%H%M%SZ}.zip")
        names = collected.write(session, file, logs, archive, launcher)
    say(f"holds {', '.join(names)}; look through it before you pass it on")
    click.echo(archive)
