"""What is to stop the writers, checked before a cutover begins: commands that cannot run, and no one to answer."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import psutil
import pytest
from click.testing import CliRunner

from tests.support.awaited import until
from towpath.cli.cutover import cutover
from towpath.config.loading import write_pipeline_file
from towpath.cutover import writes
from towpath.cutover.writes import command_problem, hook, stdin_problem
from towpath.errors import Refused, TowpathError


@pytest.fixture
def script(tmp_path: Path) -> Path:
    file = tmp_path / "stop"
    file.write_text("#!/bin/sh\n")
    return file


@pytest.mark.parametrize("command", ["{}", "{} --all", " {}; true"])
def test_a_program_has_to_be_there_and_to_be_executable(script: Path, command: str) -> None:
    command = command.format(script)
    assert command_problem(command) == f"{script} does not exist or cannot be executed"
    script.chmod(0o755)
    assert command_problem(command) == ""


@pytest.mark.parametrize(
    "command",
    [
        "true",
        "cd / && true",
        "if true; then true; fi",
        "A=1 nonsense",
        "$HOME/stop",
        "(stop)",
        '"/a b/stop" x',
        "~/stop",
        "! true",
    ],
)
def test_what_only_the_shell_knows_is_left_to_it(command: str) -> None:
    assert command_problem(command) == ""


def test_what_is_no_command_is_told() -> None:
    assert command_problem("no-such-program-here --all") == "there is no command no-such-program-here"
    assert command_problem("if true").startswith("'if true' is not a valid command: ")


def test_a_command_that_takes_too_long_ends_with_all_that_it_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its children ignore SIGTERM, and one belongs to another session."""
    monkeypatch.setattr(writes, "_HOOK_S", 1.0)
    pids, child = tmp_path / "pids", tmp_path / "child"
    child.write_text(f"trap '' TERM; echo $$ >> {pids}; while :; do sleep 600; done", encoding="utf-8")
    with pytest.raises(TowpathError, match=r"did not end within 1\.0 s, and was ended"):
        hook(f"sh {child} & setsid sh {child} & sh {child}")
    started = [int(line) for line in pids.read_text(encoding="utf-8").split()]
    assert len(started) == 3
    until("end of all of them", lambda: not any(map(running, started)))


def test_a_pipeline_in_plain_mode_is_switched_manually(tmp_path: Path) -> None:
    file = write_pipeline_file(tmp_path / "shop.toml", include=["shop.*"], mode="plain")
    with pytest.raises(Refused, match=r'needs mode = "exactly-once".*docs/how-to/cutover\.md') as refused:
        CliRunner().invoke(cutover, [str(file), "--dry-run"], catch_exceptions=False)
    assert "manually" in refused.value.advice


def running(pid: int) -> bool:
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


def test_who_cannot_answer_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    with Path(os.devnull).open(encoding="utf-8") as nothing:
        monkeypatch.setattr(sys, "stdin", nothing)
        assert stdin_problem() == "standard input is /dev/null"
    assert stdin_problem() == "standard input is closed"
    reads, writes = os.pipe()
    with os.fdopen(reads) as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        assert stdin_problem() == ""
        os.write(writes, b"\n")
        os.close(writes)
        assert stdin_problem() == ""
        stdin.readline()
        assert stdin_problem() == "standard input has ended"
