"""`towpath stack up|down|status`"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from towpath import stack as embedded

_NOT_RUNNING = 1
_DIRECTORY = click.option(
    "--dir",
    "directory",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path(".towpath/stack"),
    show_default=True,
    help="Folder of the stack: its data, logs, configuration and secrets.",
)
_JSON = click.option("--json", "as_json", is_flag=True, help="One JSON object as the last line.")


@click.group()
def stack() -> None:
    """Two MongoDB replica sets, Kafka and Kafka Connect on this machine, for trying out and for tests."""


@stack.command()
@_DIRECTORY
@click.option("--source-nodes", type=click.IntRange(1, 7), metavar="N", help="Nodes of the source; default 1.")
@click.option(
    "--destination-nodes", type=click.IntRange(1, 7), metavar="N", help="Nodes of the destination; default 1."
)
@click.option("--workers", "connect_workers", type=click.IntRange(1), metavar="N", help="Connect workers; default 1.")
@click.option("--port-base", type=click.IntRange(1024, 65500), metavar="N", help="First port; default: free ports.")
@_JSON
def up(directory: Path, as_json: bool, **given: int | None) -> None:
    """Start the stack in DIR, or what of it does not run; the first time this fetches its parts."""
    options = embedded.options_of(directory) or embedded.StackOptions(directory)
    changes: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    running = embedded.up(dataclasses.replace(options, **changes), _progress)
    _show(running)
    if as_json:
        click.echo(json.dumps(running.to_json()))


@stack.command()
@_DIRECTORY
@_JSON
def status(directory: Path, as_json: bool) -> None:
    """Tell what runs. Exit status 0 when all of the stack does, 1 when not."""
    found = embedded.status(directory)
    living = {name: process.running for name, process in found.processes.items()}
    if as_json:
        told = found.to_json()
        told["processes"] = {name: it | {"running": living[name]} for name, it in told["processes"].items()}
        click.echo(json.dumps(told))
    else:
        _show(found)
    if not all(living.values()):
        raise click.exceptions.Exit(_NOT_RUNNING)


@stack.command()
@_DIRECTORY
def down(directory: Path) -> None:
    """Stop the stack. Data and logs stay; `up` goes on with them."""
    stopped = embedded.down(directory, _progress)
    if stopped:
        click.echo(f"stopped {', '.join(stopped)}")
    else:
        click.echo(f"nothing runs in {embedded.status(directory).directory}")


@stack.command()
@click.option(
    "--dir",
    "directory",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path(".towpath/plugins"),
    show_default=True,
    help="Folder for a worker's plugin.path.",
)
def plugin(directory: Path) -> None:
    """Put the plugin folder for Connect workers of your own together: DIR/towpath, replaced as a whole."""
    embedded.export_plugins(directory, _progress)
    click.echo(directory / "towpath")


def _progress(words: str) -> None:
    click.echo(words, err=True)


def _show(found: embedded.Stack) -> None:
    console = Console(width=1000)  # numbers and paths are never cut; a narrow terminal wraps its lines
    places = {name: it.port for name, it in found.processes.items()}
    table = Table(box=None, pad_edge=False)
    for title in ("process", "pid", "port", "state", "log"):
        table.add_column(title)
    for name, it in sorted(found.processes.items()):
        table.add_row(name, str(it.pid), str(places[name]), "running" if it.running else "not running", str(it.log))
    console.print(table)
    console.print()
    for title, address in (
        ("source", found.source),
        ("destination", found.destination),
        ("bootstrap", found.bootstrap),
        ("connect", " ".join(found.connect_urls)),
    ):
        console.print(f"{title:<12} {address}", highlight=False, markup=False)
