"""The supervisor: reads the status of a pipeline again and again, reports what changed, and repairs what it can.

It keeps no state that it could not read again. So it can be killed at any time, and two supervisors on two machines do
nothing worse than restart a failed task twice.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from itertools import chain

from towpath.clients.connect.control import Unassigned
from towpath.clients.connect.rest import Connector
from towpath.config.events import Note, RunEnd
from towpath.config.text import counted
from towpath.deploy import conversions, unreplicated
from towpath.deploy.schema_changes import SchemaChanges, Shown
from towpath.deploy.unreplicated import SourceChange
from towpath.errors import KafkaRefused, KafkaUnreachable, NoSuchConnector, TowpathError, fields
from towpath.log import bounds
from towpath.run.children import Events, Launcher
from towpath.run.dead_letters import DeadLetterRetries
from towpath.run.report import LogReport, Report, Service, Supervision, as_json
from towpath.run.restarts import Backoff, HangingTransactions, lasting
from towpath.run.services import Services
from towpath.run.status import read_log, read_status
from towpath.session import ERRORS, Session
from towpath.threads import begin
from towpath.verify.verdict import VerdictContext, Verification

_STATUS_INTERVAL, _STATUS_PAUSE = 2.0, 0.5  # seconds from one reading's beginning to the next, and between them
_COPY_INTERVAL = 1.0  # seconds, while a copy runs
_WARNINGS_INTERVAL = 5.0  # seconds; these checks cost more
_READ_SECONDS = 5.0  # for dead letters, before the next status
_FOLLOWED = 30.0  # seconds: at its end, `verify` stores how far it was, and the other children may take 20 s to end
_FIRST_PAUSE, _LONGEST_PAUSE, _RESET_AFTER = 2.0, 300.0, 600.0  # seconds
_UNREAD = "the destination or Kafka does not answer, so schema changes or gaps in the log are unknown"


@dataclass(slots=True)
class Supervisor:
    session: Session
    events: Events
    launcher: Launcher
    services: Services = field(init=False)
    dead_letters: DeadLetterRetries = field(init=False)
    transactions: HangingTransactions = field(init=False)
    status: Report | None = None
    """The last status that was read; None before the first."""
    unreachable: str = ""
    """Why the status could not be read the last time; empty when it was read."""
    restarts: dict[str, int] = field(default_factory=dict)
    remedies: dict[str, str] = field(default_factory=dict)
    """Connector → commands to run, where no restart helps."""
    ddl: tuple[SourceChange, ...] = ()
    stuck: Mapping[str, Shown] = field(default_factory=dict)
    """Schema changes that waited for a decision at some time and are not over, by id, as they were then."""
    verdict_context: VerdictContext | None = None
    """What verdicts are compared with; None before it was first read."""
    log: LogReport | None = None
    watch: Callable[[Supervisor], None] = lambda supervisor: None
    """Called after each reading of the status, also after one that failed. It must not wait for anything."""
    since: float = field(default_factory=time.monotonic)
    _pauses: dict[str, Backoff] = field(default_factory=dict)
    _unassigned: Unassigned = field(default_factory=Unassigned)
    poll_began: float = float("-inf")
    """When the last reading of the status began."""
    _read_at: float = float("-inf")
    _hurried: bool = False
    _warned_at: float = float("-inf")
    _unreachable_since: float = 0.0
    _kafka_is_down: bool = False
    _errors: tuple[str, ...] = ()
    _conversion: Future[list[str]] | None = None

    def __post_init__(self) -> None:
        self.services = Services.of(self.session, self.events, self.launcher)
        self.dead_letters = DeadLetterRetries(self.session)
        self.transactions = HangingTransactions(self.session)

    def hurry(self) -> None:
        """Read the status at the next turn, from any thread: a command has changed something."""
        self._hurried = True

    def turn(self) -> None:
        """Do everything that is due now."""
        now = time.monotonic()
        if not self._kafka_is_down:  # first: a hanging one may keep Connect from answering
            self._attempt("transactions", self._end_transactions)
        copying = self.status is not None and self.status.copying
        interval = _COPY_INTERVAL if copying else _STATUS_INTERVAL
        if self._hurried or (now - self.poll_began >= interval and now - self._read_at >= _STATUS_PAUSE):
            self._read_status()
            self._read_at = time.monotonic()
        status = None if self.unreachable else self.status
        running = status is not None and status.state == "running"
        # after a cutover, the capture continues its log
        captures = status is not None and status.state == "destination primary" and not status.is_taken_over
        able = ("compact", "verify") if running else ("compact",) if captures else ()
        self._attempt("compact and verify", lambda: self.services.turn(now, able))
        if running and self.session.pipeline.run.repair and self.session.pipeline.exactly_once:
            self._attempt("dead letters", self._repair)

    def _read_status(self) -> None:
        self._hurried, self.poll_began = False, time.monotonic()
        try:
            status = read_status(self.session).after(self.status)
            self.status = self._without_false_missing(status)
        except ERRORS as error:
            if not self.unreachable:
                self._unreachable_since = time.monotonic()
            self.unreachable = str(error)
            self._kafka_is_down = isinstance(error, KafkaUnreachable | KafkaRefused)
            words = f"{self.unreachable}; retrying until it answers"
            self.events.report_state(Note(event="unreachable", about="status", words=words, error=fields(error)))
            self.watch(self)
            return
        seconds = time.monotonic() - self._unreachable_since
        self.unreachable, self._kafka_is_down = "", False
        recovery = f"Kafka and Connect answer again after {seconds:.0f} s"
        self.events.report_state(Note(event="reachable", about="status"), recovery)
        self.watch(self)
        self._report_status(self.status)
        if not self.status.errors and time.monotonic() - self._warned_at >= _WARNINGS_INTERVAL:
            self._attempt("warnings", self._check_warnings)
            self._warned_at = time.monotonic()

    def _without_false_missing(self, status: Report) -> Report:
        """A worker that has just started reports connectors as missing that are deployed: these are starting."""
        if status.state == "missing" and all(map(self.session.connect.config, self.session.pipeline.connectors)):
            return replace(status, state="starting")
        return status

    def _report_status(self, status: Report) -> None:
        for connector in status.connectors:
            self._attempt(connector.name, partial(self._supervise, connector))
        for name in self._unassigned.due(status.connectors, time.monotonic()):
            self._attempt(
                name, partial(self._restart, name, only_failed=False, why=": Connect showed it as UNASSIGNED")
            )
        self._attempt("conversion", lambda: self._convert(status))
        report_conditions(self.events, status)
        errors = {error.message: asdict(error) for error in status.errors}
        for words in dict.fromkeys((*self._errors, *errors)):
            self._report_problem(words, words if words in errors else "", errors.get(words))
        self._errors = tuple(errors)
        self._report_changes(status.raw.changes)
        for waiting in status.requests_waiting or ():
            why = f"re-read requests wait for {waiting.connector}: {waiting.reason}" if waiting.reason else ""
            self._report_problem(f"requests {waiting.connector}", why)

    def _report_changes(self, changes: SchemaChanges | None) -> None:
        if changes is None:
            return
        file, before = self.session.file, self.stuck
        found = {shown.change.id: shown if shown.is_stuck else before.get(shown.change.id) for shown in changes.open}
        # first: an event may be the last thing done
        self.stuck = {id: shown for id, shown in found.items() if shown is not None}
        for id, shown in self.stuck.items():
            if id not in before or before[id].change.state != shown.change.state:
                values = shown.as_json(file)
                self.events.report(Note(event="ddl", words=values["words"], change=values))
        for id in before.keys() - self.stuck.keys():
            self.events.report(Note(event="ddl", words=f"resolved: {before[id].description}"))

    def _supervise(self, connector: Connector) -> None:
        name, now = connector.name, time.monotonic()
        pause = self._pauses.setdefault(name, Backoff(_FIRST_PAUSE, _LONGEST_PAUSE, _RESET_AFTER))
        if not connector.failures:
            self.remedies.pop(name, None)
            if connector.running:
                self.events.report_state(Note(event="recovered", about=name), f"{name} runs again")
                pause.healthy(now)
            return
        reason, codes = "; ".join(connector.reasons), [failure.code for failure in connector.failures if failure.code]
        code = codes[0] if codes else ""
        if (failure := lasting(codes)) is not None:
            self.remedies[name] = failure.text(self.session.file)
            words = f"{name} failed, and no restart helps: {failure.why}: {reason}; run: {self.remedies[name]}"
            self.events.report_state(
                Note(event="stopped", about=name, words=words, reason=reason, code=code, run=self.remedies[name])
            )
            pause.due = None
            return
        if pause.is_due(now):
            self._restart(name, only_failed=True)
            pause.tried()
        elif (seconds := pause.failed(now)) is not None:
            words = f"{name} failed: {reason}; restarted in {seconds:.0f} s"
            self.events.report_state(Note(event="failed", about=name, words=words, reason=reason, code=code))

    def _restart(self, name: str, *, only_failed: bool, why: str = "") -> None:
        self.session.connect.restart(name, only_failed=only_failed)
        self.restarts[name] = self.restarts.get(name, 0) + 1
        words = f"restarted {name}{why} (restart {self.restarts[name]})"
        self.events.report(Note(event="restart", about=name, words=words))

    def _end_transactions(self) -> None:
        for words in self.transactions.turn(time.monotonic()):
            self.events.report(Note(event="transaction", words=words))

    def _repair(self) -> None:
        retries, sources = self.dead_letters, self.status.raw.sources if self.status else {}
        answered = {name: state.requests.next for name, state in sources.items() if state.requests}
        for words in chain(
            retries.read(time.monotonic(), _READ_SECONDS),
            retries.recheck(time.monotonic(), answered),
            retries.turn(time.monotonic(), self.launcher),
        ):
            self.events.report(Note(event="repair", words=words, left=self.dead_letters.remaining))
            self.hurry()  # so that the page shows it soon

    def _convert(self, status: Report) -> None:
        """Complete what a cutover has left to convert, on a thread: it reads whole indexes."""
        now = time.monotonic()
        pause = self._pauses.setdefault("conversion", Backoff(_FIRST_PAUSE, _LONGEST_PAUSE, _RESET_AFTER))
        if self._conversion is not None:
            if self._conversion.done():
                done, self._conversion = self._conversion, None
                pause.failed(now)
                try:
                    for words in done.result():
                        self.events.report(Note(event="convert", words=words))
                except ERRORS as error:
                    self._report_problem("conversions", str(error), fields(error))
                else:
                    self._report_problem("conversions", "")
                    self.hurry()
        elif status.raw.changes is None:
            return  # the destination, which holds the indexes, does not answer
        elif status.cutover is None or not status.cutover.to_convert:
            self._report_problem("conversions", "")  # another command has done it
        elif not conversions.is_elsewhere(self.session):
            if pause.due is not None and not pause.is_due(now):
                return
            pause.tried()
            self._conversion = begin(self._converted, "conversion")

    def _converted(self) -> list[str]:
        return [attempt.words for attempt in conversions.complete(self.session)]

    def _check_warnings(self) -> None:
        assert self.status is not None
        self.verdict_context = VerdictContext.read(self.session, self.status.raw.topic_ids)
        before = {change.mark for change in self.ddl}
        self.ddl = unreplicated.unresolved(self.session, self.status.raw.ddl)
        for change in self.ddl:
            if change.mark not in before:
                self.events.report(Note(event="ddl", words=change.line, change=asdict(change)))
        for mark in before - {change.mark for change in self.ddl}:
            self.events.report(Note(event="ddl", words=f"resolved: {mark}"))
        self.log = read_log(self.session, self.status.raw)
        self.events.report_state(Note(event="warning", about="log", words="; ".join(self.log.warnings)))

    def _attempt(self, about: str, act: Callable[[], None]) -> None:
        """Run `act`, and report its failure; the next turn tries again."""
        try:
            act()
        except NoSuchConnector:
            return  # reported as the pipeline's state
        except ERRORS as error:
            self._report_problem(f"{about} fails", str(error), fields(error))
        else:
            self._report_problem(f"{about} fails", "")

    def _report_problem(self, about: str, words: str, error: Mapping[str, str] | None = None) -> None:
        self.events.report_state(Note(event="problem", about=about, words=words, error=error))

    def report(self, status: Report) -> Report:
        """A status, with what the supervisor knows."""
        return replace(
            status,
            ddl=self.ddl,
            log=self.log,
            supervisor=Supervision(
                seconds=round(time.monotonic() - self.since, 1),
                restarts=dict(self.restarts),
                remedies=dict(self.remedies),
                refused_documents=self.dead_letters.remaining,
                repaired_documents=self.dead_letters.repaired,
                services=tuple(
                    Service(one.command, one.child is not None, one.last_report) for one in self.services.services
                ),
            ),
            raw=replace(status.raw, verdict_context=self.verdict_context),
        )

    def verified(self) -> Verification:
        """What is verified now; nothing where that cannot be read, which is reported, or where the state is unknown."""
        if self.verdict_context is None and (self.status is None or self.unreachable):
            return Verification()  # it would wait for what does not answer
        try:
            self.verdict_context = self.verdict_context or VerdictContext.read(self.session)
            return Verification.of(self.session.pipeline.name, self.verdict_context)
        except TowpathError as error:
            self._report_problem("verdict", str(error), fields(error))
            return Verification()

    def verdict(self) -> RunEnd:
        """The summary at the end, with the exit code."""
        self.verdict_context = None  # `verify --follow` has stored its last by now
        verified = self.verified()
        differs = any(differs for _, differs in verified.lines())
        running = self.status is not None and self.status.state == "running"
        broken = self.status is not None and bool(self.status.log_breaks)
        to_do = self.dead_letters.remaining or self.dead_letters.has_more or self.ddl or self.stuck or self.remedies
        is_well = running and not (to_do or differs or broken)
        status = None if self.unreachable else self.status
        unread = status is not None and status.is_partial
        unproven = verified.unproven(_FOLLOWED) if self.session.pipeline.run.verify else ""
        exit_code = 2 if status is None or unread else 1 if not is_well else 2 if unproven else 0
        restarts = sum(self.restarts.values())
        parts = [
            f"state unknown: {self.unreachable or 'ended too soon'}" if status is None else described(status),
            counted(restarts, "restart"),
            f"{self.dead_letters.words} refused, {self.dead_letters.repaired:,} repaired",
            *([f"{counted(len(self.ddl), 'schema change')} not replicated"] if self.ddl else []),
            *([_UNREAD] if unread else []),
            *(shown.line(self.session.file) for shown in self.stuck.values()),
            *(f"to do: {command}" for command in self.remedies.values()),
            *([bounds.describe(self.status.log_breaks)] if self.status and self.status.log_breaks else []),
            *(f"verified: {line}" for line, _ in verified.lines()),
            *([f"not verified: {unproven}"] if unproven else []),
        ]
        return RunEnd(
            words=f"{self.session.pipeline.name}: ended: {'; '.join(parts)}",
            state=status.state if status else None,
            restarts=self.restarts,
            dead_letters=self.dead_letters.remaining,
            repaired=self.dead_letters.repaired,
            ddl=[asdict(change) for change in self.ddl],
            schema_changes=[shown.as_json(self.session.file) for shown in self.stuck.values()],
            verify=as_json(verified.reported),
            exit=exit_code,
        )


def report_conditions(events: Events, status: Report) -> None:
    """Report the state, and whether records are gone from the log that the sink has not applied."""
    copy = "; the copy is under way" if status.state == "running" and status.copying else ""
    words = f"{status.name} is {described(status)}{copy}"
    events.report_state(Note(event="state", about="state", words=words, state=status.state))
    if status.log_breaks is None:
        return  # not known: what was reported stays
    words = bounds.describe(status.log_breaks) if status.log_breaks else ""
    gaps = [gap.as_json() for gap in status.log_breaks]
    events.report_state(Note(event="gap", about="gap", words=words, log_breaks=gaps))


def described(status: Report) -> str:
    """The state, and what to do about it."""
    words = {
        "deploy": f"{status.state}: its connectors are not deployed; run: towpath deploy",
        "resume": f"{status.state} on request; to continue: towpath resume",
    }.get(status.remedy, status.state)
    return f"{words}; cutover: {status.cutover_words}" if status.cutover_words else words
