"""`towpath wait`"""

from __future__ import annotations

import time
from pathlib import Path

import click

from towpath import barrier
from towpath.cli.options import opened, pipeline_argument, say


@click.command()
@pipeline_argument
@click.option("--timeout", default=300.0, show_default=True, help="Seconds after which to give up with exit status 1.")
def wait(file: Path, timeout: float) -> None:
    """Return once everything written to the source before this call is at the destination.

    A barrier, not silence: the source's time at the call has passed through the log with nothing left to copy, what
    was asked to be read again is in it, and then every partition of every topic is applied up to its end. Nothing is
    written to the source.
    """
    with opened(file) as it:
        it.require_deployed()
        start = time.monotonic()
        barrier.wait(it.pipeline, it.connect, it.topics, timeout, say)
        click.echo(f"{it.pipeline.name}: in step after {time.monotonic() - start:.1f} s")
