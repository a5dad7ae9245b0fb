"""`towpath wait`"""

from __future__ import annotations

import time
from pathlib import Path

import click

from towpath import barrier
from towpath.cli.options import opened, pipeline_argument, say


@click.command()
@pipeline_argument
@click.option("--timeout", default=300.0, show_default=True, help="Seconds before it gives up with exit code 1.")
def wait(file: Path, timeout: float) -> None:
    """Wait until everything that was written to the source before the call is at the destination.

    Run it as a barrier, for example before you read from the destination. Writers may continue. It waits until nothing
    is left to copy, until the log has passed the source's cluster time at the call, until all re-read requests are
    answered, and until every partition is applied up to its end. It writes nothing to the source.

    Exit codes: 0 caught up; 1 not caught up in time; 2 it cannot be done.
    """
    with opened(file) as it:
        it.require_deployed()
        start = time.monotonic()
        barrier.wait(it.pipeline, it.connect, it.topics, timeout, say)
        click.echo(f"{it.pipeline.name}: caught up after {time.monotonic() - start:.1f} s")
