"""Files: the one way to replace a text file, and where the files are that Towpath ships next to its modules."""

from __future__ import annotations

import fcntl
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TextIO

from towpath.errors import TowpathError

_NEW = ".new"
_STALE = 60.0  # seconds after which a temporary file that no writer locks is removed


@contextmanager
def file_errors(attempt: str, advice: str = "", kind: type[TowpathError] = TowpathError) -> Iterator[None]:
    """Turns an `OSError` about a file into an error that says what was attempted, and what to do."""
    try:
        yield
    except OSError as error:
        raise kind(f"cannot {attempt}: {error.strerror}", advice) from error


def sync_folder(place: Path) -> None:
    """What was created or renamed in this folder is on the disk when this returns. Raises `OSError`."""
    number = os.open(place, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


def shipped(name: str) -> Path:
    """The folder `connectors` or `transforms`: in the package where it is installed, at the root of a checkout."""
    package = Path(__file__).parent
    installed = package / name
    return installed if installed.exists() else package.parent / name


@contextmanager
def replacing(
    place: Path,
    turn: AbstractContextManager[object] | None = None,
    *,
    guard: Callable[[], AbstractContextManager[object]] = nullcontext,
    errors: str = "strict",
) -> Iterator[TextIO]:
    """A new UTF-8 file that replaces `place` at the end of the `with`; only its owner can read it.

    `turn` is entered while it is replaced. With several writers the last one to end wins. On any failure the old file
    stays whole. `errors` is that of `open`. Raises `OSError`; `guard` is entered wherever that may come from here, not
    from the body.
    """
    with guard():
        _sweep(place)
        number, name = tempfile.mkstemp(prefix=f".{place.name}.", suffix=_NEW, dir=place.parent)  # with mode 0600
    new, file = Path(name), os.fdopen(number, "w", encoding="utf-8", errors=errors)
    try:
        fcntl.flock(file, fcntl.LOCK_EX)  # so that no other writer removes it
        yield file
        with guard():
            file.flush()
            os.fsync(file.fileno())
            with turn or nullcontext():
                new.replace(place)
            sync_folder(place.parent)
    finally:
        new.unlink(missing_ok=True)
        with suppress(OSError):  # a failed flush was reported
            file.close()


def publish(place: Path, text: str) -> None:
    """Replace a page; write to a pipe or device as it is. Raises `OSError`."""
    target, errors = place.resolve(), "backslashreplace"
    if (target.exists() and not target.is_file()) or not os.access(target.parent, os.W_OK):
        place.write_text(text, encoding="utf-8", errors=errors)
        return
    with replacing(target, errors=errors) as file:
        file.write(text)


def _sweep(place: Path) -> None:
    """Remove the temporary files of writers of this file that were killed."""
    for leftover in place.parent.glob(f".{place.name}.*{_NEW}"):
        with suppress(OSError), leftover.open("rb+") as file:
            if time.time() - leftover.stat().st_mtime > _STALE:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                leftover.unlink(missing_ok=True)
