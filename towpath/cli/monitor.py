"""`towpath monitor`, and the options with which `towpath run` serves the same."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from towpath.cli import launcher
from towpath.cli.options import FILE, flag, say
from towpath.config.pipeline import Run
from towpath.signals import handle

if TYPE_CHECKING:
    from towpath.monitor.dashboard import Dashboard

_ADDRESS = "127.0.0.1:9300"
_READY_LAG = 60.0
_Command = TypeVar("_Command", bound=Callable[..., Any])


def listen_options(command: _Command) -> _Command:
    """The options of a command that can serve."""
    options = (
        click.option("--listen", metavar="ADDRESS", help="Serve page, API and metrics at host:port."),
        click.option("--token-file", type=FILE, help="File with the token that commands on the page need."),
        flag("--read-only", help="Allow no commands, and let everyone read who reaches the address."),
        click.option("--certificate", type=FILE, help="PEM file with the certificate chain, for TLS."),
        click.option("--key", type=FILE, help="PEM file with its key; default: the file of the certificate."),
        click.option("--host", "hosts", multiple=True, help="A further name by which requests may address it."),
        click.option(
            "--ready-lag",
            type=click.FloatRange(0),
            default=_READY_LAG,
            help="The lag, in seconds, up to which /readyz answers 200.",
        ),
    )
    for option in reversed(options):
        command = option(command)
    return command


def chosen(configured: Run, options: Mapping[str, Any]) -> Run | None:
    """What the options say, and else the pipeline file; None where neither says to listen. Raises `UsageError`."""
    address = options["listen"] or configured.listen
    names = ("token-file", "read-only", "certificate", "key", "host")
    given = [name for name in names if options["hosts" if name == "host" else name.replace("-", "_")]]
    if not address:
        if given:
            raise click.UsageError(f"--{given[0]} belongs to --listen ADDRESS")
        return None
    said = {key: options[key] for key in ("token_file", "read_only", "certificate", "key") if options[key]}
    return configured.changed(listen=address, hosts=(*options["hosts"], *configured.hosts), **said)


@contextmanager
def served(dashboard: Dashboard, listening: Run, ready_lag: float) -> Iterator[None]:
    """Serve a dashboard, and say where."""
    from towpath.monitor import server  # this import takes 0.3 s

    with server.served(dashboard, listening, ready_lag, launcher) as url:
        say(f"serving {url}")
        yield


@click.command()
@click.argument("files", metavar="PIPELINE...", type=FILE, nargs=-1, required=True)
@listen_options
def monitor(files: tuple[Path, ...], **listen: Any) -> None:
    """Serve a live page, an API and metrics of all PIPELINEs until interrupted. It supervises none of them.

    Run it for pipelines that other machines supervise, or several on one page. `towpath run --listen` serves the same
    of the pipeline that it supervises. Without --listen it listens at 127.0.0.1:9300. Another address than the
    loopback needs --token-file or --read-only. With a token the page can pause, resume, restart, verify and repair.

    Exit codes: 0 interrupted; 2 it cannot be done.
    """
    from towpath.monitor.dashboard import Dashboard
    from towpath.monitor.watch import watched

    listening = chosen(Run(), {**listen, "listen": listen["listen"] or _ADDRESS})
    assert listening is not None
    stop = threading.Event()
    handle(lambda *_: stop.set())
    signal.signal(signal.SIGINT, lambda *_: stop.set())  # also where a script has started it with `&`
    dashboard = Dashboard()
    with watched(dashboard, files) as start, served(dashboard, listening, listen["ready_lag"]):
        start()
        while not stop.wait(0.5):
            pass
