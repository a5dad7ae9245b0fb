"""`towpath prepare`"""

from __future__ import annotations

from pathlib import Path

import click

from towpath import barrier
from towpath.cli.options import json_option, opened, pipeline_argument, print_json, say
from towpath.cli.progress import bar
from towpath.errors import NoSuchConnector
from towpath.schema import apply, plan
from towpath.schema.plan import Plan
from towpath.session import Session

_DIFFERENT = 1


@click.command()
@pipeline_argument
@click.option("--dry-run", is_flag=True, help="Print the commands that would run, and change nothing.")
@click.option(
    "--indexes",
    type=click.Choice(["copied", "now", "none"]),
    default="copied",
    show_default=True,
    help="When to build indexes: after the initial copy is applied (the command waits for it), now, or not at all.",
)
@click.option(
    "--overwrite", is_flag=True, help="Change what exists at the destination and differs. Drops no collection."
)
@click.option("--final", is_flag=True, help="Restore the schema of the source, after replication has ended.")
@click.option(
    "--in-place",
    is_flag=True,
    help="Only disable TTL and validators of collections at the destination, such as those of a former source.",
)
@click.option("--timeout", default=86400.0, show_default=True, help="Seconds to wait for the initial copy.")
@json_option
def prepare(
    file: Path,
    dry_run: bool,
    indexes: str,
    overwrite: bool,
    final: bool,
    in_place: bool,
    timeout: float,
    as_json: bool,
) -> None:
    """Create the source's collections with their options, views and indexes at the destination.

    Run it after `deploy`, and with --final after replication has ended. Until then the destination gets a relaxed
    schema that neither rejects nor deletes documents: indexes without unique and TTL, validators that only warn, no
    capped collections. The command reports what exists and differs, and leaves it as it is. Run again, it creates
    only what is missing.

    Exit codes: 0 done; 1 something differs at the destination, or the initial copy is not applied in time; 2 it
    cannot be done.
    """
    if in_place and (final or overwrite):
        raise click.UsageError(
            "--in-place does not go with --final or --overwrite, which change what --in-place leaves as it is; give one"
        )
    with opened(file) as it:
        if in_place:
            found = plan.plan_in_place(it.pipeline)
        else:
            found = plan.plan(it.pipeline, overwrite=overwrite, final=final)
        tell_undo(found)
        if not dry_run:
            _make(it, found, "now" if final and not _deployed(it) else indexes, timeout)
        _print(found, dry_run=dry_run, as_json=as_json)
        if found.different:
            raise click.exceptions.Exit(_DIFFERENT)


def _make(it: Session, found: Plan, indexes: str, timeout: float) -> None:
    make(it, found)
    if not found.indexes or indexes == "none":
        return
    if indexes == "copied" and not _applied(it, timeout):
        say(
            "no indexes were built, because the pipeline is not deployed: run `towpath prepare` again after the initial"
            " copy, or now with --indexes now"
        )
        return
    with bar() as tell:
        apply.run(it.pipeline, found.indexes, lambda step: say(step.description), tell)


def make(it: Session, found: Plan) -> None:
    """Collections and views, which take no time."""
    apply.run(it.pipeline, found.collections, lambda step: say(step.description))


def _deployed(it: Session) -> bool:
    try:
        it.require_deployed()
    except NoSuchConnector:
        return False
    return True


def _applied(it: Session, timeout: float) -> bool:
    if not _deployed(it):
        return False
    barrier.wait(it.pipeline, it.connect, it.topics, timeout, say)
    return True


def _print(found: Plan, *, dry_run: bool, as_json: bool) -> None:
    if as_json:
        print_json({"dry_run": dry_run, **found.as_json()})
        return
    if dry_run:
        for step in found.steps:
            click.echo(step.command.text)
    elif not found.steps and not found.different:
        click.echo("nothing to create")
    tell_rest(found)


def tell_undo(found: Plan) -> None:
    """Before anything is changed, so that it is known however this ends."""
    for step in found.undo:
        say(f"to undo the change of {step.namespace}: {step.command.text}")


def tell_rest(found: Plan) -> None:
    """What was left as it is, and what waits."""
    for namespace, words in found.held_back:
        say(f"{namespace}: {words} is held back until the cutover")
    for one in found.different:
        say(f"{one.pair.destination}: {one.what}; left as it is")
        for line in one.command.splitlines():
            say(f"  {line}")
