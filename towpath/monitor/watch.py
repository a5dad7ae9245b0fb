"""Polls pipelines: at the supervisor's pace, or in a thread for each pipeline without a supervisor."""

from __future__ import annotations

import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from towpath.config.events import Note
from towpath.errors import TowpathError, fields
from towpath.log import bounds
from towpath.monitor.dashboard import Dashboard
from towpath.monitor.reporter import Known, Reporter
from towpath.run.children import Events
from towpath.run.status.gather import read_status
from towpath.run.status.report import Report, Service, Supervision
from towpath.run.supervisor import Supervisor
from towpath.session import ERRORS, Session, of, opened

_INTERVAL = 2.0  # seconds, as of the supervisor
_LAST_POLL = 5.0  # seconds in which a poll may end


def add(dashboard: Dashboard, session: Session, hurry: Callable[[], None]) -> Reporter:
    """Show the pipeline, of which nothing is known yet. `hurry` makes the next poll come at once."""
    reporter = Reporter(session)

    def hurry_all() -> None:
        reporter.hurry()
        hurry()

    dashboard.add(reporter.last, hurry_all)
    return reporter


def _publish(dashboard: Dashboard, reporter: Reporter, poll: Callable[[], Report]) -> None:
    """Publish what a poll reports. If it fails, the page says why, and the next poll tries again."""
    try:
        dashboard.publish(poll())
    except ERRORS as error:
        dashboard.publish(reporter.failure(error))
    except Exception as error:  # noqa: BLE001 - a fault of ours: it is shown, and the next poll may have none
        place = traceback.extract_tb(error.__traceback__)[-1]
        words = f"a fault of Towpath: {error!r} at {Path(place.filename).name}:{place.lineno}"
        dashboard.publish(reporter.failure(words))


@dataclass(slots=True)
class SupervisorWatch:
    """Publishes what a supervisor reads: its `watch`.

    In a separate thread, because what only the page shows may wait for a server, and must not delay a restart.
    """

    dashboard: Dashboard
    reporter: Reporter
    stopped: bool = False
    _wake: threading.Event = field(default_factory=threading.Event)
    _polls: deque[Callable[[], Report]] = field(default_factory=lambda: deque(maxlen=1))
    """The newest poll that is not published."""

    def __call__(self, supervisor: Supervisor) -> None:
        if supervisor.unreachable or supervisor.status is None:
            self._polls.append(partial(self.reporter.failure, supervisor.unreachable))
        else:
            began, known = supervisor.look_began, _known(supervisor)
            self._polls.append(partial(self.reporter.report, supervisor.status, began, known))
        self._wake.set()

    def run(self) -> None:
        """Publish until it is stopped."""
        while not self.stopped:
            self._wake.wait()
            self._wake.clear()
            while self._polls:
                _publish(self.dashboard, self.reporter, self._polls.popleft())

    def stop(self) -> None:
        self.stopped = True
        self._wake.set()


def _known(supervisor: Supervisor) -> Known:
    knowledge = Supervision(
        seconds=round(time.monotonic() - supervisor.since, 1),
        restarts=dict(supervisor.restarts),
        remedies=dict(supervisor.remedies),
        refused_documents=supervisor.dead_letters.remaining,
        repaired_documents=supervisor.dead_letters.repaired,
        services=tuple(
            Service(service.verb, service.child is not None, service.last_report)
            for service in supervisor.services.services
        ),
    )
    ddl = [change.as_json() for change in supervisor.ddl]
    return Known(supervisor.verdict_context, ddl, supervisor.log, knowledge)


@dataclass(slots=True)
class Watch:
    """Polls one pipeline that no one supervises, or another process."""

    dashboard: Dashboard
    session: Session
    reporter: Reporter = field(init=False)
    events: Events = field(init=False)
    stopped: bool = False
    _wake: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        name = self.session.pipeline.name
        self.reporter = add(self.dashboard, self.session, self._wake.set)
        self.events = Events(lambda event: self.dashboard.event(name, event))

    def run(self) -> None:
        """Poll every `_INTERVAL` until it is stopped."""
        while not self.stopped:
            self._wake.clear()
            began = time.monotonic()
            _publish(self.dashboard, self.reporter, partial(self._poll, began))
            self._wake.wait(max(0.1, _INTERVAL - (time.monotonic() - began)))

    def stop(self) -> None:
        self.stopped = True
        self._wake.set()

    def _poll(self, began: float) -> Report:
        try:
            status = read_status(self.session)
        except ERRORS as error:
            words = f"{error}; retrying until it answers"
            self.events.report_state(Note(event="unreachable", about="status", words=words, error=fields(error)))
            return self.reporter.failure(error)
        self.events.report_state(Note(event="reachable", about="status"), "Kafka and Connect answer again")
        copying = status.state == "running" and not status.snapshot_done
        words = f"{status.name} is {status.state}{'; the copy is under way' if copying else ''}"
        self.events.report_state(Note(event="state", about="state", words=words, state=status.state))
        breaks = bounds.describe(status.breaks) if status.breaks else ""
        gaps = [gap.as_json() for gap in status.breaks]
        self.events.report_state(Note(event="gap", about="gap", words=breaks, log_breaks=gaps))
        return self.reporter.report(status, began)


@contextmanager
def watched(dashboard: Dashboard, files: Iterable[Path]) -> Iterator[Callable[[], None]]:
    """Show the pipelines; yields a function that starts to poll them. Raises `BadPipelineFile`."""
    with ExitStack() as stack:
        sessions = [stack.enter_context(opened(file)) for file in files]
        names = [session.pipeline.name for session in sessions]
        if again := [name for name in names if names.count(name) > 1]:
            raise TowpathError(f"two of the files are of a pipeline {again[0]}", "give each pipeline once")
        watches = [Watch(dashboard, session) for session in sessions]
        with _threads(watches) as start:
            yield start


@contextmanager
def supervised(dashboard: Dashboard, session: Session, hurry: Callable[[], None]) -> Iterator[SupervisorWatch]:
    """Show the pipeline of a supervisor. `hurry` makes its next poll come at once."""
    with of(session.pipeline, session.file) as own:  # shares no client with the supervisor
        watch = SupervisorWatch(dashboard, add(dashboard, own, hurry))
        with _threads([watch]) as start:
            start()
            yield watch


@contextmanager
def _threads(watches: Sequence[Watch | SupervisorWatch]) -> Iterator[Callable[[], None]]:
    """A thread for each; yields a function that starts them."""
    threads = [threading.Thread(target=watch.run, daemon=True) for watch in watches]

    def start() -> None:
        for thread in threads:
            thread.start()

    try:
        yield start
    finally:
        for watch in watches:
            watch.stop()
        for thread in threads:
            if thread.is_alive():
                thread.join(_LAST_POLL)
