"""`towpath stack up|down|status`"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click
from rich.table import Table

from towpath import stack as embedded
from towpath.cli import DIFFERENT
from towpath.cli.options import FOLDER, json_option, print_tables, say

F = TypeVar("F", bound=Callable[..., Any])
_DIRECTORY = click.option(
    "--dir",
    "directory",
    type=FOLDER,
    default=Path(".towpath/stack"),
    help="Folder of the stack: its data, logs, configuration and secrets.",
)


def _program(side: str) -> Callable[[F], F]:
    return click.option(
        f"--{side}-mongod",
        type=click.Path(exists=True, dir_okay=False, executable=True, resolve_path=True, path_type=Path),
        metavar="FILE",
        help=f"A mongod for the {side}, to try another version of MongoDB; default: the stack's own.",
    )


def _unpacked(name: str, what: str) -> Callable[[F], F]:
    return click.option(
        f"--{name}",
        type=click.Path(exists=True, file_okay=False, resolve_path=True, path_type=Path),
        metavar="FOLDER",
        help=f"Folder with the unpacked {what}",
    )


@click.group()
def stack() -> None:
    """Run two MongoDB replica sets, Kafka and Kafka Connect on this machine.

    Use it to try Towpath and for tests, not in production.
    """


@stack.command()
@_DIRECTORY
@click.option("--source-nodes", type=click.IntRange(1, 7), metavar="N", help="Nodes of the source; default 1.")
@click.option(
    "--destination-nodes", type=click.IntRange(1, 7), metavar="N", help="Nodes of the destination; default 1."
)
@click.option("--workers", "connect_workers", type=click.IntRange(1), metavar="N", help="Connect workers; default 1.")
@click.option("--port-base", type=click.IntRange(1024, 65500), metavar="N", help="First port; default: free ports.")
@click.option(
    "--monitor/--no-monitor",
    default=None,
    help="Also start Prometheus, for brokers, workers and `towpath run --listen 127.0.0.1:9300`; default: no.",
)
@_unpacked("plugins", "plugin archive of a release (towpath-mongodb-VERSION.zip); default: Maven builds the plugin.")
@_unpacked("kafka", "Kafka archive of a release (towpath-kafka-VERSION.zip); default: Maven gets the jars.")
@_program("source")
@_program("destination")
@json_option
def up(directory: Path, as_json: bool, **settings: int | Path | None) -> None:
    """Start the stack in DIR. The first start downloads its parts.

    pip gets mongod, and Maven the rest; with --plugins and --kafka it needs no Maven. The stack keeps its options. Run
    it again to start only the processes that do not run. With --monitor, a `prometheus` has to be on PATH.

    Exit codes: 0 running; 2 it cannot be started.
    """
    options = embedded.options_of(directory) or embedded.StackOptions(directory)
    changes: dict[str, Any] = {name: value for name, value in settings.items() if value is not None}
    running = embedded.up(dataclasses.replace(options, **changes), say)
    if as_json:
        click.echo(json.dumps(running.to_json()))
    else:
        _show(running)


@stack.command()
@_DIRECTORY
@json_option
def status(directory: Path, as_json: bool) -> None:
    """Show the processes of the stack and its addresses.

    Exit codes: 0 all processes run; 1 one does not run; 2 there is no stack in DIR.
    """
    stack = embedded.status(directory)
    is_running = {name: process.running for name, process in stack.processes.items()}
    if as_json:
        state = stack.to_json()
        for name, process in state["processes"].items():
            process["running"] = is_running[name]
        click.echo(json.dumps(state))
    else:
        _show(stack)
    if not all(is_running.values()):
        raise click.exceptions.Exit(DIFFERENT)


@stack.command()
@_DIRECTORY
def down(directory: Path) -> None:
    """Stop the stack. Its data and logs stay, and `up` continues with them.

    Exit codes: 0 stopped; 2 it cannot be done.
    """
    stopped = embedded.down(directory, say)
    if stopped:
        click.echo(f"stopped {', '.join(stopped)}")
    else:
        click.echo(f"no process is running in {embedded.status(directory).directory}")


@stack.command()
@click.option(
    "--dir", "directory", type=FOLDER, default=Path(".towpath/plugins"), help="Folder for a worker's plugin.path."
)
def plugin(directory: Path) -> None:
    """Write the plugin folder for your own Connect workers.

    Run it before you deploy to your own Connect cluster, and after each upgrade. It writes DIR/towpath, and replaces
    the whole folder.

    Exit codes: 0 written; 2 it cannot be done.
    """
    embedded.export_plugins(directory, say)
    click.echo(directory / "towpath")


def _show(stack: embedded.Stack) -> None:
    table = Table("process", "pid", "port", "state", box=None, pad_edge=False)
    table.add_column("log", overflow="fold")
    for name, process in sorted(stack.processes.items()):
        state = "running" if process.running else "not running"
        table.add_row(name, str(process.pid), str(process.port), state, str(process.log))
    print_tables(table)
    addresses = {
        "source": stack.source,
        "destination": stack.destination,
        "bootstrap": stack.bootstrap,
        "connect": " ".join(stack.connect_urls),
        "prometheus": stack.prometheus,
    }
    click.echo("\n".join(["", *(f"{title:<12} {address}" for title, address in addresses.items() if address)]))
