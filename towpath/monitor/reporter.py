"""Makes the reports of one pipeline for as long as a process runs, with what only such a process can know: rates, the
age of what is shown, the oplog, and the documents behind dead letters and verdicts."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

from towpath.checks import capture
from towpath.cutover import gate
from towpath.cutover.steps import CutoverOptions
from towpath.deploy import unreplicated
from towpath.errors import TowpathError
from towpath.log.dead_letters import DeadLetter
from towpath.run.status import gather, report
from towpath.run.status.report import Difference, LetterExample, Oplog, Problem, Replays, Report, Supervision
from towpath.run.status.status import RATE_WINDOW, LogReport, Status
from towpath.session import ERRORS, Session
from towpath.store import verdict_file
from towpath.verify.full_verdict import VerdictContext, Verified

T = TypeVar("T")
#: Seconds between two readings of what costs more than the status.
_SLOW_INTERVAL = 5.0
_DIFFERENCES = 20
_LONGEST_VALUE = 64 * 1024  # bytes; a larger value is not shown
_LONGEST_TEXT = 4_000  # characters
#: What the command line has by default.
_OPTIONS = CutoverOptions(10.0, 86_400.0, 500_000, False, False, None, None, 120.0, 30.0)


@dataclass(frozen=True, slots=True)
class Known:
    """What the supervisor reads anyway; None while it has not."""

    context: VerdictContext | None
    ddl: Sequence[Mapping[str, Any]]
    log: LogReport | None
    supervisor: Supervision


@dataclass(frozen=True, slots=True)
class _Slow:
    """What is read less often, as of the last reading that succeeded."""

    replays: Replays = field(default_factory=Replays)
    oplog: capture.Oplog | None = None
    ddl: Sequence[Mapping[str, Any]] | None = None
    log: LogReport | None = None


@dataclass(slots=True)
class Reporter:
    session: Session
    _last: Report = field(init=False)
    _slow: _Slow = field(default_factory=_Slow)
    _slow_failures: list[Exception] = field(default_factory=list)
    """Of that reading; kept, so that a failure that lasts is in each report."""
    _slow_at: float = float("-inf")
    _hurried: bool = False
    _context: VerdictContext | None = None
    _verified: Verified = field(default_factory=Verified)
    _differences: tuple[Difference, ...] = ()
    _files: tuple[float, ...] = ()
    """When the files of the verdicts were written."""
    _applied: list[tuple[float, int]] = field(default_factory=list)
    """Times, and the records that the sink had applied by then."""

    def __post_init__(self) -> None:
        self._last = report.unknown(self.session)

    @property
    def last(self) -> Report:
        """The last report; before the first poll, nothing is known."""
        return self._last

    def report(self, status: Status, began: float, known: Known | None = None) -> Report:
        """The report of a status that was read since `began` (`time.monotonic`)."""
        failures: list[Exception] = []
        hurried, self._hurried = self._hurried, False
        due = hurried or time.monotonic() - self._slow_at >= _SLOW_INTERVAL
        due = due and status.has_both_sides  # else each part would wait for that side
        if due:
            self._read_slow(status, supervised=known is not None)
        if known is not None:
            self._slow = replace(self._slow, ddl=known.ddl, log=known.log)
        verified = _part(lambda: self._verdicts(status, known, due=due, hurried=hurried), Verified(), failures)
        slow, letters = self._slow, status.dead_letters
        made = report.report(self.session, status, verified, slow.replays, slow.ddl, slow.log)
        errors = (*made.errors, *map(Problem.of, (*failures, *self._slow_failures)))
        if status.changes is None:  # they stay while the destination is down
            made = replace(made, schema_changes=self._last.schema_changes)
        self._last = replace(
            made,
            errors=tuple({error.message: error for error in errors}.values()),
            poll_seconds=round(time.monotonic() - began, 3),
            failed_polls=self._last.failed_polls,
            oplog=_oplog(slow.oplog, status.uncaptured_seconds),
            sink_records_per_second=self._rate(status),
            differences=self._differences,
            dead_letter_examples=tuple(map(_example, letters.examples)) if letters else (),
            checks=tuple(gate.known(self.session, _OPTIONS, status, verified)),
            supervisor=known.supervisor if known else None,
        )
        return self._last

    def failure(self, error: Exception | str) -> Report:
        """The report of a poll that failed: the last numbers, in an unknown state."""
        problem = Problem.of(error if isinstance(error, Exception) else TowpathError(error))
        last = self._last
        self._last = replace(last, state="unknown", errors=(problem,), failed_polls=last.failed_polls + 1)
        return self._last

    def hurry(self) -> None:
        """Read everything at the next poll, from any thread: a command has changed something."""
        self._hurried = True

    def _read_slow(self, status: Status, *, supervised: bool) -> None:
        session, slow, failures = self.session, self._slow, list[Exception]()
        slow = replace(slow, replays=_part(lambda: gather.read_replays(session), slow.replays, failures))
        slow = replace(slow, oplog=_part(self._read_oplog, slow.oplog, failures))
        if not supervised:
            slow = replace(slow, ddl=_part(lambda: unreplicated.as_json(session, status.ddl), slow.ddl, failures))
            slow = replace(slow, log=_part(lambda: gather.read_log(session, status.ends), slow.log, failures))
        self._slow, self._slow_failures, self._slow_at = slow, failures, time.monotonic()

    def _read_oplog(self) -> capture.Oplog | None:
        with self.session.source.briefly() as client:
            return capture.read(client)

    def _verdicts(self, status: Status, known: Known | None, *, due: bool, hurried: bool) -> Verified:
        name = self.session.pipeline.name
        files = tuple(map(_written, _verdict_files(name)))
        changed = hurried or files != self._files
        if known is not None and known.context is not None and not changed:
            self._context = known.context
        elif self._context is None or due or changed:  # else a new verdict would not be the stored one
            self._context = VerdictContext.read(self.session, status.topic_ids)
        if due or changed:  # it reads the whole file
            self._verified = Verified.of(name, self._context)
        if changed:
            self._differences = tuple(islice(_differences(name, self._verified), _DIFFERENCES))
            self._files = files
        return self._verified

    def _rate(self, status: Status) -> float | None:
        """Records applied a second, over `RATE_WINDOW`; None where the sink keeps no count."""
        if not status.tasks:
            return None
        now = time.monotonic()
        self._applied = [(at, count) for at, count in self._applied if now - at <= 2 * RATE_WINDOW]
        self._applied.append((now, status.sink.records))
        at, count = next(((at, count) for at, count in self._applied if now - at <= RATE_WINDOW), self._applied[0])
        return round(max(0, status.sink.records - count) / (now - at), 1) if now > at else 0.0


def _part(read: Callable[[], T], otherwise: T, failures: list[Exception]) -> T:
    """What is read; `otherwise` if that fails."""
    try:
        return read()
    except ERRORS as error:
        failures.append(error)
        return otherwise


def _oplog(read: capture.Oplog | None, uncaptured: float | None) -> Oplog | None:
    if read is None or uncaptured is None:
        return None
    window = round(read.hours * 3600)
    return Oplog(window, max(0, window - round(uncaptured)), not read.full)


def _verdict_files(name: str) -> tuple[Path, ...]:
    return verdict_file.path(name), verdict_file.full_path(name), verdict_file.followed_path(name)


def _written(file: Path) -> float:
    try:
        return file.stat().st_mtime_ns / 1e9
    except OSError:
        return 0.0


def _differences(name: str, verified: Verified) -> Iterator[Difference]:
    """The differences of the last verdict that counts and of `verify --follow`."""
    last, _, followed = _verdict_files(name)
    for file, counts in ((last, verified.last is not None), (followed, verified.following is not None)):
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
