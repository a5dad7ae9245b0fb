"""What MongoSink keeps at the destination, in the database `towpath`: its positions, and how its tasks do.

`offsets` holds `{_id: {pipeline, topic, partition}, offset, epoch}`, written in the transaction of the batch that it
tells of, so that it is never ahead of the documents and never behind them. `tasks` holds
`{_id: {pipeline, task}, batches, records, writes, refused, retries, lastRetry}`, now and then.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from bson.max_key import MaxKey
from pymongo import MongoClient, ReadPreference
from pymongo.collection import Collection

from connectors.spec import Pipeline
from connectors.topics import Place

DATABASE, OFFSETS, TASKS = "towpath", "offsets", "tasks"
Client = MongoClient[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Applied:
    """Of one partition: the next offset to apply, and how many times a task has taken the partition over."""

    offset: int
    epoch: int


@dataclass(frozen=True, slots=True)
class TaskState:
    """What one task of the sink has done since it was made; `retried_at` and `reason` are of its last retry."""

    task: int
    batches: int
    records: int
    writes: int
    refused: int
    retries: int
    retried_at: datetime | None
    reason: str


def positions(client: Client, pipeline: Pipeline) -> dict[Place, Applied]:
    """(topic, partition) → how far the sink has come there, by what the destination's primary holds."""
    return {
        (found["_id"]["topic"], int(found["_id"]["partition"])): Applied(int(found["offset"]), int(found["epoch"]))
        for found in _mine(client, OFFSETS, pipeline, "topic")
    }


def task_states(client: Client, pipeline: Pipeline) -> tuple[TaskState, ...]:
    return tuple(task_state(found) for found in _mine(client, TASKS, pipeline, "task"))


def task_state(found: Mapping[str, Any]) -> TaskState:
    """One document of `towpath.tasks`; a number that is not there yet is 0."""
    last = found.get("lastRetry") or {}
    numbers = {name: int(found.get(name, 0)) for name in ("batches", "records", "writes", "refused", "retries")}
    return TaskState(
        task=int(found["_id"]["task"]), **numbers, retried_at=last.get("at"), reason=str(last.get("reason") or "")
    )


def forget(client: Client, pipeline: Pipeline) -> int:
    """Remove all that the sink keeps for the pipeline, which must be gone from Connect; the number of documents."""
    return sum(
        _collection(client, name).delete_many(_whose(pipeline, second)).deleted_count
        for name, second in ((OFFSETS, "topic"), (TASKS, "task"))
    )


def _mine(client: Client, name: str, pipeline: Pipeline, second: str) -> Iterator[dict[str, Any]]:
    yield from _collection(client, name).find(_whose(pipeline, second)).sort("_id", 1)


def _whose(pipeline: Pipeline, second: str) -> dict[str, Any]:
    """A range of `_id`, which has an index: the field `pipeline` alone has none."""
    return {"_id": {"$gte": {"pipeline": pipeline.name}, "$lte": {"pipeline": pipeline.name, second: MaxKey()}}}


def _collection(client: Client, name: str) -> Collection[dict[str, Any]]:
    return client.get_database(DATABASE, read_preference=ReadPreference.PRIMARY)[name]
