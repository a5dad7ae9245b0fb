"""`towpath pause` and `towpath resume`"""

from __future__ import annotations

from pathlib import Path

import click

from connectors.control import wait_running
from towpath.bookkeeping import cutover
from towpath.cli.options import opened, pipeline_argument
from towpath.deploy.loops import refuse_ring_on_resuming


@click.command()
@pipeline_argument
def pause(file: Path) -> None:
    """Pause all connectors of PIPELINE. They keep their positions.

    Run it before maintenance, for example. `resume` must come while the source's oplog still holds the changes since
    the pause; after that only `resnapshot` helps.

    Exit codes: 0 paused; 2 it cannot be done.
    """
    with opened(file) as it:
        it.require_deployed()
        for name in it.pipeline.connectors:
            it.connect.pause(name)
        click.echo(f"{it.pipeline.name}: paused")


@click.command()
@pipeline_argument
@click.option("--timeout", default=60.0, show_default=True, help="Seconds to wait until all connectors are running.")
def resume(file: Path, timeout: float) -> None:
    """Resume the paused connectors of PIPELINE where they stopped.

    Run it after `pause`.

    Exit codes: 0 running; 1 a connector does not run yet; 2 it cannot be done.
    """
    with opened(file) as it:
        it.require_deployed()
        cutover.refuse(it.pipeline)
        refuse_ring_on_resuming(it.pipeline, it.connect, it.topics)
        for name in it.pipeline.connectors:
            it.connect.resume(name)
        wait_running(it.connect, it.pipeline, timeout)
        click.echo(f"{it.pipeline.name}: running")
