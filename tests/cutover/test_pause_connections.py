"""No connection is opened while a cutover holds writes up: a server that is slow to accept one would prolong that."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.pipeline import Pipeline, towpath
from towpath.cli.cutover import cutover
from towpath.clients.kafka import topics
from towpath.cutover.pause import Pause
from towpath.cutover.watches import LateWrites

pytestmark = pytest.mark.servers


class Opened:
    """What this process connects to from one moment to another: sockets of Python, and clients of Kafka, whose sockets
    are made by a C library."""

    def __init__(self) -> None:
        self.watches = False
        self.connections: list[str] = []

    def note(self, what: str) -> None:
        if self.watches:
            self.connections.append(what)

    def audited(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event == "socket.connect":
            self.note(f"a socket to {arguments[1]}")


@pytest.fixture(scope="module")
def opened() -> Iterator[Opened]:
    found = Opened()
    sys.addaudithook(found.audited)  # for good: an interpreter keeps its hooks
    yield found
    found.watches = False


@pytest.mark.nightly
def test_no_connection_is_opened_in_the_pause(
    pipeline: Pipeline, opened: Opened, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    pipeline.source("docs").insert_many([{"_id": n, "text": "x" * 100} for n in range(1000)])
    pipeline.deploy()
    pipeline.wait()
    towpath("verify", pipeline.file)

    for name in ("AdminClient", "Consumer", "Producer"):
        client = getattr(topics, name)

        def made(*arguments: Any, client: Any = client, name: str = name) -> Any:
            opened.note(f"a {name} of Kafka")
            return client(*arguments)

        monkeypatch.setattr(topics, name, made)
    begin, catch_up = Pause.begin, LateWrites.catch_up

    def begins(pause: Pause) -> None:
        opened.watches = True
        begin(pause)

    def ends(watch: LateWrites) -> None:
        catch_up(watch)
        opened.watches = False

    monkeypatch.setattr(Pause, "begin", begins)
    monkeypatch.setattr(LateWrites, "catch_up", ends)

    for options in ((), ("--back",)):
        capfd.readouterr()
        cutover.main([str(pipeline.file), *options, "--stop-with", "true", "--json"], standalone_mode=False)
        events = [json.loads(line) for line in capfd.readouterr().out.splitlines() if line.startswith("{")]
        assert events[-1]["event"] == "end", events
        assert opened.connections == [], options
