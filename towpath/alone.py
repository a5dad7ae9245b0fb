"""One command of a kind for a pipeline on a machine."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from towpath import kept
from towpath.errors import TowpathError

#: Held by `verify --follow`.
FOLLOW = "follow"


def lock(name: str, verb: str) -> Path:
    """The lock file of a pipeline's command."""
    return kept.folder(name) / f"{verb}.lock"


@contextmanager
def alone(name: str, verb: str, words: str = "") -> Iterator[None]:
    """Raises `TowpathError` where another `towpath VERB` of the pipeline is at work on this machine.

    `words`: the command, where the verb alone does not say it.
    """
    with kept.locked(lock(name, verb)) as holder:
        if holder:
            raise TowpathError(
                f"another `towpath {words or verb}` of {name} is at work here ({holder}); one is enough:"
                " `towpath status` shows how the pipeline does"
            )
        yield
