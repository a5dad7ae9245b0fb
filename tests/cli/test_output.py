"""Output that fails, and signals: what a command does, and how it ends, when no one can read what it prints."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tests.support.awaited import until
from towpath.signals import Interrupts

#: A command line with some commands. `work` changes something between two lines; `show` only prints.
PROGRAM = """
import os, sys, time
import click
import towpath.cli as cli
from towpath.cli.options import print_tables, say

@click.command()
@click.argument("file")
@click.argument("code", type=int)
def work(file, code):
    for part in range(3):
        click.echo(f"part {part} \u2192")
        print_tables("a table")
        say("a message")
        open(file, "a").write(f"{part}")
    raise click.exceptions.Exit(code)

@click.command()
@click.argument("file")
@click.argument("code", type=int)
def show(file, code):
    for part in range(3):
        print_tables("a table") if code else click.echo("a line")
        open(file, "a").write(f"{part}")

@click.command()
@click.argument("file")
def wait(file):
    try:
        open(file, "a").write("waiting")
        time.sleep(60)
    finally:
        open(file, "a").write(", undone")

@click.command()
@click.argument("file")
def close(file):
    try:
        open(file, "a").write("waiting")
        time.sleep(60)
    except KeyboardInterrupt:
        raise SystemError("<method 'close'> returned NULL without setting an exception")

sys.modules["commands"] = sys.modules["__main__"]
for name in ("work", "show", "wait", "close"):
    cli._COMMANDS[name] = ("commands", name)
cli._PRINTING |= {"show"}
cli.main()
"""


def start(*words: str | Path, **streams: object) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONIOENCODING": "latin-1"}
    command = [sys.executable, "-c", PROGRAM, *map(str, words)]
    return subprocess.Popen(command, text=True, env=environment, **streams)  # type: ignore[call-overload, no-any-return]


def closed() -> int:
    """A pipe whose reader is gone."""
    reads, writes = os.pipe()
    os.close(reads)
    return writes


@pytest.mark.parametrize("code", [0, 1, 2])
@pytest.mark.parametrize("both", [False, True], ids=["stdout", "stdout and stderr"])
@pytest.mark.parametrize("kind", ["closed", "full", "none"])
def test_a_command_that_changes_something_does_it_and_ends_with_its_own_code(
    tmp_path: Path, kind: str, both: bool, code: int
) -> None:
    done = tmp_path / "done"
    output = closed() if kind == "closed" else os.open("/dev/full" if kind == "full" else os.devnull, os.O_WRONLY)
    running = start("work", done, str(code), stdout=output, stderr=output if both else subprocess.PIPE)
    os.close(output)
    _, said = running.communicate(timeout=60)
    assert (running.returncode, done.read_text()) == (code, "012")
    if not both:
        complaint = "towpath: cannot write the output: No space left on device; make room there"
        assert said.splitlines() == ["a message"] * 3 + [complaint] * (kind == "full")


@pytest.mark.parametrize("table", [0, 1])
@pytest.mark.parametrize("kind", ["closed", "full"])
def test_a_command_that_only_prints_ends_with_2(tmp_path: Path, kind: str, table: int) -> None:
    done = tmp_path / "done"
    output = closed() if kind == "closed" else os.open("/dev/full", os.O_WRONLY)
    running = start("show", done, str(table), stdout=output, stderr=subprocess.PIPE)
    os.close(output)
    _, said = running.communicate(timeout=60)
    assert running.returncode == 2 and not done.exists()
    assert said == ("" if kind == "closed" else f"towpath: cannot write the output: {NO_ROOM}; make room there\n")


NO_ROOM = "No space left on device"


def test_only_what_its_reader_wants_is_lost(tmp_path: Path) -> None:
    """An error output that fails takes nothing of standard output with it; what cannot be encoded is escaped."""
    with Path("/dev/full").open("w", encoding="utf-8") as full:
        running = start("work", tmp_path / "done", "0", stdout=subprocess.PIPE, stderr=full)
        printed, _ = running.communicate(timeout=60)
    assert running.returncode == 0
    assert printed.splitlines() == [line for n in range(3) for line in (f"part {n} \\u2192", "a table")]


def test_a_terminal_that_does_not_block_is_waited_for(tmp_path: Path) -> None:
    reads, writes = os.pipe()
    os.set_blocking(writes, False)
    free = 0
    while True:
        try:
            free += os.write(writes, b"x" * 4096)
        except BlockingIOError:
            break
    running = start("work", tmp_path / "done", "0", stdout=writes, stderr=subprocess.PIPE)
    os.close(writes)
    found = bytearray()

    def read() -> None:
        time.sleep(1)
        while data := os.read(reads, 65536):
            found.extend(data)

    reader = threading.Thread(target=read)
    reader.start()
    _, said = running.communicate(timeout=60)
    reader.join(60)
    assert (running.returncode, said) == (0, "a message\n" * 3)
    assert bytes(found[free:]).decode().splitlines()[-2:] == ["part 2 \\u2192", "a table"]


def test_with_patience_a_signal_interrupts_only_what_does_not_end_by_itself() -> None:
    """An exception at any instruction may leave a lock of a library taken."""
    handler = Interrupts(once=True, patience=0.05)
    before = signal.signal(signal.SIGTERM, handler)
    try:
        signal.raise_signal(signal.SIGTERM)
        assert handler.came
        with pytest.raises(KeyboardInterrupt):
            time.sleep(10)
        signal.raise_signal(signal.SIGTERM)
        time.sleep(0.2)  # it came once
        ended = Interrupts(once=True, patience=0.05)
        ended(signal.SIGTERM, None)
        ended.hold()
        time.sleep(0.2)
        impatient, begun = Interrupts(patience=0.3), time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            while time.monotonic() < begun + 2:
                impatient(signal.SIGTERM, None)
                time.sleep(0.05)
        assert time.monotonic() < begun + 1, "a further signal does not extend it"
        impatient(signal.SIGTERM, None)
        with pytest.raises(KeyboardInterrupt):
            time.sleep(10)  # what comes after the first may also not end
    finally:
        signal.signal(signal.SIGTERM, before)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("command", ["wait", "close"])
def test_each_signal_ends_it_as_ctrl_c_does(tmp_path: Path, command: str, number: signal.Signals) -> None:
    """Also when it is Kafka's client that is interrupted, which makes something else of it."""
    file = tmp_path / "file"
    running = start(command, file, stderr=subprocess.PIPE)
    until("it to wait", lambda: file.exists() and file.read_text() == "waiting", 60, 0.05)
    running.send_signal(number)
    _, said = running.communicate(timeout=60)
    assert (running.returncode, said.strip()) == (2, "stopped")
    assert file.read_text() == ("waiting, undone" if command == "wait" else "waiting")


def test_what_nohup_ignores_stays_ignored(tmp_path: Path) -> None:
    file = tmp_path / "file"
    running = start(
        "wait", file, stderr=subprocess.PIPE, preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN)
    )
    until("it to wait", lambda: file.exists() and file.read_text() == "waiting", 60, 0.05)
    running.send_signal(signal.SIGHUP)
    with pytest.raises(subprocess.TimeoutExpired):
        running.wait(0.5)
    running.send_signal(signal.SIGTERM)
    running.communicate(timeout=60)
    assert (running.returncode, file.read_text()) == (2, "waiting, undone")
