"""A rebuild: a pipeline's own destination is emptied, and its sink applies the log from the beginning.

A marker at the destination is written first and deleted last, so that a rebuild can continue after a kill.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

from bson.max_key import MaxKey
from pymongo import MongoClient, ReadPreference, WriteConcern
from pymongo.collection import Collection

from connectors.rest import Connect
from towpath.bookkeeping import positions
from towpath.bookkeeping.positions import DATABASE, REBUILDS
from towpath.kafka.topics import Topics
from towpath.log.bounds import still_in_log
from towpath.log.lag import measure
from towpath.mongo.client import briefly
from towpath.pipeline import Pipeline
from towpath.replay.connector import SinkProgress
from towpath.replay.plan import Log, late_starts

#: Whether the namespaces are being emptied or the log is being applied.
Phase = Literal["emptying", "applying"]
Client = MongoClient[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Rebuild:
    """The marker: the options, and where the log began and ended at the start."""

    only: tuple[str, ...]
    forced: bool
    began: float
    """Seconds since the epoch."""
    letters: int
    """The end offset of the dead-letter topic at the start."""
    log: Log
    phase: Phase = "emptying"

    @property
    def topics(self) -> list[str]:
        return sorted({topic for topic, _ in self.log})


def marker(client: Client, pipeline: Pipeline) -> Rebuild | None:
    """The rebuild that is running or was interrupted; None if there is none."""
    document = _markers(client).find_one({"_id": pipeline.name})
    if document is None:
        return None
    return Rebuild(
        only=tuple(document["only"]),
        forced=bool(document["forced"]),
        began=float(document["began"]),
        letters=int(document["letters"]),
        log={(part["topic"], part["partition"]): (part["first"], part["end"]) for part in document["log"]},
        phase=document["phase"],
    )


def mark(client: Client, pipeline: Pipeline, rebuild: Rebuild) -> None:
    """Write the marker at the start, and again for each phase."""
    document = {
        "only": list(rebuild.only),
        "forced": rebuild.forced,
        "began": rebuild.began,
        "letters": rebuild.letters,
        "log": [
            {"topic": topic, "partition": partition, "first": first, "end": end}
            for (topic, partition), (first, end) in sorted(rebuild.log.items())
        ],
        "phase": rebuild.phase,
    }
    _markers(client).replace_one({"_id": pipeline.name}, document, upsert=True)


def unmark(client: Client, pipeline: Pipeline) -> None:
    _markers(client).delete_one({"_id": pipeline.name})


def _markers(client: Client) -> Collection[dict[str, Any]]:
    database = client.get_database(
        DATABASE, read_preference=ReadPreference.PRIMARY, write_concern=WriteConcern("majority")
    )
    return database[REBUILDS]


def forget_positions(client: Client, pipeline: Pipeline, topics: Iterable[str]) -> None:
    """Delete the positions of these topics.

    This must come before any namespace is emptied: an open transaction of a task that Connect has lost track of finds
    no position then, and aborts.
    """
    offsets = client.get_database(DATABASE, write_concern=WriteConcern("majority"))[positions.OFFSETS]
    for topic in topics:
        prefix = {"pipeline": pipeline.name, "topic": topic}
        offsets.delete_many({"_id": {"$gte": prefix, "$lte": {**prefix, "partition": MaxKey()}}})  # uses the _id index


def begin_late(client: Client, pipeline: Pipeline, rebuild: Rebuild) -> None:
    """Move the sink, which must be STOPPED, to the first offsets of a log that is not whole.

    Otherwise the sink stops where the beginning is gone.
    """
    if rebuild.forced:
        positions.skip_to(client, pipeline, late_starts(rebuild.log), datetime.now(UTC))


def empty(client: Client, targets: Mapping[str, int], say: Callable[[str], None]) -> None:
    """Delete all documents of these namespaces; indexes and options stay."""
    for target, count in targets.items():
        say(f"emptying {target}: {count:,} documents")
        database, collection = target.split(".", 1)
        client.get_database(database, write_concern=WriteConcern("majority"))[collection].delete_many({})


def sink_progress(pipeline: Pipeline, rebuild: Rebuild, connect: Connect, topics: Topics) -> SinkProgress:
    """The sink's progress through the log as it was when the rebuild began."""
    return SinkProgress(pipeline, pipeline.sink_connector, "destination", connect, topics, dict(rebuild.log))


@dataclass(frozen=True, slots=True)
class State:
    """A rebuild with its progress, as `status` shows it."""

    rebuild: Rebuild
    done: int
    of: int

    def as_json(self) -> dict[str, Any]:
        return {
            "since": self.rebuild.began,
            "only": list(self.rebuild.only),
            "phase": self.rebuild.phase,
            "records_done": self.done,
            "records": self.of,
        }

    @property
    def words(self) -> str:
        since = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(self.rebuild.began))
        return f"since {since} UTC, {self.done:,} of about {self.of:,} records applied"


def look(pipeline: Pipeline, topics: Topics) -> State | None:
    """The rebuild that is running. Raises `MongoUnreachable` when the destination, which stores it, does not answer."""
    if not pipeline.exactly_once:
        return None
    with briefly(pipeline.destination_uri, "destination") as client:
        rebuild = marker(client, pipeline)
        if rebuild is None:
            return None
        offsets = {place: position.offset for place, position in positions.positions(client, pipeline).items()}
    total = sum(end - first for first, end in rebuild.log.values())
    if rebuild.phase == "emptying":
        return State(rebuild, 0, total)
    return State(rebuild, total - measure(topics, still_in_log(rebuild.log, topics), offsets).records, total)
