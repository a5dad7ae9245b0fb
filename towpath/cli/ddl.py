"""`towpath ddl`"""

from __future__ import annotations

from pathlib import Path

import click

from towpath.cli.options import flag, json_option, opened, pipeline_argument, print_json
from towpath.schema import unreplicated
from towpath.text import counted


@click.command()
@pipeline_argument
@flag("--accept", help="Mark everything shown as settled, whatever the destination holds.")
@json_option
def ddl(file: Path, accept: bool, as_json: bool) -> None:
    """Show schema changes at the source of PIPELINE that are not at the destination.

    Run it after collections were dropped or renamed, or after their options or indexes changed: the log does not
    hold these changes. Each is shown with the commands that bring both sides in sync, until both sides are the same
    or you accept it.

    Exit codes: 0 nothing to settle; 1 something to settle.
    """
    with opened(file) as session:
        session.require_deployed()
        reported = unreplicated.observed(session)
        unsettled = unreplicated.unsettled(session, reported)
        if accept and unsettled:
            unreplicated.settle(session.pipeline.name, {change.mark for change in reported})
        if as_json:
            print_json({"accepted": accept, "unfollowed": [change.as_json() for change in unsettled]})
        else:
            for change in unsettled:
                click.echo(change.line)
            count = counted(len(unsettled), "schema change")
            accepted = f"accepted {count}" if unsettled else "nothing to accept"
            click.echo(accepted if accept else f"{count} to settle")
    if unsettled and not accept:
        raise click.exceptions.Exit(1)
