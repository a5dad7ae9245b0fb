"""`towpath deploy` and `towpath prepare`"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import click

from towpath.checks import target
from towpath.checks.change import resnapshot_of
from towpath.checks.facts import Facts
from towpath.cli.options import flag, json_option, opened, pipeline_argument, print_json, say
from towpath.cli.progress import bar
from towpath.clients.connect.control import statuses, wait_running
from towpath.clients.mongo.client import ClusterTime
from towpath.config.mongo_uri import without_credentials
from towpath.config.pipeline import Pipeline
from towpath.config.text import first_few
from towpath.deploy import conversions, deployment
from towpath.deploy.schema import (
    Plan,
    apply,
    described_at_source,
    of_text,
    plan,
    plan_in_place,
    remember,
    time_to_remember,
)
from towpath.errors import MongoError, NoSuchConnector, TowpathError
from towpath.log import barrier
from towpath.session import Session
from towpath.store import cutover as cutovers
from towpath.store.cutover import UNDER_WAY, Conversion

_SHOWN = 5  # namespaces in a question


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
@flag(
    "--accept-rules", help="Accept rules that leave something else of captured documents; `resnapshot` re-reads them."
)
@click.option("--timeout", default=120.0, help="Seconds to wait until all connectors are running.")
@json_option
def deploy(
    file: Path,
    dry_run: bool,
    allow_missing: bool,
    prepares: bool,
    accept_rules: bool,
    timeout: float,
    as_json: bool,
) -> None:
    """Create or update the topics and connectors of PIPELINE.

    Run it to start a pipeline, and again after each change of the file: it then changes only what differs from the
    file. It stops before it changes anything when a change would break the order of records or lose some of them
    (another partition count, a renamed pipeline, colliding topic names, …), and when `towpath check` finds an error.
    Warnings do not stop it. After a cutover, it creates no collections, and does not start the sink.
    Connectors that Strimzi's operator owns ([connect] owner) are compared and not changed.

    Exit codes: 0 deployed and running, or nothing to change; 1 a connector does not run yet, or differs and belongs to
    an operator; 2 it cannot be done.
    """
    with opened(file) as session:
        now: ClusterTime | None = None
        stopped: tuple[str, ...] = ()
        with suppress(MongoError):  # which the facts tell
            now = None if dry_run else time_to_remember(session)
            stopped = deployment.stopped_by_cutover(session)
        facts = Facts(session, allow_missing=allow_missing, accept_rules=accept_rules, create_stopped=stopped)
        changes, differences = deployment.plan(facts), list(deployment.differences(facts))
        in_log = session.pipeline.ddl.apply  # the sink creates collections, with the options of their time
        schema = _schema_plan(facts) if prepares and not in_log and not stopped else Plan()
        if dry_run:
            for step in schema.collections:
                say(f"would {step.description}")
        else:
            apply(session.destination, schema.collections, lambda step: say(step.description))
        report_rest(schema)
        before = statuses(session.connect, session.pipeline.connectors) if changes and not dry_run else ()
        for change in changes:
            say(f"{'would ' if dry_run else ''}{change.description}")
            if not dry_run:
                change.apply()
        for difference in differences:
            say(f"{difference.finding}; {difference.advice}")
        waiting = facts.with_other_rules
        running = [name for name in session.pipeline.connectors if name not in waiting and name not in stopped]
        if not dry_run and not differences:
            wait_running(session.connect, running, timeout, replaced=before)
        if now:
            source = schema.both.source if schema.both else described_at_source(session, facts.namespaces)
            if source is not None:
                remember(session, source, now)
        descriptions = [*(step.description for step in schema.collections), *(change.description for change in changes)]
        if as_json:
            words = [difference.finding for difference in differences]
            print_json({"dry_run": dry_run, "changes": descriptions, "differences": words, "waiting": waiting})
        elif not descriptions and not differences:
            click.echo(f"{session.pipeline.name}: nothing to change")
        elif not dry_run and not differences:
            click.echo(f"{session.pipeline.name}: deployed, {len(running)} connectors running")
        for name in stopped:
            say(f"{name} stays stopped: the destination is primary since the cutover")
        for connector, names in waiting.items():
            say(f"{connector} captures nothing until these documents are re-read; run: {resnapshot_of(names)}")
        if differences:
            raise click.exceptions.Exit(1)


def _schema_plan(facts: Facts) -> Plan:
    """The collections and views to create at the destination. Raises `TowpathError` if a cluster cannot be read."""
    try:
        return plan(facts.session, source=facts.collections)
    except MongoError as error:
        raise TowpathError(
            f"nothing was deployed, because the collections to create at the destination are not known: {error}",
            "with --no-prepare the first document of each collection creates it, without its options and its collation",
            where=error.where,
        ) from error


@click.command()
@pipeline_argument
@flag("--dry-run", help="Print the commands that would run, and change nothing.")
@click.option(
    "--indexes",
    type=click.Choice(["copied", "now", "none"]),
    default="copied",
    help="When to build indexes: after the initial copy is applied (the command waits for it), now, or not at all.",
)
@flag("--overwrite", help="Change what exists at the destination and differs. Drops no collection.")
@flag("--final", help="Restore the schema of the source, after replication has ended.")
@flag(
    "--in-place",
    help="Only disable TTL and validators of collections at the destination, such as those of a former source.",
)
@flag("--yes", help="Do not ask where nothing shows that the pipeline has written to the destination.")
@click.option("--timeout", default=86400.0, help="Seconds to wait for the initial copy.")
@json_option
def prepare(
    file: Path,
    dry_run: bool,
    indexes: str,
    overwrite: bool,
    final: bool,
    in_place: bool,
    yes: bool,
    timeout: float,
    as_json: bool,
) -> None:
    """Create the source's collections with their options, views and indexes at the destination.

    Run it after `deploy`, and with --final after replication has ended. Until then the destination gets a relaxed
    schema that neither rejects nor deletes documents: indexes without unique and TTL, validators that only warn, no
    capped collections. The command reports what exists and differs, and leaves it as it is. Run again, it creates
    only what is missing. After a cutover, it only completes what that has left of TTLs and unique indexes, and
    refuses --indexes, --overwrite, --final and --in-place: the destination is no copy any more. With --final and
    --in-place it asks first where nothing shows that the pipeline has written to the destination, as before the first
    `deploy` and after `remove --topics`.

    Exit codes: 0 done; 1 something differs at the destination, or the initial copy is not applied in time; 2 it
    cannot be done, or you did not confirm.
    """
    if in_place and (final or overwrite):
        raise click.UsageError(
            "--in-place does not go with --final or --overwrite, which change what --in-place leaves as it is; give one"
        )
    with opened(file) as session:
        if (marker := cutovers.known(session)) is not None:
            if marker.state in UNDER_WAY or overwrite or final or in_place or indexes != "copied":
                cutovers.refuse(session)
            _convert(session, marker.conversions, dry_run=dry_run, as_json=as_json)
            return
        schema = plan_in_place(session) if in_place else plan(session, overwrite=overwrite, final=final)
        for step in schema.undo:  # before anything is changed, so that they are known even after a crash
            say(f"to undo the change of {step.namespace}: {step.command.text}")
        if session.pipeline.ddl.apply and schema.steps and not (final or in_place):
            say("[ddl]: the log makes what the source has; what is made ahead of it can be in the way of older changes")
        if not dry_run:
            if not (final or in_place):
                target.require_own(session, ended=not overwrite)
            elif not target.require_schema(session, ended=not overwrite) and schema.steps and not yes:
                _confirm(session.pipeline, schema)
            _apply(session, schema, "now" if final and not _is_deployed(session) else indexes, timeout)
        _print(schema, dry_run=dry_run, as_json=as_json)
        if schema.different:
            raise click.exceptions.Exit(1)


def _confirm(pipeline: Pipeline, schema: Plan) -> None:
    """Before the schema of a cluster is changed that may be another than the pipeline's destination, ask."""
    source, where = (without_credentials(side.uri) for side in (pipeline.source, pipeline.destination))
    names = first_few(list(dict.fromkeys(step.namespace for step in schema.steps)), _SHOWN)
    say(f"nothing shows that {pipeline.name} has written from the source {source} to the destination {where}")
    question = f"Change the schema of {names} at {where}? --dry-run prints the commands"
    click.confirm(question, abort=True, err=True)


def _convert(session: Session, left: Sequence[Conversion], *, dry_run: bool, as_json: bool) -> None:
    """After a cutover: complete the indexes of the primary. Raises `TowpathError` for those that cannot be."""
    schema = Plan(indexes=tuple(step for conversion in left for step in of_text(conversion.commands)))
    problems = list[str]()
    if not dry_run:
        with bar() as update:
            for attempt in conversions.complete(session, update):
                if attempt.is_done:
                    say(attempt.words)
                else:
                    problems.append(attempt.words)
    _print(schema, dry_run=dry_run, as_json=as_json)
    if problems:
        raise TowpathError("\n".join(problems))


def _apply(session: Session, schema: Plan, indexes: str, timeout: float) -> None:
    apply(session.destination, schema.collections, lambda step: say(step.description))
    if not schema.indexes or indexes == "none":
        return
    if indexes == "copied":
        if not _is_deployed(session):
            say(
                "no indexes were built, because the pipeline is not deployed: run `towpath prepare` again after the"
                " initial copy, or now with --indexes now"
            )
            return
        barrier.wait(session, timeout, say)
    with bar() as update:
        apply(session.destination, schema.indexes, lambda step: say(step.description), update)


def _is_deployed(session: Session) -> bool:
    try:
        session.require_deployed()
    except NoSuchConnector:
        return False
    return True


def _print(schema: Plan, *, dry_run: bool, as_json: bool) -> None:
    if as_json:
        print_json({"dry_run": dry_run, **schema.as_json()})
        return
    if dry_run:
        for step in schema.steps:
            click.echo(step.command.text)
    elif not schema.steps and not schema.different:
        click.echo("nothing to create")
    report_rest(schema)


def report_rest(schema: Plan) -> None:
    """Print what is deferred until the cutover, and the differences that the plan leaves."""
    for namespace, description in schema.deferred:
        say(f"{namespace}: {description} is deferred until the cutover")
    for difference in schema.different:
        say(f"{difference.pair.destination}: {difference.what}; left as it is")
        for line in difference.command.splitlines():
            say(f"  {line}")
