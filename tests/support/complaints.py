"""What broker and workers complain of in their logs, shown with a test that fails: the logs go with the stack."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from towpath.stack import Stack

_LATEST = 300_000
_MOST_LINES = 30
_MOST_CALLS = 3  # of a stack trace
_LEVELS = ("ERROR", "WARN", "FATAL")


def complaints(stack: Stack) -> Iterator[tuple[str, str]]:
    """The process's name and its newest warnings and errors, with the top of stack traces; nothing for MongoDB's."""
    for name, process in stack.processes.items():
        if name.startswith(("kafka", "connect")) and (said := _newest(process.log)):
            yield name, said


def _newest(log: Path) -> str:
    with log.open("rb") as file:
        file.seek(max(0, file.seek(0, 2) - _LATEST))
        lines = file.read().decode(errors="replace").splitlines()
    kept, keeps, calls = [], False, 0
    for line in lines:
        if line.startswith("["):
            keeps = line.partition("] ")[2].startswith(_LEVELS)
        calls = calls + 1 if line.startswith("\tat ") else 0
        if keeps and calls <= _MOST_CALLS:
            kept.append(line)
    return "\n".join(kept[-_MOST_LINES:])
