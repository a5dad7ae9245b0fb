"""The command line without its imports: a process that has them forks for every command.

A command is still a separate process, with its arguments, its environment, its output and its exit code; half a
second of imports is what is saved, a few hundred times. It is killed once nothing waits for it. `python -m
tests.support.commands SOCKET` is the process that forks, and ends with whoever started it.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).parents[2]


def run(arguments: Sequence[str], timeout: float) -> subprocess.CompletedProcess[str]:
    """What `subprocess.run(["towpath", *arguments])` gives. Raises `subprocess.TimeoutExpired` as that does."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err, socket.socket(socket.AF_UNIX) as asked:
        asked.connect(_forking())
        asked.settimeout(timeout)
        request = json.dumps({"arguments": list(arguments), "folder": str(Path.cwd()), "environment": dict(os.environ)})
        socket.send_fds(asked, [len(request.encode()).to_bytes(4, "big")], [out.fileno(), err.fileno()])
        asked.sendall(request.encode())
        with asked.makefile("r") as answers:
            try:
                status = int(answers.readline())
            except TimeoutError:
                raise subprocess.TimeoutExpired(["towpath", *arguments], timeout) from None
        return subprocess.CompletedProcess(["towpath", *arguments], status, _text(out), _text(err))


def _text(file: Any) -> str:
    file.seek(0)
    return str(file.read().decode())


@cache
def _forking() -> bytes:
    """The address of the process that forks, which is started for this one."""
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind("")  # an address of the kernel's choice, without a file
        listening.listen()
        command = [sys.executable, "-m", "tests.support.commands", str(listening.fileno())]
        running = subprocess.Popen(command, cwd=_ROOT, stdin=subprocess.PIPE, pass_fds=[listening.fileno()])
        atexit.register(running.kill)
        address: bytes = listening.getsockname()
        return address


def _serve(listening: socket.socket) -> dict[str, Any]:
    """Forks for every command that is asked for; returns in the fork, with what its command is."""
    while True:
        ready, _, _ = select.select([listening, sys.stdin], [], [])
        if sys.stdin in ready:  # closed, with the death of whoever started us
            os._exit(0)
        asked, _ = listening.accept()
        if not os.fork():
            listening.close()
            return _forked(asked)
        asked.close()


def _forked(asked: socket.socket) -> dict[str, Any]:
    length, given, _, _ = socket.recv_fds(asked, 4, 2)
    request: dict[str, Any] = json.loads(asked.recv(int.from_bytes(length, "big"), socket.MSG_WAITALL))
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    if pid := os.fork():
        over = os.pidfd_open(pid)
        if over not in select.select([over, asked], [], [])[0]:  # nothing waits any more for its end
            os.kill(pid, signal.SIGKILL)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        with suppress(BrokenPipeError):
            asked.sendall(f"{status}\n".encode())
        os._exit(0)
    asked.close()
    nothing = os.open(os.devnull, os.O_RDONLY)
    for file, to in zip((nothing, *given), (0, 1, 2), strict=True):
        os.dup2(file, to)
        os.close(file)
    return request


if __name__ == "__main__":
    import click

    from towpath.cli import main, towpath

    for name in towpath.list_commands(context := click.Context(towpath)):
        towpath.get_command(context, name)  # imports it
    gc.freeze()  # what is shared with the forks is not looked through, and so not copied
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nothing asks how its forks ended
    command = _serve(socket.socket(fileno=int(sys.argv[1])))
    os.chdir(command["folder"])
    os.environ.clear()
    os.environ.update(command["environment"])
    sys.argv = ["towpath", *command["arguments"]]
    __package__ = ""  # as in a program: usage lines name that, then
    main()
