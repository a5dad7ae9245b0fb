"""Stopping the writes to a cluster."""

from __future__ import annotations

import os
import re
import select
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from towpath.clients.mongo import write_block
from towpath.clients.mongo.client import Cluster
from towpath.config.events import CutoverNote
from towpath.cutover.events import Reporter
from towpath.errors import TowpathError

#: Advice when nobody can confirm that the writes have stopped.
ANSWER = "answer with Enter, or use --stop-with or --block-writes"
#: The program that a command starts with, unless it is quoted or expanded by the shell.
_PROGRAM = re.compile(r"\s*([\w@%+:,./-]+)(?=[\s;&|]|$)")
_HOOK_S = 600  # seconds that a command of the user may take
_BLOCK_S, _REPORT_S = 33.0, 3.0  # seconds for open transactions to end, and of those to find out whose they are


@dataclass(frozen=True, slots=True)
class WriteStop:
    """How to stop the writes to a cluster: by the user's `command`, by a write block, or by hand."""

    cluster: Cluster
    side: str
    """source or destination of the pipeline that is cut over."""
    command: str | None
    blocks: bool

    @property
    def is_manual(self) -> bool:
        """Whether a person has to stop the writes and confirm it."""
        return self.command is None and not self.blocks

    def wait_for_confirmation(self, reporter: Reporter) -> None:
        """Return when somebody confirms that the writes have stopped. Raises `TowpathError` when nobody can."""
        words = f"Stop all writes to {self._where} now, then press Enter; Ctrl-C leaves all as it is"
        reporter.report(CutoverNote(event="stop writes", words=words))
        if not sys.stdin.readline():
            raise TowpathError(f"nobody said that the writes are stopped: standard input has ended; {ANSWER}")

    def stop(self, reporter: Reporter, remaining: Callable[[float], float]) -> None:
        """Run the command and block the writes, as configured. Raises `TowpathError`.

        `remaining` limits a number of seconds to what the pause still allows.
        """
        if self.command is not None:
            with reporter.step("stopping the writers"):
                hook(self.command)
        if self.blocks:
            with reporter.step(f"blocking writes to {self._where}"), self.cluster.connected() as client:
                write_block.block(client, patience=remaining(_BLOCK_S) - _REPORT_S)
            if self.command is None:
                words = f"writes to {self._where} are blocked from now on"
                reporter.report(CutoverNote(event="stop writes", words=words))

    @property
    def _where(self) -> str:
        return f"the {self.side} ({self.cluster.address})"


def hook(command: str) -> None:
    """Run a command of the user; its output goes to standard error. Raises `TowpathError` when it fails.

    It keeps the terminal, where it may ask for a password. Whatever ends it early also ends what it has started.
    """
    process = subprocess.Popen(command, shell=True, stdin=subprocess.DEVNULL, stdout=sys.stderr)
    try:
        status = process.wait(_HOOK_S)
    except BaseException as error:
        _end_with_children(process)
        if isinstance(error, subprocess.TimeoutExpired):
            raise TowpathError(f"{command!r} did not end within {_HOOK_S} s, and was ended") from error
        raise
    if status:
        raise TowpathError(f"{command!r} ended with exit status {status}")


def _end_with_children(process: subprocess.Popen[bytes]) -> None:
    """Kill a child and its descendants. Each is suspended first, so that none starts another one in the meantime."""
    suspended: list[psutil.Process] = []
    with suppress(psutil.NoSuchProcess):
        root = psutil.Process(process.pid)
        while running := [one for one in (root, *root.children(recursive=True)) if one not in suspended]:
            for one in running:
                with suppress(psutil.NoSuchProcess):
                    one.suspend()
            suspended += running
    for one in suspended:
        with suppress(psutil.NoSuchProcess):
            one.kill()
    process.wait()


def command_problem(command: str) -> str:
    """Why the shell cannot run a command, as far as can be seen without running it; empty if nothing is wrong."""
    syntax = subprocess.run(["/bin/sh", "-n", "-c", command], capture_output=True, text=True, check=False)
    if syntax.returncode:
        return f"{command!r} is not a valid command: {syntax.stderr.strip()}"
    program = _PROGRAM.match(command)
    if program is None or shutil.which(program[1]):
        return ""
    if "/" in program[1]:
        return f"{program[1]} does not exist or cannot be executed"
    lookup = subprocess.run(["/bin/sh", "-c", 'command -v "$0"', program[1]], capture_output=True, check=False)
    return f"there is no command {program[1]}" if lookup.returncode else ""


def stdin_problem() -> str:
    """Why nobody can answer on standard input; empty if somebody can."""
    try:
        file, mode = sys.stdin.fileno(), os.fstat(sys.stdin.fileno())
    except (AttributeError, OSError, ValueError):
        return "standard input is closed"
    if stat.S_ISCHR(mode.st_mode) and mode.st_rdev == Path(os.devnull).stat().st_rdev:
        return f"standard input is {os.devnull}"
    poll = select.poll()
    poll.register(file, select.POLLIN)
    ended = any(event & select.POLLHUP and not event & select.POLLIN for _, event in poll.poll(0))
    return "standard input has ended" if ended else ""


def allow(cluster: Cluster) -> None:
    """Unblock writes. Raises `TowpathError` with how to do so by hand."""
    with cluster.connected() as client:
        write_block.unblock(client)


def writes_through(cluster: Cluster) -> bool:
    """Whether this user can write while the cluster blocks the writes of applications."""
    with cluster.connected() as client:
        return write_block.writes_through(client)
