"""What `status` and the metrics show of a part that cannot be read: nothing, and never 0."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from bson.timestamp import Timestamp

from tests.checks.test_check_judgements import PIPELINE
from tests.run.test_screens import shown, status
from tests.support.sessions import FakeCluster, session_of
from towpath.checks.rule import Rule, run
from towpath.cli.status import exit_code
from towpath.clients.mongo.client import ClusterTime
from towpath.config.events import TimedEvent
from towpath.cutover import takeover
from towpath.errors import MongoUnreachable, TopicError
from towpath.log.bounds import Break
from towpath.log.definitions import SOURCE_BACK, SOURCE_SET
from towpath.log.source_offsets import SourceState
from towpath.monitor import pages
from towpath.monitor.metrics import ROWS
from towpath.run import status as gather
from towpath.run.children import Events
from towpath.run.report import Lag, Problem, Rebuild, Report
from towpath.run.status import behind, part
from towpath.run.supervisor import described, report_conditions
from towpath.session import Session
from towpath.store.cutover import Cutover


def samples(found: Report, *names: str) -> list[str]:
    return [row.name for row in ROWS if row.name in names and row.family([found]).samples]


LAGS = ("towpath_lag_seconds", "towpath_capture_lag_seconds", "towpath_apply_lag_seconds")


@pytest.mark.parametrize(("now", "seconds"), [(None, None), (ClusterTime(110, 1), 9.0), (ClusterTime(100, 1), 0.0)])
def test_how_far_the_log_is_behind_a_source_that_does_not_answer_is_unknown(
    now: ClusterTime | None, seconds: float | None
) -> None:
    assert behind(now, [ClusterTime(200, 1), ClusterTime(100, 1), None]) == seconds
    assert behind(now, [None]) == 0


def test_a_lag_is_unknown_while_a_side_does_not_answer(capsys: pytest.CaptureFixture[str]) -> None:
    away = status(lag=Lag(3, None, 4.0))
    assert away.lag.seconds is None
    assert samples(away, *LAGS) == ["towpath_apply_lag_seconds"]
    assert "3 records, unknown" in shown(capsys, lag=Lag(3, None, 0.0))
    other = status(lag=Lag(None, 400.0))
    assert samples(other, *LAGS) == ["towpath_capture_lag_seconds"]
    assert set(samples(status(lag=Lag(0, 1.0, 0.0)), *LAGS)) == set(LAGS)


def test_dead_letters_that_cannot_be_read_are_not_none(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fail(*_: object) -> None:
        raise TopicError("cannot read shop.dead-letters")

    errors: list[Exception] = []
    found = status(dead_letters=part(fail, None, errors))
    assert [str(error) for error in errors] == ["cannot read shop.dead-letters"]
    assert samples(found, "towpath_dead_letters") == []
    assert samples(status(), "towpath_dead_letters") == ["towpath_dead_letters"]
    (line,) = (line for line in shown(capsys, dead_letters=None).splitlines() if "dead letters" in line)
    assert line.split() == ["dead", "letters", "unknown"]


SWITCHED = Cutover("destination primary", (), 1.0)
AWAY: dict[str, Any] = {"changes": None, "log_breaks": None, "state": "stopped"}
GAP = Break("TWP-LOG-GAP", "shop.shop.a", 0, 5, 9, 20, None)
DESTINATION = ("towpath_cutover_state", "towpath_log_breaks")


def page(found: Report) -> str:
    shown = pages.sections({"p": found, "events": [], "commands": [], "dry_run": None})
    return shown["head"] + shown["cutover"]


def test_a_cutover_and_gaps_are_unknown_while_the_destination_does_not_answer() -> None:
    away = status(**AWAY)
    assert samples(away, *DESTINATION) == []
    assert described(away) == "stopped", "it may be because of a cutover"
    assert "resume" not in page(away) and "Unknown." in page(away)
    known = status(state="stopped")
    assert set(samples(known, *DESTINATION)) == set(DESTINATION)
    assert described(known) == "stopped on request; to continue: towpath resume"
    assert "resume" in page(known) and "None is under way, and the source is primary." in page(known)


@pytest.mark.parametrize(("phase", "offers"), [("emptying", False), ("applying", True)])
def test_no_resume_is_offered_while_a_rebuild_empties_the_destination(phase: str, offers: bool) -> None:
    found = status(state="stopped", rebuild=Rebuild(1.0, (), phase, 0, 9))
    assert ("resume" in described(found), "towpath resume" in page(found)) == (offers, offers)
    unknown = replace(found, rebuild=None, rebuild_error=Problem("it cannot be read"))
    assert "resume" not in described(unknown)


def test_a_cutover_that_was_known_stays_while_the_destination_does_not_answer() -> None:
    found = status(**AWAY).after(status(cutover=SWITCHED))
    assert samples(found, *DESTINATION) == ["towpath_cutover_state"]
    assert described(found) == described(status(state="stopped", cutover=SWITCHED))
    assert "resume" not in page(found)
    assert status().after(found).cutover is None, "it answers again, and there is none"


def test_a_gap_is_not_over_because_it_cannot_be_read() -> None:
    told = list[TimedEvent]()
    events = Events(told.append)
    for breaks in ((GAP,), None, (GAP,), ()):
        report_conditions(events, status(log_breaks=breaks))
    assert [(event.words or "")[:8] for event in told if event.event == "gap"] == ["TWP-LOG-", "resolved"]


class NoTopics:
    def __getattr__(self, name: str) -> Any:
        return lambda *_, **__: {}


def test_what_cannot_be_read_of_the_destination_is_nothing_and_not_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    away = FakeCluster(error=MongoUnreachable("no answer"), side="destination")
    session = session_of(PIPELINE.changed(mode="exactly-once"), topics=NoTopics(), destination=away)
    monkeypatch.setattr(gather, "statuses", lambda *_: [])
    monkeypatch.setattr(gather._Gathering, "sources", lambda self: {})
    monkeypatch.setattr(gather._Gathering, "configs", lambda self: {})
    monkeypatch.setattr(gather.dead_letters, "summarize", lambda *_: None)
    found = gather.read_status(session)
    assert (found.log_breaks, found.sink, found.schema_changes, found.cutover_is_known) == (None, None, None, False)
    assert exit_code(found) == 2


@pytest.mark.parametrize(("mark", "named"), [("a/a:1", []), ("b/b:1", ["b/b:1"]), (None, [])])
def test_the_status_says_when_the_source_that_answers_is_not_the_captured_one(
    monkeypatch: pytest.MonkeyPatch, mark: str | None, named: list[str]
) -> None:
    hello = {"operationTime": Timestamp(9, 1), "localTime": datetime.now(UTC), "setName": "a", "hosts": ["a:1", "a:2"]}
    source = FakeCluster(SimpleNamespace(admin=SimpleNamespace(command=lambda name: hello)))
    monkeypatch.setattr(gather, "statuses", lambda *_: [])
    monkeypatch.setattr(gather._Gathering, "read_sink", lambda self: gather._Sink({}))
    monkeypatch.setattr(gather._Gathering, "sources", lambda self: {"x": SourceState(None, start=ClusterTime(1, 1))})
    monkeypatch.setattr(gather._Gathering, "configs", lambda self: {"x": {SOURCE_SET: mark} if mark else {}})
    monkeypatch.setattr(gather._Gathering, "copies", lambda *_: ())
    monkeypatch.setattr(gather.dead_letters, "summarize", lambda *_: None)
    monkeypatch.setattr(gather.bounds, "confirmed", lambda *_: ())
    monkeypatch.setattr(gather.marker, "why_idle", lambda *_: "")
    pipeline = PIPELINE.changed(mode="exactly-once")
    found = gather.read_status(session_of(pipeline, topics=NoTopics(), source=source))
    assert [error.what.split(",")[0].split()[-1] for error in found.errors] == named
    assert [error.advice for error in found.errors] == [SOURCE_BACK] * len(named)


def test_a_takeover_reads_again_what_the_status_could_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(session: Session) -> tuple[Break, ...]:
        raise MongoUnreachable("no answer")

    loss: Any = SimpleNamespace(session=session_of(PIPELINE), status=status(log_breaks=None), states={})
    monkeypatch.setattr(takeover, "not_applied", lambda *_: [])
    rule = Rule("applied", takeover._applied)
    for read, level, words in (
        (lambda session: (GAP,), "error", "lost records"),
        (refused, "error", "no answer"),
        (lambda session: (), "ok", "everything can be applied"),
    ):
        monkeypatch.setattr(takeover.bounds, "confirmed", read)
        finding = run([rule], loss)[0]
        assert (finding.level, words in finding.finding) == (level, True), finding
