"""The record of a stack, a JSON file in its folder; and the TCP ports on 127.0.0.1 that it uses."""

from __future__ import annotations

import fcntl
import json
import os
import random
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psutil

from towpath.stack.errors import FolderUnusable, NoStack, PortInUse, StackError
from towpath.stack.processes import Process
from towpath.store.atomic_file import replacing

FILE = "stack.json"
_FORMAT = 1


@dataclass(frozen=True, slots=True)
class State:
    """Settings (options and ports) and every process, in the order in which they start."""

    settings: Mapping[str, Any]
    processes: Mapping[str, Process]

    def with_process(self, process: Process) -> State:
        return State(self.settings, {**self.processes, process.name: process})

    def process(self, name: str) -> Process:
        """One process. Raises `StackError` when there is none of that name."""
        try:
            return self.processes[name]
        except KeyError:
            raise StackError(f"the stack has no process {name!r}; it has {', '.join(self.processes)}") from None


def read(directory: Path) -> State:
    """The record in the folder. Raises `NoStack` without one, `StackError` for a damaged one."""
    file = directory / FILE
    try:
        record = json.loads(file.read_text(encoding="utf-8"))
        if record["format"] != _FORMAT:
            raise StackError(f"{file} has format {record['format']}; this version of Towpath reads {_FORMAT}")
        return State(record["settings"], {name: _process(name, it) for name, it in record["processes"].items()})
    except (FileNotFoundError, NotADirectoryError):
        raise NoStack(f"there is no stack in {directory}; `towpath stack up --dir {directory}` starts one") from None
    except OSError as error:
        raise FolderUnusable(f"cannot read {file}: {error.strerror}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise StackError(f"{file} is damaged: {error!r}; end what still runs by hand and remove the folder") from error


def read_if_any(directory: Path) -> State | None:
    """The record in the folder; None without one."""
    try:
        return read(directory)
    except NoStack:
        return None


def write(directory: Path, state: State) -> None:
    """Replace the record atomically."""
    processes = {name: _fields(process) for name, process in state.processes.items()}
    text = json.dumps({"format": _FORMAT, "settings": state.settings, "processes": processes}, indent=1)
    try:
        with replacing(directory / FILE) as file:
            file.write(text)
    except OSError as error:
        raise FolderUnusable(f"cannot write {directory / FILE}: {error.strerror}") from error


def prepare(directory: Path, *folders: str) -> None:
    """Create the folder, and folders in it, that only this user may read. Raises `FolderUnusable`."""
    try:
        for place in (directory, *(directory / folder for folder in folders)):
            place.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise FolderUnusable(f"cannot create {directory}: {error.strerror}; name another folder") from error
    if not os.access(directory, os.W_OK | os.X_OK):
        raise FolderUnusable(f"cannot write to {directory}: permission denied; name another folder")


@contextmanager
def held(directory: Path, progress: Callable[[str], None]) -> Iterator[None]:
    """Lock the stack in this folder against other commands that change it; wait for one that holds the lock."""
    try:
        lock = (directory / "lock").open("w", encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        raise NoStack(f"there is no stack in {directory}") from None
    except OSError as error:
        raise FolderUnusable(f"cannot write to {directory}: {error.strerror}") from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            progress(f"waiting for another command that is starting or stopping the stack in {directory}")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _process(name: str, fields: Mapping[str, Any]) -> Process:
    return Process(name, **{**fields, "command": tuple(fields["command"]), "log": Path(fields["log"])})


def _fields(process: Process) -> dict[str, Any]:
    return {name: value for name, value in asdict(process).items() if name != "name"} | {"log": str(process.log)}


HOST = "127.0.0.1"
_RANGE = range(20_000, 32_768)  # below the ports that Linux hands out to outgoing connections


def choose_ports(names: Sequence[str], first: int | None) -> dict[str, int]:
    """A port for every name: counted up from `first`, or free ones when that is None."""
    if first is None:
        return dict(zip(names, free_ports(len(names)), strict=True))
    if not 1024 <= first <= 65_536 - len(names):
        raise StackError(f"the stack cannot have {len(names)} ports from {first} on: between 1024 and 65535, please")
    return {name: first + place for place, name in enumerate(names)}


def complete_ports(known: Mapping[str, int], names: Sequence[str], first: int | None) -> dict[str, int]:
    """The `known` ports, and ports for the other names as `choose_ports` chooses them."""
    missing = [name for name in names if name not in known]
    fresh = choose_ports(missing, None) if first is None else choose_ports(names, first)
    return {**known, **{name: fresh[name] for name in missing}}


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on. Each stays bound until all are chosen, so that no two are the same."""
    ports: list[int] = []
    with ExitStack() as bound:
        for port in random.sample(_RANGE, len(_RANGE)) if count else ():
            with suppress(OSError):
                bound.enter_context(socket.socket()).bind((HOST, port))
                ports.append(port)
            if len(ports) == count:
                break
    if len(ports) == count:
        return ports
    raise StackError(f"there are no {count} free ports between {_RANGE.start} and {_RANGE.stop - 1}")


def require_free_ports(ports: Mapping[str, int]) -> None:
    """Raise `PortInUse` for the first port that is in use; the message names the process that holds it."""
    for name, port in ports.items():
        if not _is_free(port):
            raise PortInUse(
                f"{name} needs port {port} of {HOST}, which is in use{_holder(port)}; free it, or choose "
                "other ports (--port-base) and another folder"
            )


def accepts(port: int) -> bool:
    """Whether somebody listens on the port."""
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
    try:
        listening = [sock for sock in psutil.net_connections("tcp") if sock.status == psutil.CONN_LISTEN]
    except psutil.AccessDenied:
        return ""
    pids = {sock.pid for sock in listening if sock.laddr and sock.laddr.port == port and sock.pid is not None}
    return "".join(f" by pid {pid} ({_name(pid)})" for pid in sorted(pids))


def _name(pid: int) -> str:
    try:
        return psutil.Process(pid).name()
    except psutil.Error:
        return "ended"
