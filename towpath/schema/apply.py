"""Run what `towpath/schema/plan.py` has planned at the destination, and report how far an index build has come."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from bson.json_util import RELAXED_JSON_OPTIONS, dumps
from pymongo import MongoClient
from pymongo.errors import OperationFailure, PyMongoError

from towpath.errors import TowpathError
from towpath.mongo.client import connected
from towpath.pipeline import Pipeline
from verifier.repair_commands import Command

_UNAUTHORISED, _NOT_UNIQUE = 13, 359  # CannotConvertIndexToUnique in MongoDB's error_codes.yml
_ROLE = "grant the role dbAdmin on its database, or the least that README names"
_SHOWN = 5
"""Values, and documents of each."""


@dataclass(frozen=True, slots=True)
class Step:
    """One command for the destination, and what it is about."""

    namespace: str
    command: Command

    @property
    def builds(self) -> tuple[str, ...]:
        """The names of the indexes that it builds."""
        return tuple(one["name"] for one in self.command.body.get("indexes", ()))

    @property
    def drops_index(self) -> bool:
        """Whether it makes room for an index that is built again, so that the two go together."""
        return "dropIndexes" in self.command.body

    @property
    def change(self) -> Mapping[str, Any]:
        """What it changes in place of an index, besides `name`; empty when it does something else."""
        found: Mapping[str, Any] = self.command.body.get("index", {}) if "collMod" in self.command.body else {}
        return found

    @property
    def converts(self) -> bool:
        """Whether it makes an index unique in place, or gets it ready for that."""
        return not {"unique", "prepareUnique"}.isdisjoint(self.change)

    @property
    def takes_time(self) -> bool:
        """Whether it reads documents, or a whole index."""
        return bool(self.builds) or "unique" in self.change

    @property
    def words(self) -> str:
        if self.builds:
            return f"build {', '.join(self.builds)} on {self.namespace}"
        if "unique" in self.change:
            return f"convert {self.change['name']} on {self.namespace} to unique: reads the index"
        if self.change:
            changes = ", ".join(f"{name} {dumps(value)}" for name, value in self.change.items() if name != "name")
            return f"change {self.change['name']} on {self.namespace}: {changes}"
        return f"{next(iter(self.command.body))} {self.namespace}"


def unannounced(step: Step) -> None:
    """Tells nobody."""


def untold(done: int, of: int, words: str) -> None:
    """Tells nobody."""


def run(
    pipeline: Pipeline, steps: Sequence[Step], begin: Callable[[Step], None] = unannounced, tell: Told = untold
) -> None:
    """Run these at the destination. `begin` is told of each step before it, `tell` how far building an index has come.

    Raises `TowpathError` with the command that the destination refuses, and `MongoUnreachable`; what was made stays,
    and running it again makes the rest. An index with duplicates stays as it was, and the others go on.
    """
    duplicates: list[str] = []
    with connected(pipeline.destination_uri, "destination") as client:
        for step in steps:
            begin(step)
            try:
                _one(client, step, tell)
            except OperationFailure as error:
                if error.code != _NOT_UNIQUE:
                    raise TowpathError(_refusal(step, error)) from error
                _take_back(client, step)
                duplicates.append(_duplicates(step, error))
    if duplicates:
        raise TowpathError("\n".join(duplicates))


def _one(client: MongoClient[dict[str, Any]], step: Step, tell: Told) -> None:
    if step.builds:
        build(client, step.command, tell)
    else:
        client[step.command.database].command(dict(step.command.body))


def _take_back(client: MongoClient[dict[str, Any]], step: Step) -> None:
    """Else the index would refuse what comes in."""
    change = {"name": step.change["name"], "prepareUnique": False}
    client[step.command.database].command({"collMod": step.command.body["collMod"], "index": change})


def _duplicates(step: Step, error: OperationFailure) -> str:
    found = [one["ids"] for one in (error.details or {}).get("violations", ())]
    shown = "; ".join(_ids(ids) for ids in found[:_SHOWN])
    more = f"; and {len(found) - _SHOWN:,} values more" if len(found) > _SHOWN else ""
    return (
        f"the index {step.change['name']} of {step.namespace} cannot be unique at the destination, and is as it was:"
        f" documents with one value in it have the _ids {shown}{more}. `towpath verify` tells whether they are so"
        " at the source, `towpath repair` mends those that are not; change or delete the others, then run this again"
    )


def _ids(ids: Sequence[Any]) -> str:
    shown = ", ".join(dumps(one, json_options=RELAXED_JSON_OPTIONS, ensure_ascii=False) for one in ids[:_SHOWN])
    return shown + (f" and {len(ids) - _SHOWN:,} more" if len(ids) > _SHOWN else "")


def _refusal(step: Step, error: OperationFailure) -> str:
    words = (error.details or {}).get("errmsg", str(error))
    advice = f"; {_ROLE}" if error.code == _UNAUTHORISED else ""
    return f"the destination refuses to {step.words}: {words}{advice} ([destination] uri). It was: {step.command.text}"


#: Done, of how many, and words.
Told = Callable[[int, int, str], None]


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
