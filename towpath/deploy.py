"""`towpath deploy`"""

from __future__ import annotations

import json
from pathlib import Path

import click

from connectors.deploy import Deployment
from connectors.lifecycle import wait_running
from connectors.servers import look
from towpath.opened import json_option, opened, pipeline_argument, say


@click.command()
@pipeline_argument
@click.option("--dry-run", is_flag=True, help="Say what would change, and change nothing.")
@click.option("--allow-missing", is_flag=True, help="Accept namespaces and patterns that match no collection yet.")
@click.option("--timeout", default=120.0, show_default=True, help="Seconds to wait until all connectors run.")
@json_option
def deploy(file: Path, dry_run: bool, allow_missing: bool, timeout: float, as_json: bool) -> None:
    """Create or update the topics and connectors of PIPELINE.

    Deploying again changes only what differs from the file. What would break the order of records or lose some of
    them (another partition count, a renamed pipeline, colliding topic names, …) is refused.
    """
    with opened(file) as it:
        changes = Deployment(it.pipeline, look(it.pipeline, allow_missing=allow_missing), it.connect, it.topics).plan()
        for change in changes:
            say(f"{'would ' if dry_run else ''}{change.words}")
            if not dry_run:
                change.apply()
        if not dry_run:
            wait_running(it.connect, it.pipeline, timeout)
        if as_json:
            click.echo(json.dumps({"dry_run": dry_run, "changes": [change.words for change in changes]}))
        elif not changes:
            click.echo(f"{it.pipeline.name}: nothing to change")
        elif not dry_run:
            click.echo(f"{it.pipeline.name}: deployed, {len(it.pipeline.connectors)} connectors running")
