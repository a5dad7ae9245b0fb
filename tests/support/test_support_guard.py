"""A test run that is ended by a signal leaves no server behind."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.support.awaited import until

pytestmark = pytest.mark.servers

_ROOT = Path(__file__).parents[2]
_TEST = """
import time
from tests.support.mongod import start_replica_set

def test_that_is_never_over(tmp_path):
    with start_replica_set(tmp_path / "set") as servers:
        pids = [process.pid for process in servers.processes.values()]
        (tmp_path.parent / "pid").write_text(f"{pids[0]}.")
        time.sleep(600)
"""


@pytest.mark.parametrize(
    ("processes", "number"), [(0, signal.SIGKILL), pytest.param(1, signal.SIGTERM, marks=pytest.mark.nightly)]
)
def test_servers_end_with_the_run_that_started_them(tmp_path: Path, processes: int, number: signal.Signals) -> None:
    """In the process that is signalled, or in one that it has distributed the tests to."""
    (tmp_path / "test_it.py").write_text(_TEST)
    options = ["-p", "tests.conftest", "-p", "no:cacheprovider", "-n", str(processes), "--basetemp", tmp_path / "base"]
    command = [sys.executable, "-m", "pytest", *options, tmp_path / "test_it.py"]
    with subprocess.Popen(command, cwd=_ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as run:
        pid = until("server of the test", lambda: _pid(tmp_path))
        assert psutil.pid_exists(pid)
        run.send_signal(number)
        run.wait(30)
    until("end of the server", lambda: not psutil.pid_exists(pid))


def _pid(folder: Path) -> int | None:
    """The server's pid, once it is written down whole."""
    for file in folder.rglob("pid"):
        if (text := file.read_text()).endswith("."):
            return int(text[:-1])
    return None
