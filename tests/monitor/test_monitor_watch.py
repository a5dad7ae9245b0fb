"""Who polls, and who shows it: neither waits for the other, and no fault of the page ends what supervises."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.run.test_screens import status
from tests.support.awaited import until
from towpath.cli import launcher
from towpath.monitor import watch as watching
from towpath.monitor.watch import Watch
from towpath.run import supervisor as supervising
from towpath.run.children import Events
from towpath.run.report import Problem
from towpath.run.supervisor import Supervisor

Report = Mapping[str, Any]


@dataclass(slots=True)
class Pages:
    """In place of dashboard and reporter: what was published."""

    make: Callable[..., Report]
    published: list[Report] = field(default_factory=list)
    session: Any = None
    last: Any = None

    def publish(self, report: Report) -> None:
        self.published.append(report)

    def event(self, *_: object) -> None:
        pass

    def report(self, *poll: Any) -> Report:
        return self.make(*poll)

    def failure(self, error: Exception | str) -> Report:
        return {"state": "unknown", "error": str(error)}


@pytest.fixture
def supervisor(monkeypatch: pytest.MonkeyPatch) -> Supervisor:
    """One that reads a status at once. Its error keeps it from reading further."""
    idle: Any = SimpleNamespace(turn=lambda *_, **__: (), remaining=0, repaired=0, services=())
    run = SimpleNamespace(run=SimpleNamespace(repair=False), connectors=())
    session: Any = SimpleNamespace(pipeline=run, connect=None, topics=None, file="shop.toml")
    monkeypatch.setattr(supervising, "read_status", lambda *_: status(errors=(Problem("no source"),)))
    monkeypatch.setattr(supervising.Services, "of", lambda *_: idle)
    found = Supervisor(session, Events(lambda _: None), launcher)
    found.dead_letters = found.transactions = idle
    return found


@pytest.fixture
def shown() -> Iterator[Callable[..., Watch]]:
    """A watch that runs in its thread."""
    started: list[tuple[Watch, threading.Thread]] = []

    def start(pages: Pages) -> Watch:
        watch = Watch(cast(Any, pages), cast(Any, pages))
        thread = threading.Thread(target=watch.run, daemon=True)
        thread.start()
        started.append((watch, thread))
        return watch

    yield start
    for watch, thread in started:
        watch.stop()
        thread.join(10)
        assert not thread.is_alive()


def test_a_command_that_ends_during_a_poll_has_the_next_come_at_once(
    supervisor: Supervisor, monkeypatch: pytest.MonkeyPatch
) -> None:
    began: list[float] = []
    supervisor.watch = lambda supervisor: began.append(supervisor.poll_began)

    def read(*_: object) -> Any:
        if not began:
            supervisor.hurry()
        return status(errors=(Problem("no source"),))

    monkeypatch.setattr(supervising, "read_status", read)
    for _ in range(3):
        supervisor.turn()
    assert len(began) == 2
    assert all(map(math.isfinite, began))


def test_a_page_that_waits_for_a_server_delays_no_poll_and_shows_the_newest(
    supervisor: Supervisor, shown: Callable[[Pages], Watch]
) -> None:
    answered, waits = threading.Event(), threading.Event()

    def make(_: object, began: float) -> Report:
        waits.set()
        assert answered.wait(10)
        return {"began": began}

    pages, began = Pages(make), []
    supervisor.watch = shown(pages)
    for _ in range(3):
        supervisor.hurry()
        supervisor.turn()
        began.append(supervisor.poll_began)
        assert waits.wait(10)
    assert pages.published == []
    answered.set()
    until("newest poll", lambda: pages.published == [{"began": began[0]}, {"began": began[2]}])


def test_a_fault_of_the_page_is_shown_and_the_next_poll_too(
    supervisor: Supervisor, shown: Callable[[Pages], Watch]
) -> None:
    def make(*_: object) -> Report:
        return {"state": "running"} if pages.published else {}["absent"]

    pages = Pages(make)
    supervisor.watch = shown(pages)
    for count in (1, 2):
        supervisor.hurry()
        supervisor.turn()
        until("report", lambda count=count: len(pages.published) == count)
    assert "a fault of Towpath: KeyError('absent') at test_monitor_watch.py:" in pages.published[0]["error"]
    assert pages.published[1] == {"state": "running"}


def test_a_fault_of_a_poll_does_not_end_it(monkeypatch: pytest.MonkeyPatch) -> None:
    pages = Pages(lambda *_: {"state": "running"})
    monkeypatch.setattr(watching, "add", lambda *_: pages)
    monkeypatch.setattr(watching, "_INTERVAL", 0.0)
    session: Any = SimpleNamespace(pipeline=SimpleNamespace(name="shop"), connect=None, topics=None)
    pages.session = session
    watch = Watch.of(cast(Any, pages), session)

    def read(*_: object) -> Any:
        watch.stopped = bool(pages.published)
        return status() if pages.published else {}["absent"]

    monkeypatch.setattr(watching, "read_status", read)
    watch.run()
    assert [report["state"] for report in pages.published] == ["unknown", "running"]
