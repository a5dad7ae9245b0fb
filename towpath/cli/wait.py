"""`towpath wait`, which imports little: it is called often, and starts fast."""

from __future__ import annotations

import time
from contextlib import closing
from pathlib import Path

import click

from towpath.cli.options import pipeline_argument, say
from towpath.clients.mongo.client import Cluster
from towpath.clients.mongo.replica_set import passed_time
from towpath.config import loading as pipeline_file


@click.command()
@pipeline_argument
@click.option("--timeout", default=300.0, help="Seconds before it gives up with exit code 1.")
def wait(file: Path, timeout: float) -> None:
    """Wait until everything that was written to the source before the call is applied at the destination.

    Run it as a barrier, for example before you read from the destination. Writers may continue. It waits until nothing
    is left to copy, until the log has passed the source's cluster time at the call, until all re-read requests are
    answered, and until every partition is applied up to its end. What the destination refuses counts as applied: it is
    a dead letter, which `status` counts. It changes no document at the source; where its user may, it adds a note to
    the oplog, so that an idle source's time passes immediately.

    Exit codes: 0 caught up; 1 not caught up in time; 2 it cannot be done.
    """
    start = time.monotonic()
    pipeline = pipeline_file.read(file)
    with closing(Cluster(pipeline.source.uri, "source")) as source:
        target = passed_time(source)  # first: capture passes it during the imports below
        from towpath import session
        from towpath.log import barrier

        with session.opened(file, pipeline, say, (source,)) as opened:
            opened.require_deployed()
            barrier.refuse_other_source(opened)
            barrier.wait(opened, timeout, say, target)
    click.echo(f"{pipeline.name}: caught up after {time.monotonic() - start:.1f} s")
