"""What a resnapshot does not begin, and what it does not close, without servers."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest

from tests.checks.test_check_judgements import PIPELINE
from tests.support.sessions import session_of
from towpath.errors import Refused
from towpath.history import resnapshot
from towpath.history.resnapshot import Captures
from towpath.store.cutover import Cutover

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
