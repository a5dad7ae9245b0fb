"""What MongoSink keeps at the destination, in the database `towpath`: its positions, and how its tasks do.

`offsets` holds `{_id: {pipeline, topic, partition}, offset, epoch}`, written in the transaction of the batch that it
tells of, so that it is never ahead of the documents and never behind them; `topicId` of the topic that the offset
belongs to, `lastAt`, when the broker took in the last record applied, and `clear`, up to where the log holds no record
behind the offset; of a compacted log also `at`, up to when deletes are known to be applied, and `began`, since when the
sink's pass over the log counts. `tasks` holds
`{_id: {pipeline, task}, records, writes, …, lastRetry}`, now and then.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from typing import Any, Self

from bson.int64 import Int64
from bson.max_key import MaxKey
from pymongo import MongoClient, ReadPreference, UpdateOne, WriteConcern
from pymongo.collection import Collection

from towpath.kafka.topics import Place
from towpath.pipeline import Pipeline

#: What a sink says that stopped because deletes may be gone from the log that it did not apply.
MISSED_DELETES = "--accept-missed-deletes"
DATABASE, OFFSETS, TASKS = "towpath", "offsets", "tasks"
#: The option that has a sink go on whose position is not in its log.
LOG_GAP = "--accept-log-gap"
#: Where a log was cut short or made again, and the sink went on all the same; see `towpath.log.bounds`.
LOG_BREAKS = "log_breaks"
#: Rebuilds that are under way; see `towpath.replay.rebuild`.
REBUILDS = "rebuilds"
#: Cutovers that are under way, or over; see `towpath.bookkeeping.cutover`.
CUTOVERS = "cutovers"
#: The last verdict on everything; see `towpath.bookkeeping.verdict`.
VERDICTS = "verdicts"
Client = MongoClient[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Applied:
    """Of one partition: the next offset to apply, and how many times a task has taken the partition over."""

    offset: int
    epoch: int
    clear: int = 0
    """Up to here the log was seen to hold no record behind `offset`; 0 when nobody has looked."""
    topic_id: str | None = None
    """Of the topic that the offset belongs to; None where it is not noted yet."""
    last_at: datetime | None = None
    """When the broker took in the last record that was applied."""

    @classmethod
    def of(cls, found: Mapping[str, Any]) -> Self:
        """A document of `towpath.offsets`."""
        return cls(
            offset=int(found["offset"]),
            epoch=int(found["epoch"]),
            clear=int(found.get("clear", 0)),
            topic_id=found.get("topicId"),
            last_at=found.get("lastAt"),
        )


@dataclass(frozen=True, slots=True)
class Counts:
    """What was done since it was made by one task of the sink, or by all."""

    batches: int = 0
    """Transactions that were committed."""
    records: int = 0
    writes: int = 0
    """What the records come to: inserts, updates and deletes."""
    waves: int = 0
    inserts: int = 0
    updates: int = 0
    deletes: int = 0
    bytes: int = 0
    """Of the records' keys and values."""
    bytes_out: int = 0
    """Of the documents and updates in the writes."""
    batch_ms: int = 0
    """How long all batches together took from being handed over to being committed."""
    without_document: int = 0
    """Updates and deletes that found no document."""
    refused: int = 0
    retries: int = 0

    @classmethod
    def of(cls, told: Mapping[str, Any]) -> Self:
        """A document of `towpath.tasks`, whose names are in camel case; a number that is not there yet is 0."""
        return cls(**{one.name: int(told.get(_camel(one.name), 0)) for one in fields(cls)})

    def __add__(self, other: Counts) -> Counts:
        return Counts(**{one.name: getattr(self, one.name) + getattr(other, one.name) for one in fields(Counts)})


@dataclass(frozen=True, slots=True)
class TaskState:
    """One task of the sink; `retried_at` and `reason` are of its last retry."""

    task: int
    counts: Counts
    retried_at: datetime | None
    reason: str


def positions(client: Client, pipeline: Pipeline) -> dict[Place, Applied]:
    """(topic, partition) → how far the sink has come there, by what the destination's primary holds."""
    return {
        (found["_id"]["topic"], int(found["_id"]["partition"])): Applied.of(found)
        for found in _mine(client, OFFSETS, pipeline, "topic")
    }


def task_states(client: Client, pipeline: Pipeline) -> tuple[TaskState, ...]:
    return tuple(task_state(found) for found in _mine(client, TASKS, pipeline, "task"))


def task_state(found: Mapping[str, Any]) -> TaskState:
    """One document of `towpath.tasks`."""
    last = found.get("lastRetry") or {}
    return TaskState(
        task=int(found["_id"]["task"]),
        counts=Counts.of(found),
        retried_at=last.get("at"),
        reason=str(last.get("reason") or ""),
    )


def _camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(other.title() for other in others)


def accept_missed_deletes(client: Client, pipeline: Pipeline) -> int:
    """Have the sink's pass over the log begin now at all of its positions; the number of positions.

    From now on every delete is there for `delete.retention.ms`, however old it is: until then the sink goes on.
    """
    now = datetime.now(UTC)
    changed = _collection(client, OFFSETS).update_many(_whose(pipeline, "topic"), {"$set": {"began": now}})
    return changed.matched_count


def skip_to(client: Client, pipeline: Pipeline, offsets: Mapping[Place, int], at: datetime) -> None:
    """Have the sink, which must be STOPPED, begin at these offsets; all before them was appended before `at`.

    The next epoch is taken, so that a task that Connect has lost sight of writes nothing any more. The offsets are
    those of the topics as they are now. `at` counts where the log is compacted; else the sink takes it out again when
    it opens the partition.
    """
    collection = _collection(client, OFFSETS).with_options(write_concern=WriteConcern("majority"))
    writes = [
        UpdateOne(
            {"_id": {"pipeline": pipeline.name, "topic": topic, "partition": partition}},
            {
                "$inc": {"epoch": Int64(1)},
                "$set": {"offset": Int64(offset), "at": at, "began": at},
                "$unset": {"clear": "", "topicId": ""},
            },
            upsert=True,
        )
        for (topic, partition), offset in offsets.items()
    ]
    if writes:
        collection.bulk_write(writes, ordered=False)


def forget(client: Client, pipeline: Pipeline) -> int:
    """Remove all that is kept for the pipeline, which must be gone from Connect; the number of the sink's documents."""
    for name in (REBUILDS, CUTOVERS, VERDICTS):
        _collection(client, name).delete_one({"_id": pipeline.name})
    return sum(
        _collection(client, name).delete_many(_whose(pipeline, second)).deleted_count
        for name, second in ((OFFSETS, "topic"), (TASKS, "task"), (LOG_BREAKS, "topic"))
    )


def note_breaks(client: Client, pipeline: Pipeline, codes: Mapping[Place, str], at: datetime) -> None:
    """Note that the log of these partitions does not hold all that was written to it."""
    collection = _collection(client, LOG_BREAKS).with_options(write_concern=WriteConcern("majority"))
    for (topic, partition), code in codes.items():
        place = {"pipeline": pipeline.name, "topic": topic, "partition": partition}
        collection.replace_one({"_id": place}, {"code": code, "at": at}, upsert=True)


def noted_breaks(client: Client, pipeline: Pipeline) -> dict[Place, str]:
    """What `note_breaks` has noted: (topic, partition) → code."""
    return {
        (found["_id"]["topic"], int(found["_id"]["partition"])): str(found["code"])
        for found in _mine(client, LOG_BREAKS, pipeline, "topic")
    }


def _mine(client: Client, name: str, pipeline: Pipeline, second: str) -> Iterator[dict[str, Any]]:
    yield from _collection(client, name).find(_whose(pipeline, second)).sort("_id", 1)


def _whose(pipeline: Pipeline, second: str) -> dict[str, Any]:
    """A range of `_id`, which has an index: the field `pipeline` alone has none."""
    return {"_id": {"$gte": {"pipeline": pipeline.name}, "$lte": {"pipeline": pipeline.name, second: MaxKey()}}}


def _collection(client: Client, name: str) -> Collection[dict[str, Any]]:
    return client.get_database(DATABASE, read_preference=ReadPreference.PRIMARY)[name]
