"""`towpath ddl`"""

from __future__ import annotations

import json
from pathlib import Path

import click

from towpath.cli.options import json_option, opened, pipeline_argument
from towpath.schema import unreplicated
from towpath.text import counted


@click.command()
@pipeline_argument
@click.option("--accept", is_flag=True, help="Take all that is shown for settled, whatever the destination holds.")
@json_option
def ddl(file: Path, accept: bool, as_json: bool) -> None:
    """Show what was done to collections of PIPELINE at the source as such, and the destination has not followed.

    Drops, renames, options and indexes are not in the log. Each is shown with the commands that bring both sides
    together, until these are the same, or it is accepted. Exit 0 when nothing is left, 1 when something is.
    """
    with opened(file) as it:
        it.require_deployed()
        found = unreplicated.told(it)
        left = unreplicated.look(it, found)
        if accept and left:
            unreplicated.settle(it.pipeline.name, {one.mark for one in found})
        if as_json:
            click.echo(json.dumps({"accepted": accept, "unfollowed": [one.as_json() for one in left]}))
        else:
            for one in left:
                click.echo(one.line)
            accepted = f"accepted {counted(len(left), 'thing')}" if left else "nothing to accept"
            click.echo(accepted if accept else f"{counted(len(left), 'thing')} to settle")
    if left and not accept:
        raise click.exceptions.Exit(1)
