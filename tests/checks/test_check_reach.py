"""Servers that do not answer are waited for side by side."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.support.pipeline import towpath

PATIENCE_S = 3.0
FILE = """
name = "shop"
[source]
uri = "mongodb://127.0.0.1:{source}/?serverSelectionTimeoutMS={ms}"
[destination]
uri = "mongodb://127.0.0.1:{destination}/?serverSelectionTimeoutMS={ms}"
[kafka]
bootstrap = "127.0.0.1:{kafka}"
[connect]
url = "http://127.0.0.1:{connect}"
secrets = "{secrets}"
[collections]
include = ["shop.*"]
"""


class Mute:
    """Takes connections, and closes them; `asked` is when the first one came, on the monotonic clock."""

    def __init__(self, listening: socket.socket) -> None:
        self._listening, self.asked, self.port = listening, 0.0, listening.getsockname()[1]
        threading.Thread(target=self._take, daemon=True).start()

    def _take(self) -> None:
        try:
            while True:
                self._listening.accept()[0].close()
                self.asked = self.asked or time.monotonic()
        except OSError:
            return  # closed


@contextmanager
def mute() -> Iterator[Mute]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield Mute(listening)


@pytest.mark.nightly
def test_all_are_asked_before_the_first_is_given_up(tmp_path: Path) -> None:
    with ExitStack() as parts:
        at = {name: parts.enter_context(mute()) for name in ("source", "destination", "kafka", "connect")}
        ports = {name: one.port for name, one in at.items()}
        file = tmp_path / "shop.toml"
        file.write_text(FILE.format(**ports, ms=int(PATIENCE_S * 1000), secrets=tmp_path))
        said = towpath("check", file, expect=1).stdout
        asked = [one.asked for one in at.values()]
    assert all(asked), said
    assert max(asked) - min(asked) < PATIENCE_S, asked
    assert all(f"127.0.0.1:{port}" in said for port in ports.values()), said
    assert "4 errors" in said
