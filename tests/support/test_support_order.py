"""The order checker sees what goes back, and nothing else; a workload's counter only rises."""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest
from bson import Decimal128, Int64, ObjectId
from pymongo import MongoClient

from tests.support import raw
from tests.support.order import History, comparable
from tests.support.workload import Workload
from tests.support.workload.changes import Change
from tests.support.workload.operations import Delete, Insert, Operation, Replace, Update, Way, Write
from tests.support.workload.versions import VERSION, stamped

Step = tuple[str, Any, int | None]


def event(kind: str, identity: Any, version: int | None) -> dict[str, Any]:
    found: dict[str, Any] = {"operationType": kind, "ns": {"coll": "docs"}, "documentKey": {"_id": identity}}
    fields = {} if version is None else {VERSION: Int64(version)}
    if kind == "update":
        return found | {"updateDescription": {"updatedFields": fields}}
    return found if kind == "delete" else found | {"fullDocument": fields}


def faults(*steps: Step) -> list[str]:
    history = History()
    for step in steps:
        history.add(event(*step))
    assert history.events == len(steps)
    return history.faults


@pytest.mark.parametrize(
    "steps",
    [
        [("insert", 1, 1), ("update", 1, 2), ("replace", 1, 5), ("delete", 1, None), ("insert", 1.0, 6)],
        [("insert", 1, 7), ("insert", "1", 2), ("update", "1", 3)],
        [("insert", 1, 1), ("update", 1, 3), ("update", 1, 3), ("update", 1, None), ("update", 1, 4)],
        [("delete", 1, None), ("insert", 1, 1)],
    ],
)
def test_what_goes_on_is_in_order(steps: list[Step]) -> None:
    assert faults(*steps) == []


@pytest.mark.parametrize(
    ("steps", "words"),
    [
        ([("insert", 1, 1), ("update", 1, 3), ("update", 1, 2)], "went back through a update of version 2 after 3"),
        ([("insert", 1, 3), ("replace", Decimal128("1.0"), 2)], "went back through a replace of version 2 after 3"),
        ([("insert", 1, 3), ("delete", 1, None), ("insert", 1.0, 3)], "the delete was undone by a insert of version 3"),
        ([("insert", 1, 3), ("delete", 1, None), ("insert", 1, 2)], "the delete was undone by a insert of version 2"),
        ([("insert", 1, None)], "insert of docs 1 without a version"),
    ],
)
def test_what_goes_back_is_seen(steps: list[Step], words: str) -> None:
    (fault,) = faults(*steps)
    assert words in fault


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (5, 5.0, True),
        (Int64(5), Decimal128("5.00"), True),
        (0.1, Decimal128("0.1"), False),
        (float("nan"), Decimal128("NaN"), True),
        (1, True, False),
        (1, "1", False),
        ({"a": 5, "b": "x"}, {"a": Decimal128("5"), "b": "x"}, True),
        ({"a": 5, "b": "x"}, {"b": "x", "a": 5}, False),
        (ObjectId(b"a" * 12), ObjectId(b"a" * 12), True),
        (ObjectId(b"a" * 12), ObjectId(b"b" * 12), False),
    ],
)
def test_one_id_is_what_the_server_holds_one(one: Any, other: Any, same: bool) -> None:
    assert (comparable(one) == comparable(other)) is same


def test_every_write_of_a_workload_raises_the_counter() -> None:
    with MongoClient[dict[str, Any]]("mongodb://127.0.0.1:1", connect=False) as client:
        changes = Workload(1, [raw.collection(client, "a.b"), raw.collection(client, "a.c")], versions=True)
        found = [number(write) for _ in range(2000) for write in changes.draw().writes]
    numbers = [each for each in found if each is not None]
    assert len(numbers) > 2000
    assert numbers == sorted(set(numbers))


def number(write: Write) -> int | None:
    match write.body:
        case Insert(document) | Replace(_, document):
            return int(document[VERSION])
        case Update(_, Change(dict() as update)):
            return int(update["$set"][VERSION])
        case Update(_, Change(list() as stages)):
            return int(stages[-1]["$replaceWith"]["$cond"][1]["$mergeObjects"][0][VERSION])
    return None


def test_an_unordered_bulk_counts_in_the_order_in_which_the_driver_sends_it() -> None:
    writes = (
        Write("delete", 0, Delete({"_id": 1})),
        Write("$set", 0, Update({"_id": 1}, Change({"$set": {"a": 1}}))),
        Write("insert", 0, Insert({"_id": 1, "a": 2})),
    )
    done = stamped(Operation("unordered bulk", Way.UNORDERED_BULK, writes), count(1))
    assert [type(write.body) for write in done.writes] == [Insert, Update, Delete]
    assert done.writes[0].body == Insert({"_id": 1, VERSION: 1, "a": 2})
    assert done.writes[1].body == Update({"_id": 1}, Change({"$set": {"a": 1, VERSION: 2}}))
