"""`towpath status --watch`: what does not answer is shown, and looked at again until Ctrl-C."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.support import schema
from tests.support.awaited import until
from tests.support.pipeline import TOWPATH, Pipeline
from tests.support.proxy import Proxy

pytestmark = pytest.mark.servers


@pytest.fixture
def deployed(pipeline: Pipeline) -> Pipeline:
    pipeline.source("docs").insert_one({"_id": 1})
    pipeline.deploy()
    pipeline.wait()
    return pipeline


@pytest.fixture
def proxy(deployed: Pipeline) -> Iterator[Proxy]:
    """Before Connect's REST API."""
    port = urlsplit(deployed.addresses.connect).port or 0
    with Proxy(lambda: port) as between:
        through = replace(deployed.addresses, connect=f"http://127.0.0.1:{between.port}")
        replace(deployed, addresses=through).write()
        yield between
    deployed.write()


@contextmanager
def watching(pipeline: Pipeline, stdout: int, *options: str) -> Iterator[subprocess.Popen[bytes]]:
    command = [TOWPATH, "status", pipeline.file, "--watch", *options]
    process = subprocess.Popen(
        command,
        stdout=stdout,
        env=os.environ | {"TERM": "xterm", "COLUMNS": "200"},
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a shell's `&` has it ignored
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait(30)


def interrupted(process: subprocess.Popen[bytes]) -> int:
    process.send_signal(signal.SIGINT)
    return process.wait(30)


@pytest.mark.nightly
def test_json_tells_the_error_and_continues(deployed: Pipeline, proxy: Proxy, tmp_path: Path) -> None:
    out = tmp_path / "lines"

    def awaited(words: str) -> None:
        read = len(out.read_text())
        until(f"line with {words}", lambda: words in out.read_text()[read:])

    with out.open("w") as stream, watching(deployed, stream.fileno(), "--json") as process:
        awaited('"state": "running"')
        with proxy.refusing():
            awaited('"state": "unknown", "errors": [{"what": "cannot reach Kafka Connect at')
        awaited('"state": "running"')
        assert interrupted(process) == 0
    schema.refuse(("status", "--json"), out.read_text())


@pytest.mark.nightly
def test_the_screen_shows_the_error_below_what_was_seen(deployed: Pipeline, proxy: Proxy) -> None:
    ours, theirs = pty.openpty()
    try:
        os.set_blocking(ours, False)
        with proxy.refusing(), watching(deployed, theirs) as process:
            shown(ours, b"no status at ")
            assert interrupted(process) == 2, "it was never seen"
        with watching(deployed, theirs) as process:
            shown(ours, b"dead letters")
            with proxy.refusing():
                assert b"dead letters" in shown(ours, b"no status at ").rpartition(b"no status at ")[0]
            shown(ours, b"dead letters")
            assert interrupted(process) == 0
    finally:
        os.close(ours)
        os.close(theirs)


def shown(terminal: int, words: bytes) -> bytes:
    """What comes to a terminal until there are these words."""
    found = bytearray()

    def more() -> bool:
        with suppress(BlockingIOError):
            found.extend(os.read(terminal, 1 << 16))
        return words in found

    until(f"{words!r} on the screen", more)
    return bytes(found)
