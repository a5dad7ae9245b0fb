"""The pause in writes ends whatever it is at: at its limit and with a late write."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.cutover_world import OPTIONS
from towpath.cutover import steps
from towpath.cutover.pause import CheckFailed, Pause
from towpath.errors import NotYet, Overtaken

LONG_S = 60.0


def begun(limit: float, act: Callable[[Pause], None]) -> None:
    """A pause in which this is done."""
    pause = Pause(limit, "waiting")
    with pause.enforced():
        pause.begin()
        act(pause)


def raises(error: Exception) -> Callable[[Pause], None]:
    def act(pause: Pause) -> None:
        time.sleep(pause.remaining(LONG_S))
        raise error

    return act


def wait(pause: Pause) -> None:
    threading.Event().wait(LONG_S)


def swallow(pause: Pause) -> None:
    """As a callback of a library might."""
    try:
        wait(pause)
    except BaseException:  # noqa: BLE001
        wait(pause)


@pytest.mark.parametrize("act", [wait, swallow])
def test_what_waits_ends_at_the_limit(act: Callable[[Pause], None]) -> None:
    start = time.monotonic()
    with pytest.raises(CheckFailed, match=r"has reached its limit of 0\.3 s while waiting; .*--max-pause"):
        begun(0.3, act)
    assert time.monotonic() - start < LONG_S / 2
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def test_a_wait_that_knows_the_limit_says_what_it_has_seen_last() -> None:
    with pytest.raises(CheckFailed, match=r"limit of 0.2 s while waiting \(the sink is PAUSED\); "):
        begun(0.2, raises(NotYet("the sink is PAUSED")))


def test_what_fails_before_the_limit_is_told_as_it_is() -> None:
    with pytest.raises(NotYet, match=r"^gone$"):
        begun(LONG_S, lambda pause: (_ for _ in ()).throw(NotYet("gone")))
    with pytest.raises(Overtaken):
        begun(0.1, raises(Overtaken("another")))


def test_a_late_write_ends_it_from_another_thread() -> None:
    def act(pause: Pause) -> None:
        threading.Timer(0.1, pause.end, ["shop.orders got the insert"]).start()
        wait(pause)

    with pytest.raises(CheckFailed, match=r"^shop\.orders got the insert$"):
        begun(LONG_S, act)


def test_a_write_that_is_seen_when_it_is_over_disturbs_nothing() -> None:
    pauses: list[Pause] = []
    begun(LONG_S, pauses.append)
    pauses[0].end("too late")
    signal.raise_signal(signal.SIGALRM)
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def test_it_begins_when_a_person_is_asked_to_stop_the_writers(monkeypatch: pytest.MonkeyPatch) -> None:
    """So the outage that the limit bounds includes the time until Enter."""
    told, pause = list[Any](), Pause(0.3, "stopping the writers")
    work: Any = SimpleNamespace(
        options=replace(OPTIONS, blocks=False),
        pause=pause,
        report=told.append,
        session=SimpleNamespace(source=SimpleNamespace(address="mongodb://a")),
        sides=SimpleNamespace(direction=SimpleNamespace(old="source")),
    )
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(readline=lambda: wait(pause)))
    with pytest.raises(CheckFailed, match=r"limit of 0\.3 s while stopping the writers"), pause.enforced():
        steps._stop_writers(work)
    assert "press Enter" in told[0].words and "--max-pause" in told[0].words


@pytest.mark.parametrize(("limit", "least"), [(LONG_S, LONG_S - 5), (0.0, 0.0)])
def test_the_server_ends_commands_with_the_pause(limit: float, least: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise one that waits for a lock would have its effect later, after the undo."""
    given, pause = list[float](), Pause(limit)
    monkeypatch.setattr(steps, "change_schema", lambda session, commands, *, within: given.append(within))
    work: Any = SimpleNamespace(pause=pause, sides=SimpleNamespace(require_own=lambda: None))
    with suppress(CheckFailed), pause.enforced():
        pause.begin()
        steps._change_schema(work, Any, [Any] * 250)  # type: ignore[arg-type, list-item]
    assert len(given) == 3 and all(least < within < limit + 1 for within in given), "0 would be no limit"
