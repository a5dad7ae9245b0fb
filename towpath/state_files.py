"""Files that are kept on this machine about a pipeline: written whole, locked, and what is said when that cannot be."""

from __future__ import annotations

import fcntl
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TextIO

import platformdirs

from towpath.errors import TowpathError
from verifier import Options

_NEW = ".new"
_LEFT = 60.0  # seconds after which a file that nobody holds is taken for left behind


def folder(pipeline: str) -> Path:
    """Where a pipeline's state is kept on this machine; nobody else may look into it. Raises `TowpathError`."""
    place = platformdirs.user_state_path("towpath") / pipeline
    with told(place):
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        place.chmod(0o700)
    return place


@dataclass(frozen=True, slots=True)
class Writing:
    """A file that is being written. Raises `TowpathError` when it cannot be."""

    place: Path
    _file: TextIO

    def write(self, text: str) -> None:
        with told(self.place):
            self._file.write(text)


@contextmanager
def writing(place: Path, turn: AbstractContextManager[object] | None = None) -> Iterator[Writing]:
    """A file that takes the place of `place` once everything is written to it; only its owner can read it.

    It does so inside of `turn`. Several may write at once: the last to end counts. Whatever goes wrong, what was there
    before is whole. Raises `TowpathError` when it cannot be written.
    """
    with told(place):
        _sweep(place)
        number, name = tempfile.mkstemp(prefix=f".{place.name}.", suffix=_NEW, dir=place.parent)
        file = os.fdopen(number, "w")
        fcntl.flock(file, fcntl.LOCK_EX)  # so that nobody takes it for left behind
    new = Path(name)
    try:
        yield Writing(place, file)
        with told(place):
            file.flush()
            with turn or nullcontext():
                new.replace(place)
    finally:
        new.unlink(missing_ok=True)
        with suppress(OSError):  # what could not be flushed was told
            file.close()


def publish(place: Path, text: str) -> None:
    """Write a page for others, who find it whole at every moment. Raises `OSError`."""
    target = place.resolve()
    if (target.exists() and not target.is_file()) or not os.access(target.parent, os.W_OK):  # a pipe, for one
        place.write_text(text, encoding="utf-8", errors="backslashreplace")
        return
    new = target.with_name(f".{target.name}.{os.getpid()}{_NEW}")
    try:
        new.write_text(text, encoding="utf-8", errors="backslashreplace")
        new.replace(target)
    finally:
        new.unlink(missing_ok=True)


def _sweep(place: Path) -> None:
    """Remove what writers of this file have left that were killed."""
    for left in place.parent.glob(f".{place.name}.*{_NEW}"):
        with suppress(OSError), left.open("r+") as file:
            if time.time() - left.stat().st_mtime > _LEFT:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                left.unlink(missing_ok=True)


@contextmanager
def locked(place: Path, *, wait: bool = False) -> Iterator[str]:
    """Hold the lock file `place`: empty text while it is ours; else who holds it, and nothing is held.

    With `wait` it is ours in the end.
    """
    with told(place):
        file = place.open("a+")
        place.chmod(0o600)
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield _holder(file)
            return
        with told(place):
            file.truncate(0)
            file.write(f"{os.getpid()}, since {datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC")
            file.flush()
        yield ""


def holder(place: Path) -> str:
    """Who holds a lock file; empty when nobody does."""
    if not place.exists():
        return ""
    with told(place), place.open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return _holder(file)
    return ""


def _holder(file: TextIO) -> str:
    file.seek(0)
    return f"pid {file.read().strip() or 'unknown'}"


@contextmanager
def told(place: Path) -> Iterator[None]:
    """What goes wrong with a file, as a `TowpathError`."""
    try:
        yield
    except OSError as error:
        raise TowpathError(
            f"cannot keep {place}: {error.strerror}; make room there, or name another folder with XDG_STATE_HOME"
        ) from error


#: Held by `verify --follow`.
FOLLOW = "follow"


def lock(name: str, verb: str) -> Path:
    """The lock file of a pipeline's command."""
    return folder(name) / f"{verb}.lock"


@contextmanager
def alone(name: str, verb: str, words: str = "") -> Iterator[None]:
    """Raises `TowpathError` where another `towpath VERB` of the pipeline is at work on this machine.

    `words`: the command, where the verb alone does not say it.
    """
    with locked(lock(name, verb)) as holder:
        if holder:
            raise TowpathError(
                f"another `towpath {words or verb}` of {name} is at work here ({holder}); one is enough:"
                " `towpath status` shows how the pipeline does"
            )
        yield


def following_alone(name: str) -> AbstractContextManager[None]:
    """As `alone`, for `verify --follow`."""
    return alone(name, FOLLOW, "verify --follow")


@contextmanager
def journaled(name: str, options: Options, say: Callable[[str], None]) -> Iterator[Options]:
    """With the journal, which is of one verification at a time: others do without, and cannot be resumed.

    Raises `TowpathError` where the run that is to be resumed is at work.
    """
    with locked(lock(name, "verify")) as holder:
        if holder and options.resume:
            raise TowpathError(
                f"another `towpath verify` of {name} is at work here ({holder}), and the journal is of its run: there"
                " is none to go on with until it ends"
            )
        if holder:
            say(f"another `towpath verify` of {name} is at work here ({holder}): this run keeps no journal to --resume")
        yield options if holder else replace(options, journal=folder(name) / "verify.journal")
