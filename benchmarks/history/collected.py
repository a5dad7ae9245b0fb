"""What the lists were: read from the source's oplog, from the log, and from the destination's change stream."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import bson
from bson.timestamp import Timestamp

from benchmarks.history.check import Logged, Place, State, Time
from benchmarks.history.clients import LIST, LISTS
from tests.support import history, log, raw
from tests.support.awaited import patient
from tests.support.order import END, Watched
from tests.support.pipeline import Pipeline
from tests.support.reference import page_s_apply, value_of
from towpath.clients.kafka import hanging_transactions
from towpath.cutover.takeover import not_one_state, resume_capture, source_states, stop_capture
from towpath.log import barrier
from towpath.log.records import is_schema_change, is_update
from towpath.session import Session, opened

Document = dict[str, Any]
_apply = page_s_apply()
_POINT_S = patient(60)  # until the sink has applied what is in the log
_STAGES = [
    {"$match": {"ns.coll": {"$in": [*LISTS, END]}}},
    {"$project": dict.fromkeys(("operationType", "ns", "documentKey", "clusterTime", "fullDocument"), 1)
        | {"updateDescription": 1}},
]  # fmt: skip


def now(client: raw.Client) -> Timestamp:
    """The cluster time of a side's last write."""
    found: Timestamp = client.admin.command("ping")["operationTime"]
    return found


def time_of(timestamp: Timestamp) -> Time:
    return timestamp.time, timestamp.inc


def _state(place: Place, document: Document, time: Time) -> State:
    return State(place, tuple(document.get(LIST, ())), time)


def at_source(client: raw.Client, database: str, since: Timestamp) -> Iterator[State]:
    """From the oplog, of which nothing since then may be gone."""
    begins = history.first(client)
    assert begins <= since, f"the source's oplog begins at {begins}, after the lists, at {since}"
    names = {"$in": [f"{database}.{name}" for name in LISTS]}
    wanted = {"ts": {"$gte": since}, "$or": [{"ns": names}, {"o.applyOps.ns": names}]}
    yield from of_oplog(client["local"]["oplog.rs"].find(wanted, sort=[("$natural", 1)]))


def of_oplog(entries: Iterator[Mapping[str, Any]]) -> Iterator[State]:
    """The states of the lists after each operation; all operations of a transaction have its time."""
    documents: dict[Place, Document] = {}
    for entry in entries:
        time = time_of(entry["ts"])
        parts = entry["o"]["applyOps"] if entry["op"] == "c" else [entry]
        assert not {"partialTxn", "prepare"} & entry["o"].keys(), f"a transaction of several entries at {time}"
        for part in parts:
            collection = part["ns"].partition(".")[2]
            if collection not in LISTS:
                continue
            place = collection, int(part.get("o2", part["o"])["_id"])
            match part["op"], part["o"]:
                case "u", {"$v": 2, "diff": diff}:
                    change(documents[place], diff)
                case "i" | "u", whole:
                    documents[place] = dict(whole)
                case kind, _:
                    raise AssertionError(f"the oplog has an operation {kind!r} of a list at {time}")
            yield _state(place, documents[place], time)


def change(value: Any, diff: Mapping[str, Any]) -> None:
    """Change an object or an array as an entry of the oplog says (version 2 of its updates)."""
    if diff.get("a") is True:
        del value[diff.get("l", len(value)) :]
        for name, part in diff.items():
            if name.startswith("u"):
                index = int(name[1:])
                value.extend([None] * (index + 1 - len(value)))
                value[index] = part
            elif name.startswith("s"):
                change(value[int(name[1:])], part)
        return
    for name in diff.get("d", {}):
        del value[name]
    value |= {**diff.get("u", {}), **diff.get("i", {})}
    for name, part in diff.items():
        if name.startswith("s"):
            change(value[name[1:]], part)


def in_log(pipeline: Pipeline) -> Iterator[Logged]:
    """From the topics, as any reader of them would."""
    for name in LISTS:
        yield from of_topic(name, log.records(pipeline.addresses.bootstrap, pipeline.topic(name)))


def of_topic(collection: str, records: list[log.Logged]) -> Iterator[Logged]:
    documents: dict[int, Document] = {}
    for record in records:
        assert record.key is not None, f"a record of {collection} without a key"
        if is_schema_change(record.key):
            continue
        identity, value = int(bson.decode(record.key)["_id"]), record.value
        if value is None:
            documents.pop(identity, None)
        elif not is_update(value):
            documents[identity] = bson.decode(value)
        elif identity in documents:
            try:
                _apply(documents[identity], bson.decode(value))
            except (ValueError, KeyError, IndexError, TypeError) as error:
                at = f"{collection} {identity}, partition {record.partition}, offset {record.offset}"
                raise AssertionError(f"the update of {at} is none of the document before it: {error!r}") from error
        elif record.row_follows:
            continue
        seconds, ordinal = map(int, record.contract["t"].split(b":"))
        state = _state((collection, identity), documents.get(identity, {}), (seconds, ordinal))
        is_event = record.contract["op"] != b"r"
        yield Logged(state.place, state.elements, state.time, record.partition, record.offset, is_event)


class AtDestination(Watched):
    """From the change stream, from entry to exit of a `with`."""

    def __init__(self, client: raw.Client, database: str) -> None:
        self.states: list[State] = []
        self._documents: dict[Place, Document] = {}
        super().__init__(client, database, _STAGES, self.add)

    def add(self, event: Mapping[str, Any]) -> None:
        place = event["ns"]["coll"], int(event["documentKey"]["_id"])
        match event["operationType"]:
            case "insert" | "replace":
                self._documents[place] = dict(event["fullDocument"])
            case "update":
                _apply(self._documents[place], value_of(event["updateDescription"]))
            case "delete":
                del self._documents[place]
        self.states.append(_state(place, self._documents.get(place, {}), time_of(event["clusterTime"])))


def point(pipeline: Pipeline, destination: raw.Client) -> Time | None:
    """Stop the capture, and let the sink apply what there is: the destination is then the source as of one time.

    A cluster time of the destination at which it is, or None where the log does not hold one state, as in a copy. The
    capture continues afterwards.
    """
    with opened(pipeline.file) as session:
        if not _is_one_state(session):
            return None
        try:
            stop_capture(session)
            hanging_transactions.fence(session.topics, session.pipeline.source_connectors, _POINT_S)
            if not _is_one_state(session):
                return None
            barrier.wait_drained(session, _POINT_S, print)
            return time_of(now(destination))
        finally:
            resume_capture(session)


def _is_one_state(session: Session) -> bool:
    states = source_states(session)
    return all(it.phase == "stream" and it.position for it in states.values()) and not not_one_state(states)
