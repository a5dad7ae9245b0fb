"""`towpath ddl`"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import click

from towpath.checks import target
from towpath.cli.options import flag, json_option, opened, pipeline_argument, print_json, say
from towpath.clients.mongo.client import Cluster
from towpath.config.pipeline import Pipeline
from towpath.config.text import counted
from towpath.deploy import schema_changes as changes
from towpath.deploy import unreplicated
from towpath.deploy.schema_changes import SchemaChanges
from towpath.deploy.unreplicated import SourceChange
from towpath.errors import Refused, TowpathError
from towpath.history.plan import find
from towpath.session import Session
from towpath.store import schema_changes
from towpath.store.schema_changes import Decision, SchemaChange


@click.command()
@pipeline_argument
@click.option("--apply", "applied", metavar="ID|NAMESPACE", help="Make this schema change, which is held or refused.")
@click.option("--skip", "skipped", metavar="ID|NAMESPACE", help="Continue without this schema change.")
@click.option("--replay", "label", metavar="LABEL", help="Of this replay's destination.")
@flag("--accept", help="Mark all that is not in the log as resolved, whatever the destination holds.")
@json_option
def ddl(file: Path, applied: str | None, skipped: str | None, label: str | None, accept: bool, as_json: bool) -> None:
    """Show schema changes at the source of PIPELINE that are not at the destination.

    With [ddl] in the file, schema changes are made at the destination in their order, and this shows those that wait,
    run, are held or were refused. --apply makes one of them, --skip continues without it. Without [ddl], or before it,
    the log does not hold these changes. Then each is shown with the commands that bring both sides in sync, until both
    sides are the same or you --accept it.

    Exit codes: 0 nothing to resolve; 1 something to resolve; 2 it cannot be done.
    """
    if (applied is not None) + (skipped is not None) + accept > 1:
        raise click.UsageError("give one of --apply, --skip and --accept")
    with opened(file) as session:
        session.require_deployed()
        name = applied if applied is not None else skipped
        if name is not None and label is None:
            target.require_own(session)
        logged, decided = _logged(session, label, name, "skip" if skipped is not None else "apply")
        stuck = [shown for shown in logged.stuck if shown.change.id not in decided]
        reported = unreplicated.observed(session) if label is None else ()
        unresolved = unreplicated.unresolved(session, reported)
        if accept and unresolved:
            unreplicated.resolve(session.pipeline.name, {change.mark for change in reported})
        if as_json:
            found = {"accepted": accept, "unfollowed": unresolved}
            print_json(found | {"schema_changes": logged.as_json(file)})
        else:
            _print(file, logged, unresolved, 0 if accept else len(stuck), accept=accept)
    if stuck or (unresolved and not accept):
        raise click.exceptions.Exit(1)


def _print(
    file: Path, logged: SchemaChanges, unresolved: tuple[SourceChange, ...], stuck: int, *, accept: bool
) -> None:
    for shown in (*reversed(logged.latest), *logged.open):
        click.echo(shown.line(file))
    for change in unresolved:
        click.echo(change.line)
    count = counted(len(unresolved) + stuck, "schema change")
    accepted = f"accepted {count}" if unresolved else "nothing to accept"
    click.echo(accepted if accept else f"{count} to resolve")


def _logged(
    session: Session, label: str | None, name: str | None, decision: Decision
) -> tuple[SchemaChanges, Collection[str]]:
    """The schema changes in the log, after the decision on that of this `name`, if given; and the id of that."""
    pipeline = session.pipeline
    if not pipeline.exactly_once:
        return SchemaChanges(), ()
    cluster, sink = _destination(session, label)
    with cluster.connected() as client:
        logged = changes.read(client, pipeline, sink, label or "")
        if name is None:
            return logged, ()
        change = _chosen(session, logged, name, decision)
        schema_changes.decide(client, sink, [change.id], decision)
        say(f"{change.kind} {change.namespace} at {change.time}: to {decision}")
        return changes.read(client, pipeline, sink, label or ""), [change.id]


def _chosen(session: Session, logged: SchemaChanges, name: str, decision: Decision) -> SchemaChange:
    """The one change that can be meant by an id or a namespace. Raises `Refused` for none, and for several."""
    match changes.chosen(logged.open, name, session.pipeline):
        case [one]:
            return one.change
        case []:
            raise Refused(f"no schema change {name} waits for a decision", "`towpath ddl` shows those that do")
        case several:
            choices = [f"{one.command(session.file, decision)} ({one.description})" for one in several]
            raise Refused(
                f"{counted(len(several), 'schema change')} can be meant by {name}; nothing was changed",
                f"run one of: {'; '.join(choices)}",
            )


def _destination(session: Session, label: str | None) -> tuple[Cluster, Pipeline]:
    """The destination of the pipeline, or of its replay, and the pipeline under whose name its sink writes."""
    pipeline = session.pipeline
    if label is None:
        return session.destination, pipeline
    replay = find(session.connect, pipeline, label)
    if replay is None or replay.uri is None:
        raise TowpathError(f"{pipeline.name} has no replay {label} whose destination can be read from here")
    return session.replay_destination(replay.uri), replay.sink
