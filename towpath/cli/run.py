"""`towpath run`: on a terminal a live screen of the state and the newest events, elsewhere one line for each event."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import click
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from towpath.cli import launcher
from towpath.cli.monitor import chosen, listen_options, served
from towpath.cli.options import flag, json_option, opened, pipeline_argument, print_json
from towpath.cli.status import lag_text
from towpath.config.events import Note, TimedEvent
from towpath.config.pipeline import Run
from towpath.errors import NoSuchConnector, TowpathError
from towpath.run.children import Child, Events, end
from towpath.run.dead_letters import DeadLetterRetries
from towpath.run.report import Report
from towpath.run.supervisor import Supervisor, described
from towpath.session import ERRORS, Session
from towpath.signals import Interrupts, handle
from towpath.store import cutover
from towpath.store.state_files import alone

_TICK = 0.25  # seconds
_PATIENCE = 2.0  # seconds in which it ends after a signal; then a turn that waits for a server is interrupted
_GRACE = 20.0  # seconds in which its children may end
_RETRY = 2.0  # seconds
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
    state is unknown, or with `[run] verify` not everything is verified, or it cannot start: the message says why.
    """
    with opened(file) as session, ExitStack() as stack:
        listening = chosen(session.pipeline.run, listen)
        stack.enter_context(alone(session.pipeline.name, "run"))
        handle(stop := Interrupts(once=True, patience=_PATIENCE))
        signal.signal(signal.SIGINT, stop)  # also where a script has started it with `&`
        write = print_json if as_json else print_plain
        has_screen = not as_json and Console().is_terminal
        events = Events((lambda event: None) if has_screen else write)
        supervisor = Supervisor(session, events, launcher)
        screen = live_screen(supervisor) if has_screen else nullcontext(lambda: None)

        def tick() -> None:
            """Raises `KeyboardInterrupt` once a signal has come."""
            draw()
            if stop.came:
                raise KeyboardInterrupt
            time.sleep(_TICK)

        with screen as draw, ExitStack() as serving:
            if listening:
                serving.enter_context(_serving(supervisor, listening, listen["ready_lag"]))
            try:
                _await_deployed(session, events, tick, deploys=deploys)
                while True:
                    supervisor.turn()
                    tick()
            except (KeyboardInterrupt, SystemError):  # Kafka's client may turn the one into the other
                if not stop.came:
                    raise
            finally:
                stop.hold()
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


def _await_deployed(session: Session, events: Events, tick: Callable[[], None], *, deploys: bool) -> None:
    """Wait for Kafka and Connect to answer. If `deploys`, deploy; otherwise raise unless the pipeline is deployed."""
    while True:
        tick()
        try:
            session.require_deployed()
            events.report_state(Note(event="reachable", about="first"), "Kafka and Connect answer")
            break
        except NoSuchConnector as error:
            if deploys:
                break
            if not session.pipeline.has_operator:
                if idle := cutover.why_idle(session):
                    raise TowpathError(f"{error} It is {idle}") from error
                raise TowpathError(
                    f"{error} run: towpath deploy {session.file}; or deploy and supervise: towpath run {session.file}"
                    " --deploy"
                ) from error
            words = f"{error}; waiting until the operator has made it"
        except ERRORS as error:
            words = f"{error}; retrying until it answers"
        events.report_state(Note(event="unreachable", about="first", words=words))
        until = time.monotonic() + _RETRY
        while time.monotonic() < until:
            tick()
    if deploys:
        _deploy(session, events, tick)


def _deploy(session: Session, events: Events, tick: Callable[[], None]) -> None:
    child = Child.start("deploy", launcher("deploy", [str(session.file)]))
    has_ended = False
    while not has_ended:
        has_ended = child.exit_code is not None
        for line in child.lines():
            events.report(Note(event="deploy", words=f"deploy: {line.shown}"))
        if time.monotonic() - child.last_line_at > _SILENCE:
            child.kill(f"it printed nothing for {_SILENCE:.0f} s and was killed")
        if not has_ended:
            tick()
    if child.exit_code:
        raise TowpathError(f"the pipeline was not deployed: {child.end_reason}")


def print_plain(event: TimedEvent) -> None:
    click.echo(f"{event.reported_at:%Y-%m-%d %H:%M:%S} UTC  {event.words}")


@contextmanager
def live_screen(supervisor: Supervisor) -> Iterator[Callable[[], None]]:
    """A screen, as the function that draws it at most once a second."""
    drawn = 0.0

    def draw() -> None:
        nonlocal drawn
        if time.monotonic() - drawn >= 1:
            drawn = time.monotonic()
            live.update(_drawing(rows(supervisor), list(supervisor.events.newest)), refresh=True)

    with Live(console=Console(), auto_refresh=False, transient=True) as live:
        yield draw


def _drawing(rows: Iterable[Row], events: Sequence[TimedEvent]) -> RenderableType:
    state = Table.grid(padding=(0, 2))
    for name, line, style in rows:
        state.add_row(Text(name), Text(line, style=style))
    newest = Table.grid(padding=(0, 2))
    for event in events:
        newest.add_row(Text(f"{event.reported_at:%H:%M:%S}", style="dim"), Text(event.words or ""))
    return Group(state, Text(), newest, Text("times are UTC; Ctrl-C ends", style="dim"))


#: Name, line and style of a row.
Row = tuple[str, str, str]


def rows(supervisor: Supervisor) -> Iterator[Row]:
    """What the supervisor knows."""
    name, minutes = supervisor.session.pipeline.name, (time.monotonic() - supervisor.since) / 60
    status = supervisor.status
    if status is None or supervisor.unreachable:
        yield "pipeline", f"{name}: state unknown, supervised for {minutes:.0f} min", "red"
        yield "", supervisor.unreachable, "red"
    else:
        style = "" if status.state in ("running", "destination primary") else "red"
        yield "pipeline", f"{name}: {described(status)}, supervised for {minutes:.0f} min", style
        yield from _status(status)
    restarts = ", ".join(f"{connector} {count}" for connector, count in supervisor.restarts.items())
    yield "restarts", restarts or "none", ""
    for connector, command in supervisor.remedies.items():
        yield "to do", f"{connector}: {command}", "red"
    yield from _dead_letters(status, supervisor.dead_letters)
    for service in supervisor.services.services:
        state = "" if service.child is not None else "not running; "
        yield service.command, f"{state}{service.last_report or 'no report yet'}", ""
    for line, differs in supervisor.verified().lines():
        yield "verified", line, "red" if differs else ""
    changes = status and status.raw.changes
    for shown in changes.open if changes else supervisor.stuck.values():
        yield "ddl", shown.line(supervisor.session.file), "red" if shown.is_stuck else ""
    for change in supervisor.ddl:
        yield "ddl", change.line, "yellow"


def _status(status: Report) -> Iterator[Row]:
    if status.copy is not None and status.copying:
        unfinished = [copy for copy in status.copy.collections if not copy.done]
        progress = ", ".join(
            f"{copy.namespace} {copy.documents:,} of {copy.estimated_documents:,}" for copy in unfinished
        )
        yield "copy", f"under way: {progress}", ""
    yield "lag", f"{lag_text(status.lag)}; {status.records_per_second or 0:,.0f} records/s into the log", ""
    for error in status.errors:
        yield "", error.message, "red"


def _dead_letters(status: Report | None, retries: DeadLetterRetries) -> Iterator[Row]:
    count = "unknown" if status is None or status.dead_letters is None else f"{status.dead_letters:,}"
    repaired = f", {retries.repaired:,} repaired" if retries.repaired else ""
    yield "dead letters", f"{count}; {retries.words} to repair{repaired}", ""
    for group, seconds in retries.causes(time.monotonic()):
        when = "being retried" if seconds is None else f"retried in {seconds:.0f} s"
        yield "", f"{len(group):,} of {group[0].description}; {when}", "red"
