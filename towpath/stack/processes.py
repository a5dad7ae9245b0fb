"""Local processes, identified by pid and creation time, so that a reused pid is never mistaken or killed; TCP ports."""

from __future__ import annotations

import dataclasses
import os
import random
import signal
import socket
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import psutil

from towpath.errors import StackError

HOST = "127.0.0.1"
Kind = Literal["mongod", "kafka", "connect", "prometheus"]
_DEFAULT = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE, signal.SIGXFSZ)
"""Signals that a child would otherwise ignore when this process does."""
_POLL_S = 0.05
_PASSED_ON = ("PATH", "HOME", "USER", "LOGNAME", "LANG", "TZ", "TMPDIR")
_PREFIXES = ("JAVA_", "LC_", "LD_")
PORTS = range(20_000, 32_768)  # below the ports that Linux hands out to outgoing connections
_SLACK_S = 1.0  # the kernel counts creation times in ticks since boot; a later process differs by more


@dataclass(frozen=True, slots=True)
class Process:
    """One process of a stack: how to start it and, once it is started, its pid and creation time (s since 1970).

    `log_from` is the size of its log in bytes when it was started, where the output of earlier runs ends.
    """

    name: str
    kind: Kind
    command: tuple[str, ...]
    port: int
    log: Path
    pid: int | None = None
    created: float | None = None
    log_from: int = 0

    @property
    def running(self) -> bool:
        """Whether exactly this process runs now."""
        return self.handle() is not None

    def handle(self) -> psutil.Process | None:
        """The running process; None if it ended, was never started, or its pid belongs to another one now."""
        if self.pid is None or self.created is None:
            return None
        with suppress(ChildProcessError):
            os.waitpid(self.pid, os.WNOHANG)  # reaps it if it is a child of ours
        try:
            process = psutil.Process(self.pid)
            same = abs(process.create_time() - self.created) < _SLACK_S
            return process if same and not _ended(process) else None
        except psutil.NoSuchProcess:
            return None

    def tail(self, lines: int = 20) -> str:
        """The last lines that this run wrote to its log, each cut to 400 characters."""
        try:
            with self.log.open("rb") as log:
                log.seek(max(self.log_from, self.log.stat().st_size - 200_000))
                last = log.read().decode(errors="replace").splitlines()[-lines:]
        except OSError:
            last = []
        return "\n".join(f"  {line[:400]}" for line in last)

    def death(self) -> StackError:
        """The error for a process that has ended, with the probable reason."""
        last = self.tail()
        if "address already in use" in self.tail(500).lower():
            return StackError(
                f"{self.name} could not listen on port {self.port}: it is in use; its log, {self.log}:\n{last}"
            )
        full = "; the disk is full" if "No space left on device" in last else ""
        return StackError(f"{self.name} (pid {self.pid}) ended{full}; the last lines of its log, {self.log}:\n{last}")


def spawn(process: Process) -> Process:
    """Start the process in its own session, with its output appended to its log; return it with pid and time."""
    try:
        with process.log.open("ab") as log, Path(os.devnull).open("rb") as nothing:
            actions = [(os.POSIX_SPAWN_DUP2, nothing.fileno(), 0)]
            actions += [(os.POSIX_SPAWN_DUP2, log.fileno(), to) for to in (1, 2)]
            words, begun = process.command, log.tell()
            pid = os.posix_spawn(
                words[0], words, _environment(), file_actions=actions, setsid=True, setsigmask=[], setsigdef=_DEFAULT
            )
    except OSError as error:
        raise StackError(f"cannot start {process.name} ({process.command[0]}): {error}") from error
    return dataclasses.replace(process, pid=pid, created=_created(pid), log_from=begun)


def _environment() -> dict[str, str]:
    """The variables that servers need. Others may hold passwords, and the environment of a process is readable."""
    return {name: value for name, value in os.environ.items() if name in _PASSED_ON or name.startswith(_PREFIXES)}


def _created(pid: int) -> float:
    try:
        return psutil.Process(pid).create_time()
    except psutil.NoSuchProcess:
        return time.time()


def adopted(process: Process) -> Process:
    """The process with the pid of a running one that has exactly its command.

    For a record without a pid: the command that started it ended before it recorded the pid.
    """
    if process.pid is not None:
        return process
    for other in psutil.process_iter(["cmdline"]):
        if other.info["cmdline"] == list(process.command):
            return dataclasses.replace(process, pid=other.pid, created=other.create_time())
    return process


def stop(processes: Iterable[Process], grace_s: float) -> list[str]:
    """End processes and their children: SIGTERM, after the grace SIGKILL. Returns the names of those that ran."""
    living = {process: handle for process in processes if (handle := process.handle()) is not None}
    children: list[psutil.Process] = []
    for handle in living.values():
        with suppress(psutil.NoSuchProcess):
            children += handle.children(recursive=True)
    for handle in living.values():
        with suppress(psutil.NoSuchProcess):
            handle.resume()  # a stopped process would not see the SIGTERM
            handle.terminate()
    await_end(living, grace_s)
    for handle in (*living.values(), *children):
        with suppress(psutil.NoSuchProcess):
            handle.kill()  # psutil checks the creation time first
    await_end(living, 10)
    return [process.name for process in living]


def await_end(processes: Collection[Process], timeout_s: float) -> bool:
    """Wait until none of the processes runs; False if one still does after the timeout."""
    deadline = time.monotonic() + timeout_s
    while any(process.running for process in processes):
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL_S)
    return True


def _ended(process: psutil.Process) -> bool:
    """Whether only a zombie is left; one with threads is still ending, and holds its ports and files."""
    return process.status() == psutil.STATUS_ZOMBIE and process.num_threads() <= 1


def ports_for(names: Sequence[str], first: int | None, known: Mapping[str, int]) -> dict[str, int]:
    """A port for every name: the known ones stay, others are counted up from `first`, or free ones if that is None."""
    missing = [name for name in names if name not in known]
    if first is None:
        return {**known, **dict(zip(missing, free_ports(len(missing)), strict=True))}
    if not 1024 <= first <= 65_536 - len(names):
        raise StackError(f"the stack cannot have {len(names)} ports from {first} on: between 1024 and 65535, please")
    return {name: first + place for place, name in enumerate(names)} | dict(known)


def free_ports(count: int) -> list[int]:
    """Ports on which no process listens. Each stays bound until all are chosen, so that no two are the same."""
    ports: list[int] = []
    with ExitStack() as bound:
        for port in random.sample(PORTS, len(PORTS)) if count else ():
            with suppress(OSError):
                bound.enter_context(socket.socket()).bind((HOST, port))
                ports.append(port)
            if len(ports) == count:
                break
    if len(ports) == count:
        return ports
    raise StackError(f"there are no {count} free ports between {PORTS.start} and {PORTS.stop - 1}")


def require_free_ports(ports: Mapping[str, int]) -> None:
    """Raise `StackError` for the first port that is in use; the message names the process that holds it."""
    for name, port in ports.items():
        if not _is_free(port):
            raise StackError(
                f"{name} needs port {port} of {HOST}, which is in use{_holder(port)}",
                "free it, or choose other ports (--port-base) and another folder",
            )


def accepts(port: int) -> bool:
    """Whether a process listens on the port."""
    with socket.socket() as client:
        client.settimeout(1)
        return client.connect_ex((HOST, port)) == 0


def _is_free(port: int) -> bool:
    with socket.socket() as candidate:
        candidate.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            candidate.bind((HOST, port))
            candidate.listen(1)
        except OSError:
            return False
    return True


def _holder(port: int) -> str:
    words = ""
    with suppress(psutil.Error):
        for sock in psutil.net_connections("tcp"):
            if sock.status == psutil.CONN_LISTEN and sock.pid and sock.laddr and sock.laddr.port == port:
                words = f" by pid {sock.pid} ({psutil.Process(sock.pid).name()})"
    return words
