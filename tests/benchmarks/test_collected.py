"""The lists that are read from entries of an oplog, from records, and from change events."""

from __future__ import annotations

from typing import Any

import bson
import pytest
from bson import Int64
from bson.timestamp import Timestamp
from pymongo import MongoClient

from benchmarks.history.check import Logged, State
from benchmarks.history.clients import KEPT, LIST, LISTS, Clients
from benchmarks.history.collected import AtDestination, change, of_oplog, of_topic
from tests.support.log import Logged as Raw

Document = dict[str, Any]


def entry(ordinal: int, op: str, o: Document, **more: Any) -> Document:
    return {"ts": Timestamp(100, ordinal), "op": op, "ns": "f1.lists", "o": o} | more


def delta(**diff: Any) -> Document:
    return {"$v": 2, "diff": diff}


def test_an_oplog_gives_the_state_of_each_list_after_each_change() -> None:
    pushed = delta(u={"version": 2}, slist={"a": True, "u2": Int64(7)})
    transaction = {
        "applyOps": [
            {"op": "u", "ns": "f1.lists", "o": delta(d={"last": False}, slist={"a": True, "u3": 8}), "o2": {"_id": 1}},
            {"op": "i", "ns": "f1.more-lists", "o": {"_id": 1, "version": 1, "list": [9]}},
            {"op": "i", "ns": "f1.one", "o": {"_id": "of no list"}},
        ]
    }
    entries = [
        entry(1, "i", {"_id": 1, "version": 1, "list": [5, 6], "last": 6}),
        entry(2, "u", pushed, o2={"_id": Int64(1)}),
        entry(3, "c", transaction, ns="admin.$cmd"),
        entry(4, "u", delta(u={"list": [7, 8, 10]}), o2={"_id": 1}),
        entry(5, "u", {"_id": 1, "list": [8, 10, 11]}, o2={"_id": 1}),
    ]
    one, more = ("lists", 1), ("more-lists", 1)
    assert list(of_oplog(iter(entries))) == [
        State(one, (5, 6), (100, 1)),
        State(one, (5, 6, 7), (100, 2)),
        State(one, (5, 6, 7, 8), (100, 3)),
        State(more, (9,), (100, 3)),
        State(one, (7, 8, 10), (100, 4)),
        State(one, (8, 10, 11), (100, 5)),
    ]


def test_what_the_check_does_not_know_of_an_oplog_is_refused() -> None:
    with pytest.raises(AssertionError, match="an operation 'd' of a list"):
        list(of_oplog(iter([entry(1, "d", {"_id": 1})])))
    with pytest.raises(AssertionError, match="a transaction of several entries"):
        list(of_oplog(iter([entry(1, "c", {"applyOps": [], "partialTxn": True})])))


@pytest.mark.parametrize(
    ("before", "diff", "after"),
    [
        ({"a": 1, "b": 2}, {"d": {"a": False}, "u": {"b": 3}, "i": {"c": 4}}, {"b": 3, "c": 4}),
        ({"a": [1, 2, 3]}, {"sa": {"a": True, "l": 1}}, {"a": [1]}),
        ({"a": [1]}, {"sa": {"a": True, "u3": 4}}, {"a": [1, None, None, 4]}),
        ({"a": {"b": [{"c": 1}]}}, {"sa": {"sb": {"a": True, "s0": {"u": {"c": 2}}}}}, {"a": {"b": [{"c": 2}]}}),
        ({"a": 1}, {"i": {"a.b": 1, "u": 2}}, {"a": 1, "a.b": 1, "u": 2}),
    ],
)
def test_an_update_of_the_oplog_changes_objects_and_arrays(before: Document, diff: Document, after: Document) -> None:
    change(before, diff)
    assert before == after and list(before) == list(after)


def record(
    offset: int, value: Document | None, *, op: str = "u", ordinal: int | None = None, more: str = "", key: Any = 1
) -> Raw:
    header = f"1 {op} 100:{offset if ordinal is None else ordinal} 5{more}".encode()
    identity = bson.encode(key if isinstance(key, dict) else {"_id": Int64(key)})
    encoded = None if value is None else bson.encode(value)
    return Raw("t", 3, offset, identity, encoded, {"v": header}, True, 0)


def test_records_give_the_state_of_each_list_after_each() -> None:
    records = [
        record(0, {"$set": {"list.5": 1}}, more=" row-follows", key=2),
        record(1, {"_id": 1, "list": [5, 6]}, op="r"),
        record(2, {"ddl": "create"}, op="ddl", key={"ddl": "7"}),
        record(3, {"$set": {"version": 2, "list.2": 7}}, ordinal=9),
        record(4, {"$splice": {"list": [3, [0, 1, []], [3, 0, [8]]]}}),
        record(5, None, op="d"),
    ]
    place = ("capped-lists", 1)
    assert list(of_topic("capped-lists", records)) == [
        Logged(place, (5, 6), (100, 1), 3, 1, False),
        Logged(place, (5, 6, 7), (100, 9), 3, 3, True),
        Logged(place, (6, 7, 8), (100, 4), 3, 4, True),
        Logged(place, (), (100, 5), 3, 5, True),
    ]


@pytest.mark.parametrize("update", [{"$splice": {"list": [3, [0, 1, []]]}}, {"$set": {"other.5": 1}}])
def test_an_update_of_another_document_than_the_one_before_it_is_refused(update: Document) -> None:
    with pytest.raises(AssertionError, match="lists 1, partition 3, offset 4 is none of the document before it"):
        list(of_topic("lists", [record(1, {"_id": 1, "list": [5, 6]}), record(4, update)]))


def test_an_update_without_a_document_shows_no_list() -> None:
    assert list(of_topic("lists", [record(1, {"$set": {"list.2": 7}})])) == [
        Logged(("lists", 1), (), (100, 1), 3, 1, True)
    ]


def event(ordinal: int, kind: str, **more: Any) -> Document:
    where = {"ns": {"coll": "lists"}, "documentKey": {"_id": 1}, "clusterTime": Timestamp(200, ordinal)}
    return {"operationType": kind} | where | more


def updated(fields: Document, *removed: str, cut: int | None = None) -> Document:
    arrays = [] if cut is None else [{"field": "list", "newSize": cut}]
    return {"updatedFields": fields, "removedFields": list(removed), "truncatedArrays": arrays}


def test_change_events_give_the_state_of_each_list_after_each() -> None:
    with MongoClient[Document]("mongodb://127.0.0.1:1", connect=False) as client:
        there = AtDestination(client, "f1")
    there.add(event(1, "insert", fullDocument={"_id": 1, "list": [5, 6], "last": 6}))
    there.add(event(2, "update", updateDescription=updated({"list.2": 7}, "last")))
    there.add(event(3, "update", updateDescription=updated({}, cut=1)))
    there.add(event(4, "replace", fullDocument={"_id": 1, "list": [8]}))
    there.add(event(5, "delete"))
    found = [(state.elements, state.time) for state in there.states]
    lists = [(5, 6), (5, 6, 7), (5,), (8,), ()]
    assert found == [(elements, (200, at)) for at, elements in enumerate(lists, start=1)]


def test_no_two_clients_append_one_number(monkeypatch: pytest.MonkeyPatch) -> None:
    from benchmarks.history.clients import Client

    appended: list[int] = []
    monkeypatch.setattr(Client, "_append", lambda self, append, session: appended.append(append[2]))
    monkeypatch.setattr(
        "pymongo.client_session.ClientSession.commit_transaction", lambda self: None
    )  # nothing was sent
    with MongoClient[Document]("mongodb://127.0.0.1:1", connect=False) as source:
        clients = Clients(5, source, "f1")
        for client in clients._clients:
            for _, _ in zip(range(50), client.steps(), strict=False):
                pass
    assert len(appended) == len(set(appended)) > 4 * 50 and set(appended) == clients.acknowledged
    assert len(LISTS) * KEPT < min(appended) and LIST == "list"
