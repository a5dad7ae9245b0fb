"""One command of a kind for a pipeline on a machine."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path

from towpath import state_files
from towpath.errors import TowpathError
from towpath.session import Say
from verifier import Options

#: Held by `verify --follow`.
FOLLOW = "follow"


def lock(name: str, verb: str) -> Path:
    """The lock file of a pipeline's command."""
    return state_files.folder(name) / f"{verb}.lock"


@contextmanager
def alone(name: str, verb: str, words: str = "") -> Iterator[None]:
    """Raises `TowpathError` where another `towpath VERB` of the pipeline is at work on this machine.

    `words`: the command, where the verb alone does not say it.
    """
    with state_files.locked(lock(name, verb)) as holder:
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
def journaled(name: str, options: Options, say: Say) -> Iterator[Options]:
    """With the journal, which is of one verification at a time: others do without, and cannot be resumed.

    Raises `TowpathError` where the run that is to be resumed is at work.
    """
    with state_files.locked(lock(name, "verify")) as holder:
        if holder and options.resume:
            raise TowpathError(
                f"another `towpath verify` of {name} is at work here ({holder}), and the journal is of its run: there"
                " is none to go on with until it ends"
            )
        if holder:
            say(f"another `towpath verify` of {name} is at work here ({holder}): this run keeps no journal to --resume")
        yield options if holder else replace(options, journal=state_files.folder(name) / "verify.journal")
