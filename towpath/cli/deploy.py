"""`towpath deploy` and `towpath remove`"""

from __future__ import annotations

from pathlib import Path

import click

from connectors.control import wait_running
from towpath.cli.options import json_option, opened, pipeline_argument, print_json, say
from towpath.cli.prepare import tell_rest
from towpath.deploy import deployment
from towpath.deploy.deployment import Deployment
from towpath.deploy.inventory import Inventory
from towpath.errors import MongoUnreachable, TowpathError
from towpath.pipeline import Pipeline
from towpath.preflight.everything import require_ready
from towpath.replay import connector
from towpath.replay.plan import every, find, left_behind
from towpath.schema import apply, plan
from towpath.schema.plan import EMPTY, Plan
from towpath.session import Session
from towpath.topic_settings import pipeline_topics


@click.command()
@pipeline_argument
@click.option("--dry-run", is_flag=True, help="Print what would change, and change nothing.")
@click.option("--allow-missing", is_flag=True, help="Accept namespaces and patterns that match no collection yet.")
@click.option(
    "--prepare/--no-prepare",
    "prepares",
    default=True,
    help="First create the source's collections and views at the destination, with their options, as `towpath prepare`"
    " does.",
)
@click.option("--timeout", default=120.0, show_default=True, help="Seconds to wait until all connectors are running.")
@json_option
def deploy(file: Path, dry_run: bool, allow_missing: bool, prepares: bool, timeout: float, as_json: bool) -> None:
    """Create or update the topics and connectors of PIPELINE.

    Run it to start a pipeline, and again after each change of the file: it then changes only what differs from the
    file. It stops before it changes anything when a change would break the order of records or lose some of them
    (another partition count, a renamed pipeline, colliding topic names, …), and when `towpath check` finds an error.
    Warnings do not stop it.

    Exit codes: 0 deployed and running, or nothing to change; 1 a connector does not run yet; 2 it cannot be done.
    """
    with opened(file) as it:
        inventory = Inventory(it.pipeline, it.connect, it.topics, allow_missing=allow_missing)
        changes = Deployment(inventory).plan()
        require_ready(inventory)
        made = _prepared(it.pipeline) if prepares else EMPTY
        if dry_run:
            for step in made.collections:
                say(f"would {step.description}")
        else:
            apply.run(it.pipeline, made.collections, lambda step: say(step.description))
        tell_rest(made)
        for change in changes:
            say(f"{'would ' if dry_run else ''}{change.description}")
            if not dry_run:
                change.apply()
        if not dry_run:
            wait_running(it.connect, it.pipeline, timeout)
        words = [*(step.description for step in made.collections), *(change.description for change in changes)]
        if as_json:
            print_json({"dry_run": dry_run, "changes": words})
        elif not words:
            click.echo(f"{it.pipeline.name}: nothing to change")
        elif not dry_run:
            click.echo(f"{it.pipeline.name}: deployed, {len(it.pipeline.connectors)} connectors running")


def _prepared(pipeline: Pipeline) -> Plan:
    """What is to be made at the destination; nothing where its user may not look."""
    try:
        return plan.plan(pipeline)
    except MongoUnreachable as error:
        say(
            f"no collections are created at the destination: {error}; the first document of each creates it, without"
            " options"
        )
        return EMPTY


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
