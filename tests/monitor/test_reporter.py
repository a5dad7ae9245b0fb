"""The report of a poll: what it has of each part, and what it does while a part cannot be read. No server is asked."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.monitor.test_access import BEARER, PASSWORD, TOKEN, pipeline_file
from tests.run.test_screens import status
from tests.support import api, schema
from tests.support.awaited import until
from tests.support.served import HOOKS, listen_at
from towpath.cli import launcher
from towpath.clients.connect.rest import Connector, Task
from towpath.config.events import Note
from towpath.errors import TopicError
from towpath.monitor import watch as module
from towpath.monitor.dashboard import Dashboard
from towpath.monitor.server import served
from towpath.monitor.watch import Reporter, add
from towpath.run.children import Events
from towpath.run.report import Lag, LogReport, Oplog, Problem, Report, as_json
from towpath.session import opened
from towpath.store.cutover import Cutover
from towpath.verify.verdict import VerdictContext, Verification

CUTOVER_TOKEN = "of-the-command-that-runs-it"


@pytest.fixture
def reads() -> Counter[str]:
    """Part → how often it was read; a part with a negative number cannot be."""
    return Counter()


@pytest.fixture
def report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reads: Counter[str]) -> Iterator[Callable[..., Any]]:
    """Makes a report of a status with these fields; each time as if its slow parts were due."""

    def reading(name: str, answer: Any) -> Callable[..., Any]:
        def read(*_: Any, **__: Any) -> Any:
            reads[name] += 1
            if reads[name] <= 0:
                raise TopicError(f"cannot read {name}")
            return answer

        return read

    monkeypatch.setattr(module, "_SLOW_INTERVAL", 0.0)
    replays = reading("replays", None)
    monkeypatch.setattr(module.status, "with_replays", lambda _, report: replays() or report)
    monkeypatch.setattr(module, "source_changes", reading("ddl", ()))
    monkeypatch.setattr(module.status, "read_log", reading("log", LogReport((), ())))
    monkeypatch.setattr(module.VerdictContext, "read", reading("verdicts", VerdictContext(None, "", None, "")))
    monkeypatch.setattr(Reporter, "_read_oplog", reading("oplog", Oplog(100, 70, False)))
    with opened(pipeline_file(tmp_path)) as session:
        reporter = Reporter(session)

        def make(**fields: Any) -> Report:
            return reporter.report(status(**fields), 0.0)

        make.reporter = reporter  # type: ignore[attr-defined]
        yield make


PARTS = {"replays", "ddl", "log", "verdicts", "oplog"}


@pytest.mark.parametrize("away", [{"lag": Lag(0, None, 0.0), "uncaptured_seconds": None}, {"lag": Lag(None, 0.0)}])
def test_a_side_that_does_not_answer_is_not_asked_again_for_each_part(
    report: Callable[..., Any], reads: Counter[str], away: dict[str, Any]
) -> None:
    before = report(uncaptured_seconds=30.0)
    assert (set(reads), before.oplog.remaining_seconds) == (PARTS, 70)
    reads.clear()
    during = report(**away)
    assert reads == {}
    assert (during.oplog is None) == ("uncaptured_seconds" in away)
    assert during.log == before.log
    report()
    assert set(reads) == PARTS


def messages(found: Report) -> list[str]:
    return [error.message for error in found.errors]


def test_an_error_that_lasts_is_in_each_report(
    report: Callable[..., Any], reads: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    reads["log"] = reads["oplog"] = -1
    assert messages(report()) == ["cannot read oplog", "cannot read log"]
    monkeypatch.setattr(module, "_SLOW_INTERVAL", 100.0)
    assert messages(report(errors=(Problem("cannot read log"),))) == ["cannot read log", "cannot read oplog"]
    monkeypatch.setattr(module, "_SLOW_INTERVAL", 0.0)
    assert messages(report()) == []


def test_verdicts_that_cannot_be_read_are_answered_as_described(
    report: Callable[..., Any], reads: Counter[str]
) -> None:
    reads["verdicts"] = -1
    found = report()
    assert (messages(found), found.verification) == (["cannot read verdicts"], Verification())
    api.refuse({**as_json(found), "events": [], "commands": []}, "Pipeline")


def test_a_poll_that_failed_shows_the_last_numbers_in_an_unknown_state(report: Callable[..., Any]) -> None:
    before = report()
    reporter = report.reporter  # type: ignore[attr-defined]
    for count in (1, 2):
        failed = reporter.failure(TopicError("no broker answers"))
        assert (failed.state, failed.at, messages(failed)) == ("unknown", before.at, ["no broker answers"])
        assert (failed.failed_polls, failed.lag) == (count, before.lag)
    assert (report().state, report().failed_polls) == ("running", 2)


def full() -> dict[str, Any]:
    """Fields of a status in which much is wrong."""
    failed = Task(0, "FAILED", "worker", f"org.example.Failed: cannot reach mongodb://root:{PASSWORD}@db.example")
    return {
        "state": "failed",
        "connectors": (Connector("shop-sink", "RUNNING", "worker", (failed,)),),
        "cutover": Cutover("cutting over", ("stop",), 1.0, token=CUTOVER_TOKEN),
        "errors": (Problem("cannot reach the source at mongodb://db.example"),),
    }


def test_no_answer_holds_a_secret(tmp_path: Path, report: Callable[..., Any]) -> None:
    token = tmp_path / "token"
    token.write_text(TOKEN)
    token.chmod(0o600)
    dashboard, listening = Dashboard(), listen_at("127.0.0.1:0", token_file=token)
    paths = ["/pipelines/shop", "/api/v1/pipelines", "/metrics", "/login", "/api/v1/pipelines/nothing"]
    paths += ["/api/v1/pipelines/shop", "/api/v1/pipelines/shop/history"]
    with (
        opened(pipeline_file(tmp_path)) as session,
        served(dashboard, listening, 60, launcher) as url,
        httpx.Client(base_url=url, headers=BEARER, timeout=10, event_hooks=HOOKS) as client,
    ):
        add(dashboard, session, lambda: None)
        dashboard.publish(report(**full()))
        note = Note(event="problem", about="status", words="cannot reach mongodb://db.example")
        Events(lambda event: dashboard.event("shop", event)).report(note)
        until("event", lambda: client.get("/api/v1/pipelines/shop").json()["events"])
        answers = [client.get(path) for path in paths]
        with client.stream("GET", "/api/v1/events") as stream:
            frames = (
                json.loads(line.removeprefix("data: ")) for line in stream.iter_lines() if line.startswith("data")
            )
            short = next(frames)
            dashboard.event("shop", replace(note, at=datetime.now(UTC)))
            event = next(frames)
    api.refuse(short, "Short")
    assert (short["cutover"], event.pop("pipeline")) == ("cutting over", "shop")
    assert list(schema.complaints("run", event)) == []
    whole = answers[5].json()
    api.refuse(whole, "Pipeline")
    assert (len(whole["connectors"][0]["failures"]), whole["cutover"]["state"]) == (1, "cutting over")
    assert sum("mongodb://db.example" in answer.text for answer in answers) >= 2
    secrets = (PASSWORD, TOKEN, CUTOVER_TOKEN)
    assert [answer.url for answer in answers if any(secret in answer.text for secret in secrets)] == []
