"""Files about a pipeline on this machine: written atomically, and locked."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TextIO

import platformdirs

from towpath.errors import TowpathError
from towpath.files import file_errors, replacing
from towpath_verifier import Options

#: The lock of `verify --follow`.
FOLLOW = "follow"


def folder(pipeline: str) -> Path:
    """The folder of a pipeline's state on this machine, which only its owner can read. Raises `TowpathError`."""
    place = platformdirs.user_state_path("towpath") / pipeline
    with _file_errors(place):
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        place.chmod(0o700)
    return place


@dataclass(frozen=True, slots=True)
class Writing:
    """A file that is being written. Raises `TowpathError` on failure."""

    place: Path
    _file: TextIO

    def write(self, text: str) -> None:
        with _file_errors(self.place):
            self._file.write(text)


@contextmanager
def writing(place: Path, turn: AbstractContextManager[object] | None = None) -> Iterator[Writing]:
    """As `replacing`, but raises `TowpathError` when the file cannot be written."""
    with replacing(place, turn, guard=partial(_file_errors, place)) as file:
        yield Writing(place, file)


@contextmanager
def locked(place: Path, *, wait: bool = False) -> Iterator[str]:
    """Lock the file `place`. Yields an empty text, or its present holder if the lock is not free.

    With `wait`, waits until it is free.
    """
    with _file_errors(place):
        file = place.open("a+", encoding="utf-8")
        place.chmod(0o600)
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield _holder(file)
            return
        with _file_errors(place):
            file.truncate(0)
            file.write(f"{os.getpid()}, since {datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC")
            file.flush()
        yield ""


def holder(place: Path) -> str:
    """The holder of a lock file; empty when no process holds it."""
    if not place.exists():
        return ""
    with _file_errors(place), place.open(encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return _holder(file)
    return ""


def _holder(file: TextIO) -> str:
    file.seek(0)
    return f"pid {file.read().strip() or 'unknown'}"


def _file_errors(place: Path) -> AbstractContextManager[None]:
    return file_errors(f"keep {place}", "make room there, or name another folder with XDG_STATE_HOME")


def lock(name: str, command: str) -> Path:
    """The lock file of a pipeline's command."""
    return folder(name) / f"{command}.lock"


@contextmanager
def alone(name: str, command: str, words: str = "") -> Iterator[None]:
    """Raises `TowpathError` while another `towpath COMMAND` of the pipeline runs on this machine.

    `words`: the command, if it has options.
    """
    with locked(lock(name, command)) as holder:
        if holder:
            raise TowpathError(
                f"another `towpath {words or command}` of {name} runs here ({holder}); one is enough: `towpath status`"
                " shows the state of the pipeline",
                f"if that is another pipeline, whose name is also {name}, run this one with another XDG_STATE_HOME",
            )
        yield


@contextmanager
def journaled(name: str, options: Options, say: Callable[[str], None]) -> Iterator[Options]:
    """The options with the journal, which one verification at a time can use; others have none and cannot be resumed.

    Raises `TowpathError` when the run to resume is still running.
    """
    with locked(lock(name, "verify")) as holder:
        if holder and options.resume:
            raise TowpathError(
                f"another `towpath verify` of {name} runs here ({holder}) and uses the journal: no run can be resumed"
                " until it ends"
            )
        if holder:
            say(f"another `towpath verify` of {name} runs here ({holder}): this run keeps no journal to --resume")
        yield options if holder else replace(options, journal=folder(name) / "verify.journal")
