"""`towpath deploy` and `towpath remove`"""

from __future__ import annotations

from pathlib import Path

import click

from towpath.checks import target
from towpath.checks.facts import Facts, OwnTopics
from towpath.checks.rule import require
from towpath.cli.options import flag, json_option, opened, pipeline_argument, print_json, say
from towpath.cli.prepare import report_rest
from towpath.clients.connect.control import wait_running
from towpath.deploy import deployment, operator
from towpath.deploy.deployment import Deployment
from towpath.deploy.schema import apply, plan
from towpath.deploy.schema.plan import EMPTY, Plan
from towpath.errors import MongoError, MongoUnreachable, TowpathError
from towpath.history.replay import steps
from towpath.history.replay.plan import find, find_all, find_leftovers
from towpath.session import Session


@click.command()
@pipeline_argument
@flag("--dry-run", help="Print what would change, and change nothing.")
@flag("--allow-missing", help="Accept namespaces and patterns that match no collection yet.")
@click.option(
    "--prepare/--no-prepare",
    "prepares",
    default=True,
    show_default=False,
    help="First create the source's collections and views at the destination, with their options, as `towpath prepare`"
    " does.",
)
@click.option("--timeout", default=120.0, help="Seconds to wait until all connectors are running.")
@json_option
def deploy(file: Path, dry_run: bool, allow_missing: bool, prepares: bool, timeout: float, as_json: bool) -> None:
    """Create or update the topics and connectors of PIPELINE.

    Run it to start a pipeline, and again after each change of the file: it then changes only what differs from the
    file. It stops before it changes anything when a change would break the order of records or lose some of them
    (another partition count, a renamed pipeline, colliding topic names, …), and when `towpath check` finds an error.
    Warnings do not stop it. Connectors that Strimzi's operator owns ([connect] owner) are compared and not changed.

    Exit codes: 0 deployed and running, or nothing to change; 1 a connector does not run yet, or differs and belongs to
    an operator; 2 it cannot be done.
    """
    with opened(file) as session:
        planned = Deployment(Facts(session, allow_missing=allow_missing))
        changes, differences = planned.plan(), planned.differences()
        in_log = session.pipeline.ddl.apply  # the sink creates collections, with the options of their time
        schema = _schema_plan(session) if prepares and not in_log else EMPTY
        if dry_run:
            for step in schema.collections:
                say(f"would {step.description}")
        else:
            apply.run(session.destination, schema.collections, lambda step: say(step.description))
        report_rest(schema)
        for change in changes:
            say(f"{'would ' if dry_run else ''}{change.description}")
            if not dry_run:
                change.apply()
        for difference in differences:
            say(str(difference))
        if not dry_run and not differences:
            wait_running(session.connect, session.pipeline.connectors, timeout)
        descriptions = [*(step.description for step in schema.collections), *(change.description for change in changes)]
        if as_json:
            words = [difference.description for difference in differences]
            print_json({"dry_run": dry_run, "changes": descriptions, "differences": words})
        elif differences:
            pass
        elif not descriptions:
            click.echo(f"{session.pipeline.name}: nothing to change")
        elif not dry_run:
            click.echo(f"{session.pipeline.name}: deployed, {len(session.pipeline.connectors)} connectors running")
        if differences:
            raise click.exceptions.Exit(1)


def _schema_plan(session: Session) -> Plan:
    """The collections and views to create at the destination. Raises `MongoError` if either cluster cannot be read."""
    try:
        return plan.plan(session)
    except MongoError as error:
        raise TowpathError(
            f"nothing was deployed, because the collections to create at the destination are not known: {error}",
            "with --no-prepare the first document of each collection creates it, without its options and its collation",
            where=error.where,
        ) from error


@click.command()
@pipeline_argument
@flag("--topics", "log", help="Also delete the log: all topics, and the positions.")
@flag("--yes", help="Do not ask before the log is deleted.")
@click.option("--replay", "label", metavar="LABEL", help="Remove only this replay, finished or not.")
@flag("--dry-run", help="Print what would be removed, and remove nothing.")
def remove(file: Path, log: bool, yes: bool, label: str | None, dry_run: bool) -> None:
    """Remove the connectors of PIPELINE. The documents of both clusters stay as they are.

    Run it to end a pipeline. Without --topics the log and the positions stay: `deploy` continues from there while the
    source's oplog still holds the changes since. With --topics the pipeline's replays end too, because their log is
    gone; it lists the topics that were made for the pipeline, and leaves others whose names are like theirs.

    Exit codes: 0 removed; 2 it cannot be done, or you did not confirm.
    """
    if label is not None and log:
        raise click.UsageError("give one of --topics and --replay: a replay has no log of its own")
    with opened(file) as session:
        session.topics.brokers()  # first: without Kafka, every request to Connect blocks for 90 s
        if label is not None:
            _remove_replay(session, label, dry_run=dry_run)
            return
        operator.refuse_removal(session.pipeline, session.connect, log=log)
        facts = Facts(session)
        _refuse_other_target(facts, log=log)
        replays = find_all(session.connect, session.pipeline) if log else ()
        topics = facts.own_topics if log else OwnTopics({})
        if dry_run:
            for name in (*(replay.name for replay in replays), *session.pipeline.connectors, *topics.names):
                say(f"would remove {name}")
            _report_others(topics)
            return
        if topics.names and not yes:
            for name in topics.names:
                say(f"topic {name}")
            ending = f" and end {len(replays)} replays" if replays else ""
            question = f"Delete these {len(topics.names)} topics with all their records{ending}? This cannot be undone"
            click.confirm(question, abort=True)
        for replay in replays:
            steps.remove(replay, session, keep_letters=False)
        deployment.remove(session, log=log, say=say, facts=facts)
        _report_others(topics)
        if session.pipeline.has_operator:
            say(f"next: {operator.removal(session.pipeline)}")
        click.echo(f"{session.pipeline.name}: removed" + ("" if log else "; its log and positions are kept"))


def _refuse_other_target(facts: Facts, *, log: bool) -> None:
    """Raise `Refused` if the positions and topics to remove may be those of another pipeline.

    Without the log nothing at the destination is deleted, which may be lost then.
    """
    try:
        target.require_removable(facts)
    except MongoUnreachable as error:
        if log and facts.pipeline.exactly_once:
            raise
        say(f"towpath: {error}")
    if log:
        require(target.OF_LOG, facts)


def _report_others(topics: OwnTopics) -> None:
    for name in topics.others:
        say(f"left the topic {name}: it has a name of this pipeline, and nothing shows that it was made for it")


def _remove_replay(session: Session, label: str, *, dry_run: bool) -> None:
    replay = find(session.connect, session.pipeline, label) or find_leftovers(session.topics, session.pipeline, label)
    if replay is None:
        names = ", ".join(existing.label for existing in find_all(session.connect, session.pipeline)) or "none"
        raise TowpathError(f"{session.pipeline.name} has no replay {label}; existing replays: {names}")
    if dry_run:
        say(f"would remove {replay.name}")
        return
    steps.remove(replay, session, keep_letters=False)
    click.echo(f"{session.pipeline.name}: replay {label} removed; its destination keeps what it holds")
