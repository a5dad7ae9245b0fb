"""What `towpath demo` shows while it waits."""

from __future__ import annotations

import io
import sys

import pytest

from towpath.cli.demo import progress_line


def test_elsewhere_than_on_a_terminal_there_is_a_line_for_each_step_only(capsys: pytest.CaptureFixture[str]) -> None:
    with progress_line() as show:
        for progress, figures in (
            ("starting", "0/s"),
            ("starting", "0/s"),
            ("5 of 9", "3/s"),
            ("done", "1/s"),
            ("done", "2/s"),
        ):
            show(progress, figures)
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
