"""Run the steps of a plan (`towpath/deploy/schema/plan.py`) at the destination; report the progress of index builds."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from bson.json_util import RELAXED_JSON_OPTIONS, dumps
from pymongo.errors import OperationFailure, PyMongoError

from towpath.clients.mongo.client import Client, Cluster
from towpath.errors import TowpathError
from towpath_verifier import Command

_UNAUTHORISED, _NOT_UNIQUE = 13, 359  # CannotConvertIndexToUnique in MongoDB's error_codes.yml
_ROLE = "grant the role dbAdmin on its database, or the privileges in docs/how-to/secure.md"
_SHOWN = 5  # duplicate values in a message, and documents with each value
_POLL_S = 0.5

#: Called with (done, total, description of the work).
Progress = Callable[[int, int, str], None]


@dataclass(frozen=True, slots=True)
class Step:
    """One command for a namespace of the destination."""

    namespace: str
    command: Command

    @property
    def builds(self) -> tuple[str, ...]:
        """The names of the indexes that it builds."""
        return tuple(index["name"] for index in self.command.body.get("indexes", ()))

    @property
    def drops_index(self) -> bool:
        """Whether it drops an index, which another step builds again."""
        return "dropIndexes" in self.command.body

    @property
    def change(self) -> Mapping[str, Any]:
        """`name` of an index and the options of it that `collMod` changes in place; empty for other commands."""
        index: Mapping[str, Any] = self.command.body.get("index", {}) if "collMod" in self.command.body else {}
        return index

    @property
    def converts(self) -> bool:
        """Whether it makes an index unique in place, or prepares that."""
        return not {"unique", "prepareUnique"}.isdisjoint(self.change)

    @property
    def takes_time(self) -> bool:
        """Whether it reads all documents or a whole index."""
        return bool(self.builds) or "unique" in self.change

    @property
    def description(self) -> str:
        if self.builds:
            return f"build {', '.join(self.builds)} on {self.namespace}"
        if "unique" in self.change:
            return f"convert {self.change['name']} on {self.namespace} to unique: reads the index"
        if self.change:
            changes = ", ".join(f"{name} {dumps(value)}" for name, value in self.change.items() if name != "name")
            return f"change {self.change['name']} on {self.namespace}: {changes}"
        return f"{next(iter(self.command.body))} {self.namespace}"


def run(
    destination: Cluster,
    steps: Sequence[Step],
    on_step: Callable[[Step], None] = lambda step: None,
    on_progress: Progress = lambda done, total, description: None,
) -> None:
    """Run these steps at the destination. `on_step` is called before each, `on_progress` during index builds.

    Raises `MongoError`, and `TowpathError` with the command that the destination refuses. Steps that are done
    stay done; a new plan has the rest. An index with duplicates stays as it was, and the other steps still run.
    """
    duplicates: list[str] = []
    with destination.connected() as client:
        for step in steps:
            on_step(step)
            try:
                if step.builds:
                    build(client, step.command, on_progress)
                else:
                    client[step.command.database].command(dict(step.command.body))
            except OperationFailure as error:
                if error.code != _NOT_UNIQUE:
                    raise TowpathError(_failure(step, error)) from error
                _unprepare(client, step)
                duplicates.append(_duplicates(step, error))
    if duplicates:
        raise TowpathError("\n".join(duplicates))


def _unprepare(client: Client, step: Step) -> None:
    """Undo `prepareUnique`, with which the index would refuse new duplicates."""
    change = {"name": step.change["name"], "prepareUnique": False}
    client[step.command.database].command({"collMod": step.command.body["collMod"], "index": change})


def _duplicates(step: Step, error: OperationFailure) -> str:
    duplicates = [violation["ids"] for violation in (error.details or {}).get("violations", ())]
    listed = "; ".join(_ids(ids) for ids in duplicates[:_SHOWN])
    more = f"; and {len(duplicates) - _SHOWN:,} more values" if len(duplicates) > _SHOWN else ""
    return (
        f"the index {step.change['name']} of {step.namespace} cannot be unique at the destination, and is as it was:"
        f" the documents with these _ids have the same value: {listed}{more}. `towpath verify` shows whether they are"
        " the same at the source, and `towpath repair` repairs those that are not; change or delete the others, then"
        " run this again"
    )


def _ids(ids: Sequence[Any]) -> str:
    listed = ", ".join(dumps(id, json_options=RELAXED_JSON_OPTIONS, ensure_ascii=False) for id in ids[:_SHOWN])
    return listed + (f" and {len(ids) - _SHOWN:,} more" if len(ids) > _SHOWN else "")


def _failure(step: Step, error: OperationFailure) -> str:
    message = (error.details or {}).get("errmsg", str(error))
    advice = f"; {_ROLE}" if error.code == _UNAUTHORISED else ""
    return (
        f"the destination refuses to {step.description}: {message}{advice} ([destination] uri). The command was:"
        f" {step.command.text}"
    )


def build(client: Client, command: Command, on_progress: Progress) -> None:
    """Run one `createIndexes` to its end. Raises `PyMongoError` when the server refuses it."""
    ended: Future[object] = Future()

    def run() -> None:
        try:
            ended.set_result(client[command.database].command(dict(command.body)))
        except PyMongoError as error:
            ended.set_exception(error)

    threading.Thread(target=run, name="createIndexes", daemon=True).start()
    while True:
        try:
            ended.result(_POLL_S)
            return
        except TimeoutError:
            _report_progress(client, command, on_progress)


def _report_progress(client: Client, command: Command, on_progress: Progress) -> None:
    name = command.body["createIndexes"]
    done, total = build_progress(client, command.database, name)
    on_progress(done, total, f"indexes of {command.database}.{name}")


def build_progress(client: Client, database: str, name: str) -> tuple[int, int]:
    """How much of the index build on a collection is done, and of how much: 0 of 0 where the server does not say.

    Without the privilege `inprog`, only builds of the same user are known.
    """
    match = {"command.createIndexes": name, "command.$db": database, "progress": {"$exists": True}}
    for scope in ({"allUsers": True}, {}):
        operations = {**scope, "idleConnections": True}  # a build that waits counts as idle
        try:
            builds = list(client.admin.aggregate([{"$currentOp": operations}, {"$match": match}]))
        except OperationFailure:
            continue
        progress: Mapping[str, Any] = builds[0]["progress"] if builds else {}
        return int(progress.get("done", 0)), int(progress.get("total", 0))
    return 0, 0
