"""The steps of `towpath replay` to another destination, and its connector."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from itertools import islice
from typing import Any

from pymongo import WriteConcern
from pymongo.database import Database

from towpath.checks.rule import require
from towpath.checks.target import others
from towpath.clients.connect.control import statuses, stop
from towpath.clients.kafka.consume import messages
from towpath.clients.kafka.topics import Place
from towpath.clients.mongo.client import Client, Cluster, ClusterTime
from towpath.clients.mongo.replica_set import collections
from towpath.config.events import Progress
from towpath.config.namespaces import namespace_of
from towpath.config.text import utc
from towpath.deploy.deployment import put
from towpath.errors import MongoError, MongoUnreachable, NotWhole, Refused, TowpathError
from towpath.history.replay.plan import (
    Log,
    Plan,
    Replay,
    ReplayOptions,
    definition,
    find,
    format_time,
    name_of,
    namespaces,
)
from towpath.history.replay.preconditions import (
    OF_LABEL,
    OF_REPLAY,
    ReplayFacts,
    capture_state,
    document_counts,
    format_counts,
    registration,
)
from towpath.history.replay.sink_run import SinkRun
from towpath.history.replay.verdict import Verdict, missing_lines
from towpath.log import bounds, dead_letters, integrity
from towpath.log.definitions import plain_settings
from towpath.log.integrity import LogCheck
from towpath.log.records import is_schema_change
from towpath.session import Say, Session
from towpath.store import credentials, positions, writers
from towpath.store.writers import Registration

_ADVICE = {"connection.uri": " (--destination; its user needs readWrite on the databases written and on towpath)"}
#: Receives the progress, as events.
Report = Callable[[Progress], None]
#: Asks a question: returns for a yes, raises for a no.
Confirm = Callable[[str], None]


def replay(session: Session, options: ReplayOptions, report: Report, confirm: Confirm) -> Verdict:
    """Run a replay to its end, or continue an existing one. Raises `Refused` for what is not supported."""
    session.topics.brokers()  # first: without Kafka, Connect lets every request wait for 90 s
    facts = ReplayFacts(session, options)
    require(OF_LABEL, facts)
    label = facts.label
    existing = find(session.connect, session.pipeline, label)
    replay, check = _resume(facts, existing, report) if existing else _begin(facts, report, confirm)
    run = SinkRun(
        session, f"replay {label}", replay.sink, replay.name, session.replay_destination(options.uri), replay.plan
    )
    run.wait_until_applied(options.timeout, f"`towpath remove PIPELINE --replay {label}` gives it up", report)
    return _finish(run, replay, check, report, resumed=existing is not None)


def _begin(facts: ReplayFacts, report: Report, confirm: Confirm) -> tuple[Replay, LogCheck | None]:
    """Start a new replay: all checks, then its connector. Returns what the log lacks, too; None when it is whole."""
    session, options, pipeline = facts.session, facts.options, facts.pipeline
    for finding in require(OF_REPLAY, facts):
        session.say(finding.finding)
    log, copied = facts.log, facts.capture.copied
    check = check_log(session, log, report, copied=copied, until=options.until, force=options.force)
    if facts.counts:
        confirm(question(facts.counts, session.replay_destination(options.uri)))
    plan = Plan(
        only=options.only,
        until=options.until,
        follow=options.follow,
        forced=check is not None,
        began=time.time(),
        letters=dead_letters.end(pipeline.changed(name=name_of(pipeline, facts.label)), session.topics),
        log=log,
    )
    replay = Replay(pipeline, facts.label, facts.target.replica_set, options.uri, plan)
    _register(replay, session, registration(facts), facts.targets)
    if options.empty:
        with session.replay_destination(options.uri).connected() as client:
            empty(session, client, log)
    _create(replay, session)
    return replay, check


def _resume(facts: ReplayFacts, existing: Replay, report: Report) -> tuple[Replay, LogCheck | None]:
    """Continue the replay with this label, which was interrupted or follows."""
    session, options, plan, label = facts.session, facts.options, existing.plan, existing.label
    same_options = plan.matches(options.only, options.until, follow=options.follow)
    if not existing.destination.is_same(facts.target.replica_set) or not same_options:
        raise Refused(
            f"there is a replay {label} to {existing.destination} already, started with {plan.words}; give the same"
            " options to continue it, another --name for one beside it, or give it up: towpath remove PIPELINE"
            f" --replay {label}"
        )
    replay = replace(existing, uri=options.uri)
    with session.replay_destination(options.uri).connected() as client:
        applied = positions.positions(client, replay.sink)
    if lost := bounds.breaks_within(plan.log, session.topics, applied):
        raise Refused(
            "the log no longer holds what the replay had not applied yet: "
            + "; ".join(gap.description for gap in lost)
            + f"; start again: towpath remove PIPELINE --replay {label}, then replay with --empty"
        )
    session.say(f"replay {label}: continuing the replay started at {utc(plan.began)}")
    _run_again(replay, session)
    return replay, check_log(session, plan.log, report, force=True) if plan.forced else None


def check_log(
    session: Session,
    log: Log,
    report: Report,
    *,
    force: bool,
    copied: ClusterTime | None = None,
    until: ClusterTime | None = None,
) -> LogCheck | None:
    """What the log lacks; None when it is whole. Unless `force`, prints what it lacks and raises `NotWhole`.

    `copied` is needed for `until` only: see `integrity.check`.
    """
    result = replace(_read_log(session, log, copied, report), cut_short=_cut_short(session, log))
    if until is not None and result.earliest is not None and until < result.earliest:
        second = datetime.fromtimestamp(result.earliest.seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        raise Refused(
            f"--until {format_time(until)} is before the earliest point in time that can be rebuilt: {result.earliest},"
            f" or {second}. Before it, the log does not hold every state: the copy was not done, or Kafka compacted"
            " the log"
        )
    if result.is_whole:
        return None
    if not force:
        for line in missing_lines(result):
            session.say(line)
        if result.cut_short:
            session.say(
                "for topics that were truncated or recreated, start again: `towpath remove PIPELINE --topics`, `deploy`"
            )
        raise NotWhole(
            "the log cannot rebuild all documents, and nothing was changed. --force rebuilds what can be rebuilt, and"
            " lists the rest; `towpath repair --ids` re-reads documents at the source, which writes them whole"
            " to the log"
        )
    return result


def _read_log(session: Session, log: Log, copied: ClusterTime | None, report: Report) -> LogCheck:
    names = namespaces(session.pipeline, log)
    result = integrity.check(
        session.pipeline,
        session.topics,
        names,
        copied,
        lambda done, of: report(Progress(event="checking", done=done, of=of)),
    )
    report(Progress(event="checking", done=result.records, of=result.records, is_last=True))
    return result


def _cut_short(session: Session, log: Log) -> Mapping[Place, str]:
    """Partitions that were truncated or recreated, by the positions at the pipeline's destination.

    A lost destination is a reason for a replay, so it does not prevent one.
    """
    try:
        return bounds.cut_short(session, log)
    except MongoUnreachable as error:
        session.say(f"cannot check whether a topic of the log was truncated or recreated: {error}")
        return {}


def question(counts: Mapping[str, int], destination: Cluster) -> str:
    """The confirmation question before documents are deleted."""
    count = sum(counts.values())
    return f"Delete all {count:,} documents of {format_counts(counts)} at {destination.address}?"


def empty(session: Session, client: Client, log: Log) -> None:
    """Delete all documents of the namespaces in a range of the log. Indexes and options stay, unless the log has them.

    What the log begins to make is dropped: it has options and indexes from then on.
    """
    destination = session.pipeline.renamed
    targets = {destination(name): name for name in namespaces(session.pipeline, log)}
    made = _made_by_log(session, log)
    counts = document_counts(client, targets)
    existing = collections(client, sorted({target.partition(".")[0] for target in targets}))
    for target in (collection.namespace for collection in existing if targets.get(collection.namespace) in made):
        session.say(f"dropping {target}, which the log makes again")
        _database(client, target).drop_collection(target.split(".", 1)[1])
    for target, count in counts.items():
        if targets[target] not in made:
            session.say(f"emptying {target}: {count:,} documents")
            _database(client, target)[target.split(".", 1)[1]].delete_many({})


def _database(client: Client, namespace: str) -> Database[dict[str, Any]]:
    return client.get_database(namespace.split(".", 1)[0], write_concern=WriteConcern("majority"))


def _made_by_log(session: Session, log: Log) -> set[str]:
    """The namespaces whose topic begins with a schema change, which is in each partition."""
    made = set()
    with session.topics.reader() as consumer:
        for place in (place for place, (first, end) in log.items() if place[1] == 0 and first < end):
            for _, message in islice(messages(consumer, {place: log[place]}, at_once=1), 1):
                if is_schema_change(message.key()):
                    made.add(namespace_of(session.pipeline.name, place[0]))
    return made


def _finish(run: SinkRun, replay: Replay, check: LogCheck | None, report: Report, *, resumed: bool) -> Verdict:
    """The verdict. Unless it follows, the replay ends and is removed."""
    session, plan = run.session, replay.plan
    if not plan.follow:
        stop(session.connect, replay.name)
    with run.destination.connected() as client:
        records = sum(task.counts.records for task in positions.task_states(client, replay.sink))
    earliest = None
    if plan.until is not None:  # Kafka may have compacted the log past it meanwhile
        earliest = _read_log(
            session, plan.log, capture_state(session.pipeline, session.connect).copied, report
        ).earliest
        earliest = earliest if earliest is not None and plan.until < earliest else None
    verdict = Verdict.of(
        run, check, resumed=resumed, records=records, until=plan.until, following=plan.follow, earliest=earliest
    )
    if not plan.follow:
        remove(replay, session, keep_letters=True)
    return verdict


def _register(replay: Replay, session: Session, registration: Registration, targets: tuple[str, ...]) -> None:
    """Register the replay before anything is deleted. The file of secrets, first, lets `remove --replay` undo that.

    Deletes the positions of an earlier replay of this name. Raises `Refused` when another writer has registered in the
    meantime.
    """
    _write_secrets(replay)
    with session.replay_destination(replay.sink.destination.uri).connected() as client:
        _refuse_others(client, registration, targets)  # first: one of this name has positions, which are deleted
        positions.forget(client, replay.sink)
        writers.register(client, registration)
        try:
            _refuse_others(client, registration, targets)
        except Refused:
            writers.forget(client, registration.name)
            raise


def _refuse_others(client: Client, registration: Registration, targets: tuple[str, ...]) -> None:
    for finding in others(registration, writers.read_all(client), targets):
        raise Refused(finding.finding, finding.advice)


def _create(replay: Replay, session: Session) -> None:
    """Create what the replay needs, its connector last."""
    topics, pipeline = session.topics, replay.pipeline
    settings = plain_settings(pipeline)
    if replay.sink.dead_letter_topic not in topics.all():
        topics.create(replay.sink.dead_letter_topic, 1, pipeline.kafka.replication_factor, settings)
        session.say(f"created topic {replay.sink.dead_letter_topic}")
    with session.replay_destination(replay.sink.destination.uri).connected() as client:
        if replay.plan.forced:  # otherwise the sink stops where the beginning is gone
            positions.skip_to(client, replay.sink, replay.plan.late, datetime.now(UTC))
    put(session.connect, replay.name, definition(replay), replay.secrets, _ADVICE)
    session.say(f"created connector {replay.name}")


def _write_secrets(replay: Replay) -> bool:
    """Write the file from which the workers read the destination's URI; return whether it differed."""
    text = credentials.replay_properties(replay.sink, replay.destination.name)
    if differs := credentials.differs(replay.secrets, text):
        credentials.write(replay.secrets, text)
    return differs


def _run_again(replay: Replay, session: Session) -> None:
    """Run an existing replay again with the current URI: restart it if it has failed, resume it if it was stopped."""
    connect, say = session.connect, session.say
    if _write_secrets(replay):
        connect.restart(replay.name, only_failed=False)
        say(f"wrote {replay.secrets} and restarted {replay.name}, for the new address or password")
    (connector,) = statuses(connect, [replay.name])
    if connector.failures:
        connect.restart(replay.name, only_failed=True)
        say(f"restarted {replay.name}, which had failed: {'; '.join(connector.failures)}")
    if connector.state in ("STOPPED", "PAUSED"):
        connect.resume(replay.name)
        say(f"resumed {replay.name}, which was {connector.state}")


def remove(replay: Replay, session: Session, *, keep_letters: bool) -> None:
    """Remove the replay: its connector, then its positions, secrets and dead-letter topic.

    With `keep_letters` the topic stays unless it is empty. If the destination does not answer, the positions stay
    there; the next replay of the same name deletes them. Raises `TowpathError` if it refuses.
    """
    connect, topics, say = session.connect, session.topics, session.say
    exists = connect.config(replay.name) is not None
    if exists:
        stop(connect, replay.name)
    if replay.uri is not None:
        _forget_positions(replay, session.replay_destination(replay.uri), say)
    if exists:
        connect.forget_offsets(replay.name)
        connect.delete(replay.name)
        say(f"removed connector {replay.name}")
    replay.secrets.unlink(missing_ok=True)
    topic = topics.all().get(replay.sink.dead_letter_topic)
    if topic is not None and not (keep_letters and any(first < end for first, end in topics.ends([topic]).values())):
        topics.delete([topic.name])
        say(f"deleted topic {topic.name}")


def _forget_positions(replay: Replay, destination: Cluster, say: Say) -> None:
    try:
        with destination.connected() as client:
            positions.forget(client, replay.sink)
    except MongoUnreachable as error:
        say(f"{error}; the positions of {replay.name} stay there, in the database towpath")
    except MongoError as error:
        raise TowpathError(
            f"cannot remove the positions of {replay.name}, and nothing else of it was removed: {error}",
            f"without the file {replay.secrets}, the positions stay there and the rest is removed",
            where=error.where,
        ) from error
