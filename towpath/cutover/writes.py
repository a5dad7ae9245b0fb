"""What stops the writes to a cluster: a command of the user, someone who confirms it, or the server."""

from __future__ import annotations

import os
import re
import select
import shutil
import stat
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import psutil

from towpath.clients.mongo import write_block
from towpath.clients.mongo.client import Cluster
from towpath.clients.mongo.privileges import privileges
from towpath.errors import TowpathError

#: Advice when no one can confirm that the writes have stopped.
ANSWER = "answer with Enter, or use --stop-with or --block-writes"
#: The program that a command starts with, unless it is quoted or expanded by the shell.
_PROGRAM = re.compile(r"\s*([\w@%+:,./-]+)(?=[\s;&|]|$)")
_HOOK_S = 600  # seconds that a command of the user may take


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
        raise TowpathError(f"{command!r} ended with exit code {status}")


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
    """Why no one can answer on standard input; empty if someone can."""
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
    """Unblock writes; repeatable. Raises `TowpathError` with how to do so by hand."""
    with cluster.connected() as client:
        write_block.unblock(client)


def writes_through(cluster: Cluster) -> bool:
    """Whether this user can write while the cluster blocks the writes of applications."""
    with cluster.connected() as client:
        return write_block.writes_through(privileges(client))
