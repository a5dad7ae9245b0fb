"""Polls pipelines: at the supervisor's pace, or in a thread for each pipeline without a supervisor.

A report has what only a process that keeps running can know: rates, the age of what is shown, the oplog, and the
documents behind dead letters and verdicts.
"""

from __future__ import annotations

import json
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from towpath.checks import capture
from towpath.config.events import Note
from towpath.cutover import gate
from towpath.cutover.steps import CutoverOptions
from towpath.deploy.unreplicated import source_changes
from towpath.errors import TowpathError, fields
from towpath.log.dead_letters import DeadLetter
from towpath.monitor.dashboard import Dashboard
from towpath.run import status
from towpath.run.children import Events
from towpath.run.report import RATE_WINDOW, Difference, LetterExample, Oplog, Problem, Report, unknown
from towpath.run.status import part, read_status
from towpath.run.supervisor import Supervisor, report_conditions
from towpath.session import ERRORS, Session, opened
from towpath.store import verdict_file
from towpath.verify.verdict import VerdictContext, Verification

_INTERVAL = 2.0  # seconds, as of the supervisor
_LAST_POLL = 5.0  # seconds in which a poll may end
#: Seconds between two readings of what costs more than the status.
_SLOW_INTERVAL = 5.0
_DIFFERENCES = 20
_LONGEST_VALUE = 64 * 1024  # bytes; a larger value is not shown
_LONGEST_TEXT = 4_000  # characters


@dataclass(slots=True)
class Reporter:
    session: Session
    last: Report = field(init=False)
    """The last report; before the first poll, nothing is known."""
    _slow_failures: list[Exception] = field(default_factory=list)
    """Of the last reading of what costs more; kept, so that a failure that lasts is in each report."""
    _slow_at: float = float("-inf")
    _hurried: bool = False
    _verified: Verification = field(default_factory=Verification)
    _differences: tuple[Difference, ...] = ()
    _files: tuple[float, ...] = ()
    """When the files of the verdicts were written."""
    _applied: list[tuple[float, int]] = field(default_factory=list)
    """Times, and the records that the sink had applied by then."""

    def __post_init__(self) -> None:
        self.last = unknown(self.session)

    def report(self, found: Report, began: float) -> Report:
        """All of a status that was read since `began` (`time.monotonic`), and that may have what a supervisor knows."""
        failures: list[Exception] = []
        hurried, self._hurried = self._hurried, False
        due = hurried or time.monotonic() - self._slow_at >= _SLOW_INTERVAL
        sides = (found.lag.capture_seconds, found.raw.uncaptured_seconds, found.lag.records)
        due = due and None not in sides  # else each part would wait for the side that does not answer
        found = self._with_last(found)
        if due:
            found = self._with_slow(found)
        verified = part(lambda: self._verdicts(found, due=due, hurried=hurried), Verification(), failures)
        errors = (*found.errors, *map(Problem.of, (*failures, *self._slow_failures)))
        self.last = replace(
            found,
            verification=verified.reported,
            errors=tuple({error.message: error for error in errors}.values()),
            poll_seconds=round(time.monotonic() - began, 3),
            sink_records_per_second=self._rate(found),
            differences=self._differences,
            dead_letter_examples=tuple(map(_example, found.raw.letters)),
            checks=tuple(gate.known(self.session, CutoverOptions(), found, verified)),
        )
        return self.last

    def _with_last(self, found: Report) -> Report:
        """With what the last report has, and a status has not."""
        last, uncaptured = self.last, found.raw.uncaptured_seconds
        if found.supervisor is None:
            found = replace(found, ddl=last.ddl, log=last.log)
        found = found.after(last)
        oplog = None if last.oplog is None or uncaptured is None else last.oplog.with_uncaptured(uncaptured)
        replays = {name: getattr(last, name) for name in ("replays", "rebuild", "rebuild_error")}
        return replace(found, **replays, oplog=oplog, failed_polls=last.failed_polls)

    def _with_slow(self, found: Report) -> Report:
        """With what is read less often; a part that cannot be read stays as it was."""
        session, failures = self.session, list[Exception]()
        found = part(lambda: status.with_replays(session, found), found, failures)
        found = part(lambda: replace(found, oplog=self._read_oplog(found)), found, failures)
        if found.supervisor is None:
            found = part(lambda: replace(found, ddl=source_changes(session, found.raw.ddl)), found, failures)
            found = part(lambda: replace(found, log=status.read_log(session, found.raw)), found, failures)
        self._slow_failures, self._slow_at = failures, time.monotonic()
        return found

    def failure(self, error: Exception | str) -> Report:
        """The report of a poll that failed: the last numbers, in an unknown state."""
        errors = (Problem.of(error if isinstance(error, Exception) else TowpathError(error)),)
        self.last = replace(self.last, state="unknown", errors=errors, failed_polls=self.last.failed_polls + 1)
        return self.last

    def hurry(self) -> None:
        """Read everything at the next poll, from any thread: a command has changed something."""
        self._hurried = True

    def _read_oplog(self, found: Report) -> Oplog | None:
        with self.session.source.briefly() as client:
            oplog = capture.read(client)
        if oplog is None:
            return None
        return Oplog(round(oplog.hours * 3600), 0, not oplog.full).with_uncaptured(found.raw.uncaptured_seconds or 0.0)

    def _verdicts(self, found: Report, *, due: bool, hurried: bool) -> Verification:
        name, known = self.session.pipeline.name, found.raw.verdict_context
        files = tuple(map(_written, _verdict_files(name)))
        changed = hurried or files != self._files
        if due or changed:  # it reads whole files
            # read again for a new verdict, which would not be the stored one
            context = VerdictContext.read(self.session, found.raw.topic_ids) if known is None or changed else known
            self._verified = Verification.of(name, context)
        if changed:
            self._differences = tuple(islice(_differences(name, self._verified), _DIFFERENCES))
            self._files = files
        return self._verified

    def _rate(self, found: Report) -> float | None:
        """Records applied a second, over `RATE_WINDOW`; None where the sink keeps no count."""
        if not found.sink_tasks or found.sink is None:
            return None
        now, applied = time.monotonic(), found.sink.records
        self._applied = [(at, count) for at, count in self._applied if now - at <= 2 * RATE_WINDOW]
        self._applied.append((now, applied))
        at, count = next(((at, count) for at, count in self._applied if now - at <= RATE_WINDOW), self._applied[0])
        return round(max(0, applied - count) / (now - at), 1) if now > at else 0.0


def _verdict_files(name: str) -> tuple[Path, ...]:
    return verdict_file.path(name), verdict_file.full_path(name), verdict_file.followed_path(name)


def _written(file: Path) -> float:
    try:
        return file.stat().st_mtime_ns / 1e9
    except OSError:
        return 0.0


def _differences(name: str, verified: Verification) -> Iterator[Difference]:
    """The differences of the last verdict that counts and of `verify --follow`."""
    last, _, followed = _verdict_files(name)
    for file, counts in ((last, verified.last is not None), (followed, verified.follow is not None)):
        if counts and file.exists():
            for found in verdict_file.read(file):
                where = found.namespace, found.destination_namespace
                paths = tuple((path, _short(source), _short(other)) for path, source, other in found.paths)
                yield Difference(*where, found.id, found.id_bson, found.kind, paths)


def _example(letter: DeadLetter) -> LetterExample:
    shown = letter.as_json(canonical=False) if len(letter.value or b"") <= _LONGEST_VALUE else None
    return LetterExample(
        letter.namespace,
        letter.code,
        _short(letter.reason) or "",
        *letter.place,
        op=shown["op"] if shown else None,
        key=_short(shown["key"]) if shown else None,
        value=_short(shown["value"]) if shown else f"{len(letter.value or b''):,} bytes",
    )


def _short(value: Any) -> str | None:
    if value is None:
        return None
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _LONGEST_TEXT else f"{text[:_LONGEST_TEXT]}…"


def add(dashboard: Dashboard, session: Session, hurry: Callable[[], None]) -> Reporter:
    """Show the pipeline, of which nothing is known yet. `hurry` makes the next poll come at once."""
    reporter = Reporter(session)

    def hurry_all() -> None:
        reporter.hurry()
        hurry()

    dashboard.add(reporter.last, hurry_all)
    return reporter


@dataclass(slots=True)
class Watch:
    """Publishes reports of one pipeline, in a thread.

    Of a supervised pipeline, it publishes what the supervisor reads, as its `watch`: what only the page shows may wait
    for a server, and must not delay a restart. Any other pipeline it polls every `_INTERVAL`.
    """

    dashboard: Dashboard
    reporter: Reporter
    events: Events | None = None
    """Of a pipeline that it polls."""
    stopped: bool = False
    wake: threading.Event = field(default_factory=threading.Event)
    _polls: deque[Callable[[], Report]] = field(default_factory=lambda: deque(maxlen=1))
    """The newest poll that is not published."""

    @classmethod
    def of(cls, dashboard: Dashboard, session: Session) -> Watch:
        """Of a pipeline that no one supervises, or another process."""
        name, wake = session.pipeline.name, threading.Event()
        events = Events(lambda event: dashboard.event(name, event))
        return cls(dashboard, add(dashboard, session, wake.set), events, wake=wake)

    def __call__(self, supervisor: Supervisor) -> None:
        if supervisor.unreachable or supervisor.status is None:
            self._polls.append(partial(self.reporter.failure, supervisor.unreachable))
        else:
            found = supervisor.report(supervisor.status)
            self._polls.append(partial(self.reporter.report, found, supervisor.poll_began))
        self.wake.set()

    def run(self) -> None:
        while not self.stopped:
            began = time.monotonic()
            if self.events is not None:
                self._polls.append(partial(self._poll, self.events, began))
            while self._polls:
                self.publish(self._polls.popleft())
            self.wake.wait(None if self.events is None else max(0.1, _INTERVAL - (time.monotonic() - began)))
            self.wake.clear()

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

    def _poll(self, events: Events, began: float) -> Report:
        try:
            found = read_status(self.reporter.session).after(self.reporter.last)
        except ERRORS as error:
            words = f"{error}; retrying until it answers"
            events.report_state(Note(event="unreachable", about="status", words=words, error=fields(error)))
            return self.reporter.failure(error)
        events.report_state(Note(event="reachable", about="status"), "Kafka and Connect answer again")
        report_conditions(events, found)
        return self.reporter.report(found, began)


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
def supervised(dashboard: Dashboard, session: Session, hurry: Callable[[], None]) -> Iterator[Watch]:
    """Show the pipeline of a supervisor. `hurry` makes its next poll come at once."""
    with opened(session.file, session.pipeline) as own:  # shares no client with the supervisor
        watch = Watch(dashboard, add(dashboard, own, hurry))
        with _threads([watch]) as start:
            start()
            yield watch


@contextmanager
def _threads(watches: Sequence[Watch]) -> Iterator[Callable[[], None]]:
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
