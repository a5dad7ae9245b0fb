"""Processes, told apart by pid and creation time. Every process here is a real one: a shell that sleeps."""

from __future__ import annotations

import dataclasses
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.support import control
from tests.support.awaited import until
from towpath.errors import StackError
from towpath.stack import processes
from towpath.stack.processes import Process


def _shell(place: Path, script: str, name: str = "kafka") -> Process:
    return Process(name, "kafka", ("/bin/sh", "-c", script), 1234, place / f"{name}.log")


@pytest.fixture
def sleeper(tmp_path: Path) -> Iterator[Process]:
    process = processes.spawn(_shell(tmp_path, "echo begun; exec sleep 300"))
    yield process
    processes.stop([process], 0)


def _written(process: Process, words: str) -> None:
    deadline = time.monotonic() + 10
    while words not in process.tail():
        assert time.monotonic() < deadline, f"{words!r} is not in the log: {process.tail()!r}"
        time.sleep(0.01)


def test_a_started_process_runs_in_a_session_of_its_own(sleeper: Process) -> None:
    assert sleeper.pid is not None
    stat = Path(f"/proc/{sleeper.pid}/stat").read_text(encoding="utf-8")
    session = int(stat.rsplit(")", 1)[1].split()[3])
    assert (sleeper.running, session) == (True, sleeper.pid)


def test_a_pid_that_belongs_to_another_process_by_now_is_left_alone(sleeper: Process) -> None:
    assert sleeper.created is not None
    earlier = dataclasses.replace(sleeper, created=sleeper.created - 60)
    assert not earlier.running
    assert not control.send(earlier, signal.SIGKILL)
    assert processes.stop([earlier], 0) == []
    assert sleeper.running


def test_stop_returns_the_names_of_those_that_ran(sleeper: Process, tmp_path: Path) -> None:
    never = _shell(tmp_path, "true", "connect-0")
    assert processes.stop([never, sleeper], 5) == ["kafka"]
    assert not sleeper.running
    assert processes.stop([never, sleeper], 5) == []


def test_stop_kills_what_ignores_the_polite_request_and_its_children(tmp_path: Path) -> None:
    deaf = processes.spawn(_shell(tmp_path, "trap '' TERM; sleep 300 & echo child $!; wait; wait"))
    _written(deaf, "child")
    child = psutil.Process(int(deaf.tail().split()[-1]))
    processes.stop([deaf], 0.3)
    assert not deaf.running
    psutil.wait_procs([child], 5)
    assert not child.is_running() or child.status() == psutil.STATUS_ZOMBIE


def test_stop_ends_a_process_that_was_stopped_by_a_signal(sleeper: Process) -> None:
    control.send(sleeper, signal.SIGSTOP)
    begun = time.monotonic()
    processes.stop([sleeper], 20)
    assert not sleeper.running
    assert time.monotonic() - begun < 10


def test_a_dead_child_does_not_run_although_nothing_waited_for_it(tmp_path: Path) -> None:
    process = processes.spawn(_shell(tmp_path, "exit 3"))
    assert processes.await_end([process], 10)


def test_a_living_process_whose_pid_was_never_written_down_is_found_by_its_command(sleeper: Process) -> None:
    forgotten = dataclasses.replace(sleeper, pid=None, created=None)
    unique = dataclasses.replace(forgotten, command=("/bin/sleep", f"299.{os.getpid()}"))
    assert processes.adopted(unique).pid is None
    living = processes.spawn(unique)
    try:
        found = until("process with its command", lambda: processes.adopted(unique).pid)  # none just after its exec
        assert found == living.pid
    finally:
        processes.stop([living], 5)


def test_death_tells_the_last_lines_of_this_life_only(tmp_path: Path) -> None:
    (tmp_path / "kafka.log").write_text("Address already in use, in an earlier life\n")
    process = processes.spawn(_shell(tmp_path, "for i in $(seq 30); do echo line $i; done; exit 1"))
    assert processes.await_end([process], 10)
    death = process.death()
    assert str(process.log) in str(death)
    assert [line.strip() for line in str(death).splitlines()[1:]] == [f"line {i}" for i in range(11, 31)]


def test_death_by_a_taken_port_names_the_port(tmp_path: Path) -> None:
    process = processes.spawn(_shell(tmp_path, "echo 'bind: Address already in use'; exit 1"))
    assert processes.await_end([process], 10)
    death = process.death()
    assert "kafka could not listen on port 1234" in str(death)


def test_a_program_that_cannot_be_started_is_named(tmp_path: Path) -> None:
    absent = dataclasses.replace(_shell(tmp_path, ""), command=(str(tmp_path / "absent"),))
    with pytest.raises(StackError, match=rf"cannot start kafka \({tmp_path}/absent\)"):
        processes.spawn(absent)
