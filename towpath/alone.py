"""One command of a kind for a pipeline on a machine."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager

from towpath import kept
from towpath.errors import TowpathError


@contextmanager
def alone(name: str, verb: str) -> Iterator[None]:
    """Raises `TowpathError` where another `towpath VERB` of the pipeline is at work on this machine."""
    place = kept.folder(name) / f"{verb}.lock"
    with kept.told(place):
        file = place.open("a+")
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            file.seek(0)
            raise TowpathError(
                f"another `towpath {verb}` of {name} is at work here (pid {file.read().strip()}); one is enough:"
                " `towpath status` shows how the pipeline does"
            ) from error
        with kept.told(place):
            file.truncate(0)
            file.write(str(os.getpid()))
            file.flush()
        yield
