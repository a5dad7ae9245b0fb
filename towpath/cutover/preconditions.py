"""What the steps of the pause take, looked at before it: nothing that could be known is found out while writes wait."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from bson.timestamp import Timestamp

from connectors.control import statuses
from towpath.cutover import reverse_pipeline
from towpath.cutover.steps import Asked
from towpath.cutover.writes import ANSWER, unanswered, watch, why_not
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
#: Command → the action that it takes, where they do not have one name.
_ACTIONS = {"createIndexes": "createIndex", "dropIndexes": "dropIndex"}


@dataclass(frozen=True, slots=True)
class Preconditions:
    """`back` is the way back, where there is one; `returns` whether the cutover takes it. Nothing is changed."""

    it: Session
    back: Session | None
    asked: Asked
    report: Path | None
    returns: bool
    answers: bool
    """Whether somebody is to say, on standard input, that the writes have ended."""

    def looks(self) -> Iterator[Callable[[], Check]]:
        yield self.commands
        if self.asked.blocks:
            yield self.own_writes
        yield self.late_writes
        yield self.forms
        if self.returns:
            yield self.capture
            yield self.sink
        if self.report is not None:
            yield self.report_file

    def commands(self) -> Check:
        """What stops the writers and what sends them on."""
        given = {"--stop-with": self.asked.stop_with, "--switch-with": self.asked.switch_with}
        found = [f"{option}: {why}" for option, command in given.items() if command and (why := why_not(command))]
        if found:
            return Check("commands", False, "; ".join(found), "correct it; nothing is run before all is green")
        asks = self.asked.stop_with is None and not self.asked.blocks
        if asks and self.answers and (why := unanswered()):
            return Check("commands", False, f"nobody could say that the writes are stopped: {why}", ANSWER)
        return Check(
            "commands", True, "you are asked to stop the writers" if asks else "what stops the writers is there"
        )

    def own_writes(self) -> Check:
        """Those that the pause needs on a cluster that refuses writes by then."""
        shut_out = list(self._shut_out())
        words = "; ".join(shut_out) or "Towpath's own are taken while those of applications are refused"
        advice = "leave --block-writes out and stop the writers with --stop-with or by hand, or grant that action"
        return Check("own writes", not shut_out, words, advice)

    def _shut_out(self) -> Iterator[str]:
        pipeline = self.it.pipeline
        with (
            connected(pipeline.source_uri, "source") as source,
            connected(pipeline.destination_uri, "destination") as destination,
        ):
            one = source_set(source).is_same(destination_set(destination, transactions=True))
            for side, client, needs in (
                ("source", source, self.returns and one),
                ("destination", destination, self.returns or one),
            ):
                if needs and not write_block.writes_through(client):
                    known = privileges(client)
                    why = (
                        f"{known.user} misses {write_block.BYPASS} there"
                        if known
                        else "without access control nobody may"
                    )
                    yield f"while writes to the {side} are blocked, Towpath has to write there, and {why}"

    def late_writes(self) -> Check:
        """Whether they would be seen."""
        here, side = self._stopped
        with (
            connected(here.source_uri, side) as client,
            watch(client, here, start_at_operation_time=now(client) or Timestamp(1, 1)),
        ):
            return Check("late writes", True, "are seen, those to collections to come as well")

    def forms(self) -> Check:
        """Whether the users may do what turns both sides' forms round, as far as it is known by now."""
        pipeline = self.it.pipeline
        plans: list[tuple[str, str, Sequence[Step]]] = []
        if not self.returns:
            plans.append(("destination", pipeline.destination_uri, plan.plan(pipeline, final=True).steps))
        if self.back is not None and self.returns:
            plans.append(("source", pipeline.source_uri, plan.plan(self.back.pipeline, final=True).steps))
        elif self.back is not None:
            plans.append(("source", pipeline.source_uri, plan.plan_in_place(self.back.pipeline).steps))
        missing = [words for side, uri, steps in plans for words in _missing(side, uri, steps)]
        words = "; ".join(missing[:_SHOWN]) or "the users may change them"
        advice = "grant the role dbAdmin on the databases, or the actions named (README, Security)"
        return Check("forms", not missing, words, advice)

    def capture(self) -> Check:
        """The way there captures what the way back wrote, before its sink passes over that."""
        session = self.it
        found = [one for one in statuses(session.connect, session.pipeline.source_connectors) if not one.running]
        words = "; ".join(": ".join([f"{one.name} is {one.state}", *one.failures]) for one in found)
        return Check("capture", not found, words or "of the source goes on", f"towpath restart {session.file}")

    def sink(self) -> Check:
        """It can be moved to the end of the log."""
        reverse_pipeline.refuse_unmovable(self.it.pipeline, self.it.connect)
        return Check("sink", True, "stopped, and can be moved to the end of the log")

    def report_file(self) -> Check:
        assert self.report is not None
        place = self.report if self.report.exists() else self.report.absolute().parent
        good = os.access(place, os.W_OK) and (self.report.exists() or place.is_dir())
        return Check(
            "report", good, str(self.report) if good else f"{self.report} cannot be written", "name another: --report"
        )

    @property
    def _stopped(self) -> tuple[Pipeline, str]:
        """The pipeline from the cluster on which the writes end, and what that cluster is."""
        if self.returns and self.back is not None:
            return self.back.pipeline, "destination"
        return self.it.pipeline, "source"


def _missing(side: str, uri: str, steps: Iterable[Step]) -> list[str]:
    """Actions that the user of this side misses for these steps, each once."""
    with connected(uri, side) as client:
        known = privileges(client)
    if known is None:
        return []
    found = [
        f"{known.user} misses {action} on {step.namespace} at the {side}"
        for step in steps
        for action in known.missing([_action(step)], step.namespace)
    ]
    return list(dict.fromkeys(found))


def _action(step: Step) -> str:
    command = next(iter(step.command.body))
    if command == "create":  # who may insert may create what is neither capped nor a view
        return "insert" if {"capped", "viewOn"}.isdisjoint(step.command.body) else "createCollection"
    return _ACTIONS.get(command, command)
