"""The steps of `towpath replay --rebuild`: the pipeline's own destination is emptied and written anew."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Literal

from bson.max_key import MaxKey
from pymongo import MongoClient, ReadPreference, WriteConcern
from pymongo.collection import Collection

from connectors.control import statuses, stop_sink
from connectors.rest import Connect
from towpath.bookkeeping import cutover, positions
from towpath.bookkeeping.positions import DATABASE, REBUILDS
from towpath.deploy.loops import refuse_ring_on_resuming
from towpath.errors import Refused
from towpath.kafka.topics import Topics
from towpath.log import dead_letters
from towpath.log.bounds import still_there
from towpath.log.integrity import LogCheck
from towpath.log.lag import measure
from towpath.mongo.client import briefly, connected
from towpath.mongo_uri import without_credentials
from towpath.pipeline import Pipeline
from towpath.replay import connector as replaying
from towpath.replay import preconditions as refuse
from towpath.replay.connector import Course
from towpath.replay.plan import Log, late_starts, namespaces
from towpath.replay.steps import Watcher, checked, documents, length, question, run
from towpath.replay.verdict import Verdict
from towpath.session import Session
from towpath.verification import full_verdict


@dataclass(frozen=True, slots=True)
class Asked:
    """What a rebuild is asked for."""

    only: tuple[str, ...]
    force: bool
    timeout: float


def rebuild(it: Session, asked: Asked, watcher: Watcher) -> Verdict:
    """Run a rebuild to its end, or go on with the one that was interrupted. Raises with words for what is refused."""
    refuse.refuse_plain(it.pipeline)
    it.require_deployed()
    cutover.refuse(it.pipeline)
    refuse_ring_on_resuming(it.pipeline, it.connect, it.topics)
    with connected(it.pipeline.destination_uri, "destination") as client:
        found = marker(client, it.pipeline)
    rebuild, lacks = _begun(it, asked, watcher) if found is None else _gone_on(it, asked, found, watcher)
    if rebuild.phase == "emptying":
        rebuild = _empty(it, rebuild)
    it.connect.resume(it.pipeline.sink_connector)
    if any(connector.failures for connector in statuses(it.connect, [it.pipeline.sink_connector])):
        it.connect.restart(it.pipeline.sink_connector, only_failed=True)
    it.say(f"rebuild: {length(rebuild.log)}, to {without_credentials(it.pipeline.destination_uri)}")
    applying = course(it.pipeline, rebuild, it.connect, it.topics)
    run(applying, asked.timeout, "rebuild", "`towpath status` shows it as well", it.say, watcher)
    return _ended(it, rebuild, lacks, resumed=found is not None)


def _begun(it: Session, asked: Asked, watcher: Watcher) -> tuple[Rebuild, LogCheck | None]:
    """A rebuild that is asked for and marked; nothing else is done yet."""
    pipeline = it.pipeline
    topics = refuse.selected(pipeline, asked.only, it.topics.all())
    refuse.refuse_uncopied(pipeline, force=asked.force)
    log = it.topics.ends(topics)
    found = checked(it, log, refuse.captured(pipeline, it.connect).copied, watcher, until=None, force=asked.force)
    letters = dead_letters.end(pipeline, it.topics)
    with connected(pipeline.destination_uri, "destination") as client:
        filled = refuse.holding(client, [pipeline.renames.destination(name) for name in namespaces(pipeline, log)])
        if filled:
            watcher.confirm(question(filled, pipeline.destination_uri))
        begun = Rebuild(asked.only, found is not None, time.time(), letters, log)
        mark(client, pipeline, begun)
    full_verdict.forget(it)
    return begun, found


def _gone_on(it: Session, asked: Asked, found: Rebuild, watcher: Watcher) -> tuple[Rebuild, LogCheck | None]:
    if set(found.only) != set(asked.only):
        words = " ".join(f"--only {pattern}" for pattern in found.only) or "no --only"
        raise Refused(
            f"a rebuild of {it.pipeline.name} with {words} was begun and is not over; give the same to go on with it"
        )
    it.say("going on with the rebuild that was begun before")
    if not found.forced:
        return found, None
    copied = refuse.captured(it.pipeline, it.connect).copied
    return found, checked(it, found.log, copied, watcher, until=None, force=True)


def _empty(it: Session, begun: Rebuild) -> Rebuild:
    """Stop the sink, forget how far these topics are applied, empty their namespaces; in this order."""
    pipeline = it.pipeline
    it.say(f"stopping {pipeline.sink_connector}")
    stop_sink(pipeline, it.connect)
    with connected(pipeline.destination_uri, "destination") as client:
        forget_positions(client, pipeline, begun.topics)
        begin_late(client, pipeline, begun)
        targets = [pipeline.renames.destination(name) for name in namespaces(pipeline, begun.log)]
        empty(client, refuse.holding(client, targets), it.say)
        emptied = replace(begun, phase="applying")
        mark(client, pipeline, emptied)
    return emptied


def _ended(it: Session, rebuild: Rebuild, lacks: LogCheck | None, *, resumed: bool) -> Verdict:
    pipeline = it.pipeline
    with connected(pipeline.destination_uri, "destination") as client:
        unmark(client, pipeline)
    return Verdict(
        what="rebuild",
        records=sum(end - first for first, end in rebuild.log.values()),
        counted=False,
        documents=documents(pipeline, pipeline.destination_uri, "destination", rebuild.log),
        seconds=time.time() - rebuild.began,
        until=None,
        following=False,
        check=lacks,
        resumed=resumed,
        uncopied=pipeline.copy.way == "none",
        refused=replaying.refused(pipeline, it.topics, rebuild.letters),
        letters=pipeline.dead_letter_topic,
        heads=[words for _, words in replaying.moved_heads(pipeline, rebuild.log, it.topics).values()],
    )


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
    applied = 0 if found.phase == "emptying" else of - measure(topics, still_there(found.log, topics), done).records
    return State(found, applied, of)
