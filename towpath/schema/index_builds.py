"""Build indexes, and tell how far the server has come with it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any

from pymongo import MongoClient
from pymongo.errors import OperationFailure, PyMongoError

from verifier.commands import Command

#: Done, of how many, and words.
Told = Callable[[int, int, str], None]


def untold(done: int, of: int, words: str) -> None:
    """Tells nobody."""


_PAUSE = 0.5  # seconds between two looks


def build(client: MongoClient[dict[str, Any]], command: Command, tell: Told) -> None:
    """Run one `createIndexes` to its end. Raises what PyMongo raises when the server refuses it."""
    ended: Future[object] = Future()

    def run() -> None:
        try:
            ended.set_result(client[command.database].command(dict(command.body)))
        except PyMongoError as error:
            ended.set_exception(error)

    threading.Thread(target=run, name="createIndexes", daemon=True).start()
    while True:
        try:
            ended.result(_PAUSE)
            return
        except TimeoutError:
            _look(client, command, tell)


def _look(client: MongoClient[dict[str, Any]], command: Command, tell: Told) -> None:
    """A user without the privilege `inprog` learns that it builds, but not how far it is."""
    name = command.body["createIndexes"]
    match = {"command.createIndexes": name, "command.$db": command.database, "progress": {"$exists": True}}
    try:
        found = list(client.admin.aggregate([{"$currentOp": {"allUsers": True}}, {"$match": match}]))
    except OperationFailure:
        found = []
    progress: Mapping[str, Any] = found[0]["progress"] if found else {}
    words = f"indexes of {command.database}.{name}"
    tell(int(progress.get("done", 0)), int(progress.get("total", 0)), words)
