"""`towpath cutover`"""

from __future__ import annotations

import signal
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Literal

import click

from towpath.cli.options import FILE, duration, flag, json_option, opened, pipeline_argument, print_json, say
from towpath.cli.report.cutover import write_report
from towpath.cutover import fail_back, steps
from towpath.cutover.events import Reporter
from towpath.cutover.gate import GATE, PRECONDITIONS, Readiness, red, run
from towpath.cutover.pause import IncrementalVerification
from towpath.cutover.reverse_pipeline import write_reverse_file
from towpath.cutover.sides import Sides, read_sides
from towpath.cutover.steps import CutoverOptions, NotUndone, undo, undone
from towpath.cutover.writes import hook
from towpath.deploy import operator, target
from towpath.errors import Overtaken, Refused, TowpathError, fields
from towpath.events import Check, CutoverNote, Gate, Switch, TimedEvent, label
from towpath.mongo.write_block import MONGOSH_UNDO
from towpath.state_files import alone
from towpath.trouble import ERRORS

_NOT_DONE, _TROUBLE = 1, 2
_MARKS = {True: click.style("ok ", fg="green"), False: click.style("red", fg="red", bold=True)}


@click.command()
@pipeline_argument
@flag("--back", "goes_back", help="Fail back: the source becomes primary again.")
@flag("--undo", "undoes", help="Undo an interrupted cutover.")
@flag("--dry-run", help="Only check that everything is ready.")
@flag("--block-writes", "blocks", help="Block writes at the server (setUserWriteBlockMode, MongoDB 6.0).")
@click.option(
    "--stop-with",
    metavar="COMMAND",
    help="Command that stops the writers. Without it and --block-writes, the cutover asks you to stop them.",
)
@click.option(
    "--switch-with", metavar="COMMAND", help="Command that redirects the writers once the other side is primary."
)
@click.option(
    "--last",
    "newest",
    default=500_000,
    type=click.IntRange(min=1),
    help="How many of the newest records to verify just before the pause.",
)
@flag("--quiet", help="During the pause, also compare all documents by dbHash.")
@click.option(
    "--max-lag",
    default=10.0,
    type=click.FloatRange(min=0),
    help="Largest lag, in seconds, with which a cutover may begin.",
)
@click.option("--verified-within", default="24h", callback=duration, help="Largest age of the last full verification.")
@flag(
    "--no-reverse-pipeline",
    "--no-way-back",
    "no_reverse_pipeline",
    help="Create no reverse pipeline: nothing is written to the source afterwards.",
)
@click.option("--timeout", default=120.0, help="Seconds that a step before the pause may take.")
@click.option("--max-pause", default="30s", callback=duration, help="Longest time that writes may stop.")
@click.option("--report", type=FILE, help="Write an HTML report of the cutover.")
@json_option
def cutover(
    file: Path,
    goes_back: bool,
    undoes: bool,
    dry_run: bool,
    blocks: bool,
    stop_with: str | None,
    switch_with: str | None,
    newest: int,
    quiet: bool,
    max_lag: float,
    verified_within: timedelta,
    no_reverse_pipeline: bool,
    timeout: float,
    max_pause: timedelta,
    report: Path | None,
    as_json: bool,
) -> None:
    """Make the destination of PIPELINE primary, in a pause of seconds.

    Run it when you want to move the writers to the destination, after a clean `verify`. The cutover checks that
    everything is ready, verifies the documents of the newest records and stops the writes at the source. Then it
    applies and verifies the rest, restores indexes, TTL and validators, and starts a reverse pipeline, so that --back
    fails back without loss. It undoes everything when a check fails, when a write reaches the source after the stop,
    when the pause reaches --max-pause, and on Ctrl-C. After the switch, only --back returns.

    Exit codes: 0 done; 1 not done, everything is as before; 2 something is left to do, and the message names it.
    """
    if goes_back and undoes:
        raise click.UsageError("give one of --back and --undo")
    if goes_back and no_reverse_pipeline:
        raise click.UsageError(
            "--no-reverse-pipeline belongs to the cutover; a cutover with it cannot fail back with --back"
        )
    if undoes and dry_run:
        raise click.UsageError(
            "give one of --undo and --dry-run: --dry-run checks readiness, which --undo does not need"
        )
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    reporter = Reporter(print_json if as_json else _print_event, say)
    max_age, pause = verified_within.total_seconds(), max_pause.total_seconds()
    options = CutoverOptions(max_lag, max_age, newest, quiet, blocks, stop_with, switch_with, timeout, pause)
    with ExitStack() as stack:
        session = stack.enter_context(opened(file))
        operator.refuse_change(session.pipeline, "a cutover")
        if not session.pipeline.exactly_once:
            raise Refused(f'{file}: a cutover needs mode = "exactly-once", which stores positions with the documents')
        if not dry_run:
            stack.enter_context(alone(session.pipeline.name, "cutover"))
        sides = read_sides(
            session, stack, goes_forward=not (undoes or goes_back), undoes=undoes, has_back=not no_reverse_pipeline
        )
        command = _Command(sides, options, reporter, dry_run, report, has_back=not no_reverse_pipeline)
        command.undo() if undoes else command.go_back() if goes_back else command.cut_over()


def _print_event(event: TimedEvent) -> None:
    """Print the text of an event; for the gate, a line for each check."""
    if not isinstance(event, Gate):
        click.echo(event.words)
        return
    width = max((len(label(check.name)) for check in event.checks), default=0)
    for check in event.checks:
        click.echo(f"{_MARKS[check.good]}  {label(check.name):<{width}}  {check.found}")
        if check.advice and not check.good:
            click.echo(f"     {'':<{width}}  → {check.advice}")


@dataclass(slots=True)
class _Command:
    sides: Sides
    options: CutoverOptions
    reporter: Reporter
    dry_run: bool
    report_path: Path | None
    has_back: bool
    """Whether the command asks for a reverse pipeline."""
    switch_failure: str = ""
    """Why --switch-with failed; empty if it did not."""

    @property
    def state(self) -> str:
        return self.sides.marker.state if self.sides.marker else ""

    def undo(self) -> None:
        if self.state == "returned":
            fail_back.finish(self.sides, self.options, self.reporter)
        elif self.state == "over":
            raise Refused(
                f"the cutover is complete and cannot be undone; to fail back to the source: {self._back_command}"
            )
        elif not self.state:
            self._report_end("nothing to undo: no cutover is under way, and the source is primary")
        else:
            self.sides.take()
            undo(self.sides, self.reporter)

    def cut_over(self) -> None:
        if self.state == "over":
            assert self.sides.marker is not None
            self._report_end(f"already cut over: {self.sides.marker.description}")
            return
        self._refuse_dry_run("")
        if self.state in ("back to the source", "returned"):
            raise Refused(f"an earlier fail back was not finished; to continue it: {self._back_command}")
        if self.state:
            say("an earlier cutover was interrupted; undoing it first")
            self.sides.take()
            undo(self.sides, self.reporter)
            if self.has_back is not (self.sides.reverse is not None):
                self._fail("the earlier cutover is undone; run the same command again")
        self.sides.forward.require_deployed()
        target.require_own(self.sides.forward)
        self._report_gate(run((*GATE, *PRECONDITIONS), self._readiness(returns=False)))
        if self.sides.reverse is not None and not self.sides.reverse.file.exists():
            write_reverse_file(self.sides.forward.file)
        seconds = self._perform(lambda: self.sides.enter("to the destination"), steps.before, steps.cut_over)
        self._report_switch("destination", seconds)

    def go_back(self) -> None:
        if not self.state or self.state == "to the destination":
            raise Refused("cannot fail back: the source is primary")
        assert self.sides.marker is not None
        if not self.sides.marker.has_back:
            raise Refused(
                "cannot fail back: the cutover was made with --no-reverse-pipeline, so there is no reverse pipeline"
            )
        self._refuse_dry_run("over")
        if not self.dry_run:
            self.sides.take()
        if self.state == "back to the source":
            say("an earlier fail back was interrupted; undoing it first")
            undo(self.sides, self.reporter)
        if self.state == "over":
            assert self.sides.reverse is not None
            self.sides.reverse.require_deployed()
            target.require_own(self.sides.reverse)
            preconditions = run(PRECONDITIONS, self._readiness(returns=True))
            if not (self.dry_run or red(preconditions)):
                fail_back.open_source(self.sides, self.options, self.reporter)
            # if the source still blocks writes, the reverse pipeline cannot apply: the gate could not pass
            is_blocked = self.sides.marker.blocked and red(preconditions)
            checks = [] if is_blocked else run(GATE, self._readiness(returns=True))
            self._report_gate([*checks, *preconditions])
            seconds = self._perform(lambda: self.sides.enter("back to the source"), fail_back.before, fail_back.go_back)
            self._report_switch("source", seconds)
        fail_back.finish(self.sides, self.options, self.reporter)
        self._finish("source")

    def _refuse_dry_run(self, state: str) -> None:
        """In a dry run, fail unless the cutover is in this state: an earlier command may still be running."""
        if self.dry_run and self.state != state:
            assert self.sides.marker is not None
            self._fail(f"not ready; cutover: {self.sides.marker.description}")

    def _readiness(self, *, returns: bool) -> Readiness:
        sides, answers = self.sides, not self.dry_run
        return Readiness(sides.forward, sides.reverse, self.options, self.report_path, returns, answers)

    def _report_gate(self, checks: list[Check]) -> None:
        self.reporter.report(Gate(words="", checks=checks))
        if failed := red(checks):
            names = ", ".join(label(check.name) for check in failed)
            self._fail(f"not started, nothing is changed: {names} {'is' if len(failed) == 1 else 'are'} red")
        if self.dry_run:
            self._report_end("everything is ready; nothing was started")
            raise click.exceptions.Exit(0)

    def _perform(
        self,
        enter: Callable[[], None],
        before: Callable[[Sides, CutoverOptions, Reporter], IncrementalVerification],
        go: Callable[[Sides, CutoverOptions, IncrementalVerification, Reporter], float],
    ) -> float:
        enter()
        say(f"if this command is killed, undo it with: towpath cutover {self.sides.forward.file} --undo")
        try:
            with undone(self.sides, self.reporter):
                return go(self.sides, self.options, before(self.sides, self.options, self.reporter), self.reporter)
        except (NotUndone, Overtaken):
            self._write_failure()
            raise
        except (KeyboardInterrupt, SystemError, *ERRORS) as error:  # SystemError: Kafka's client on Ctrl-C
            if isinstance(error, (KeyboardInterrupt, SystemError)):
                self._fail("not done: interrupted")
            self._fail(f"not done: {error}", error=fields(error))
            raise AssertionError from error

    def _report_switch(self, side: Literal["source", "destination"], seconds: float) -> None:
        words = f"the {side} is primary: redirect the writers there (writes were stopped for {seconds:.1f} s)"
        self.reporter.report(Switch(words=words, primary=side, pause_seconds=round(seconds, 3)))
        if self.options.switch_with is not None:
            try:
                hook(self.options.switch_with)
            except TowpathError as error:
                self.switch_failure = f"{error}; redirect the writers to the {side} by other means"
        if side == "destination":
            self._finish(side)

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
        self._write()
        if self.switch_failure:
            raise TowpathError(self.switch_failure)

    def _fail(self, words: str, error: Mapping[str, str] | None = None) -> None:
        self._report_end(words, error)
        self._write_failure()
        raise click.exceptions.Exit(_NOT_DONE)

    def _report_end(self, words: str, error: Mapping[str, str] | None = None) -> None:
        self.reporter.report(CutoverNote(event="end", words=words, error=error))

    def _write(self) -> None:
        if self.report_path is not None:
            write_report(self.report_path, self.sides, self.reporter.events)
            say(f"wrote the report to {self.report_path}")

    def _write_failure(self) -> None:
        """Write the report of a failed cutover. If that fails too, only say so: the cutover's error matters more."""
        try:
            self._write()
        except TowpathError as error:
            say(str(error))

    @property
    def _back_command(self) -> str:
        return f"towpath cutover {self.sides.forward.file} --back"
