"""What MongoSink stores of the schema changes in the log, in the collection `schema_changes` of the database `towpath`.

`{_id: {pipeline, id}, t, at, change, namespace, state, reason, refused, since, began, ended, arrived, expected, uuid}`,
from the moment the first partition arrives at the change. The tool writes `decision` only, which the sink carries out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

from pymongo.client_session import ClientSession
from pymongo.collection import Collection

from towpath.clients.mongo.client import Client, cluster_time
from towpath.config.pipeline import Pipeline
from towpath.store.positions import OFFSETS, SCHEMA_CHANGES, collection_of, id_range

State = Literal["waiting", "running", "held", "refused", "done", "skipped"]
Decision = Literal["apply", "skip"]
#: What has not been made, and has not been left out.
OPEN: tuple[State, ...] = ("waiting", "running", "held", "refused")
#: What continues only with a decision, or once its cause is gone.
STUCK: tuple[State, ...] = ("held", "refused")
_OVER: tuple[State, ...] = ("done", "skipped")


@dataclass(frozen=True, slots=True)
class SchemaChange:
    """A schema change at which the sink has arrived. Namespaces are the source's, but for `destination`."""

    id: str
    time: str
    """Its cluster time."""
    kind: str
    namespace: str
    to: str
    """The new name of a renamed collection; else empty."""
    destination: str
    """The destination's name of `namespace`."""
    indexes: tuple[str, ...]
    """The names of the indexes that it is about."""
    topics: Mapping[str, int]
    """Topic → its partitions: where later records wait for it."""
    state: State
    """A refused one stays refused while it is tried again."""
    is_retried: bool
    """Whether it was refused and is being tried again now."""
    reason: str
    """Why it is held or refused, or what is in the way of one that runs; else empty."""
    decision: Decision | None
    since: datetime | None
    """When the first partition arrived; `began`: when the sink began to make it."""
    began: datetime | None
    ended: datetime | None
    arrived: int
    """How many partitions wait for it, of those `expected`."""
    expected: int

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> SchemaChange:
        """From a document of `towpath.schema_changes`."""
        change, state = document["change"], document["state"]
        is_retried = state == "running" and document.get("refused") is not None
        return cls(
            id=str(document["_id"]["id"]),
            time=str(document["t"]),
            kind=str(change["ddl"]),
            namespace=str(change["ns"]),
            to=str(change.get("to") or ""),
            destination=str(document.get("namespace") or change["ns"]),
            indexes=tuple(str(index["name"]) for index in change.get("indexes", ()) if "name" in index),
            topics={str(topic): int(count) for topic, count in change.get("topics", {}).items()},
            state="refused" if is_retried else state,
            is_retried=is_retried,
            reason=str(document.get("reason") or ""),
            decision=document.get("decision"),
            since=_time(document.get("since")),
            began=_time(document.get("began")),
            ended=_time(document.get("ended")),
            arrived=int(document.get("arrived") or 0),
            expected=int(document.get("expected") or 0),
        )


def _time(value: Any) -> datetime | None:
    """A date, or milliseconds since the epoch."""
    return value if value is None or isinstance(value, datetime) else datetime.fromtimestamp(int(value) / 1000, UTC)


def open_changes(client: Client, pipeline: Pipeline) -> tuple[SchemaChange, ...]:
    """The changes that are waiting, running, held or refused, the oldest first."""
    found = _collection(client).find(_of(pipeline, OPEN))
    return tuple(sorted(map(SchemaChange.of, found), key=lambda change: cluster_time(change.time)))


def latest(client: Client, pipeline: Pipeline, count: int) -> tuple[SchemaChange, ...]:
    """The changes that ended last, the last one first; of the descriptions of what existed before, those skipped."""
    told = [{"change.snapshot": {"$ne": True}}, {"state": "skipped"}]
    shown = {"$or": told, "change.ddl": {"$ne": "complete"}}
    found = _collection(client).find({**_of(pipeline, _OVER), **shown})
    return tuple(map(SchemaChange.of, found.sort("ended", -1).limit(count)))


def renames(client: Client, pipeline: Pipeline) -> tuple[tuple[str, str], ...]:
    """The names, before and after, of the renames at which the sink has arrived, as far as they are stored."""
    found = _collection(client).find({**id_range(pipeline, "id"), "change.ddl": "rename"}, {"change": 1})
    return tuple((str(document["change"]["ns"]), str(document["change"]["to"])) for document in found)


def exist(client: Client, pipeline: Pipeline) -> bool:
    """Whether the sink has ever arrived at a schema change."""
    return _collection(client).find_one(id_range(pipeline, "id")) is not None


def decide(client: Client, pipeline: Pipeline, ids: Iterable[str], decision: Decision) -> int:
    """Have the sink make these changes, or continue without them. Returns how many of them were not over.

    Where no partition waits for a change, as a log gap was accepted, no task would carry out that it is skipped.
    """
    collection, ids = _collection(client), set(ids)
    matched = collection.update_many(_open(pipeline, ids), {"$set": {"decision": decision}}).matched_count
    if decision == "skip":
        awaited = collection_of(client, OFFSETS).distinct("barrier", id_range(pipeline, "topic"))
        over = {"state": "skipped", "ended": datetime.now(UTC)}
        collection.update_many(_open(pipeline, ids.difference(awaited)), {"$set": over})
    return matched


def _open(pipeline: Pipeline, ids: Iterable[str]) -> dict[str, Any]:
    """A filter for those of these changes that are not over."""
    return {"_id": {"$in": [{"pipeline": pipeline.name, "id": id} for id in ids]}, "state": {"$in": list(OPEN)}}


def forget(
    client: Client, pipeline: Pipeline, topics: Sequence[str] | None = None, session: ClientSession | None = None
) -> None:
    """Remove what is stored, of changes of one of these topics if given: the sink, which must be stopped, will
    arrive at them again.
    """
    chosen = id_range(pipeline, "id")
    if topics is not None:
        involved = [
            document["_id"]
            for document in _collection(client).find(chosen, {"change.topics": 1}, session=session)
            if not document["change"].get("topics", {}).keys().isdisjoint(topics)
        ]
        chosen = {"_id": {"$in": involved}}
    _collection(client).delete_many(chosen, session=session)


def _of(pipeline: Pipeline, states: Sequence[State]) -> dict[str, Any]:
    return {**id_range(pipeline, "id"), "state": {"$in": list(states)}}


def _collection(client: Client) -> Collection[dict[str, Any]]:
    return collection_of(client, SCHEMA_CHANGES)
