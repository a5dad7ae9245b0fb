"""What `towpath demo` does, and what it shows while it waits."""

from __future__ import annotations

import io
import re
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from unittest.mock import Mock

import pytest

from tests.support.page import alike, commands
from tests.support.pipeline import Pipeline, towpath
from towpath import stack as embedded
from towpath.cli import demo
from towpath.cli.demo import NAMESPACES, progress_line
from towpath.run.report import Copied, Copy, Lag, Report

README = (Path(__file__).parents[2] / "README.md").read_text()
(SHOWN,) = (command.output for command in commands(README) if command.text == "scripts/demo")
#: What was seen of a demo, once a second: documents copied, lag, rate.
LOOKS = [(0, 0, 0.0), (0, 0, 0.0), (9_551, 4_215, 441.0), (20_651, 16_261, 2_068.0), (20_651, 9_000, 2_311.0)]


@dataclass
class Clock:
    now: float = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def test_elsewhere_than_on_a_terminal_there_is_a_line_for_each_step_only(capsys: pytest.CaptureFixture[str]) -> None:
    with progress_line() as show:
        for progress, numbers in (
            ("starting", "0/s"),
            ("starting", "0/s"),
            ("5 of 9", "3/s"),
            ("done", "1/s"),
            ("done", "2/s"),
        ):
            show(progress, numbers)
    assert capsys.readouterr().err.splitlines() == ["    starting; 0/s", "    5 of 9; 3/s", "    done; 1/s"]


def test_on_a_terminal_one_line_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    with progress_line() as show:
        show("starting", "0/s")
        show("done", "1/s")
    written = terminal.getvalue()
    assert "    done; 1/s" in written
    assert "\x1b[2K" in written  # the line before is erased
    assert written.count("\n") == 1


def test_what_a_demo_has_seen_makes_no_line_twice(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    looks = iter(LOOKS)

    def look(*_: object) -> Report:
        copied, lag, rate = next(looks)
        copy = (Copied("mail.messages", copied, 20_651),)
        of = {"name": "demo", "mode": "exactly-once", "file": "", "source": "", "destination": "", "state": "running"}
        return Report(**of, copy=Copy(copied == 20_651, copy, ()), lag=Lag(lag, 0.0, 1.0), records_per_second=rate)

    monkeypatch.setattr(demo, "read_status", look)
    monkeypatch.setattr(demo, "time", Clock())
    with progress_line() as show:
        demo._show_progress(Mock(), 2, show)
    lines = capsys.readouterr().err.splitlines()
    assert next(looks, None) is None
    assert lines == [
        "    initial copy: starting; lag 0 records, 1.0 s; 0 records/s",
        "    initial copy: mail.messages 9,551 of 20,651; lag 4,215 records, 1.0 s; 441 records/s",
        "    initial copy done; lag 16,261 records, 1.0 s; 2,068 records/s",
    ]


@pytest.mark.servers
def test_a_demo_ends_with_both_sides_the_same_and_prints_what_the_readme_shows(
    pipeline: Pipeline, stack: embedded.Stack
) -> None:
    """On the stack of the tests, which is made as the demo makes one."""
    try:
        done = towpath("demo", "--keep", "--dir", stack.directory, "--messages", "2000", "--seconds", "2")
        printed = {alike(line) for line in (done.stdout + done.stderr).splitlines()}
        shown = [line for line in SHOWN if not line.startswith(("1/6", "    initial copy:")) and line.strip() != "…"]
        assert [line for line in shown if alike(line) not in printed] == []
        assert f"Still running. Look around: scripts/towpath status {stack.directory / 'demo.toml'}" in done.stderr
    finally:
        replace(pipeline, name="demo").discard()
        for namespace in NAMESPACES:
            for client in (pipeline.source_client, pipeline.destination_client):
                client.drop_database(namespace.partition(".")[0])


def test_the_readme_shows_each_step_once() -> None:
    """Progress in other numbers only would be a line that the demo does not print."""
    lines = [line.split(";")[0] for line in SHOWN if line.strip() != "…"]
    assert len(lines) == len(set(lines)) > 15
    assert [line[:3] for line in lines if re.match(r"\d/6 ", line)] == [f"{step}/6" for step in range(1, 7)]
