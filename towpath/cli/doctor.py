"""`towpath doctor`"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import click

from towpath.cli import launcher
from towpath.cli.options import FILE, opened, pipeline_argument, say
from towpath.run import doctor as collected


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
