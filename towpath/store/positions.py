"""What MongoSink stores at the destination, in the database `towpath`: its positions, and the state of its tasks.

`offsets` holds `{_id: {pipeline, topic, partition}, offset, epoch}`, written in the transaction of its batch, so that
it is never ahead of the documents nor behind them. Further fields: `topicId` of the topic that the offset belongs to;
`lastAt`, when the broker received the last applied record, or the schema change at `offset`; `clear`, up to which
offset the log has no record after `offset`; `barrier`, the schema change that the partition waits for. With a
compacted log also `at`, up to when all deletes are applied, and `began`, when the sink's current pass over the log
began.

`tasks` holds `{_id: {pipeline, task}, records, writes, …, lastRetry}`: sums that each task writes from time to time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from itertools import accumulate
from typing import Any, Self

from bson.int64 import Int64
from bson.max_key import MaxKey
from pydantic.alias_generators import to_camel
from pymongo import ReadPreference, UpdateOne, WriteConcern
from pymongo.client_session import ClientSession
from pymongo.collection import Collection
from pymongo.read_concern import ReadConcern

from towpath.clients.kafka.topics import Place
from towpath.clients.mongo.client import Client
from towpath.config.pipeline import Pipeline

#: Why a task retried: the labels of `RetryCause.java`.
RETRY_CAUSES = (
    *("no_primary", "network", "conflict", "timeout", "snapshot"),
    *("permission", "resources", "kafka", "other"),
)
#: Upper bounds of the buckets in which a task counts its transactions by their time: those of `TransactionTimes.java`.
TRANSACTION_BOUNDS_MS = (10, 25, 50, 100, 250, 500, 1_000, 2_500, 10_000, 60_000)
#: In the failure of a sink that stopped because the log may have lost deletes that it did not apply.
MISSED_DELETES = "--accept-missed-deletes"
DATABASE, OFFSETS, TASKS = "towpath", "offsets", "tasks"
#: The option with which a sink continues whose position is not in its log.
LOG_GAP = "--accept-log-gap"
#: Where the log was truncated or recreated, and the sink continued nevertheless; see `towpath.log.bounds`.
LOG_BREAKS = "log_breaks"
#: Rebuilds that are under way; see `towpath.history.rebuild`.
REBUILDS = "rebuilds"
#: Cutovers that are under way, or over; see `towpath.store.cutover`.
CUTOVERS = "cutovers"
#: The last verdict on everything; see `towpath.store.verdict`.
VERDICTS = "verdicts"
#: Who writes at the destination; see `towpath.store.writers`.
WRITERS = "writers"
#: Schema changes in the log; see `towpath.store.schema_changes`.
SCHEMA_CHANGES = "schema_changes"
#: The source's schema as it was read last; see `towpath.store.source_schema`.
SOURCE_SCHEMA = "source_schema"


@dataclass(frozen=True, slots=True)
class Applied:
    """The sink's position in one partition."""

    offset: int
    """The next offset to apply."""
    epoch: int
    """How many times a task has taken the partition over."""
    clear: int = 0
    """Up to this offset the log has no record after `offset`; 0 if that was not checked."""
    topic_id: str | None = None
    """The topic that the offset belongs to; None if it is not stored yet."""
    last_at: datetime | None = None
    """When the broker received the record at `last_read`; None when unknown."""
    stands: bool = False
    """Whether the partition waits at the schema change at `offset`."""

    @property
    def last_read(self) -> int:
        """The offset of the last applied record, or of the schema change that the partition waits at; -1 before any."""
        return self.offset if self.stands else self.offset - 1

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Self:
        """From a document of `towpath.offsets`."""
        return cls(
            offset=int(document["offset"]),
            epoch=int(document["epoch"]),
            clear=int(document.get("clear", 0)),
            topic_id=document.get("topicId"),
            last_at=document.get("lastAt"),
            stands=document.get("barrier") is not None,
        )


@dataclass(frozen=True, slots=True)
class Counts:
    """What one task of the sink, or all of them, have done since the sink was created."""

    batches: int = 0
    """Committed transactions."""
    records: int = 0
    writes: int = 0
    """Inserts, updates and deletes, after folding."""
    waves: int = 0
    inserts: int = 0
    updates: int = 0
    deletes: int = 0
    bytes: int = 0
    """Bytes of the records' keys and values."""
    bytes_out: int = 0
    """Bytes of the documents and updates in the writes."""
    batch_ms: int = 0
    """The sum of the batches' times from arrival to commit."""
    without_document: int = 0
    """Updates and deletes that matched no document."""
    refused: int = 0
    retries: int = 0

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Self:
        """From a document of `towpath.tasks`, whose field names are in camel case; a missing number is 0."""
        return cls(**{field.name: int(document.get(to_camel(field.name), 0)) for field in fields(cls)})

    def __add__(self, other: Counts) -> Counts:
        names = [field.name for field in fields(Counts)]
        return Counts(**{name: getattr(self, name) + getattr(other, name) for name in names})


@dataclass(frozen=True, slots=True)
class TransactionTimes:
    """How long the transactions of a task took, from their start to their commit, as a histogram."""

    within: Mapping[str, int]
    """A time in seconds, or `+Inf`, → how many took no longer."""
    sum: float
    """In seconds."""

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Self:
        """From a document of `towpath.tasks`, which has each transaction in one bucket."""
        stored = document.get("transactionTimes") or {}
        keys = {str(ms / 1000): str(ms) for ms in TRANSACTION_BOUNDS_MS} | {"+Inf": "longer"}
        counts = accumulate(int(stored.get(key, 0)) for key in keys.values())
        return cls(dict(zip(keys, counts, strict=True)), int(document.get("transactionUs", 0)) / 1_000_000)


@dataclass(frozen=True, slots=True)
class TaskState:
    """One task of the sink. `retried_at` and `reason` describe its last retry."""

    task: int
    counts: Counts
    retried_at: datetime | None
    reason: str
    retries_by_cause: Mapping[str, int]
    """Every one of `RETRY_CAUSES`."""
    transaction_seconds: TransactionTimes


def positions(client: Client, pipeline: Pipeline, *, durable: bool = False) -> dict[Place, Applied]:
    """(topic, partition) → the sink's position, as the destination's primary has it.

    `durable`: as a majority of its members has it, so that no failover takes it back, nor the documents before it.
    """
    return {
        (document["_id"]["topic"], int(document["_id"]["partition"])): Applied.of(document)
        for document in _documents(client, OFFSETS, pipeline, "topic", durable=durable)
    }


def task_states(client: Client, pipeline: Pipeline) -> tuple[TaskState, ...]:
    return tuple(task_state(document) for document in _documents(client, TASKS, pipeline, "task"))


def task_state(document: Mapping[str, Any]) -> TaskState:
    """From a document of `towpath.tasks`."""
    last, by_cause = document.get("lastRetry") or {}, document.get("retriesBy") or {}
    return TaskState(
        task=int(document["_id"]["task"]),
        counts=Counts.of(document),
        retried_at=last.get("at"),
        reason=str(last.get("reason") or ""),
        retries_by_cause={cause: int(by_cause.get(cause, 0)) for cause in RETRY_CAUSES},
        transaction_seconds=TransactionTimes.of(document),
    )


def accept_missed_deletes(client: Client, pipeline: Pipeline) -> int:
    """Make the sink's pass over the log begin now, at all of its positions. Returns the number of positions.

    The log keeps every delete that is still in it for `delete.retention.ms` from now on; so long the sink continues.
    """
    now = datetime.now(UTC)
    changed = collection_of(client, OFFSETS).update_many(id_range(pipeline, "topic"), {"$set": {"began": now}})
    return changed.matched_count


def skip_to(
    client: Client,
    pipeline: Pipeline,
    offsets: Mapping[Place, int],
    at: datetime,
    session: ClientSession | None = None,
) -> None:
    """Make the sink, which must be STOPPED, begin at these offsets of the current topics.

    All records before them were appended before `at`. It matters for a compacted log; otherwise the sink removes it
    when it opens the partition. The epoch is increased, so that a zombie task can no longer write.
    """
    collection = collection_of(client, OFFSETS)
    writes = [
        UpdateOne(
            {"_id": {"pipeline": pipeline.name, "topic": topic, "partition": partition}},
            {
                "$inc": {"epoch": Int64(1)},
                "$set": {"offset": Int64(offset), "at": at, "began": at},
                "$unset": {"clear": "", "topicId": "", "lastAt": "", "barrier": ""},
            },
            upsert=True,
        )
        for (topic, partition), offset in offsets.items()
    ]
    if writes:
        collection.bulk_write(writes, ordered=False, session=session)


def fence(client: Client, pipeline: Pipeline) -> None:
    """Increase every epoch, so that no task that was started before can write."""
    collection_of(client, OFFSETS).update_many(id_range(pipeline, "topic"), {"$inc": {"epoch": Int64(1)}})


def forget(client: Client, pipeline: Pipeline) -> int:
    """Remove everything that is stored for the pipeline, which must no longer be deployed.

    The marker of a cutover that is not complete stays: only it says what is to be undone, and what the switch has left
    to convert. Returns the number of the sink's documents.
    """
    collection_of(client, REBUILDS).delete_one({"_id": pipeline.name})
    return forget_earlier(client, pipeline)


def forget_earlier(client: Client, pipeline: Pipeline, session: ClientSession | None = None) -> int:
    """As `forget`, but for the marker of a rebuild or of a replay that begins."""
    for name in (VERDICTS, WRITERS):
        collection_of(client, name).delete_one({"_id": pipeline.name}, session=session)
    no_untried = {"$not": {"$elemMatch": {"problem": ""}}}
    complete = {"_id": pipeline.name, "state": "destination primary", "conversions": no_untried}
    collection_of(client, CUTOVERS).delete_one(complete, session=session)
    collection_of(client, SOURCE_SCHEMA).delete_many(id_range(pipeline, "namespace"), session=session)
    return sum(
        collection_of(client, name).delete_many(id_range(pipeline, second), session=session).deleted_count
        for name, second in ((OFFSETS, "topic"), (TASKS, "task"), (LOG_BREAKS, "topic"), (SCHEMA_CHANGES, "id"))
    )


def note_breaks(client: Client, pipeline: Pipeline, codes: Mapping[Place, str], at: datetime) -> None:
    """Record that the log of these partitions has lost records."""
    collection = collection_of(client, LOG_BREAKS)
    for (topic, partition), code in codes.items():
        place = {"pipeline": pipeline.name, "topic": topic, "partition": partition}
        collection.replace_one({"_id": place}, {"code": code, "at": at}, upsert=True)


def noted_breaks(client: Client, pipeline: Pipeline) -> dict[Place, str]:
    """What `note_breaks` has recorded: (topic, partition) → code."""
    return {
        (document["_id"]["topic"], int(document["_id"]["partition"])): str(document["code"])
        for document in _documents(client, LOG_BREAKS, pipeline, "topic")
    }


def _documents(
    client: Client, name: str, pipeline: Pipeline, second: str, *, durable: bool = False
) -> Iterator[dict[str, Any]]:
    collection = collection_of(client, name)
    if durable:
        collection = collection.with_options(read_concern=ReadConcern("majority"))
    yield from collection.find(id_range(pipeline, second)).sort("_id", 1)


def id_range(pipeline: Pipeline, second: str) -> dict[str, Any]:
    """A filter for the pipeline's documents: a range of `_id`, which has an index, unlike `_id.pipeline`."""
    return {"_id": {"$gte": {"pipeline": pipeline.name}, "$lte": {"pipeline": pipeline.name, second: MaxKey()}}}


def collection_of(client: Client, name: str, wtimeout_ms: int | None = None) -> Collection[dict[str, Any]]:
    """Reads come from the primary, and a majority acknowledges writes."""
    concern = WriteConcern("majority", wtimeout=wtimeout_ms)
    return client.get_database(DATABASE, read_preference=ReadPreference.PRIMARY, write_concern=concern)[name]
