"""Whatever answers at the URL of Connect: the typed answer, or a `ConnectError` in words, soon."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import httpx
import pytest
import tenacity

from tests.support.unwell import ANSWERS, FAULTS, JSON, unwell
from towpath.clients.connect import rest
from towpath.clients.connect.rest import Connect
from towpath.errors import ConnectError, ConnectUnreachable

CALLS: dict[str, Callable[[Connect], object]] = {
    "worker": lambda it: it.worker(),
    "plugins": lambda it: it.plugins(),
    "names": lambda it: it.names(),
    "configs": lambda it: it.configs(),
    "config": lambda it: it.config("x"),
    "put": lambda it: it.put("x", {"connector.class": "a.B"}),
    "errors": lambda it: it.errors("x", {"connector.class": "a.B"}),
    "status": lambda it: it.status("x"),
    "offsets": lambda it: it.offsets("x"),
    "forget_offsets": lambda it: it.forget_offsets("x"),
    "pause": lambda it: it.pause("x"),
    "resume": lambda it: it.resume("x"),
    "stop": lambda it: it.stop("x"),
    "restart": lambda it: it.restart("x", only_failed=True),
    "delete": lambda it: it.delete("x"),
}
#: Calls whose answer says nothing but that they were done.
SILENT = {"put", "forget_offsets", "pause", "resume", "stop", "restart", "delete"}


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(rest, "_TIMEOUT", httpx.Timeout(20))
    monkeypatch.setattr(rest, "_WHOLE", 0.1)
    monkeypatch.setattr(Connect._ask.retry, "wait", tenacity.wait_none())  # type: ignore[attr-defined]
    monkeypatch.setattr(Connect._ask.retry, "stop", tenacity.stop_after_attempt(3))  # type: ignore[attr-defined]
    yield


@pytest.mark.parametrize("fault", FAULTS)
def test_every_call_ends_in_words(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if fault == "slow":
        monkeypatch.setattr(rest, "_TIMEOUT", httpx.Timeout(20, read=0.1))
    with unwell(None, lambda *_: fault) as proxy, Connect(proxy.url) as worker:
        for name, call in CALLS.items():
            began = time.monotonic()
            try:
                answer = call(worker)
            except ConnectError as error:
                words = str(error)
                assert proxy.url in words, f"{name}: {words}"
                assert words.isprintable(), f"{name}: {words!r}"
                assert len(words) < 500, f"{name}: {words}"
            else:
                allowed = name in SILENT and fault in ("null", "list", "text", "number", "object")
                assert allowed, f"{name} took {fault} for {answer!r}"
            assert time.monotonic() - began < 15, name


def test_what_is_forbidden_is_told_with_what_to_do() -> None:
    words = r"403: .*does not allow this to the user; .*\[connect\] user_file"
    with (
        unwell(None, lambda *_: "forbidden") as proxy,
        Connect(proxy.url) as worker,
        pytest.raises(ConnectError, match=words),
    ):
        worker.names()


def test_a_rebalance_is_waited_for() -> None:
    with (
        unwell(None, lambda number, *_: "rebalance" if number < 2 else "null") as proxy,
        Connect(proxy.url) as worker,
    ):
        worker.pause("x")
        assert len(proxy.asked) == 3


def test_nothing_but_a_rebalance_is_asked_again() -> None:
    """Whether a request that broke off was carried out is not known; who asked decides."""
    with unwell(None, lambda *_: "nothing") as proxy, Connect(proxy.url) as worker:
        with pytest.raises(ConnectUnreachable, match="is a worker running there"):
            worker.delete("x")
        assert proxy.asked == ["DELETE /connectors/x"]


@pytest.mark.parametrize(("fault", "times"), [("rebalance", 2), ("unwritten", 2), ("error", 1)])
def test_what_connect_calls_passing_is_asked_again_and_nothing_else(fault: str, times: int) -> None:
    with unwell(None, lambda number, *_: "null" if number else fault) as proxy, Connect(proxy.url) as worker:
        try:
            worker.stop("x")
        except ConnectError:
            assert times == 1
        assert proxy.asked == ["PUT /connectors/x/stop"] * times


def test_offsets_that_connect_was_changing_are_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(
        ANSWERS,
        "colliding",
        (500, JSON, b'{"error_code": 500, "message": "Failed to retrieve offsets for source connector x"}'),
    )
    monkeypatch.setitem(ANSWERS, "offsets", (200, JSON, b'{"offsets": [{"partition": {}, "offset": {"ts": 1}}]}'))
    plan = lambda number, *_: "colliding" if number < 2 else "offsets"  # noqa: E731
    with unwell(None, plan) as proxy, Connect(proxy.url) as worker:
        assert worker.offsets("x") == [{"partition": {}, "offset": {"ts": 1}}]
        assert len(proxy.asked) == 3
