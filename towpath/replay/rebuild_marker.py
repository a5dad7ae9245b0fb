"""A rebuild: a pipeline's own destination is emptied, and its sink applies the log from the beginning.

A marker at the destination comes first and goes last, so that whoever comes after a kill knows what to go on with.
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
from towpath.log.bounds import remaining
from towpath.log.lag import measure
from towpath.mongo.client import briefly
from towpath.pipeline import Pipeline
from towpath.replay.connector import Course
from towpath.replay.plan import Log, late_starts

#: What is being done: the namespaces are emptied, or the log is applied.
Phase = Literal["emptying", "applying"]
Client = MongoClient[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Rebuild:
    """The marker: what was asked for, and where the log began and ended then."""

    only: tuple[str, ...]
    forced: bool
    began: float
    """Seconds since the epoch."""
    letters: int
    """The end of the dead-letter topic then."""
    log: Log
    phase: Phase = "emptying"

    @property
    def topics(self) -> list[str]:
        return sorted({topic for topic, _ in self.log})


def marker(client: Client, pipeline: Pipeline) -> Rebuild | None:
    """The rebuild that is under way, or was interrupted; None when there is none."""
    found = _markers(client).find_one({"_id": pipeline.name})
    if found is None:
        return None
    return Rebuild(
        only=tuple(found["only"]),
        forced=bool(found["forced"]),
        began=float(found["began"]),
        letters=int(found["letters"]),
        log={(one["topic"], one["partition"]): (one["first"], one["end"]) for one in found["log"]},
        phase=found["phase"],
    )


def mark(client: Client, pipeline: Pipeline, rebuild: Rebuild) -> None:
    """Write the marker; also when another phase begins."""
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
    """Forget how far these topics are applied.

    Before anything is emptied: a transaction of a task that Connect has lost sight of finds no position any more, and
    is aborted.
    """
    offsets = client.get_database(DATABASE, write_concern=WriteConcern("majority"))[positions.OFFSETS]
    for topic in topics:
        one = {"pipeline": pipeline.name, "topic": topic}
        offsets.delete_many({"_id": {"$gte": one, "$lte": {**one, "partition": MaxKey()}}})  # a range: it has an index


def begin_late(client: Client, pipeline: Pipeline, rebuild: Rebuild) -> None:
    """Have the sink, which must be STOPPED, begin where the log began, of a log that was found not to be whole.

    A sink that finds a beginning gone stops."""
    if rebuild.forced:
        positions.skip_to(client, pipeline, late_starts(rebuild.log), datetime.now(UTC))


def empty(client: Client, targets: Mapping[str, int], say: Callable[[str], None]) -> None:
    """Delete all documents of these namespaces; indexes and options stay."""
    for target, count in targets.items():
        say(f"emptying {target}: {count:,} documents")
        database, collection = target.split(".", 1)
        client.get_database(database, write_concern=WriteConcern("majority"))[collection].delete_many({})


def course(pipeline: Pipeline, rebuild: Rebuild, connect: Connect, topics: Topics) -> Course:
    """The sink's way through the log as it was when the rebuild began."""
    return Course(pipeline, pipeline.sink_connector, "destination", connect, topics, dict(rebuild.log))


@dataclass(frozen=True, slots=True)
class State:
    """A rebuild as `status` shows it."""

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
    """The rebuild that is under way. Raises `MongoUnreachable` when the destination, which tells, does not answer."""
    if not pipeline.exactly_once:
        return None
    with briefly(pipeline.destination_uri, "destination") as client:
        found = marker(client, pipeline)
        if found is None:
            return None
        done = {place: applied.offset for place, applied in positions.positions(client, pipeline).items()}
    of = sum(end - first for first, end in found.log.values())
    applied = 0 if found.phase == "emptying" else of - measure(topics, remaining(found.log, topics), done).records
    return State(found, applied, of)
