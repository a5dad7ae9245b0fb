"""`towpath status`"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from towpath.cli.options import json_option, opened, pipeline_argument
from towpath.cli.status_screen import screen
from towpath.schema import unreplicated
from towpath.session import TROUBLE, Session
from towpath.status import log_figures, replay_states
from towpath.status.collector import look
from towpath.status.figures import Status
from towpath.status.log_figures import LogSeen
from towpath.status.replay_states import Replays
from towpath.verification.full_verdict import Verified

_PAUSE = 1.0  # seconds between two looks of --watch
_UNWRAPPED = 1000  # columns, where no terminal wraps the lines


@click.command()
@pipeline_argument
@click.option("--watch", is_flag=True, help="Refresh in place until interrupted.")
@json_option
def status(file: Path, watch: bool, as_json: bool) -> None:
    """Show the state of PIPELINE: connectors, copy, lag, rate, sink writes, retries and dead letters.

    Run it at any time; it changes nothing. With --watch it also shows a server that does not answer, and retries
    until interrupted.

    Exit codes: 0 running; 1 not running, or the log lost records before the sink applied them; 2 the state is
    unknown.
    """
    with opened(file) as it:
        if watch:
            found = _watch_json(it) if as_json else _watch_screen(it)
        else:
            found = look(it.pipeline, it.connect, it.topics)
            if as_json:
                click.echo(json.dumps(_as_json(it, found)))
            else:
                ddl = unreplicated.lines(it, found.ddl)
                show(found, Verified.look(it), replay_states.report(it), log_figures.report(it), ddl)
    if found is None or found.state != "running" or found.breaks:
        raise click.exceptions.Exit(2 if found is None else 1)


def _as_json(it: Session, found: Status) -> dict[str, Any]:
    more = Verified.look(it).as_json() | replay_states.report(it).as_json()
    more |= {"ddl": unreplicated.as_json(it, found.ddl)}
    return found.as_json() | more | {"log": log_figures.report(it).as_json()}


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


def _watch(it: Session, show: Callable[[Status], None], trouble: Callable[[str], None]) -> Status | None:
    """Look again and again until Ctrl-C; the last status, None when the last look failed."""
    found: Status | None = None
    with suppress(KeyboardInterrupt, SystemError):  # the latter is what Kafka's client may leave of the former
        while True:
            try:
                found = look(it.pipeline, it.connect, it.topics)
                show(found)
            except TROUBLE as error:
                found = None
                trouble(str(error))
            time.sleep(_PAUSE)
    return found


def _watch_json(it: Session) -> Status | None:
    """A line for each look; `state` is unknown where it failed."""

    def trouble(words: str) -> None:
        click.echo(json.dumps({"name": it.pipeline.name, "state": "unknown", "trouble": [words]}))

    return _watch(it, lambda found: click.echo(json.dumps(_as_json(it, found))), trouble)


def _watch_screen(it: Session) -> Status | None:
    """Refreshed in place. While a look fails, the last one that did not stays, with the trouble below it."""
    with Live(console=Console(), auto_refresh=False) as live:
        last: list[RenderableType] = []

        def shown(found: Status) -> None:
            last[:] = [_screen(it, found)]
            live.update(last[0], refresh=True)

        def trouble(words: str) -> None:
            at = datetime.now(UTC)
            line = Text(f"no status at {at:%H:%M:%S} UTC: {words}; retrying until it answers", style="red")
            live.update(Group(*last, line), refresh=True)

        return _watch(it, shown, trouble)


def _screen(it: Session, found: Status) -> RenderableType:
    ddl = unreplicated.lines(it, found.ddl)
    return screen(found, Verified.look(it), replay_states.report(it), log_figures.report(it), ddl)
