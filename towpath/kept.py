"""Files that are kept on this machine about a pipeline, and what is said when they cannot be written."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

import platformdirs

from towpath.errors import TowpathError


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
def writing(place: Path) -> Iterator[Writing]:
    """A file that takes the place of `place` once everything is written to it; only its owner can read it.

    Whatever goes wrong, what was there before is whole. Raises `TowpathError` when it cannot be written.
    """
    new = place.with_name(f".{place.name}.new")
    with told(place):
        new.unlink(missing_ok=True)
        new.touch(mode=0o600)
        file = new.open("w")
    try:
        try:
            yield Writing(place, file)
        finally:
            with told(place):
                file.close()
        with told(place):
            new.replace(place)
    finally:
        new.unlink(missing_ok=True)


@contextmanager
def told(place: Path) -> Iterator[None]:
    """What goes wrong with a file, as a `TowpathError`."""
    try:
        yield
    except OSError as error:
        raise TowpathError(
            f"cannot keep {place}: {error.strerror}; make room there, or name another folder with XDG_STATE_HOME"
        ) from error
