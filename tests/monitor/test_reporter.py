"""The report of a look: what it has of each part, and what it does while a part cannot be read. No server is asked."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from tests.monitor.test_access import BEARER, PASSWORD, TOKEN, pipeline_file
from tests.run.test_screens import status
from tests.support import api
from tests.support.awaited import until
from tests.support.served import HOOKS, listen_at
from towpath.cli import launcher
from towpath.clients.connect.rest import Connector, Task
from towpath.config.events import Note
from towpath.errors import TopicError
from towpath.monitor import reporter as module
from towpath.monitor.board import Board
from towpath.monitor.reporter import Reporter
from towpath.monitor.server import Settings, access_of, served
from towpath.monitor.watch import add
from towpath.run.children import Events
from towpath.session import opened
from towpath.store.cutover import Cutover
from towpath.verify.full_verdict import VerdictContext

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

    def jsons(value: Any) -> Any:
        return SimpleNamespace(as_json=lambda: value)

    monkeypatch.setattr(module, "_SLOW_INTERVAL", 0.0)
    monkeypatch.setattr(module.replay_states, "report", reading("replays", jsons({"replays": [], "rebuild": None})))
    monkeypatch.setattr(module.unreplicated, "as_json", reading("ddl", []))
    monkeypatch.setattr(module.log_figures, "report", reading("log", jsons({"topics": [], "warnings": []})))
    monkeypatch.setattr(module.VerdictContext, "read", reading("verdicts", VerdictContext(None, "", None, "")))
    monkeypatch.setattr(Reporter, "_oplog", reading("oplog", {"window_seconds": 100, "estimated": False}))
    with opened(pipeline_file(tmp_path)) as session:
        reporter = Reporter(session)
        yield lambda **fields: reporter.report(status(**fields), 0.0)


PARTS = {"replays", "ddl", "log", "verdicts", "oplog"}


@pytest.mark.parametrize("away", [{"capture_seconds": None, "uncaptured_seconds": None}, {"lag_records": None}])
def test_a_side_that_does_not_answer_is_not_asked_again_for_each_part(
    report: Callable[..., Any], reads: Counter[str], away: dict[str, None]
) -> None:
    before = report(uncaptured_seconds=30.0)
    assert (set(reads), before["oplog"]["remaining_seconds"]) == (PARTS, 70)
    reads.clear()
    during = report(**away)
    assert reads == {}
    assert (during["oplog"] is None) == ("uncaptured_seconds" in away)
    assert during["log"] == before["log"]
    report()
    assert set(reads) == PARTS


def test_trouble_that_lasts_is_in_each_report(
    report: Callable[..., Any], reads: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    reads["log"] = reads["oplog"] = -1
    assert report()["trouble"] == ["cannot read oplog", "cannot read log"]
    monkeypatch.setattr(module, "_SLOW_INTERVAL", 100.0)
    again = report(trouble=("cannot read log",))
    assert again["trouble"] == ["cannot read log", "cannot read oplog"]
    assert [error["what"] for error in again["errors"]] == ["cannot read oplog", "cannot read log"]
    monkeypatch.setattr(module, "_SLOW_INTERVAL", 0.0)
    assert report()["trouble"] == []


def test_verdicts_that_cannot_be_read_are_answered_as_described(
    report: Callable[..., Any], reads: Counter[str]
) -> None:
    reads["verdicts"] = -1
    found = report()
    assert found["trouble"] == ["cannot read verdicts"]
    names = ("verify", "last_verdict", "full_verdict", "verdict_doubt")
    assert [found[name] for name in names] == [None, None, None, ""]
    api.refuse({**found, "events": [], "commands": []}, "Pipeline")


def full() -> dict[str, Any]:
    """Fields of a status in which much is wrong."""
    failed = Task(0, "FAILED", "worker", f"org.example.Failed: cannot reach mongodb://root:{PASSWORD}@db.example")
    return {
        "state": "failed",
        "connectors": (Connector("shop-sink", "RUNNING", "worker", (failed,)),),
        "cutover": Cutover("to the destination", ("stop",), 1.0, token=CUTOVER_TOKEN),
        "trouble": ("cannot reach the source at mongodb://db.example",),
    }


def test_no_answer_holds_a_secret(tmp_path: Path, report: Callable[..., Any]) -> None:
    token = tmp_path / "token"
    token.write_text(TOKEN)
    token.chmod(0o600)
    board, listening = Board(), listen_at("127.0.0.1:0", token_file=token)
    paths = ["/pipelines/shop", "/api/v1/pipelines", "/metrics", "/login", "/api/v1/pipelines/nothing"]
    paths += [f"/api/v1/pipelines/shop{part}" for part in ("", "/verdict", "/gate", "/dead-letters", "/history")]
    with (
        opened(pipeline_file(tmp_path)) as session,
        served(board, access_of(listening), Settings(listening, 60), launcher) as url,
        httpx.Client(base_url=url, headers=BEARER, timeout=10, event_hooks=HOOKS) as client,
    ):
        add(board, session, lambda: None)
        board.publish(report(**full()))
        note = Note(event="trouble", about="look", words="cannot reach mongodb://db.example")
        Events(lambda event: board.event("shop", event)).report(note)
        until("event", lambda: client.get("/api/v1/pipelines/shop").json()["events"])
        answers = [client.get(path) for path in paths]
        with client.stream("GET", "/api/v1/events") as stream:
            frames = (
                json.loads(line.removeprefix("data: ")) for line in stream.iter_lines() if line.startswith("data")
            )
            short = next(frames)
            board.event("shop", replace(note, at=datetime.now(UTC)))
            event = next(frames)
    api.refuse(short, "Short")
    assert (short["cutover"], event.pop("pipeline")) == ("to the destination", "shop")
    api.refuse(event, "Event")
    whole = answers[5].json()
    api.refuse(whole, "Pipeline")
    assert (len(whole["connectors"][0]["reasons"]), whole["cutover"]["state"]) == (1, "to the destination")
    assert sum("mongodb://db.example" in answer.text for answer in answers) >= 2
    secrets = (PASSWORD, TOKEN, CUTOVER_TOKEN)
    assert [answer.url for answer in answers if any(secret in answer.text for secret in secrets)] == []
