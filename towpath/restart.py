"""`towpath restart`"""

from __future__ import annotations

from pathlib import Path

import click

from connectors.lifecycle import require, wait_running
from towpath.opened import opened, pipeline_argument


@click.command()
@pipeline_argument
@click.option("--all", "everything", is_flag=True, help="Restart also what has not failed.")
@click.option("--timeout", default=60.0, show_default=True, help="Seconds to wait until all connectors run.")
def restart(file: Path, everything: bool, timeout: float) -> None:
    """Restart the connectors and tasks of PIPELINE that have failed; each goes on where it was."""
    with opened(file) as it:
        require(it.connect, it.topics, it.pipeline)
        for name in it.pipeline.connectors:
            it.connect.restart(name, only_failed=not everything)
        wait_running(it.connect, it.pipeline, timeout)
        click.echo(f"{it.pipeline.name}: running")
