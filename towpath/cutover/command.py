"""The three ways of `towpath cutover`: to the destination, back to the source, and the undo of either."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeVar

from towpath.clients.mongo.write_block import MONGOSH_UNDO
from towpath.config.events import Check, CutoverNote, Gate, Switch, label
from towpath.cutover import fail_back, steps
from towpath.cutover.events import Reporter
from towpath.cutover.gate import GATE, PRECONDITIONS, Readiness, red, run
from towpath.cutover.reverse_pipeline import write_reverse_file
from towpath.cutover.sides import Sides, SwitchUnknown
from towpath.cutover.steps import CutoverOptions
from towpath.cutover.undo import NotUndone, attempt, undo
from towpath.cutover.writes import hook
from towpath.deploy import target
from towpath.errors import Overtaken, Refused, TowpathError, fields
from towpath.session import ERRORS
from towpath.signals import Interrupts
from towpath.store.cutover import Cutover, State

V = TypeVar("V")


class _NotDone(Exception):
    """The command ends, and everything is as before."""

    def __init__(self, words: str, error: Mapping[str, str] | None = None) -> None:
        self.words, self.error = words, error
        super().__init__(words)


@dataclass(slots=True)
class Command:
    """One `towpath cutover`. Each way returns whether it is done; if not, everything is as before.

    They raise `TowpathError` when something is left to do, which the message names.
    """

    sides: Sides
    options: CutoverOptions
    reporter: Reporter
    signals: Interrupts
    dry_run: bool = False
    report_path: Path | None = None
    """Of the report, for the gate."""
    write_report: Callable[[], None] = lambda: None
    """Raises `TowpathError` when the report cannot be written."""
    has_back: bool = True
    """Whether the command asks for a reverse pipeline."""
    switch_failure: str = ""
    """Why --switch-with failed; empty if it did not."""

    @property
    def state(self) -> State | None:
        return self.sides.marker.state if self.sides.marker else None

    def undo(self) -> bool:
        if self.state is None:
            self._report_end("nothing to undo: no cutover is under way, and the source is primary")
            return True
        self.sides.take()
        if self.state == "returned":
            fail_back.finish(self.sides, self.options, self.reporter)
        elif self.state == "over":
            raise Refused(
                f"the cutover is complete and cannot be undone; to fail back to the source: {self._back_command}"
            )
        else:
            self._undo()
        return True

    def cut_over(self) -> bool:
        return self.ended(self._cut_over)

    def go_back(self) -> bool:
        return self.ended(self._go_back)

    def ended(self, way: Callable[[], None]) -> bool:
        """Report and return how it ended."""
        try:
            way()
        except _NotDone as end:
            self._report_end(end.words, end.error)
            self._write_failure()
            return False
        except (NotUndone, Overtaken, SwitchUnknown):
            self._write_failure()
            raise
        return True

    def _cut_over(self) -> None:
        if self.state == "over":
            assert self.sides.marker is not None
            self._report_end(f"already cut over: {self.sides.marker.description}")
            return
        self._refuse_dry_run(None)
        if self.state in ("back to the source", "returned"):
            raise Refused(f"an earlier fail back was not finished; to continue it: {self._back_command}")
        if self.state is not None:
            self._undo_earlier("an earlier cutover was interrupted; undoing it first")
        if not self._looked(self._is_ready):
            return
        if self.sides.reverse is not None and not self.sides.reverse.file.exists():
            write_reverse_file(self.sides.forward.file)
        seconds = self.perform("to the destination", steps.before, steps.cut_over)
        self._report_switch("destination", seconds)
        self._finish("destination")

    def _undo_earlier(self, words: str) -> None:
        self.sides.forward.say(words)
        self._take()
        self._undo()
        if self.signals.came:
            raise _NotDone("the earlier attempt is undone, and nothing else was started: interrupted")
        self.signals.release()
        if self.state is None and self.has_back is not (self.sides.reverse is not None):
            raise _NotDone("the earlier cutover is undone; run the same command again")

    def _take(self) -> None:
        """Take the cutover over. Raises `Overtaken` when its command has gone on since the marker was read."""
        state, taken = self.state, self.sides.take()
        if taken.state != state:
            raise Overtaken(f"the cutover went on while it was to be taken over, and is {taken.state} now")

    def _is_ready(self) -> bool:
        """Check the gate, and return whether the cutover is to begin: not in a dry run. Raises `_NotDone`."""
        self.sides.forward.require_deployed()
        target.require_own(self.sides.forward)
        return self._report_gate(run((*GATE, *PRECONDITIONS), self._readiness(returns=False)))

    def _looked(self, look: Callable[[], bool]) -> bool:
        """What it returns. Raises `_NotDone` when a signal interrupts it."""
        try:
            return look()
        except (KeyboardInterrupt, SystemError) as error:  # Kafka's client turns the one into the other
            if not self.signals.came:
                raise
            raise _NotDone("not started: interrupted") from error

    def _go_back(self) -> None:
        if self.state is None or self.state == "to the destination":
            raise Refused("cannot fail back: the source is primary")
        assert self.sides.marker is not None
        if not self.sides.marker.has_back:
            raise Refused(
                "cannot fail back: the cutover was made with --no-reverse-pipeline, so there is no reverse pipeline"
            )
        self._refuse_dry_run("over")
        if self.state == "back to the source":
            self._undo_earlier("an earlier fail back was interrupted; undoing it first")
        elif not self.dry_run:
            self._take()
        if self.state == "over":
            if not self._looked(self._is_ready_to_return):
                return
            seconds = self.perform("back to the source", fail_back.before, fail_back.go_back)
            fail_back.open_primary(self.sides)
            self._report_switch("source", seconds)
        fail_back.finish(self.sides, self.options, self.reporter)
        self._finish("source")

    def _is_ready_to_return(self) -> bool:
        """As `_is_ready`, for a fail back. A source that blocks all writes is opened first."""
        assert self.sides.reverse is not None and self.sides.marker is not None
        self.sides.reverse.require_deployed()
        target.require_own(self.sides.reverse)
        preconditions = run(PRECONDITIONS, self._readiness(returns=True))
        if not (self.dry_run or red(preconditions)):
            fail_back.open_source(self.sides, self.options, self.reporter)
        # if the source still blocks writes, the reverse pipeline cannot apply: the gate could not pass
        is_blocked = self.sides.marker.blocked and red(preconditions)
        checks = [] if is_blocked else run(GATE, self._readiness(returns=True))
        return self._report_gate([*checks, *preconditions])

    def _refuse_dry_run(self, state: State | None) -> None:
        """In a dry run, end unless the cutover is in this state: an earlier command may still be running."""
        if self.dry_run and self.state != state:
            assert self.sides.marker is not None
            raise _NotDone(f"not ready; cutover: {self.sides.marker.description}")

    def _readiness(self, *, returns: bool) -> Readiness:
        forward, reverse = self.sides.forward, self.sides.reverse
        return Readiness(forward, reverse, self.options, self.report_path, returns, answers=not self.dry_run)

    def _report_gate(self, checks: list[Check]) -> bool:
        """Whether to begin: not in a dry run. Raises `_NotDone` when something is red."""
        self.reporter.report(Gate(words="", checks=checks))
        if failed := red(checks):
            names = ", ".join(label(check.name) for check in failed)
            raise _NotDone(f"not started, nothing is changed: {names} {'is' if len(failed) == 1 else 'are'} red")
        if self.dry_run:
            self._report_end("everything is ready; nothing was started")
        return not self.dry_run

    def perform(
        self,
        state: State,
        before: Callable[[Sides, CutoverOptions, Reporter], V],
        go: Callable[[Sides, CutoverOptions, V, Reporter], tuple[Cutover, float]],
    ) -> float:
        """Make the other side primary; return the seconds of the pause. Whatever ends it before is undone."""
        sides = self.sides

        def steps_to_switch() -> float:
            sides.enter(state)
            sides.forward.say(f"if this command is killed, undo it with: towpath cutover {sides.forward.file} --undo")
            switched, seconds = go(sides, self.options, before(sides, self.options, self.reporter), self.reporter)
            self.signals.hold()  # a signal would leave it open whether the switch is stored
            if self.signals.came:  # a library may have swallowed its exception
                raise KeyboardInterrupt
            sides.switch(switched)
            return seconds

        try:
            return attempt(sides, self.reporter, self.signals, steps_to_switch)
        except (NotUndone, Overtaken, SwitchUnknown):
            raise
        except ERRORS as error:
            raise _NotDone(f"not done: {error}", fields(error)) from error
        except (KeyboardInterrupt, SystemError) as error:  # Kafka's client turns the one into the other
            if not self.signals.came:
                raise
            raise _NotDone("not done: interrupted") from error

    def _undo(self) -> None:
        self.signals.hold()
        undo(self.sides, self.reporter)

    def _report_switch(self, side: Literal["source", "destination"], seconds: float) -> None:
        words = f"the {side} is primary: redirect the writers there (writes were stopped for {seconds:.1f} s)"
        self.reporter.report(Switch(words=words, primary=side, pause_seconds=round(seconds, 3)))
        if self.options.switch_with is not None:
            try:
                hook(self.options.switch_with)
            except TowpathError as error:
                self.switch_failure = f"{error}; redirect the writers to the {side} by other means"

    def _finish(self, side: str) -> None:
        marker = self.sides.marker
        words = f"done: the {side} is primary"
        if marker is not None:
            words += f"; it has every change up to the source's cluster time {marker.moment}"
        if marker is not None and marker.blocked:
            words += f"; the source blocks writes; to unblock it by hand: {MONGOSH_UNDO}"
        if self.sides.reverse is not None and side == "destination":
            words += f"; to fail back: {self._back_command}"
        self._report_end(words)
        self.write_report()
        if self.switch_failure:
            raise TowpathError(self.switch_failure)

    def _report_end(self, words: str, error: Mapping[str, str] | None = None) -> None:
        self.reporter.report(CutoverNote(event="end", words=words, error=error))

    def _write_failure(self) -> None:
        """Write the report of a failed cutover. If that fails too, only say so: the cutover's error matters more."""
        try:
            self.write_report()
        except TowpathError as error:
            self.sides.forward.say(str(error))

    @property
    def _back_command(self) -> str:
        return f"towpath cutover {self.sides.forward.file} --back"
