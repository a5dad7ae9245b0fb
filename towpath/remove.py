"""`towpath remove`"""

from __future__ import annotations

from pathlib import Path

import click

from connectors import lifecycle
from towpath.opened import opened, pipeline_argument, say


@click.command()
@pipeline_argument
@click.option("--topics", "log", is_flag=True, help="Delete the log as well: all topics, and the positions.")
@click.option("--yes", is_flag=True, help="Do not ask before the log is deleted.")
@click.option("--dry-run", is_flag=True, help="Say what would be removed, and remove nothing.")
def remove(file: Path, log: bool, yes: bool, dry_run: bool) -> None:
    """Remove the connectors of PIPELINE. Neither cluster's documents are touched.

    Without --topics the log and the positions stay, and `deploy` goes on where this ended, as long as the source's
    oplog reaches back to it.
    """
    with opened(file) as it:
        it.topics.brokers()  # first: without Kafka, Connect lets every request wait for 90 s
        doomed = lifecycle.pipeline_topics(it.pipeline, it.topics) if log else []
        if dry_run:
            for name in (*it.pipeline.connectors, *doomed):
                say(f"would remove {name}")
            return
        if doomed and not yes:
            click.confirm(f"Delete {len(doomed)} topics with all their records? They can't be brought back", abort=True)
        lifecycle.remove(it.pipeline, it.connect, it.topics, log=log, say=say)
        click.echo(f"{it.pipeline.name}: removed" + ("" if log else "; its log and positions are kept"))
