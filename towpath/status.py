"""`towpath status`"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import click
from rich.console import Console, RenderableType
from rich.live import Live

from connectors.looking import look
from connectors.status import Status
from towpath import log_seen, replay_status, unfollowed
from towpath.log_seen import LogSeen
from towpath.opened import Opened, json_option, opened, pipeline_argument
from towpath.replay_status import Replays
from towpath.screen import screen
from towpath.verified import Verified

_UNWRAPPED = 1000  # columns, where no terminal wraps the lines


@click.command()
@pipeline_argument
@click.option("--watch", is_flag=True, help="Refresh in place until interrupted.")
@json_option
def status(file: Path, watch: bool, as_json: bool) -> None:
    """Show how PIPELINE is doing: connectors, copy, lag, rate, what the sink wrote, retries, dead letters.

    Exit 0 when it runs, 1 when not, or when records are gone from the log that the sink has not applied.
    """
    with opened(file) as it:
        if watch and not as_json:
            found = _watch(it)
        else:
            found = look(it.pipeline, it.connect, it.topics)
            while watch:
                click.echo(json.dumps(_as_json(it, found)))
                time.sleep(1)
                found = look(it.pipeline, it.connect, it.topics)
            if as_json:
                click.echo(json.dumps(_as_json(it, found)))
            else:
                ddl = unfollowed.lines(it, found.ddl)
                show(found, Verified.read(it.pipeline.name), replay_status.look(it), log_seen.look(it), ddl)
    if found.state != "running" or found.breaks:
        raise click.exceptions.Exit(1)


def _as_json(it: Opened, found: Status) -> dict[str, Any]:
    more = Verified.read(found.name).as_json() | replay_status.look(it).as_json()
    more |= {"ddl": unfollowed.as_json(it, found.ddl)}
    return found.as_json() | more | {"log": log_seen.look(it).as_json()}


def show(
    found: Status,
    verified: Verified | None = None,
    replays: Replays | None = None,
    log: LogSeen | None = None,
    ddl: Iterable[str] = (),
) -> None:
    """Print the status for people, with what was verified, the replays if there are any, what the log holds, and what
    the destination has not followed."""
    console = Console()
    console.width = console.width if console.is_terminal else _UNWRAPPED
    console.print(screen(found, verified, replays, log, ddl))


def _watch(it: Opened) -> Status:
    """Refresh in place until Ctrl-C; the last status seen."""
    found = look(it.pipeline, it.connect, it.topics)
    with Live(console=Console(), auto_refresh=False) as live, suppress(KeyboardInterrupt):
        while True:
            live.update(_screen(it, found), refresh=True)
            time.sleep(1)
            found = look(it.pipeline, it.connect, it.topics)
    return found


def _screen(it: Opened, found: Status) -> RenderableType:
    ddl = unfollowed.lines(it, found.ddl)
    return screen(found, Verified.read(found.name), replay_status.look(it), log_seen.look(it), ddl)
