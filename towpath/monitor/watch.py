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
from towpath.monitor.dashboard import Dashboard
from towpath.monitor.reporter import Reporter
from towpath.run.children import Events
from towpath.run.report import Report
from towpath.run.status import read_status
from towpath.run.supervisor import Supervisor, report_conditions
from towpath.session import ERRORS, Session, opened

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


@dataclass(slots=True)
class _Watch:
    """Publishes reports of one pipeline, in a thread."""

    dashboard: Dashboard
    reporter: Reporter
    stopped: bool = False
    wake: threading.Event = field(default_factory=threading.Event)

    def publish(self, poll: Callable[[], Report]) -> None:
        """Publish what a poll reports. If it fails, the page says why, and the next poll tries again."""
        try:
            self.dashboard.publish(poll())
        except ERRORS as error:
            self.dashboard.publish(self.reporter.failure(error))
        except Exception as error:  # noqa: BLE001 - a fault of ours: it is shown, and the next poll may have none
            place = traceback.extract_tb(error.__traceback__)[-1]
            words = f"a fault of Towpath: {error!r} at {Path(place.filename).name}:{place.lineno}"
            self.dashboard.publish(self.reporter.failure(words))

    def stop(self) -> None:
        self.stopped = True
        self.wake.set()


@dataclass(slots=True)
class SupervisorWatch(_Watch):
    """Publishes what a supervisor reads: its `watch`.

    In a separate thread, because what only the page shows may wait for a server, and must not delay a restart.
    """

    _polls: deque[Callable[[], Report]] = field(default_factory=lambda: deque(maxlen=1))
    """The newest poll that is not published."""

    def __call__(self, supervisor: Supervisor) -> None:
        if supervisor.unreachable or supervisor.status is None:
            self._polls.append(partial(self.reporter.failure, supervisor.unreachable))
        else:
            found = supervisor.report(supervisor.status)
            self._polls.append(partial(self.reporter.report, found, supervisor.poll_began))
        self.wake.set()

    def run(self) -> None:
        while not self.stopped:
            self.wake.wait()
            self.wake.clear()
            while self._polls:
                self.publish(self._polls.popleft())


@dataclass(slots=True)
class Watch(_Watch):
    """Polls a pipeline that no one supervises, or another process, every `_INTERVAL`."""

    events: Events = field(kw_only=True)

    @classmethod
    def of(cls, dashboard: Dashboard, session: Session) -> Watch:
        name, wake = session.pipeline.name, threading.Event()
        events = Events(lambda event: dashboard.event(name, event))
        return cls(dashboard, add(dashboard, session, wake.set), wake=wake, events=events)

    def run(self) -> None:
        while not self.stopped:
            self.wake.clear()
            began = time.monotonic()
            self.publish(partial(self._poll, began))
            self.wake.wait(max(0.1, _INTERVAL - (time.monotonic() - began)))

    def _poll(self, began: float) -> Report:
        try:
            status = read_status(self.reporter.session)
        except ERRORS as error:
            words = f"{error}; retrying until it answers"
            self.events.report_state(Note(event="unreachable", about="status", words=words, error=fields(error)))
            return self.reporter.failure(error)
        self.events.report_state(Note(event="reachable", about="status"), "Kafka and Connect answer again")
        report_conditions(self.events, status)
        return self.reporter.report(status, began)


@contextmanager
def watched(dashboard: Dashboard, files: Iterable[Path]) -> Iterator[Callable[[], None]]:
    """Show the pipelines; yields a function that starts to poll them. Raises `BadPipelineFile`."""
    with ExitStack() as stack:
        sessions = [stack.enter_context(opened(file)) for file in files]
        names = [session.pipeline.name for session in sessions]
        if again := [name for name in names if names.count(name) > 1]:
            raise TowpathError(f"two of the files are of a pipeline {again[0]}", "give each pipeline once")
        watches = [Watch.of(dashboard, session) for session in sessions]
        with _threads(watches) as start:
            yield start


@contextmanager
def supervised(dashboard: Dashboard, session: Session, hurry: Callable[[], None]) -> Iterator[SupervisorWatch]:
    """Show the pipeline of a supervisor. `hurry` makes its next poll come at once."""
    with opened(session.file, session.pipeline) as own:  # shares no client with the supervisor
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
