"""How the writes to a cluster end: its writers are asked, by a command or in words, and the server may refuse them."""

from __future__ import annotations

import os
import re
import select
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from towpath.cutover.events import Telling
from towpath.errors import TowpathError
from towpath.mongo import write_block
from towpath.mongo.client import connected
from towpath.mongo_uri import without_credentials

#: Who says that the writes have ended, or what ends them.
ANSWER = "answer with Enter, or use --stop-with or --block-writes"
#: The program at a command's beginning; what is quoted, or for the shell to expand, only the shell knows.
_PROGRAM = re.compile(r"\s*([\w@%+:,./-]+)(?=[\s;&|]|$)")
_HOOK_S = 600  # seconds that a command of the user's may take
_BLOCK_S, _TOLD_S = 33.0, 3.0  # seconds for open transactions to end, and of those to find out whose they are


@dataclass(frozen=True, slots=True)
class Stopping:
    """`uri` and `side` are of the cluster; `command` is the user's; `blocks` has the server refuse writes."""

    uri: str
    side: str
    command: str | None
    blocks: bool

    @property
    def asks(self) -> bool:
        """Whether somebody has to say that the writes have ended."""
        return self.command is None and not self.blocks

    def ask(self, telling: Telling) -> None:
        """Return when somebody says that nobody writes any more. Raises `TowpathError` when nobody can."""
        words = f"Stop all writes to {self._where} now, then press Enter; Ctrl-C leaves all as it is"
        telling.tell("stop writes", words)
        if not sys.stdin.readline():
            raise TowpathError(f"nobody said that the writes are stopped: standard input has ended; {ANSWER}")

    def stop(self, telling: Telling, left: Callable[[float], float]) -> None:
        """Return when nobody writes any more, as far as can be told. Raises `TowpathError`.

        `left` tells how many of so many seconds a wait may take.
        """
        if self.command is not None:
            with telling.step("stopping the writers"):
                hook(self.command)
        if self.blocks:
            with telling.step(f"blocking writes to {self._where}"), connected(self.uri, self.side) as client:
                write_block.block(client, patience=left(_BLOCK_S) - _TOLD_S)
            if self.command is None:
                telling.tell("stop writes", f"writes to {self._where} are refused from now on")

    @property
    def _where(self) -> str:
        return f"the {self.side} ({without_credentials(self.uri)})"


def hook(command: str) -> None:
    """Run a command of the user's; what it prints goes to standard error. Raises `TowpathError` when it fails."""
    try:
        done = subprocess.run(
            command, shell=True, timeout=_HOOK_S, stdin=subprocess.DEVNULL, stdout=sys.stderr, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise TowpathError(f"{command!r} did not end within {_HOOK_S} s") from error
    if done.returncode:
        raise TowpathError(f"{command!r} ended with exit status {done.returncode}")


def why_not(command: str) -> str:
    """Why the shell cannot run a command, as far as that is seen without running it; empty when nothing is."""
    read = subprocess.run(["/bin/sh", "-n", "-c", command], capture_output=True, text=True, check=False)
    if read.returncode:
        return f"{command!r} is no command: {read.stderr.strip()}"
    program = _PROGRAM.match(command)
    if program is None or shutil.which(program[1]):
        return ""
    if "/" in program[1]:
        return f"{program[1]} is not there, or cannot be executed"
    known = subprocess.run(["/bin/sh", "-c", 'command -v "$0"', program[1]], capture_output=True, check=False)
    return f"there is no command {program[1]}" if known.returncode else ""


def unanswered() -> str:
    """Why nobody answers on standard input; empty when somebody may."""
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


def allow(uri: str, side: str) -> None:
    """Let writes through again. Raises `TowpathError` with what does so by hand."""
    with connected(uri, side) as client:
        write_block.unblock(client)


def writes_through(uri: str, side: str) -> bool:
    """Whether this user's writes are taken while those of applications are refused."""
    with connected(uri, side) as client:
        return write_block.writes_through(client)
