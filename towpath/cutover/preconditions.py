"""What the steps of the pause need, checked before it: whatever can fail early must not fail while writes wait."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from bson.timestamp import Timestamp

from connectors.control import statuses
from towpath.cutover import reverse_pipeline
from towpath.cutover.steps import CutoverOptions
from towpath.cutover.writes import ANSWER, command_problem, stdin_problem, watch
from towpath.events import Check
from towpath.mongo import write_block
from towpath.mongo.client import connected, destination_set, source_set
from towpath.mongo.privileges import privileges
from towpath.pipeline import Pipeline
from towpath.schema import plan
from towpath.schema.apply import Step
from towpath.session import Session
from verifier.reads import now

_SHOWN = 3
#: Command → the privilege action that it needs, where their names differ.
_ACTIONS = {"createIndexes": "createIndex", "dropIndexes": "dropIndex"}


@dataclass(frozen=True, slots=True)
class Preconditions:
    """`reverse` is the reverse pipeline, if any; `returns` is True for a fail back. The checks change nothing."""

    forward: Session
    reverse: Session | None
    options: CutoverOptions
    report: Path | None
    returns: bool
    answers: bool
    """Whether somebody may have to confirm on standard input that the writes have stopped."""

    def checks(self) -> Iterator[Callable[[], Check]]:
        yield self.commands
        if self.options.blocks:
            yield self.own_writes
        yield self.late_writes
        yield self.forms
        if self.returns:
            yield self.capture
            yield self.sink
        if self.report is not None:
            yield self.report_file

    def commands(self) -> Check:
        """The commands that stop and redirect the writers."""
        commands = {"--stop-with": self.options.stop_with, "--switch-with": self.options.switch_with}
        problems = [
            f"{option}: {why}" for option, command in commands.items() if command and (why := command_problem(command))
        ]
        if problems:
            return Check("commands", False, "; ".join(problems), "correct it; nothing runs before all checks are green")
        is_manual = self.options.stop_with is None and not self.options.blocks
        if is_manual and self.answers and (why := stdin_problem()):
            return Check("commands", False, f"nobody could confirm that the writes have stopped: {why}", ANSWER)
        return Check("commands", True, "you are asked to stop the writers" if is_manual else "can be run")

    def own_writes(self) -> Check:
        """Towpath's own writes in the pause, on a cluster that blocks writes by then."""
        blocked = list(self._blocked())
        words = "; ".join(blocked) or "Towpath can write while the writes of applications are blocked"
        advice = "leave --block-writes out and stop the writers with --stop-with or by hand, or grant that action"
        return Check("own writes", not blocked, words, advice)

    def _blocked(self) -> Iterator[str]:
        pipeline = self.forward.pipeline
        with (
            connected(pipeline.source_uri, "source") as source,
            connected(pipeline.destination_uri, "destination") as destination,
        ):
            same = source_set(source).is_same(destination_set(destination, transactions=True))
            for side, client, needs in (
                ("source", source, self.returns and same),
                ("destination", destination, self.returns or same),
            ):
                if needs and not write_block.writes_through(client):
                    granted = privileges(client)
                    why = (
                        f"{granted.user} misses {write_block.BYPASS} there"
                        if granted
                        else "nobody may without access control"
                    )
                    yield f"while writes to the {side} are blocked, Towpath has to write there, and {why}"

    def late_writes(self) -> Check:
        """Whether late writes would be seen."""
        pipeline, side = self._stopping
        with (
            connected(pipeline.source_uri, side) as client,
            watch(client, pipeline, start_at_operation_time=now(client) or Timestamp(1, 1)),
        ):
            return Check("late writes", True, "are seen, also in new collections")

    def forms(self) -> Check:
        """Whether the users may change the schemas of both sides, as far as the changes are known by now."""
        pipeline = self.forward.pipeline
        plans: list[tuple[str, str, Sequence[Step]]] = []
        if not self.returns:
            plans.append(("destination", pipeline.destination_uri, plan.plan(pipeline, final=True).steps))
        if self.reverse is not None and self.returns:
            plans.append(("source", pipeline.source_uri, plan.plan(self.reverse.pipeline, final=True).steps))
        elif self.reverse is not None:
            plans.append(("source", pipeline.source_uri, plan.plan_in_place(self.reverse.pipeline).steps))
        missing = [words for side, uri, steps in plans for words in _missing(side, uri, steps)]
        words = "; ".join(missing[:_SHOWN]) or "the users may change the schemas"
        advice = "grant the role dbAdmin on the databases, or the actions named (README, Security)"
        return Check("forms", not missing, words, advice)

    def capture(self) -> Check:
        """The pipeline has to capture what the reverse pipeline wrote, before its sink skips that."""
        session = self.forward
        stopped = [c for c in statuses(session.connect, session.pipeline.source_connectors) if not c.running]
        words = "; ".join(": ".join([f"{c.name} is {c.state}", *c.failures]) for c in stopped)
        return Check("capture", not stopped, words or "of the source is running", f"towpath restart {session.file}")

    def sink(self) -> Check:
        """The sink can be moved to the end of the log."""
        reverse_pipeline.refuse_unmovable(self.forward.pipeline, self.forward.connect)
        return Check("sink", True, "stopped, and can be moved to the end of the log")

    def report_file(self) -> Check:
        assert self.report is not None
        path = self.report if self.report.exists() else self.report.absolute().parent
        good = os.access(path, os.W_OK) and (self.report.exists() or path.is_dir())
        return Check(
            "report", good, str(self.report) if good else f"{self.report} cannot be written", "name another: --report"
        )

    @property
    def _stopping(self) -> tuple[Pipeline, str]:
        """The pipeline whose source is the cluster where the writes stop, and that cluster's side."""
        if self.returns and self.reverse is not None:
            return self.reverse.pipeline, "destination"
        return self.forward.pipeline, "source"


def _missing(side: str, uri: str, steps: Iterable[Step]) -> list[str]:
    """The privilege actions that the user of this side misses for these steps, each once."""
    with connected(uri, side) as client:
        granted = privileges(client)
    if granted is None:
        return []
    missing = [
        f"{granted.user} misses {action} on {step.namespace} at the {side}"
        for step in steps
        for action in granted.missing([_action(step)], step.namespace)
    ]
    return list(dict.fromkeys(missing))


def _action(step: Step) -> str:
    command = next(iter(step.command.body))
    if command == "create":  # insert is enough to create a collection that is neither capped nor a view
        return "insert" if {"capped", "viewOn"}.isdisjoint(step.command.body) else "createCollection"
    return _ACTIONS.get(command, command)
