"""What is written down about a stack: one JSON file in its folder, replaced as a whole."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from towpath.stack.errors import FolderUnusable, NoStack, StackError
from towpath.stack.processes import Process

FILE = "stack.json"
_FORMAT = 1


@dataclass(frozen=True, slots=True)
class State:
    """Settings (what was asked for, and the ports) and every process, in the order in which they start."""

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
    """What is written down in the folder. Raises `NoStack` when nothing is, `StackError` when it is damaged."""
    file = directory / FILE
    try:
        found = json.loads(file.read_text())
        if found["format"] != _FORMAT:
            raise StackError(f"{file} has format {found['format']}; this version of Towpath reads {_FORMAT}")
        return State(found["settings"], {name: _process(name, it) for name, it in found["processes"].items()})
    except (FileNotFoundError, NotADirectoryError):
        raise NoStack(f"there is no stack in {directory}; `towpath stack up --dir {directory}` starts one") from None
    except OSError as error:
        raise FolderUnusable(f"cannot read {file}: {error.strerror}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise StackError(f"{file} is damaged: {error!r}; end what still runs by hand and remove the folder") from error


def read_if_any(directory: Path) -> State | None:
    """What is written down in the folder; None when nothing is."""
    try:
        return read(directory)
    except NoStack:
        return None


def write(directory: Path, state: State) -> None:
    """Replace what is written down, all or nothing."""
    text = json.dumps(
        {
            "format": _FORMAT,
            "settings": state.settings,
            "processes": {name: _written(process) for name, process in state.processes.items()},
        },
        indent=1,
    )
    fresh = directory / f"{FILE}.new"
    try:
        with fresh.open("w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(directory / FILE)
    except OSError as error:
        raise FolderUnusable(f"cannot write {directory / FILE}: {error.strerror}") from error


def prepare(directory: Path, *folders: str) -> None:
    """Create the folder, and folders in it that only this user may read. Raises `FolderUnusable`."""
    try:
        for place in (directory, *(directory / folder for folder in folders)):
            place.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise FolderUnusable(f"cannot create {directory}: {error.strerror}; name another folder") from error
    if not os.access(directory, os.W_OK | os.X_OK):
        raise FolderUnusable(f"cannot write to {directory}: permission denied; name another folder")


@contextmanager
def held(directory: Path, progress: Callable[[str], None]) -> Iterator[None]:
    """Keep other commands from changing the stack in this folder meanwhile; wait for one that is at it."""
    try:
        lock = (directory / "lock").open("w")
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


def _process(name: str, it: Mapping[str, Any]) -> Process:
    command, log = tuple(it["command"]), Path(it["log"])
    return Process(name, it["kind"], command, it["port"], log, it["pid"], it["created"], it["log_from"])


def _written(process: Process) -> dict[str, Any]:
    return {
        "kind": process.kind,
        "pid": process.pid,
        "created": process.created,
        "port": process.port,
        "log": str(process.log),
        "log_from": process.log_from,
        "command": process.command,
    }
