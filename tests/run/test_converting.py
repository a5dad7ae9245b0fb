"""`run` completes what a cutover has left to convert, once, beside everything else that it does."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from tests.run.test_screens import status
from tests.support.awaited import until
from tests.support.cutover_world import pipeline_of
from tests.support.sessions import session_of
from towpath.config.events import Note, TimedEvent
from towpath.deploy.conversions import Attempt
from towpath.errors import TowpathError
from towpath.run import supervisor as supervising
from towpath.run.children import Events
from towpath.run.supervisor import Supervisor
from towpath.store.cutover import Conversion, Cutover

LEFT = Conversion("shop.users", ("email",), enforced=True)
SWITCHED = Cutover("destination primary", (), 1.0, conversions=(LEFT,))


class Run:
    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.attempts, self.may_end = 0, Event()
        self.error: Exception | None = None
        self.words_of = LEFT.done
        self.told = list[TimedEvent]()
        self.supervisor = Supervisor(session_of(pipeline_of(folder)), Events(self.told.append), None)  # type: ignore[arg-type]
        patch.setattr(supervising.conversions, "is_elsewhere", lambda session: False)
        patch.setattr(supervising.conversions, "complete", self._complete)

    def _complete(self, session: Any) -> Iterator[Attempt]:
        self.attempts += 1
        assert self.may_end.wait(10)
        if self.error is not None:
            raise self.error
        yield Attempt(self.words_of, self.words_of == LEFT.done)

    def poll(self, marker: Cutover | None) -> None:
        self.supervisor._attempt("conversion", lambda: self.supervisor._convert(status(cutover=marker)))

    def ends(self) -> None:
        self.may_end.set()
        conversion = self.supervisor._conversion
        assert conversion is not None
        until("the end of the conversion", conversion.done, 10, 0.01)

    @property
    def words(self) -> list[str | None]:
        return [note.words for note in self.told if isinstance(note, Note)]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    return Run(tmp_path, monkeypatch)


def test_it_is_done_once_and_told(run: Run) -> None:
    for _ in range(3):
        run.poll(SWITCHED)
    assert run.attempts == 1 and run.told == []
    run.ends()
    run.poll(SWITCHED)
    assert run.words == ["converted email of shop.users to unique"]
    run.poll(replace(SWITCHED, conversions=()))
    assert run.attempts == 1


def test_duplicates_are_told_and_not_looked_for_again(run: Run) -> None:
    run.words_of = "the index email has duplicates"
    run.poll(SWITCHED)
    run.ends()
    run.poll(SWITCHED)
    assert run.words == ["the index email has duplicates"]
    run.poll(replace(SWITCHED, conversions=(replace(LEFT, problem=run.words_of),)))
    assert run.attempts == 1


def test_a_failure_is_told_and_tried_again_later(run: Run) -> None:
    run.error = TowpathError("the destination is away")
    run.poll(SWITCHED)
    run.ends()
    run.poll(SWITCHED)
    run.poll(SWITCHED)
    assert run.words == ["the destination is away"] and run.attempts == 1
    run.supervisor._pauses["conversion"].due, run.error = 0.0, None
    run.poll(SWITCHED)
    run.ends()
    run.poll(SWITCHED)
    assert run.attempts == 2
    assert run.words[1:] == ["converted email of shop.users to unique", "resolved: the destination is away"]


def test_a_failure_is_over_once_another_command_has_done_it(run: Run) -> None:
    run.error = TowpathError("the destination is away")
    run.poll(SWITCHED)
    run.ends()
    for left in (SWITCHED.conversions, (), ()):
        run.poll(replace(SWITCHED, conversions=left))
    assert run.words == ["the destination is away", "resolved: the destination is away"] and run.attempts == 1


def test_a_destination_that_does_not_answer_resolves_no_failure_and_is_not_asked(run: Run) -> None:
    run.error = TowpathError("the destination is away")
    run.poll(SWITCHED)
    run.ends()
    run.poll(SWITCHED)
    run.supervisor._pauses["conversion"].due = 0.0
    for known in (None, SWITCHED):
        run.supervisor._convert(status(cutover=known, changes=None))
    assert run.words == ["the destination is away"] and run.attempts == 1


@pytest.mark.parametrize("state", ["cutting over", "failing back"])
def test_nothing_is_done_while_a_cutover_is_under_way_or_another_command_does_it(
    run: Run, state: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    run.poll(None)
    run.poll(replace(SWITCHED, state=state))
    monkeypatch.setattr(supervising.conversions, "is_elsewhere", lambda session: True)
    run.poll(SWITCHED)
    assert run.attempts == 0
