"""The state machine of a cutover: `run` to the destination, `back`, `take_over` from a lost source, `undo` of any.

The marker at the destination holds the state. Whatever ends a switch before the marker says that the other side is
primary ends in the undo of every step that the marker names.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

from towpath.checks import target
from towpath.checks.rule import Finding, run
from towpath.clients.connect.control import statuses, wait_running
from towpath.clients.mongo.client import cluster_time
from towpath.clients.mongo.write_block import MONGOSH_UNDO
from towpath.config import events
from towpath.config.events import CutoverNote, Gate, Switch, TimedEvent
from towpath.cutover import old_source, takeover
from towpath.cutover.gate import GATE, PRECONDITIONS, Readiness, red
from towpath.cutover.old_source import Returned
from towpath.cutover.pause import Pause
from towpath.cutover.reverse_pipeline import refuse_other_namespaces, refuse_outdated, write_reverse_file
from towpath.cutover.sides import CUTOVER, FAIL_BACK, RETURN, TAKEOVER, Direction, Sides, SwitchUnknown, announce
from towpath.cutover.steps import (
    APPLY_BACKLOG,
    BLOCK,
    CONVERT,
    FINISH,
    RESTORE_TTL,
    STEPS,
    STOP_SINK,
    UNDO_ORDER,
    CutoverOptions,
    Step,
    Work,
    proven,
)
from towpath.cutover.takeover import Loss
from towpath.cutover.writes import allow, hook, writes_through
from towpath.deploy import conversions
from towpath.errors import Overtaken, Refused, TowpathError, fields
from towpath.history import rebuild
from towpath.session import ERRORS, Session
from towpath.signals import Interrupts
from towpath.store.cutover import TAKEOVERS, UNDER_WAY, Redirect, State, lacks_reverse_pipeline
from towpath.verify.recent import IncrementalVerification

T = TypeVar("T")
#: The steps of each direction, and those with an undo in the order of the undo.
_STEPS: Mapping[Direction, tuple[Sequence[Step], Sequence[Step]]] = {
    CUTOVER: (STEPS, UNDO_ORDER),
    FAIL_BACK: (STEPS, UNDO_ORDER),
    TAKEOVER: (takeover.STEPS, takeover.UNDO_ORDER),
    RETURN: (old_source.STEPS, old_source.UNDO_ORDER),
}


class NotUndone(TowpathError):
    """Some steps could not be undone; the message says what to run."""


class _NotDone(Exception):
    """The command ends, and everything is as before."""

    def __init__(self, words: str, error: Mapping[str, str] | None = None) -> None:
        self.words, self.error = words, error
        super().__init__(words)


@dataclass(slots=True)
class Machine:
    """One command on a cutover. Each way returns whether it is done; if not, everything is as before.

    They raise `TowpathError` when something is left to do, which the message names. `report` receives each event.
    """

    sides: Sides
    options: CutoverOptions
    report: Callable[[TimedEvent], None]
    signals: Interrupts
    dry_run: bool = False
    report_path: Path | None = None
    """Of the report, for the gate."""
    write_report: Callable[[], None] = lambda: None
    """Raises `TowpathError` when the report cannot be written."""
    has_reverse: bool = True
    """Whether the command asks for a reverse pipeline."""
    _proven_since: float | None = None
    """In a fail back: see `Verification.proven_since`."""
    _left: list[str] = field(default_factory=list)
    """What is left to do after the switch."""

    @property
    def state(self) -> State | None:
        return self.sides.marker.state if self.sides.marker else None

    def run(self) -> bool:
        """Make the destination primary."""
        return self.ended(self._run)

    def back(self) -> bool:
        """Fail back: make the source primary."""
        return self.ended(self._back)

    def take_over(self) -> bool:
        """Make the destination primary without the source."""
        return self.ended(self._take_over)

    def return_source(self) -> bool:
        """After a takeover, make the old source follow the new primary."""
        return self.ended(self._return_source)

    def undo(self) -> bool:
        """Undo what an interrupted command has begun, or finish a fail back that has made the source primary."""
        if self.state is None:
            self._end("nothing to undo: no cutover is under way, and the source is primary")
            return True
        self.sides.take()
        if self.state == "source primary":
            self._open_source()
            self._redirect_later("source")
            self._finish_return()
            self._require_nothing_left()
        elif self.state == "destination primary" and self.sides.marker and self.sides.marker.is_takeover:
            raise Refused(f"the takeover is complete and cannot be undone: {self.sides.marker.description}")
        elif self.state == "destination primary":
            raise Refused(
                f"the cutover is complete and cannot be undone; to fail back to the source: {self._command('--back')}"
            )
        else:
            self.signals.hold()
            self._undo_steps()
        return True

    def ended(self, way: Callable[[], object]) -> bool:
        """Report and return how it ended."""
        try:
            way()
        except _NotDone as end:
            self._end(end.words, end.error)
            self._write_failure()
            return False
        except (NotUndone, Overtaken, SwitchUnknown):
            self._write_failure()
            raise
        return True

    def _run(self) -> None:
        if self.state == "destination primary":
            assert self.sides.marker is not None
            if not self.dry_run:
                self._write_reverse_file()
                self._redirect_later("destination")
            if not self.dry_run and self._convert():
                left = conversions.pending(self.sides.forward)
                self.sides.marker = replace(self.sides.marker, conversions=left)
            reverse, missing = self.sides.reverse, ""
            with suppress(TowpathError):  # Connect may be away, which keeps nothing of what is left from being told
                if reverse is not None and lacks_reverse_pipeline(self.sides.forward, self.sides.marker):
                    missing = str(reverse.file)
            self._end(f"already cut over: {self.sides.marker.described(missing)}")
            self._require_nothing_left()
            return
        self._refuse_dry_run(None)
        if self.state in (FAIL_BACK.under_way, FAIL_BACK.done):
            raise Refused(f"an earlier fail back was not finished; to continue it: {self._command('--back')}")
        if self.state in TAKEOVERS:
            raise Refused("a takeover is under way, or was interrupted", "`towpath takeover --undo` undoes it")
        if self.state is not None:
            self.undo_earlier("an earlier cutover was interrupted; undoing it first")
            self._refuse_outdated()
        if not self._interruptible(self._is_ready):
            return
        self._write_reverse_file()
        self._redirect_writers(self.switch(CUTOVER))
        self._convert()
        self._end_done(CUTOVER)

    def _write_reverse_file(self) -> None:
        """Unless it is there: the cutover may have run on another machine."""
        if self.sides.reverse is not None and not self.sides.reverse.file.exists():
            write_reverse_file(self.sides.forward.file)

    def _back(self) -> None:
        marker = self.sides.marker
        if marker is None or self.state in (CUTOVER.under_way, TAKEOVER.under_way):
            raise Refused("cannot fail back: the source is primary")
        if marker.is_takeover:
            raise Refused(f"cannot fail back: {marker.description}", "see docs/how-to/takeover.md")
        if not marker.has_reverse_pipeline:
            raise Refused(
                "cannot fail back: the cutover was made with --no-reverse-pipeline, so there is no reverse pipeline"
            )
        self._refuse_dry_run("destination primary")
        if self.state == FAIL_BACK.under_way:
            self.undo_earlier("an earlier fail back was interrupted; undoing it first")
        elif not self.dry_run:
            self.take()
        if self.state == "destination primary":
            if not self._interruptible(self._is_ready_to_return):
                return
            switched = self.switch(FAIL_BACK)
            self._open_source()
            self._redirect_writers(switched)
        else:
            self._open_source()
            self._redirect_later("source")
        self._finish_return()
        self._end_done(FAIL_BACK)

    def _take_over(self) -> None:
        if self.state == "destination primary":
            assert self.sides.marker is not None
            if not self.sides.marker.is_takeover:
                raise Refused(f"the destination is primary already, by a cutover: {self.sides.marker.description}")
            if not self.dry_run:
                self._redirect_later("destination")
                self._convert()
            self._end(f"nothing to do: {self.sides.marker.description}")
            self._require_nothing_left()
            return
        if self.state in (FAIL_BACK.under_way, FAIL_BACK.done):
            raise Refused("a fail back is under way: the destination of this pipeline is primary, or was until now")
        if self.state == RETURN.under_way:
            raise Refused("the return of the old source was interrupted", f"to continue: {self._command('--return')}")
        self._refuse_dry_run(None)
        if self.state == TAKEOVER.under_way:
            self.undo_earlier("an earlier takeover was interrupted; undoing it first")
        elif self.state == CUTOVER.under_way:
            if not self._interruptible(
                lambda: self._passed(run(takeover.LOST, Loss(self.sides.forward, self.options)))
            ):
                return
            self._leave_cutover()
        if not self._interruptible(self._is_lost):
            return
        self._redirect_writers(self.switch(TAKEOVER))
        self._convert()
        self._end_done(TAKEOVER)

    def _return_source(self) -> None:
        marker, name = self.sides.marker, self.sides.forward.pipeline.name
        if marker is None or not marker.is_takeover or self.state == TAKEOVER.under_way:
            why = f": {marker.description}" if marker else ""
            raise Refused(f"no source of {name} can return, because there was no takeover{why}")
        self._refuse_dry_run("destination primary")
        if self.state == RETURN.under_way:
            self.undo_earlier("an earlier return was interrupted; undoing it first")
            self._refuse_outdated()
        elif not self.dry_run:
            self.take()
        if not self._interruptible(lambda: self._passed(old_source.gate(Returned(self.sides)))):
            return
        self._write_reverse_file()
        self.switch(RETURN)
        self._end(f"done: the old source follows the new primary; to fail back: {self._command('--back')}")
        self.write_report()

    def _leave_cutover(self) -> None:
        """Undo of a cutover what does not need the source."""
        self._say("a cutover was interrupted, and cannot be completed without the source; undoing it first")
        self.take()
        self.signals.hold()
        if self.sides.reverse is not None:
            takeover.stop_reverse(self.sides.reverse)
        self._undo_before("the cutover is undone as far as possible", takeover.UNDO_OF_CUTOVER)
        self.sides.reverse = None

    def undo_earlier(self, words: str) -> None:
        """Undo what an earlier command has begun. Raises `_NotDone` where nothing is to begin after it."""
        self._say(words)
        self.take()
        self.signals.hold()
        self._undo_before("the earlier attempt is undone")
        if self.state is None and self.has_reverse is not (self.sides.reverse is not None):
            raise _NotDone("the earlier cutover is undone; run the same command again")

    def _refuse_outdated(self) -> None:
        """The reverse pipeline is still the one of what was undone. Raises `_NotDone` if it is another one by now."""
        if self.sides.reverse is not None:
            try:
                refuse_outdated(self.sides.reverse, self.sides.forward.file)
            except TowpathError as error:
                words = f"the earlier attempt is undone, and nothing else was started: {error}"
                raise _NotDone(words, fields(error)) from error

    def _undo_before(self, undone: str, order: Sequence[Step] = ()) -> None:
        """Undo steps, and wait for the sink that this starts again: the gate would be red. Raises `_NotDone`."""
        assert self.sides.marker is not None
        session, starts = self.sides.session, STOP_SINK in self.sides.marker.steps
        self._undo_steps(order=order)
        if self.signals.came:
            raise _NotDone(f"{undone}, and nothing else was started: interrupted")
        self.signals.release()
        if starts:
            self._interruptible(lambda: self._await_running(session, [session.pipeline.sink_connector]))

    def _await_running(self, session: Session, names: Sequence[str]) -> None:
        """If one does not run in time, the gate says why."""
        self._say(f"waiting until {', '.join(names)} is running, up to {self.options.timeout:.0f} s")
        with suppress(TowpathError):
            wait_running(session.connect, names, self.options.timeout)

    def _checked(self, gate: Callable[[], list[Finding]], session: Session, names: Sequence[str]) -> list[Finding]:
        """What a gate finds. Red, it looks once more when what Connect shows as UNASSIGNED of these connectors runs.

        Connect shows that after the restart of a broker.
        """
        findings, unassigned = gate(), False
        if not self.dry_run and red(findings):
            with suppress(TowpathError):
                unassigned = any(one.unassigned for one in statuses(session.connect, names))
        if not unassigned:
            return findings
        self._await_running(session, names)
        return gate()

    def take(self) -> None:
        """Take the cutover over. Raises `Overtaken` when its command has continued since the marker was read."""
        state, taken = self.state, self.sides.take()
        if taken.state != state:
            raise Overtaken(f"the cutover continued while it was to be taken over, and is {taken.state} now")

    # the gate

    def _is_ready(self) -> bool:
        """Check the gate, and return whether the cutover is to begin: not in a dry run. Raises `_NotDone`."""
        self.sides.forward.require_deployed()
        target.require_own(self.sides.forward)

        def gate() -> list[Finding]:
            return run((*GATE, *PRECONDITIONS), self._readiness(returns=False))

        return self._passed(self._checked(gate, self.sides.forward, self.sides.forward.pipeline.connectors))

    def _is_ready_to_return(self) -> bool:
        """As `_is_ready`, for a fail back. A source that blocks all writes is opened first."""
        assert self.sides.reverse is not None and self.sides.marker is not None
        self.sides.reverse.require_deployed()
        for session in (self.sides.reverse, self.sides.forward):
            target.require_own(session)
        refuse_other_namespaces(self.sides.forward, self.sides.reverse)
        if not self.dry_run and any(one.expires for one in self.sides.marker.conversions):
            for _ in conversions.complete(self.sides.forward, only_ttl=True):  # the gate names what is left of it
                pass
            self.sides.marker = replace(self.sides.marker, conversions=conversions.pending(self.sides.forward))
        preconditions = run(PRECONDITIONS, self._readiness(returns=True))
        if not (self.dry_run or red(preconditions)):
            self._apply_backlog()
        # if the source still blocks writes, the reverse pipeline cannot apply: the gate could not pass
        is_blocked = self.sides.marker.blocked and red(preconditions)
        readiness = self._readiness(returns=True)

        def gate() -> list[Finding]:
            nonlocal readiness
            readiness = self._readiness(returns=True)
            return run(GATE, readiness)

        session = self.sides.reverse
        checks = [] if is_blocked else self._checked(gate, session, session.pipeline.connectors)
        if not self._passed([*checks, *preconditions]):
            return False
        with suppress(*ERRORS):  # not known: all that has changed since the cutover is compared
            self._proven_since = readiness.verdict.proven_since
        return True

    def _is_lost(self) -> bool:
        """Check the gate of a takeover, and return whether it is to begin."""
        forward = self.sides.forward
        forward.require_deployed()
        target.require_own(forward, with_source=False)

        def gate() -> list[Finding]:
            return run(takeover.GATE, Loss(forward, self.options))

        return self._passed(self._checked(gate, forward, [forward.pipeline.sink_connector]))

    def _readiness(self, *, returns: bool) -> Readiness:
        forward, reverse = self.sides.forward, self.sides.reverse
        since = self.sides.marker.captured_since if returns and self.sides.marker else ""
        at, answers = cluster_time(since) if since else None, not self.dry_run
        return Readiness(forward, reverse, self.options, self.report_path, returns, answers, at)

    def _passed(self, findings: list[Finding]) -> bool:
        self.report(Gate(findings=[finding.as_json() for finding in findings]))
        if failed := red(findings):
            names = ", ".join(finding.subject for finding in failed)
            raise _NotDone(f"not started, nothing is changed: {names} {'is' if len(failed) == 1 else 'are'} red")
        if self.dry_run:
            self._end("everything is ready; nothing was started")
        return not self.dry_run

    def _refuse_dry_run(self, state: State | None) -> None:
        """In a dry run, end unless the cutover is in this state: an earlier command may still be running."""
        if self.dry_run and self.state != state:
            assert self.sides.marker is not None
            raise _NotDone(f"not ready; cutover: {self.sides.marker.description}")

    def _interruptible(self, check: Callable[[], T]) -> T:
        """What it returns. Raises `_NotDone` when a signal interrupts it."""
        try:
            return check()
        except (KeyboardInterrupt, SystemError) as error:  # Kafka's client turns the one into the other
            if not self.signals.came:
                raise
            raise _NotDone("not started: interrupted") from error

    # the steps

    def switch(self, direction: Direction) -> Switch:
        """Make the other side primary. Whatever ends it before is undone, and raises `_NotDone`."""
        try:
            return self._switch_or_undo(direction)
        except (NotUndone, Overtaken, SwitchUnknown):
            raise
        except ERRORS as error:
            raise _NotDone(f"not done: {error}", fields(error)) from error
        except (KeyboardInterrupt, SystemError) as error:  # Kafka's client turns the one into the other
            if not self.signals.came:
                raise
            raise _NotDone("not done: interrupted") from error

    def _switch_or_undo(self, direction: Direction) -> Switch:
        """Signals raise in the steps at most once, so that a second one never interrupts the undo."""
        is_left = False
        try:
            try:
                return self._switch(direction)
            except BaseException as error:
                self.signals.hold()
                self._give_up(error)
                is_left = True
                raise
        except KeyboardInterrupt as error:  # the first signal may come before `hold`
            if not is_left:
                self._give_up(error)
            raise

    def _switch(self, direction: Direction) -> Switch:
        sides = self.sides
        sides.enter(direction.under_way)
        rebuild.refuse_unfinished(sides.session)  # again: one that begins now finds the marker
        self._say(f"if this command is killed, undo it with: {self._command('--undo')}")
        work = self._perform(_STEPS[direction][0])
        seconds = round(work.pause.seconds, 3) if direction in (CUTOVER, FAIL_BACK) else None
        assert sides.marker is not None
        redirect: Redirect = "" if self.options.switch_with is None else "begun"
        switched = replace(sides.marker, state=direction.done, conversions=sides.marker.later, later=(), undo={})
        if work.captured_since is not None:
            switched = replace(switched, captured_since=str(work.captured_since))
        if direction is RETURN:
            left = sides.marker.conversions
            switched = replace(switched, conversions=left, steps=(), is_takeover=False, has_reverse_pipeline=True)
        elif direction.returns:
            switched = replace(switched, redirect=redirect)
        else:
            switched = replace(
                switched,
                redirect=redirect,
                cluster_time=str(work.last_write),
                switched_at=time.time(),
                blocked=self.options.blocks or BLOCK in switched.steps,  # of a cutover before a takeover
                is_takeover=direction is TAKEOVER,
                has_reverse_pipeline=switched.has_reverse_pipeline and direction is not TAKEOVER,
            )
        self.signals.hold()  # a signal would leave it open whether the switch is stored
        if self.signals.came:  # a library may have swallowed its exception
            raise KeyboardInterrupt
        sides.switch(switched)
        return Switch(primary=direction.new, pause_seconds=seconds)

    def _perform(self, steps: Iterable[Step]) -> Work:
        with ExitStack() as contexts:
            session, pause = self.sides.session, Pause(self.options.max_pause)
            changes = IncrementalVerification(session, session, proven(session, self._proven_since))
            work = Work(self.sides, self.options, self.report, contexts, pause, changes, self._proven_since)
            for step in steps:
                if step.when(work):
                    self._perform_step(step, work)
        return work

    def _perform_step(self, step: Step, work: Work) -> None:
        """The marker names a step that can be undone before it begins."""
        work.pause.step = step.name
        self._say(f"{step.name} …")
        start = time.monotonic()
        step.needs(work)
        if step.undo is not None:
            self.sides.begin(step.name)
        count = step.do(work)
        documents, commands = (count, None) if step.unit == "documents" else (None, count)
        seconds = round(time.monotonic() - start, 3)
        self.report(events.Step(step=step.name, seconds=seconds, documents=documents, commands=commands))

    # the undo

    def _give_up(self, error: BaseException) -> None:
        """Undo, unless that is for another command to do, nothing was begun, or it is unknown whether it switched.

        What was begun is what the destination has stored; only if it does not answer, what this command remembers.
        """
        if isinstance(error, Overtaken | SwitchUnknown):
            return
        self.sides.renew()
        if self.sides.marker is None:
            self.sides.withdraw()
            return
        self.sides.retake()
        if self.state in UNDER_WAY:
            self._undo_steps("" if self.signals.came else str(error))

    def _undo_steps(self, why: str = "", order: Sequence[Step] = ()) -> None:
        """Undo the steps that the marker names, and report afterwards. Raises `NotUndone`.

        `why`: what ended the command, which its end tells otherwise. `order`: of the steps to undo; the others stay in
        the marker.

        The caller has taken the marker, and holds signals. Nothing that is printed comes before: a reader of the output
        that sleeps would hold the undo up.
        """
        sides = self.sides
        assert sides.marker is not None and sides.marker.state in UNDER_WAY
        primary, is_return = sides.direction.old, sides.direction is RETURN
        what = {TAKEOVER: "takeover", RETURN: "return of the old source"}.get(sides.direction, "cutover")
        announce(self._say, f"undoing the {what}; this cannot be interrupted")
        order = order or _STEPS[sides.direction][1]
        begun, undone, failures = sides.marker.steps, list[str](), list[str]()
        for step in order:
            if step.name in begun:
                if failure := _failure(step, sides):
                    failures.append(failure)
                    break
                undone.append(step.name)
        try:
            left = [name for name in begun if name not in undone]
            sides.leave(left, takeover.OWN)
        except Exception as error:  # noqa: BLE001
            failures.append(f"the marker at the destination: {_words(error)}")
        for name in undone:
            self.report(CutoverNote(event="undone", words=f"undone: {name}"))
        for failure in failures:
            self.report(CutoverNote(event="not undone", words=f"not undone: {failure}"))
        if failures:
            words = f"not all could be undone; once that answers again: {self._command('--undo')}"
            raise NotUndone(f"{why}; {words}" if why else words)
        if left:
            words = (
                f"undone but for what needs the source; once that answers: towpath cutover {sides.forward.file} --undo"
            )
            self.report(CutoverNote(event="undone", words=words))
            return
        words = f"everything is as before: the {primary} is primary"
        if is_return:
            words += "; what was written to the old source stays there"
        elif what == "cutover":
            words += "; start the writers again if they were stopped"
        self.report(CutoverNote(event="undone", words=words))

    # after the switch, and the end

    def _redirect_writers(self, switched: Switch) -> None:
        """The marker has said since the switch that --switch-with has begun."""
        self.report(switched)
        if self.options.switch_with is not None:
            self._switch_with(self.options.switch_with, switched.primary)

    def _redirect_later(self, primary: str) -> None:
        """As an earlier command had to, which was killed in between. If this one cannot, it does not end with 0."""
        marker, command = self.sides.marker, self.options.switch_with
        assert marker is not None
        if command is not None and marker.redirect == "done":
            self._say("--switch-with is not run again: it has ended without an error")
        elif command is not None:
            self.signals.hold()
            self.sides.take()
            self.sides.redirected("begun")
            self._switch_with(command, primary)
        elif marker.redirect == "begun":
            self._left.append(
                f"it is not known whether the writers are redirected to the {primary}: --switch-with has not ended, or"
                f" was interrupted; to run it again: the same command, with --switch-with COMMAND, or with"
                " --switch-with true if they are"
            )

    def _switch_with(self, command: str, primary: str) -> None:
        """Run it, and store how it has ended: a later command runs it again unless it has ended well."""
        end: Redirect = "done"
        try:
            hook(command)
        except TowpathError as error:
            self._left.append(f"{error}; redirect the writers to the {primary} by other means")
            end = ""
        try:
            self.sides.redirected(end)
        except Overtaken:
            raise
        except ERRORS as error:
            self._left.append(f"the destination did not store that --switch-with has ended: {error}")

    def _apply_backlog(self) -> None:
        """Unblock a source that blocks even Towpath's writes, and apply what waits in the log."""
        sides, source = self.sides, self.sides.forward.source
        assert sides.marker is not None
        if not sides.marker.blocked or writes_through(source):
            return
        sides.take()
        allow(source)
        sides.mark(replace(sides.marker, blocked=False))
        self._say(
            "writes to the source are allowed again, so that the reverse pipeline can write there: make sure that"
            " nothing else does"
        )
        self._perform([APPLY_BACKLOG])

    def _open_source(self) -> None:
        """Allow the writes to the source, once the marker says that it is primary again. Can be repeated."""
        assert self.sides.marker is not None
        if self.sides.marker.blocked:
            self.sides.take()
            allow(self.sides.forward.source)

    def _finish_return(self) -> None:
        """Once the source is primary again: the pipeline continues as before the cutover. Can be repeated."""
        assert self.sides.marker is not None
        self._open_source()
        self.sides.take()
        if BLOCK in self.sides.marker.steps:
            allow(self.sides.forward.destination)
        self._perform(FINISH)
        if self._convert("--back"):
            self.sides.mark(None)

    def _convert(self, option: str = "") -> bool:
        """Complete what the switch has left, and return whether each was tried. A signal ends it; can be repeated.

        Any later command completes it, such as this one with `option`. Raises `Overtaken` once a fail back has begun.
        """
        assert self.sides.marker is not None
        left = self.sides.marker.conversions
        if not left:
            return True
        try:
            if self.signals.came:
                raise KeyboardInterrupt
            self.signals.release()
            if expiring := sum(one.expires for one in left):  # first: to convert indexes may take minutes
                self._complete(RESTORE_TTL, expiring, only_ttl=True)
            if expiring < len(left):
                self._complete(CONVERT, len(left) - expiring, only_ttl=False)
        except Overtaken:
            raise
        except (KeyboardInterrupt, SystemError, *ERRORS) as error:
            why = str(error) or "interrupted"
            words = f"not all indexes are converted, or have their TTL again ({why}); to complete that:"
            self._left.append(f"{words} {self._command(option)}")
            return False
        finally:
            self.signals.hold()
        return True

    def _complete(self, step: str, count: int, *, only_ttl: bool) -> None:
        begun = time.monotonic()
        self._say(f"{step}: {count:,} …")
        for attempt in conversions.complete(self.sides.forward, only_ttl=only_ttl):
            if not attempt.is_done and attempt.words not in self._left:
                self.report(CutoverNote(event="not converted", words=attempt.words))
                self._left.append(attempt.words)
        self.report(events.Step(step=step, seconds=round(time.monotonic() - begun, 3), commands=count))

    def _end_done(self, direction: Direction) -> None:
        marker = self.sides.marker
        words = f"done: the {direction.new} is primary"
        if marker is not None and not direction.returns:
            up_to = "before" if marker.is_takeover else "up to"
            words += f"; it has every change {up_to} the source's cluster time {marker.cluster_time}"
        if marker is not None and marker.blocked:
            words += f"; the source blocks writes; to unblock it by hand: {MONGOSH_UNDO}"
        if self.sides.reverse is not None and not direction.returns:
            words += f"; to fail back: {self._command('--back')}"
        self._end(words)
        self.write_report()
        self._require_nothing_left()

    def _require_nothing_left(self) -> None:
        if self._left:
            raise TowpathError("\n".join(self._left))

    def _end(self, words: str, error: Mapping[str, str] | None = None) -> None:
        self.report(CutoverNote(event="end", words=words, error=error))

    def _write_failure(self) -> None:
        """Write the report of a failed cutover. If that also fails, only say so: the cutover's error matters more."""
        try:
            self.write_report()
        except TowpathError as error:
            self._say(str(error))

    def _say(self, words: str) -> None:
        self.sides.forward.say(words)

    def _command(self, option: str) -> str:
        marker = self.sides.marker
        is_takeover = marker is not None and (marker.state in TAKEOVERS or marker.is_takeover)
        return f"towpath {'takeover' if is_takeover else 'cutover'} {self.sides.forward.file} {option}".rstrip()


def _failure(step: Step, sides: Sides) -> str:
    """Why the undo failed; empty if it did not. Whatever it raises, the rest has to be reported and recorded."""
    assert step.undo is not None
    try:
        step.undo(sides)
    except Exception as error:  # noqa: BLE001
        by_hand = f"; if the {sides.direction.old} still blocks writes, unblock it by hand: {MONGOSH_UNDO}"
        return f"{step.name}: {_words(error)}{by_hand if step.name == BLOCK else ''}"
    return ""


def _words(error: Exception) -> str:
    return str(error) or type(error).__name__
