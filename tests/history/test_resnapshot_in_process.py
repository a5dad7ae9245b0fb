"""What a resnapshot does not begin, and what it does not close, without servers."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import bson
import pytest

from tests.checks.test_check_judgements import PIPELINE
from tests.support.sessions import session_of
from towpath.clients.connect.rest import Connector
from towpath.config.events import Reread
from towpath.errors import Refused, TowpathError
from towpath.history import resnapshot
from towpath.history.plan import Plan
from towpath.history.resnapshot import Captures
from towpath.store.cutover import Cutover
from towpath.verify.repair import DocumentRef

OWN = PIPELINE.changed(mode="exactly-once")
NEW = Captures(OWN, [], ())


@pytest.fixture
def did(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What a resnapshot of a pipeline that is not cut over does."""
    did: list[str] = []

    def does(name: str, result: Any = None) -> Any:
        return lambda *_, **__: (did.append(name), result)[1]

    for name in ("wait_copied", "close"):
        monkeypatch.setattr(resnapshot, name, does(name))
    monkeypatch.setattr(resnapshot, "start", does("start", "the name"))
    monkeypatch.setattr(resnapshot.barrier, "wait", does("wait"))
    monkeypatch.setattr(resnapshot.barrier, "asking", lambda session: nullcontext())
    monkeypatch.setattr(resnapshot.cutovers, "read", lambda *_: None)
    return did


@pytest.mark.parametrize("state", ["taking over", "returning the old source"])
def test_a_capture_that_a_takeover_has_stopped_while_it_asked_is_not_resumed(
    did: list[str], state: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resnapshot.cutovers, "read", lambda *_: Cutover(state, (), 1.0))
    with pytest.raises(Refused, match="a takeover of move is under way"):
        resnapshot.run(session_of(OWN), NEW, 1.0)
    assert did == []


def test_none_begins_while_a_rebuild_is_not_finished(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would compare with a destination that has a part of the documents."""
    plan = Plan(only=(), forced=False, began=1.0, letters=0, log={}, phase="applying")
    monkeypatch.setattr(resnapshot.target, "require_own", lambda session: None)
    monkeypatch.setattr(resnapshot.cutovers, "refuse", lambda session: None)
    monkeypatch.setattr(resnapshot.rebuild, "running", lambda client, pipeline: plan)
    connect = SimpleNamespace(status=lambda name: Connector(name, "RUNNING", "", ()), url="http://connect")
    with pytest.raises(Refused, match="move is being rebuilt"):
        resnapshot.read(session_of(OWN, connect, SimpleNamespace(brokers=list)), ())


def left(kind: str, reason: str) -> Reread:
    return replace(DocumentRef("shop.orders", bson.encode({"_id": 1})).event, result="left", kind=kind, reason=reason)


@pytest.mark.parametrize(
    ("errors", "left", "words"),
    [
        ([], [], ""),
        (["shop.orders: cursor lost"], [], "shop.orders: cursor lost"),
        (["3 documents could not be judged"], [], "3 documents could not be judged"),
        ([], [left("unknown", "its _id has a field twice, by which no driver can query it")], "a field twice"),
        ([], [left("unknown", "it could not be judged: no answer")], "no answer"),
        ([], [left("missing", "the destination refuses it: bad (121)")], ""),  # the log has it
    ],
)
def test_a_resnapshot_is_closed_only_when_all_deleted_documents_are_known(
    did: list[str], errors: list[str], left: list[Reread], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resnapshot, "compare", lambda *_: SimpleNamespace(errors=errors))
    monkeypatch.setattr(resnapshot, "reread", lambda *_: (did.append("reread"), left)[1])
    with pytest.raises(TowpathError, match=words) if words else nullcontext():
        resnapshot.run(session_of(OWN), NEW, 1.0)
    assert did == ["start", "wait_copied", "wait", "reread", *([] if words else ["close"])]
