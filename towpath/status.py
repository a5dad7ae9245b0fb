"""`towpath status`"""

from __future__ import annotations

import json
import time
from contextlib import suppress
from pathlib import Path

import click
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from connectors import status as pipeline_status
from connectors.status import Status
from towpath.opened import Opened, json_option, opened, pipeline_argument

_UNWRAPPED = 1000  # columns, where no terminal wraps the lines


@click.command()
@pipeline_argument
@click.option("--watch", is_flag=True, help="Refresh in place until interrupted.")
@json_option
def status(file: Path, watch: bool, as_json: bool) -> None:
    """Show how PIPELINE is doing: connectors, first copy, lag, rate, dead letters. Exit 0 when it runs, 1 when not."""
    with opened(file) as it:
        if watch and not as_json:
            found = _watch(it)
        else:
            found = pipeline_status.look(it.pipeline, it.connect, it.topics)
            while watch:
                click.echo(json.dumps(found.as_json()))
                time.sleep(1)
                found = pipeline_status.look(it.pipeline, it.connect, it.topics)
            if as_json:
                click.echo(json.dumps(found.as_json()))
            else:
                show(found)
    if found.state != "running":
        raise click.exceptions.Exit(1)


def show(found: Status) -> None:
    """Print the status for people."""
    console = Console()
    console.width = console.width if console.is_terminal else _UNWRAPPED
    console.print(_screen(found))


def _watch(it: Opened) -> Status:
    """Refresh in place until Ctrl-C; the last status seen."""
    found = pipeline_status.look(it.pipeline, it.connect, it.topics)
    with Live(console=Console(), auto_refresh=False) as live, suppress(KeyboardInterrupt):
        while True:
            live.update(_screen(found), refresh=True)
            time.sleep(1)
            found = pipeline_status.look(it.pipeline, it.connect, it.topics)
    return found


def _screen(found: Status) -> RenderableType:
    facts = Table.grid(padding=(0, 2))
    facts.add_row("pipeline", f"{found.name}: {found.state}")
    facts.add_row("first copy", "done" if found.snapshot_done else "under way")
    for copied in found.snapshot:
        bar = ProgressBar(total=max(copied.of, 1), completed=copied.documents, width=24)
        line = Table.grid(padding=(0, 1))
        line.add_row(bar, f"{copied.documents:,} of about {copied.of:,}")
        facts.add_row(f"  {copied.namespace}", line)
    facts.add_row("lag", f"{found.lag_records:,} records, {found.lag_seconds:.1f} s")
    facts.add_row(
        "rate", f"{found.records_per_second:,.0f} records/s into the log, over {pipeline_status.RATE_WINDOW} s"
    )
    facts.add_row("dead letters", f"{found.dead_letters:,}")
    words = [Text(f"{c.name}: {reason}", style="red") for c in found.connectors for reason in c.failures]
    words += [Text(trouble, style="red") for trouble in found.trouble]
    if words:
        words.append(Text("Mend the cause, then: towpath restart PIPELINE"))
    return Group(facts, Text(), _connectors(found), *words)


def _connectors(found: Status) -> Table:
    table = Table("connector", "state", "tasks", "worker", box=None, padding=(0, 2, 0, 0))
    for connector in found.connectors:
        tasks = ", ".join(f"{task.id} {task.state}" for task in connector.tasks)
        table.add_row(connector.name, connector.state, tasks or "none", connector.worker)
    return table
