"""What `run`, `status` and the page say of a schema change that waits for a decision, until it is over."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.checks.test_check_judgements import PIPELINE
from tests.deploy.test_changes_in_log import LOGGED, change
from tests.run.test_screens import status
from tests.run.test_supervising import FILE
from tests.support.sessions import FakeCluster, session_of
from towpath.cli import launcher
from towpath.cli.run import rows
from towpath.cli.status import exit_code
from towpath.config.events import TimedEvent
from towpath.config.pipeline import Pipeline
from towpath.cutover import gate
from towpath.deploy.schema_changes import SchemaChanges, Shown
from towpath.errors import MongoUnreachable
from towpath.monitor.watch import Reporter
from towpath.run import status as gather
from towpath.run import supervisor as supervising
from towpath.run.children import Events
from towpath.run.report import LoggedChange, Problem
from towpath.run.supervisor import Supervisor
from towpath.session import opened
from towpath.store.cutover import Cutover
from towpath.verify.verdict import Verification


def changes(**more: Any) -> SchemaChanges:
    return SchemaChanges((Shown(change(**more), ("shop.a",)),))


def logged_changes() -> tuple[LoggedChange, ...]:
    return tuple(LoggedChange(**one) for one in changes().as_json("shop.toml"))


class Run:
    """A supervisor whose looks find what they are given."""

    def __init__(self, supervisor: Supervisor, told: list[TimedEvent], monkeypatch: pytest.MonkeyPatch) -> None:
        self.supervisor, self._told, self._patch = supervisor, told, monkeypatch

    def look(self, found: SchemaChanges | None) -> list[str]:
        """What is reported of schema changes."""
        self._told.clear()
        seen = status(changes=found, errors=(Problem("nothing else is read"),))
        self._patch.setattr(supervising, "read_status", lambda *_: seen)
        self.supervisor._read_status()
        return [str(event.words) for event in self._told if event.event == "ddl"]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    file, told = tmp_path / "shop.toml", list[TimedEvent]()
    file.write_text(f"{FILE}\nddl = {{}}\n")
    file.chmod(0o600)
    monkeypatch.setattr(Supervisor, "verified", lambda self: Verification())  # no server is there
    with opened(file) as it:
        events = Events(told.append)
        supervisor = Supervisor(it, events, launcher)
        yield Run(supervisor, told, monkeypatch)


def test_a_destination_that_does_not_answer_resolves_nothing(run: Run) -> None:
    [held] = run.look(changes())
    assert "schema change held: drop shop.a" in held
    assert run.supervisor.verdict().exit == 1
    assert run.look(None) == []
    assert any("schema change held" in line for _, line, _ in rows(run.supervisor))
    end = run.supervisor.verdict()
    assert end.exit == 2
    assert [shown["state"] for shown in end.schema_changes] == ["held"]
    assert "does not answer" in str(end.words)
    assert run.look(changes()) == []
    assert run.look(SchemaChanges()) == ["resolved: drop shop.a"]
    assert run.supervisor.verdict().exit == 0


def test_a_change_is_resolved_once_it_is_made_or_skipped(run: Run) -> None:
    run.look(changes(state="refused", reason="no"))
    assert run.look(changes(state="refused", reason="no", decision="apply")) == []
    assert run.look(changes(state="running", reason="", decision="apply")) == []
    assert run.supervisor.verdict().exit == 1
    assert run.look(changes(state="refused", reason="no", decision="apply")) == [], "it is the same refusal"
    assert run.look(changes(state="refused", reason="no", decision="skip")) == []
    assert run.look(SchemaChanges((), (Shown(change(state="skipped"), ()),))) == ["resolved: drop shop.a"]


def test_the_state_is_unknown_while_the_destination_does_not_answer() -> None:
    assert exit_code(None) == 2
    assert exit_code(status(changes=None)) == 2
    assert exit_code(status(changes=None, cutover=Cutover("destination primary", (), 1.0))) == 2, "known only of before"
    assert exit_code(status(log_breaks=None)) == 2
    assert exit_code(status(log_breaks=None, cutover=Cutover("cutting over", (), 1.0))) == 0, "then no one looks"
    assert exit_code(status(changes=changes())) == 1
    assert exit_code(status(changes=SchemaChanges())) == 0


class NoTopics:
    def __getattr__(self, name: str) -> Any:
        return lambda *_, **__: {}


def test_what_is_not_read_is_not_taken_for_nothing() -> None:
    away = FakeCluster(error=MongoUnreachable("the destination does not answer"))

    def changes_of(pipeline: Pipeline) -> SchemaChanges | None:
        return gather._Gathering(session_of(pipeline, topics=NoTopics(), destination=away)).sink.changes

    assert changes_of(LOGGED) is None
    assert changes_of(PIPELINE.changed(mode="plain")) == SchemaChanges()


def test_the_page_keeps_what_was_known_while_the_destination_does_not_answer(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gate, "known", lambda *_: [])
    monkeypatch.setattr(Reporter, "_verdicts", lambda *_, **__: Verification())
    reporter = Reporter(run.supervisor.session, _slow_at=time.monotonic())
    reporter.last = replace(reporter.last, ddl=())
    found = [
        status(schema_changes=logged, changes=None if logged is None else SchemaChanges())
        for logged in (logged_changes(), None, (), None)
    ]
    waiting = [reporter.report(one, 0.0).ddl_waiting for one in found]
    assert waiting == [1, 1, 0, 0]
