"""What broker and workers complain of in their logs, and how full the mongods are, shown with a test that fails."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pymongo.errors import PyMongoError

from towpath.stack import Process, Stack, ready

_LATEST = 300_000
_MOST_LINES = 30
_MOST_CALLS = 3  # of a stack trace
_LEVELS = ("ERROR", "WARN", "FATAL")


def complaints(stack: Stack) -> Iterator[tuple[str, str]]:
    """A process's name and what is shown of it.

    Of Kafka and Connect, the newest warnings and errors with the top of stack traces; of MongoDB, one line of numbers.
    """
    for name, process in stack.processes.items():
        if process.kind == "mongod":
            yield name, _asked(process)
        elif name.startswith(("kafka", "connect")) and (said := _newest(process.log)):
            yield name, said


def _asked(process: Process) -> str:
    if not process.running:
        return "it does not run"
    try:
        with ready.direct(process.port) as client:
            return load(client.admin.command("serverStatus"))
    except PyMongoError as error:
        return f"serverStatus: {error}"


def load(status: Mapping[str, Any]) -> str:
    """The line of one mongod, from its `serverStatus`."""
    cache, transactions = status["wiredTiger"]["cache"], status["transactions"]
    percent = {
        words: 100 * cache[key] / cache["maximum bytes configured"]
        for words, key in (
            ("used", "bytes currently in the cache"),
            ("dirty", "tracked dirty bytes in the cache"),
            ("updates", "bytes allocated for updates"),
        )
    }
    filled = ", ".join(f"{value:.1f} % {words}" for words, value in percent.items())
    states = ", ".join(f"{transactions[f'current{state}']} {state.lower()}" for state in ("Active", "Prepared"))
    conflicts = status["metrics"]["operation"]["writeConflicts"]
    return f"cache: {filled}; open transactions: {transactions['currentOpen']} ({states}); write conflicts: {conflicts}"


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
