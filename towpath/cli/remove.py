"""`towpath remove`"""

from __future__ import annotations

from pathlib import Path

import click

from towpath.cli.options import opened, pipeline_argument, say
from towpath.deploy import deployment
from towpath.errors import TowpathError
from towpath.replay import connector
from towpath.replay.plan import every, find, left_behind
from towpath.session import Session
from towpath.topic_settings import pipeline_topics


@click.command()
@pipeline_argument
@click.option("--topics", "log", is_flag=True, help="Also delete the log: all topics, and the positions.")
@click.option("--yes", is_flag=True, help="Do not ask before the log is deleted.")
@click.option("--replay", "label", metavar="LABEL", help="Remove only this replay, finished or not.")
@click.option("--dry-run", is_flag=True, help="Print what would be removed, and remove nothing.")
def remove(file: Path, log: bool, yes: bool, label: str | None, dry_run: bool) -> None:
    """Remove the connectors of PIPELINE. The documents of both clusters stay as they are.

    Run it to end a pipeline. Without --topics the log and the positions stay: `deploy` continues from there while the
    source's oplog still holds the changes since. With --topics the pipeline's replays end too, because their log is
    gone.

    Exit codes: 0 removed; 2 it cannot be done, or you did not confirm.
    """
    if label is not None and log:
        raise click.UsageError("give one of --topics and --replay: a replay has no log of its own")
    with opened(file) as it:
        it.topics.brokers()  # first: without Kafka, Connect lets every request wait for 90 s
        if label is not None:
            _remove_replay(it, label, dry_run=dry_run)
            return
        replays = every(it.connect, it.pipeline) if log else ()
        doomed = pipeline_topics(it.pipeline, it.topics.all()) if log else []
        if dry_run:
            for name in (*(replay.name for replay in replays), *it.pipeline.connectors, *doomed):
                say(f"would remove {name}")
            return
        if doomed and not yes:
            ended = f" and end {len(replays)} replays" if replays else ""
            words = f"Delete {len(doomed)} topics with all their records{ended}? This cannot be undone"
            click.confirm(words, abort=True)
        for replay in replays:
            connector.remove(replay, it.connect, it.topics, keep_letters=False, say=say)
        deployment.remove(it.pipeline, it.connect, it.topics, log=log, say=say)
        click.echo(f"{it.pipeline.name}: removed" + ("" if log else "; its log and positions are kept"))


def _remove_replay(it: Session, label: str, *, dry_run: bool) -> None:
    replay = find(it.connect, it.pipeline, label) or left_behind(it.topics, it.pipeline, label)
    if replay is None:
        names = ", ".join(one.label for one in every(it.connect, it.pipeline)) or "none"
        raise TowpathError(f"{it.pipeline.name} has no replay {label}; existing replays: {names}")
    if dry_run:
        say(f"would remove {replay.name}")
        return
    connector.remove(replay, it.connect, it.topics, keep_letters=False, say=say)
    click.echo(f"{it.pipeline.name}: replay {label} removed; its destination keeps what it holds")
