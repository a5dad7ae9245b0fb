"""`towpath ddl`"""

from __future__ import annotations

from pathlib import Path

import click

from towpath.cli.options import json_option, opened, pipeline_argument, print_json
from towpath.schema import unreplicated
from towpath.text import counted


@click.command()
@pipeline_argument
@click.option("--accept", is_flag=True, help="Mark everything shown as settled, whatever the destination holds.")
@json_option
def ddl(file: Path, accept: bool, as_json: bool) -> None:
    """Show schema changes at the source of PIPELINE that are not at the destination.

    Run it after collections were dropped or renamed, or after their options or indexes changed: the log does not
    hold these changes. Each is shown with the commands that bring both sides in sync, until both sides are the same
    or you accept it.

    Exit codes: 0 nothing to settle; 1 something to settle.
    """
    with opened(file) as it:
        it.require_deployed()
        found = unreplicated.observed(it)
        left = unreplicated.unsettled(it, found)
        if accept and left:
            unreplicated.settle(it.pipeline.name, {one.mark for one in found})
        if as_json:
            print_json({"accepted": accept, "unfollowed": [one.as_json() for one in left]})
        else:
            for one in left:
                click.echo(one.line)
            accepted = f"accepted {counted(len(left), 'schema change')}" if left else "nothing to accept"
            click.echo(accepted if accept else f"{counted(len(left), 'schema change')} to settle")
    if left and not accept:
        raise click.exceptions.Exit(1)
