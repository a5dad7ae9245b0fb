"""What the table of the gate does not show: which right each change of a schema needs, and who can answer."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.support.cutover_world import OPTIONS, pipeline_of
from tests.support.sessions import session_of
from towpath.clients.connect.rest import Connector
from towpath.cutover import gate
from towpath.cutover.gate import Readiness
from towpath.cutover.writes import stdin_problem
from towpath.deploy.schema import Step

#: Commands on `shop.orders`, and the action that a user needs for each (MongoDB's privilege actions).
ACTIONS = [
    ({"create": "orders"}, "insert"),
    ({"create": "orders", "capped": True, "size": 4096}, "createCollection"),
    ({"create": "orders", "viewOn": "lines", "pipeline": []}, "createCollection"),
    ({"createIndexes": "orders", "indexes": []}, "createIndex"),
    ({"dropIndexes": "orders", "index": "one"}, "dropIndex"),
    ({"collMod": "orders", "validator": {}}, "collMod"),
    ({"drop": "orders"}, "drop"),
]


def step(body: dict[str, Any]) -> Step:
    return Step("shop.orders", cast(Any, SimpleNamespace(body=body, text="")))


@pytest.mark.parametrize(("body", "action"), ACTIONS)
def test_a_change_of_a_schema_needs_the_right_of_its_command(body: dict[str, Any], action: str) -> None:
    asked: list[tuple[list[str], str]] = []

    def missing(actions: list[str], namespace: str) -> list[str]:
        asked.append((actions, namespace))
        return actions

    user: Any = SimpleNamespace(user="me@admin", missing=missing)
    found = gate.missing_privileges(user, "destination", [step(body), step(body)])
    assert list(found) == [f"me@admin misses {action} on shop.orders at the destination"]
    assert asked == [([action], "shop.orders")] * 2
    assert list(gate.missing_privileges(None, "destination", [step(body)])) == [], "no access control"


def test_a_person_at_a_terminal_can_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    leader, follower = os.openpty()
    try:
        monkeypatch.setattr(sys, "stdin", SimpleNamespace(fileno=lambda: follower))
        assert stdin_problem() == ""
    finally:
        os.close(leader)
        os.close(follower)


def test_an_answer_that_is_there_already_can_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    reads, writes = os.pipe()
    try:
        os.write(writes, b"\n")
        monkeypatch.setattr(sys, "stdin", SimpleNamespace(fileno=lambda: reads))
        assert stdin_problem() == ""
        os.close(writes)
        assert stdin_problem() == "", "it was written before the other end was closed"
        os.read(reads, 1)
        assert stdin_problem() == "standard input has ended"
    finally:
        os.close(reads)


def test_the_captures_that_must_run_before_a_fail_back_are_all_those_of_the_pipeline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect: Any = object()
    pipeline = pipeline_of(tmp_path, more='[capture]\nwhole_documents = ["shop.odd"]')
    asked: list[Any] = []
    monkeypatch.setattr(gate, "statuses", lambda *of: asked.append(of) or [])
    good, *_ = gate._capture(Readiness(session_of(pipeline, connect), None, OPTIONS))
    assert good and asked == [(connect, pipeline.source_connectors)] and len(pipeline.source_connectors) == 2


@pytest.mark.parametrize(
    ("trace", "advice"),
    [
        ("TWP-HISTORY-LOST: the oplog no longer holds", gate._WAY_BACK),
        ("TWP-OTHER-HISTORY: the oplog has no entry", gate._WAY_BACK),
        ("no answer", "restart"),
    ],
)
def test_a_capture_whose_history_is_lost_has_another_way_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trace: str, advice: str
) -> None:
    monkeypatch.setattr(gate, "statuses", lambda *_: [Connector("shop-source", "FAILED", "", (), trace)])
    good, found, said = gate._capture(Readiness(session_of(pipeline_of(tmp_path), cast(Any, None)), None, OPTIONS))
    assert not good and trace in found and advice in said
