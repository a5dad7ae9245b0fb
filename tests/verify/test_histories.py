"""A command that makes the destination differ begins a history before that, and no verdict of before counts."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from tests.checks.test_check_judgements import PIPELINE as PLAIN
from tests.support.sessions import session_of
from towpath.checks.capture import Captured
from towpath.cli import control
from towpath.clients.connect.rest import Connector, Task
from towpath.clients.mongo.client import ClusterTime
from towpath.errors import Refused
from towpath.history import rebuild, resnapshot
from towpath.history.plan import Plan
from towpath.history.resnapshot import Captures
from towpath.log.source_offsets import SourceState
from towpath.store import verdict

PIPELINE = PLAIN.changed(mode="exactly-once")


@pytest.fixture
def done(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The histories that begin, and what a test adds."""
    done: list[str] = []
    monkeypatch.setattr(verdict, "begin_history", lambda client, pipeline, why: done.append(f"{client}: {why}"))
    return done


def test_a_rebuild_voids_also_what_was_compared_while_it_emptied(
    done: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def change(act: Callable[..., object], values: object = None) -> None:
        done.append("applying" if values == {"phase": "applying"} else "positions are gone")

    marker: Any = SimpleNamespace(require=lambda: None, change=change)
    monkeypatch.setattr(rebuild, "stop", lambda *_: done.append("the sink is stopped"))
    monkeypatch.setattr(rebuild.schema_changes, "exist", lambda *_: False)
    monkeypatch.setattr(rebuild.positions, "positions", lambda *_: {})
    monkeypatch.setattr(rebuild, "empty", lambda *_: done.append("documents are gone"))
    plan = Plan(only=(), until=None, follow=False, forced=False, began=0.0, letters=0, log={})
    rebuild._empty(session_of(PIPELINE), plan, marker)
    assert done == [
        "the sink is stopped",
        "destination: a rebuild began",
        "positions are gone",
        "documents are gone",
        "destination: a rebuild had emptied the destination",
        "applying",
    ]


def test_missed_deletes_void_what_was_compared(done: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    failed = Connector("move-sink", "RUNNING", "w", (Task(0, "FAILED", "w", "x.Y: TWP-DELETES-MISSED: deletes of a"),))

    def accept(*_: object) -> int:
        done.append("accepted")
        return 2

    monkeypatch.setattr(control, "statuses", lambda *_: [failed])
    monkeypatch.setattr(control.positions, "accept_missed_deletes", accept)
    control._accept_missed_deletes(session_of(PIPELINE))
    assert done == ["destination: missed deletes were accepted", "accepted"]


@pytest.mark.parametrize(("is_lost", "reselects"), [(True, False), (False, True), (False, False)])
def test_a_resnapshot_voids_what_was_compared_where_changes_are_lost(
    is_lost: bool, reselects: bool, done: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(*_: object) -> str:
        done.append("started")
        raise Refused("that is enough")

    since = ClusterTime(1, 1)
    captured = Captured("move-source", SourceState(None, start=since), since, is_lost, "", ".*", reselects)
    monkeypatch.setattr(resnapshot, "start", start)
    monkeypatch.setattr(resnapshot.cutovers, "read", lambda *_: None)
    with pytest.raises(Refused, match="that is enough"):
        resnapshot.run(session_of(PIPELINE), Captures(PIPELINE, [captured], ()), 1.0)
    began = ["destination: a resnapshot began, because changes were lost"] if is_lost or reselects else []
    assert done == [*began, "started"]
