"""`towpath run`: a live screen on a terminal, elsewhere one line for each event."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import click

from towpath.cli import launcher
from towpath.cli.monitor import chosen, listen_options, served
from towpath.cli.options import flag, json_option, opened, pipeline_argument, print_json
from towpath.cli.run_screen import Screen, live_screen
from towpath.config.events import Note, TimedEvent
from towpath.config.pipeline import Run
from towpath.errors import NoSuchConnector, TowpathError
from towpath.run.children import Child, Events, end
from towpath.run.supervisor import Supervisor
from towpath.session import ERRORS, Session
from towpath.signals import Interrupts, handle
from towpath.store.state_files import alone

_TICK = 0.25  # seconds
_GRACE = 20.0  # seconds in which its children may end
_SILENCE = 900.0  # seconds after which a deployment that prints nothing counts as hanging


@click.command()
@pipeline_argument
@flag("--deploy", "deploys", help="Deploy the pipeline first, as `towpath deploy` does.")
@listen_options
@json_option
def run(file: Path, deploys: bool, as_json: bool, **listen: Any) -> None:
    """Supervise PIPELINE until interrupted, on a terminal, under systemd or in a container.

    Leave it running for a pipeline that should run unattended. It restarts failed connectors with growing pauses, and
    reports what to do if a restart cannot help. It ends hanging transactions in Kafka. It repairs dead letters when the
    destination accepts them, and runs compaction and `verify --follow` as [run] in the file says. It waits for servers
    that are unavailable. You can kill it at any time. With --listen it serves a live page, an API and metrics.

    Exit codes: 0 at the end the pipeline ran and nothing differed; 1 it did not run, or something differed; 2 the
    state is unknown.
    """
    with opened(file) as session, ExitStack() as stack:
        listening = chosen(session.pipeline.run, listen)
        stack.enter_context(alone(session.pipeline.name, "run"))
        handle(stop := Interrupts(once=True))
        signal.signal(signal.SIGINT, stop)  # also where a script has started it with `&`
        with live_screen() as screen, ExitStack() as serving:
            live = None if as_json else screen
            write = print_json if as_json else print_plain
            events = Events((lambda event: None) if live else write)
            supervisor = Supervisor(session, events, launcher)
            if listening:
                serving.enter_context(_serving(supervisor, listening, listen["ready_lag"]))
            try:
                _await_deployed(session, events, lambda: _draw(live, supervisor), deploys=deploys)
                while not stop.came:
                    supervisor.turn()
                    _draw(live, supervisor)
                    time.sleep(_TICK)
            except (KeyboardInterrupt, SystemError):  # Kafka's client may turn the one into the other
                if not stop.came:
                    raise
            finally:
                end([*supervisor.services.children, *supervisor.dead_letters.children], _GRACE)
        verdict = supervisor.verdict()
    Events(write).report(verdict)
    raise click.exceptions.Exit(verdict.exit)


@contextmanager
def _serving(supervisor: Supervisor, listening: Run, ready_lag: float) -> Iterator[None]:
    """Serve what the supervisor reads and reports."""
    from towpath.monitor.dashboard import Dashboard  # these imports take 0.3 s
    from towpath.monitor.watch import supervised

    dashboard, events, session = Dashboard(), supervisor.events, supervisor.session
    write, name = events.write, session.pipeline.name

    def write_and_show(event: TimedEvent) -> None:
        write(event)
        dashboard.event(name, event)

    events.write = write_and_show
    with supervised(dashboard, session, supervisor.hurry) as supervisor.watch, served(dashboard, listening, ready_lag):
        yield


def _draw(screen: Screen | None, supervisor: Supervisor) -> None:
    if screen is not None:
        screen.draw(supervisor)


def _await_deployed(session: Session, events: Events, draw: Callable[[], None], *, deploys: bool) -> None:
    """Wait for Kafka and Connect to answer. If `deploys`, deploy; otherwise raise unless the pipeline is deployed."""
    while True:
        draw()
        try:
            session.require_deployed()
            events.report_state(Note(event="reachable", about="first"), "Kafka and Connect answer")
            if not deploys:
                return
        except NoSuchConnector as error:
            if not deploys and session.pipeline.has_operator:
                words = f"{error}; waiting until the operator has made it"
                events.report_state(Note(event="unreachable", about="first", words=words))
                time.sleep(2)
                continue
            if not deploys:
                raise TowpathError(
                    f"{error} run: towpath deploy {session.file}; or deploy and supervise: towpath run {session.file}"
                    " --deploy"
                ) from error
        except ERRORS as error:
            events.report_state(Note(event="unreachable", about="first", words=f"{error}; retrying until it answers"))
            time.sleep(2)
            continue
        _deploy(session, events, draw)
        return


def _deploy(session: Session, events: Events, draw: Callable[[], None]) -> None:
    child = Child.start("deploy", launcher("deploy", [str(session.file)]))
    has_ended = False
    while not has_ended:
        has_ended = child.exit_code is not None
        for line in child.lines():
            events.report(Note(event="deploy", words=f"deploy: {line.shown}"))
        draw()
        if time.monotonic() - child.last_line_at > _SILENCE:
            child.kill(f"it printed nothing for {_SILENCE:.0f} s and was killed")
        time.sleep(0 if has_ended else _TICK)
    if child.exit_code:
        raise TowpathError(f"the pipeline was not deployed: {child.end_reason}")


def print_plain(event: TimedEvent) -> None:
    click.echo(f"{event.reported_at:%Y-%m-%d %H:%M:%S} UTC  {event.words}")
