"""One failed test makes no other fail and leaves nothing behind, whatever the shell that started the tests ignores."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from towpath import stack as embedded

pytestmark = pytest.mark.servers

_ROOT = Path(__file__).parents[2]
_TESTS = """
import fcntl, os, shutil, signal, subprocess
from pathlib import Path
import psutil
import pytest
from towpath import stack as embedded
from tests.conftest import STACK
from tests.support import control
from tests.support.awaited import until
from tests.support.pipeline import TOWPATH, towpath
from tests.support.started import started

@pytest.fixture(scope="session")
def stack(pytestconfig):
    pytestconfig.stash[STACK] = embedded.status(Path(os.environ["STACK"]))
    return pytestconfig.stash[STACK]

def test_that_fails_after_it_has_broken_all(pipeline, stack):
    pipeline.create("docs")
    pipeline.deploy()
    copy = shutil.copy(pipeline.file, pipeline.file.with_name("copy.toml"))  # which stays
    follower = subprocess.Popen([TOWPATH, "verify", copy, "--follow"])
    Path(os.environ["PIDS"]).write_text(str(follower.pid))
    pipeline.source_client.admin.command({"setUserWriteBlockMode": 1, "global": True})
    control.kill(stack.directory, "destination-0", signal.SIGSTOP)
    control.kill(stack.directory, "connect-0")
    pipeline.file.unlink()  # so that its fixture leaves the connectors
    raise AssertionError("on purpose")

def test_that_needs_all(pipeline, stack):
    assert embedded.status(stack.directory).running
    assert not psutil.pid_exists(int(Path(os.environ["PIDS"]).read_text()))
    pipeline.source("docs").insert_one({"_id": 1})
    pipeline.deploy()
    pipeline.wait()
    pipeline.assert_same("docs", at_least=1)

def test_that_leaves_the_worker_dead(stack):
    control.kill(stack.directory, "connect-0")

def test_that_finds_it_alive(pipeline):
    assert pipeline.leftovers() == ([], [])

@pytest.mark.timeout(5)
def test_that_is_never_over(tmp_path):
    with started(["sleep", "600"]) as sleeping, (tmp_path / "lock").open("w") as lock:
        Path(os.environ["PIDS"]).write_text(str(sleeping.pid))
        fcntl.flock(lock, fcntl.LOCK_EX)
        towpath("stack", "up", "--dir", tmp_path)

def test_that_all_of_it_is_over():
    assert not psutil.pid_exists(int(Path(os.environ["PIDS"]).read_text()))
    own = psutil.Process().children()
    (forking,) = [it for it in own if "tests.support.commands" in it.cmdline()]
    until("end of the command", lambda: not forking.children())

def test_that_an_interrupt_reaches_what_a_test_starts():
    with started(["sleep", "600"]) as sleeping:
        sleeping.send_signal(signal.SIGINT)
        assert sleeping.wait(30) == -signal.SIGINT
"""


def _ignore() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # as a shell does for what it runs with &


@pytest.mark.nightly
def test_a_failed_test_is_the_only_one_that_fails(stack: embedded.Stack, tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(_TESTS)
    options = ["-p", "tests.conftest", "-p", "no:cacheprovider", "-n", "1", "--basetemp", tmp_path / "base", "-rA"]
    command = [sys.executable, "-m", "pytest", *options, tmp_path / "test_it.py"]
    own = os.environ | {"STACK": str(stack.directory), "PIDS": str(tmp_path / "pids"), "PYTEST_ADDOPTS": ""}
    done = subprocess.run(
        command, cwd=_ROOT, env=own, capture_output=True, text=True, preexec_fn=_ignore, timeout=240, check=False
    )
    lines = done.stdout.splitlines()
    outcomes = {line.split()[1].partition("::")[2]: line.split()[0] for line in lines if line.startswith(_OUTCOMES)}
    assert {name for name, outcome in outcomes.items() if outcome != "PASSED"} == {
        "test_that_fails_after_it_has_broken_all",
        "test_that_is_never_over",
    }, done.stdout
    assert len(outcomes) == _TESTS.count("def test_")
    assert not any(line.startswith("ERROR ") for line in lines), done.stdout
    assert "Timeout (>5.0s)" in done.stdout
    assert "write conflicts: " in done.stdout, "what the stack's servers were up to"
    assert embedded.status(stack.directory).running


_OUTCOMES = ("PASSED ", "FAILED ", "ERROR ")
