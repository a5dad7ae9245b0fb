"""`towpath status`"""

from __future__ import annotations

import json
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.live import Live

from connectors.looking import look
from connectors.status import Status
from towpath import log_seen, running
from towpath.log_seen import LogSeen
from towpath.opened import Opened, json_option, opened, pipeline_argument
from towpath.running import Running
from towpath.screen import screen

_UNWRAPPED = 1000  # columns, where no terminal wraps the lines


@click.command()
@pipeline_argument
@click.option("--watch", is_flag=True, help="Refresh in place until interrupted.")
@json_option
def status(file: Path, watch: bool, as_json: bool) -> None:
    """Show how PIPELINE is doing: connectors, copy, lag, rate, what the sink wrote, retries, dead letters.

    Exit 0 when it runs, 1 when not.
    """
    with opened(file) as it:
        if watch and not as_json:
            found = _watch(it)
        else:
            found = look(it.pipeline, it.connect, it.topics)
            while watch:
                click.echo(json.dumps(_as_json(found, log_seen.look(it))))
                time.sleep(1)
                found = look(it.pipeline, it.connect, it.topics)
            log = log_seen.look(it)
            if as_json:
                click.echo(json.dumps(_as_json(found, log)))
            else:
                show(found, running.read(it.pipeline.name), log)
    if found.state != "running":
        raise click.exceptions.Exit(1)


def _as_json(found: Status, log: LogSeen) -> dict[str, Any]:
    verified = running.read(found.name)
    return found.as_json() | {"verify": verified and verified.as_json(), "log": log.as_json()}


def show(found: Status, verified: Running | None = None, log: LogSeen | None = None) -> None:
    """Print the status for people, with the running verdict if there is one, and what the log holds."""
    console = Console()
    console.width = console.width if console.is_terminal else _UNWRAPPED
    console.print(screen(found, verified, log))


def _watch(it: Opened) -> Status:
    """Refresh in place until Ctrl-C; the last status seen."""
    found = look(it.pipeline, it.connect, it.topics)
    with Live(console=Console(), auto_refresh=False) as live, suppress(KeyboardInterrupt):
        while True:
            live.update(screen(found, running.read(found.name), log_seen.look(it)), refresh=True)
            time.sleep(1)
            found = look(it.pipeline, it.connect, it.topics)
    return found
