"""A rebuild: a pipeline's own destination is emptied, and its sink applies the log from the beginning.

A marker at the destination is written first and deleted last, so that a rebuild can continue after a kill.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Literal

from bson.max_key import MaxKey
from pymongo import ReadPreference, WriteConcern
from pymongo.collection import Collection

from towpath.checks import target
from towpath.checks.other_pipelines import refuse_loop_on_resuming
from towpath.checks.rule import require
from towpath.clients.connect.control import statuses, stop
from towpath.clients.mongo.client import Client
from towpath.config.pipeline import Pipeline
from towpath.errors import Refused
from towpath.history.replay.plan import RebuildOptions, Start, chosen
from towpath.history.replay.preconditions import OF_MODE, OF_REBUILD, RebuildFacts
from towpath.history.replay.sink_run import SinkRun
from towpath.history.replay.steps import Confirm, Report, check_log, empty, question
from towpath.history.replay.verdict import Verdict
from towpath.log import dead_letters
from towpath.log.bounds import still_in_log
from towpath.log.definitions import DDL_REPLAY
from towpath.log.integrity import LogCheck
from towpath.log.lag import measure
from towpath.session import Session
from towpath.store import cutover, positions, schema_changes, verdict
from towpath.store.positions import DATABASE, OFFSETS, REBUILDS


@dataclass(frozen=True, slots=True, kw_only=True)
class Rebuild(Start):
    """The marker of a rebuild."""

    phase: Literal["emptying", "applying"] = "emptying"
    """Whether the namespaces are being emptied or the log is being applied."""


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


def _markers(client: Client) -> Collection[dict[str, Any]]:
    database = client.get_database(
        DATABASE, read_preference=ReadPreference.PRIMARY, write_concern=WriteConcern("majority")
    )
    return database[REBUILDS]


def rebuild(session: Session, options: RebuildOptions, report: Report, confirm: Confirm) -> Verdict:
    """Run a rebuild to its end, or continue an interrupted one. Raises `Refused` for what is not supported."""
    facts, pipeline = RebuildFacts(session, options), session.pipeline
    require(OF_MODE, facts)
    session.require_deployed()
    target.require_own(session)
    cutover.refuse(session)
    refuse_loop_on_resuming(session)
    with session.destination.connected() as client:
        existing = marker(client, pipeline)
    rebuild, check = _resume(session, options, existing, report) if existing else _begin(facts, report, confirm)
    if rebuild.phase == "emptying":
        rebuild = _empty(session, rebuild)
    session.connect.resume(pipeline.sink_connector)
    if any(connector.failures for connector in statuses(session.connect, [pipeline.sink_connector])):
        session.connect.restart(pipeline.sink_connector, only_failed=True)
    run = SinkRun(session, "rebuild", pipeline, pipeline.sink_connector, session.destination, rebuild)
    run.wait_until_applied(options.timeout, "`towpath status` shows it as well", report)
    _set_replay(session, None)
    with session.destination.connected() as client:
        _markers(client).delete_one({"_id": pipeline.name})
    return Verdict.of(run, check, resumed=existing is not None)


def _begin(facts: RebuildFacts, report: Report, confirm: Confirm) -> tuple[Rebuild, LogCheck | None]:
    """Check and confirm a new rebuild, and write its marker; nothing else is changed yet."""
    session, options, pipeline = facts.session, facts.options, facts.pipeline
    require(OF_REBUILD, facts)
    check = check_log(session, facts.log, report, force=options.force)
    letters = dead_letters.end(pipeline, session.topics)
    if facts.counts:
        confirm(question(facts.counts, session.destination))
    rebuild = Rebuild(only=options.only, forced=check is not None, began=time.time(), letters=letters, log=facts.log)
    with session.destination.connected() as client:
        mark(client, pipeline, rebuild)
    return rebuild, check


def _resume(
    session: Session, options: RebuildOptions, existing: Rebuild, report: Report
) -> tuple[Rebuild, LogCheck | None]:
    if set(existing.only) != set(options.only):
        patterns = " ".join(f"--only {pattern}" for pattern in existing.only) or "no --only"
        raise Refused(
            f"a rebuild of {session.pipeline.name} with {patterns} has started and is not finished; give the same"
            " options to continue it"
        )
    session.say("continuing the rebuild that was started before")
    return existing, check_log(session, existing.log, report, force=True) if existing.forced else None


def _empty(session: Session, rebuild: Rebuild) -> Rebuild:
    """Stop the sink, delete the positions of the topics, empty their namespaces; in this order.

    A task that Connect has lost track of, with an open transaction, then finds no position, and aborts. Verdicts of
    before, and of verifications that began while documents were removed, do not count.
    """
    pipeline = session.pipeline
    session.say(f"stopping {pipeline.sink_connector}")
    stop(session.connect, pipeline.sink_connector)
    with session.destination.connected() as client:
        verdict.begin_history(client, pipeline, "a rebuild began")
        offsets = client.get_database(DATABASE, write_concern=WriteConcern("majority"))[OFFSETS]
        for topic in rebuild.topics:
            prefix = {"pipeline": pipeline.name, "topic": topic}
            last = {**prefix, "partition": MaxKey()}
            offsets.delete_many({"_id": {"$gte": prefix, "$lte": last}})  # uses the _id index
        if rebuild.forced:  # otherwise the sink stops where the beginning is gone
            positions.skip_to(client, pipeline, rebuild.late, datetime.now(UTC))
        if pipeline.ddl.apply or schema_changes.exist(client, pipeline):
            only = chosen(pipeline, rebuild.only).topic_regex(pipeline.name)
            _set_replay(session, only if rebuild.only else "true")
        schema_changes.forget(client, pipeline, rebuild.topics if rebuild.only else None)
        empty(session, client, rebuild.log)
        verdict.begin_history(client, pipeline, "a rebuild had emptied the destination")
        emptied = replace(rebuild, phase="applying")
        mark(client, pipeline, emptied)
    return emptied


def _set_replay(session: Session, value: str | None) -> None:
    """Have the sink make schema changes as a replay does, of all topics or those that match, or no longer."""
    connect, name = session.connect, session.pipeline.sink_connector
    config = connect.config(name) or {}
    if config.get(DDL_REPLAY) != value:
        rest = {key: text for key, text in config.items() if key != DDL_REPLAY}
        connect.put(name, rest | ({DDL_REPLAY: value} if value else {}))


@dataclass(frozen=True, slots=True)
class State:
    """A rebuild with its progress, as `status` shows it."""

    rebuild: Rebuild
    done: int

    def as_json(self) -> dict[str, Any]:
        return {
            "since": self.rebuild.began,
            "only": list(self.rebuild.only),
            "phase": self.rebuild.phase,
            "records_done": self.done,
            "records": self.rebuild.offsets,
        }

    @property
    def words(self) -> str:
        since = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(self.rebuild.began))
        return f"since {since} UTC, {self.done:,} of about {self.rebuild.offsets:,} records applied"


def read_state(session: Session) -> State | None:
    """The rebuild that is running. Raises `MongoUnreachable` when the destination, which stores it, does not answer."""
    pipeline, topics = session.pipeline, session.topics
    if not pipeline.exactly_once:
        return None
    with session.destination.briefly() as client:
        rebuild = marker(client, pipeline)
        if rebuild is None:
            return None
        offsets = {place: position.offset for place, position in positions.positions(client, pipeline).items()}
    if rebuild.phase == "emptying":
        return State(rebuild, 0)
    return State(rebuild, rebuild.offsets - measure(topics, still_in_log(rebuild.log, topics), offsets).records)
