"""The steps of `towpath replay` to another destination, and its connector."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial

from towpath.checks.rule import Finding, error, require
from towpath.checks.target import others
from towpath.clients.connect.control import statuses, stop
from towpath.clients.kafka.topics import Place
from towpath.clients.mongo.client import Client, ClusterTime
from towpath.config.events import Replayed
from towpath.config.text import utc
from towpath.deploy.deployment import put
from towpath.errors import MongoError, MongoUnreachable, NotWhole, Refused, TowpathError
from towpath.history.emptying import Marker, empty
from towpath.history.plan import Log, Options, Plan, Replay, chosen, definition, find, format_time, namespaces
from towpath.history.preconditions import (
    OF_BEGINNING,
    OF_COMMAND,
    ReplayFacts,
    document_counts,
    format_counts,
    registration,
)
from towpath.history.sink_run import Report, SinkRun, missing, missing_lines
from towpath.log import bounds, dead_letters, integrity
from towpath.log.definitions import plain_settings
from towpath.log.integrity import LogCheck
from towpath.session import Session
from towpath.store import credentials, positions, writers

_ADVICE = {"connection.uri": " (--destination; its user needs readWrite on the databases written and on towpath)"}
#: Asks a question: returns for a yes, raises for a no.
Confirm = Callable[[str], None]


def replay(session: Session, options: Options, report: Report, confirm: Confirm) -> Replayed:
    """Run a replay to its end, or continue an existing one. Raises `Refused` for what is not supported."""
    session.topics.brokers()  # first: without Kafka, Connect lets every request wait for 90 s
    facts = ReplayFacts(session, options)
    require(OF_COMMAND, facts)
    existing = find(session.connect, session.pipeline, facts.label)
    if existing:
        replay, check = _resume(facts, existing, report)
    else:
        plan, check = begin(facts, report, confirm)
        replay = _create(facts, plan)
    run = SinkRun(facts, replay.plan, check)
    run.wait_until_applied(report)
    return _finish(run, replay, report)


def begin(facts: ReplayFacts, report: Report, confirm: Confirm) -> tuple[Plan, LogCheck | None]:
    """Check and confirm a new replay or rebuild; nothing is changed yet.

    Returns its plan, and what the log lacks; None when it is whole.
    """
    session, options = facts.session, facts.options
    for finding in require(OF_BEGINNING, facts):
        session.say(finding.finding)
    check = check_log(facts, facts.log, report, until=options.until, force=options.force)
    if facts.counts:
        count = f"all {sum(facts.counts.values()):,} documents of {format_counts(facts.counts)}"
        confirm(f"Delete {count} at {facts.cluster.address}?")
    plan = Plan(
        only=options.only,
        until=options.until,
        follow=options.follow,
        forced=check is not None,
        began=time.time(),
        letters=dead_letters.end(facts.sink, session.topics),
        log=facts.log,
        phase="applying" if facts.is_replay else "emptying",
    )
    return plan, check


def _create(facts: ReplayFacts, plan: Plan) -> Replay:
    """Create a new replay: its registration first, its connector last."""
    session = facts.session
    replay = Replay(session.pipeline, facts.label, facts.target.replica_set, facts.options.uri, plan)
    marker = Marker(facts.cluster, replay.name)
    _register(replay, facts, marker)
    if facts.options.empty:
        empty(session, marker, plan.log)
    _require_unwritten(replay, facts, marker)
    topic = replay.sink.dead_letter_topic
    if topic not in session.topics.all():
        if facts.pipeline.kafka.topics == "exist":
            raise Refused(f"the topic {topic} is missing", f"create it as that of {facts.pipeline.dead_letter_topic}")
        session.topics.create([topic], 1, facts.pipeline.kafka.replication_factor, plain_settings(facts.pipeline))
        session.say(f"created topic {topic}")
    late = plan.late if plan.forced else {}  # otherwise the sink stops where the beginning is gone
    now = datetime.now(UTC)
    marker.change(lambda client, transaction: positions.skip_to(client, replay.sink, late, now, transaction))
    put(session.connect, replay.name, definition(replay), replay.sink.secrets_file, _ADVICE)
    session.say(f"created connector {replay.name}")
    marker.delete()
    return replay


def _require_unwritten(replay: Replay, facts: ReplayFacts, marker: Marker) -> None:
    """Raise `Refused` if something has written since the destination was empty.

    A sink of the same replay, which another command has created since, is removed: its positions are gone. Raises
    `Overtaken` if that command has taken the marker over: then its sink has its positions.
    """
    with facts.cluster.connected() as client:
        counts = document_counts(client, facts.targets)
        written = counts or positions.positions(client, replay.sink)  # last: a sink stores positions first
    if not written:
        return
    existing = find(facts.session.connect, replay.pipeline, replay.label)
    marker.require()  # after `find`: a command creates no replay where there is one
    if existing:
        remove(replay, facts.session, keep_letters=False)
    raise Refused(
        f"something has written to the destination since it was empty: {format_counts(counts) or 'positions'}",
        "end what writes there, and begin again with --empty",
    )


def _resume(facts: ReplayFacts, existing: Replay, report: Report) -> tuple[Replay, LogCheck | None]:
    """Continue the replay with this label, which was interrupted or follows."""
    session, plan, label = facts.session, existing.plan, existing.label
    for finding in other_options(facts, existing):
        raise finding.refused
    replay = replace(existing, uri=facts.options.uri)
    with facts.cluster.connected() as client:
        applied = positions.positions(client, replay.sink)
    if lost := bounds.breaks_within(plan.log, session.topics, applied):
        raise Refused(
            "the log no longer holds what the replay had not applied yet: "
            + "; ".join(gap.description for gap in lost),
            f"start again: towpath remove PIPELINE --replay {label}, then replay with --empty",
        )
    session.say(f"replay {label}: continuing the replay started at {utc(plan.began)}")
    _run_again(replay, session)
    return replay, check_log(facts, plan.log, report, force=True) if plan.forced else None


def other_options(facts: ReplayFacts, existing: Replay) -> Iterator[Finding]:
    """The replay with this label was started with these options."""
    plan, label = existing.plan, existing.label
    if not existing.destination.is_same(facts.target.replica_set) or not plan.matches(facts.options):
        yield error(
            f"there is a replay {label} to {existing.destination} already, started with {plan.words}",
            "give the same options to continue it, another --name for one beside it, or give it up: towpath remove"
            f" PIPELINE --replay {label}",
        )


def check_log(
    facts: ReplayFacts, log: Log, report: Report, *, force: bool, until: ClusterTime | None = None
) -> LogCheck | None:
    """What the log lacks; None when it is whole. Unless `force`, prints what it lacks and raises `NotWhole`.

    Raises `Refused` if it does not hold the state of the point in time `until`.
    """
    session = facts.session
    result = gather_log(facts, log, None if until is None else facts.copied, report)
    for finding in too_early(until, result.earliest):
        raise finding.refused
    if result.is_whole:
        return None
    if not force:
        for line in missing_lines(missing(result)):
            session.say(line)
        if result.cut_short:
            session.say(
                "for topics that were truncated, deleted or recreated, start again: `towpath remove PIPELINE --topics`,"
                " `deploy`"
            )
        raise NotWhole(
            "the log cannot rebuild all documents, and nothing was changed",
            "--force rebuilds what can be rebuilt, and lists the rest; `towpath repair --ids` re-reads documents at the"
            " source, which writes them whole to the log",
        )
    return result


def gather_log(facts: ReplayFacts, log: Log, copied: ClusterTime | None, report: Report) -> LogCheck:
    """What the log lacks, and the earliest point in time in it, if `copied` is known."""
    return replace(_read_log(facts.session, log, copied, report), cut_short=_cut_short(facts, log))


def too_early(until: ClusterTime | None, earliest: ClusterTime | None) -> Iterator[Finding]:
    """The log has every state of the point in time `until`."""
    if until is not None and earliest is not None and until < earliest:
        yield error(
            f"--until {format_time(until)} is before the earliest point in time that can be rebuilt:"
            f" {format_time(earliest)}. Before it, the log does not hold every state: the copy was not done, or Kafka"
            " compacted the log",
            "",
        )


def _read_log(
    session: Session,
    log: Log,
    copied: ClusterTime | None,
    report: Report,
    applied: Mapping[Place, int] | None = None,
) -> LogCheck:
    names, words = namespaces(session.pipeline, log), "checking the log"
    cleaned_ms = _cleaned_ms(session) if copied is not None else 0
    result = integrity.check(
        session.pipeline, session.topics, names, copied, partial(report, words), cleaned_ms, applied
    )
    report(words, result.records, result.records)
    return result


def check_again(
    run: SinkRun, report: Report, *, copied: ClusterTime | None = None, applied: Mapping[Place, int] | None
) -> LogCheck:
    """What the log lacks now that the sink has applied it, which is added to what it lacked at the start.

    Kafka's cleaner may have come to updates, without the documents that have to follow them, before the sink did.
    """
    found, before = _read_log(run.facts.session, run.plan.log, copied, report, applied), run.check
    known = {(broken.namespace, broken.key) for broken in before.broken} if before else set()
    broken = tuple(one for one in found.broken if (one.namespace, one.key) not in known)
    if broken or found.cut_short:
        base = before or LogCheck(run.plan.offsets, (), (), None)
        cut_short = {**found.cut_short, **base.cut_short}
        run.check = replace(base, broken=(*base.broken, *broken), cut_short=cut_short)
    return found


def _cut_short(facts: ReplayFacts, log: Log) -> Mapping[Place, str]:
    """Partitions that were truncated, deleted or recreated, by the positions at the pipeline's destination.

    A lost destination is a reason for a replay, so it does not prevent one. A rebuild empties that destination, so it
    needs to know: raises `MongoUnreachable`.
    """
    try:
        return bounds.cut_short(facts.session, log, chosen(facts.pipeline, facts.options.only))
    except MongoUnreachable as error:
        if facts.is_rebuild:
            raise
        facts.session.say(f"cannot check whether a topic of the log was truncated, deleted or recreated: {error}")
        return {}


def _cleaned_ms(session: Session) -> int:
    """Before which time the log may be compacted, as was stored when its lag was raised; 0 if nothing was."""
    try:
        with session.destination.briefly() as client:
            time = writers.cleaned_before(client, session.pipeline.name)
    except MongoUnreachable as error:
        session.say(f"cannot check whether [log] compaction_lag was raised, and since when it holds: {error}")
        return 0
    return round(time.timestamp() * 1000) if time else 0


def _finish(run: SinkRun, replay: Replay, report: Report) -> Replayed:
    """The verdict. Unless it follows, the replay ends and is removed."""
    session, plan = run.facts.session, replay.plan
    if not plan.follow:
        stop(session.connect, replay.name)
    with run.facts.cluster.connected() as client:
        records = sum(task.counts.records for task in positions.task_states(client, replay.sink))
        done = positions.positions(client, replay.sink)
    earliest = None
    if plan.until is not None:  # Kafka may have compacted the log past it in the meantime
        copied = ReplayFacts(session, run.facts.options).copied
        earliest = check_again(run, report, copied=copied, applied=None).earliest
        earliest = earliest if earliest is not None and plan.until < earliest else None
    else:  # one that follows also reads what replaces what was compacted
        read = {place: max(end, done[place].offset if place in done else 0) for place, (_, end) in plan.log.items()}
        check_again(run, report, applied={} if plan.follow else read)
    verdict = run.verdict(records=records, earliest=earliest)
    if not plan.follow:
        remove(replay, session, keep_letters=True)
    return verdict


def _register(replay: Replay, facts: ReplayFacts, marker: Marker) -> None:
    """Register the replay before anything is deleted. The file of secrets, first, lets `remove --replay` undo that.

    Deletes the positions of an earlier replay of this name. Raises `Refused` when another writer has registered in the
    meantime, or another command has begun this replay.
    """
    ours = registration(facts)

    def refuse_others(client: Client) -> None:
        for finding in others(ours, writers.read_all(client), facts.targets):
            raise finding.refused

    _write_secrets(replay)
    with facts.cluster.connected() as client:
        refuse_others(client)  # first: one of this name has positions, which are deleted
        marker.put()
        if find(facts.session.connect, replay.pipeline, replay.label):
            marker.delete()
            raise Refused(
                f"another command has begun the replay {replay.label} in the meantime",
                "the same command with the same options continues it",
            )
        marker.change(lambda client, transaction: positions.forget_earlier(client, replay.sink, transaction))
        writers.register(client, ours)
        try:
            refuse_others(client)
        except Refused:
            writers.forget(client, ours.name)
            raise


def _write_secrets(replay: Replay) -> bool:
    """Write the file from which the workers read the destination's URI; return whether it differed."""
    file, text = replay.sink.secrets_file, credentials.replay_properties(replay.sink, replay.destination.name)
    if differs := credentials.differs(file, text):
        credentials.write(file, text)
    return differs


def _run_again(replay: Replay, session: Session) -> None:
    """Run an existing replay again with the current URI: restart it if it has failed, resume it if it was stopped."""
    connect, say = session.connect, session.say
    if _write_secrets(replay):
        connect.restart(replay.name, only_failed=False)
        say(f"wrote {replay.sink.secrets_file} and restarted {replay.name}, for a new address, password or key")
    (connector,) = statuses(connect, [replay.name])
    if connector.failures:
        connect.restart(replay.name, only_failed=True)
        say(f"restarted {replay.name}, which had failed: {'; '.join(connector.reasons)}")
    if connector.state in ("STOPPED", "PAUSED"):
        connect.resume(replay.name)
        say(f"resumed {replay.name}, which was {connector.state}")


def remove(replay: Replay, session: Session, *, keep_letters: bool) -> None:
    """Remove the replay: its connector, then its positions, dead-letter topic and secrets.

    In this order: a connector without positions would apply the log again, to what is there by now; and the file of
    secrets shows what an interrupted removal has left (`find_interrupted`).

    With `keep_letters` the topic stays unless it is empty. If the destination does not answer, the positions stay
    there; the next replay of the same name deletes them. Raises `TowpathError` if it refuses.
    """
    connect, topics, say, sink = session.connect, session.topics, session.say, replay.sink
    if connect.config(replay.name) is not None:
        stop(connect, replay.name)
        connect.forget_offsets(replay.name)
        connect.delete(replay.name)
        say(f"removed connector {replay.name}")
    if replay.uri is not None:
        _forget_positions(replay, session, replay.uri)
    topic = topics.all().get(sink.dead_letter_topic)
    if topic is not None and not (keep_letters and any(first < end for first, end in topics.ends([topic]).values())):
        topics.delete([topic.name])
        say(f"deleted topic {topic.name}")
    sink.secrets_file.unlink(missing_ok=True)


def _forget_positions(replay: Replay, session: Session, uri: str) -> None:
    try:
        with session.replay_destination(uri).connected() as client:
            positions.forget(client, replay.sink)
    except MongoUnreachable as error:
        session.say(f"{error}; the positions of {replay.name} stay there, in the database towpath")
    except MongoError as error:
        raise TowpathError(
            f"cannot remove the positions of {replay.name}, only its connector was removed: {error}",
            "the same command tries again;"
            f" without the file {replay.sink.secrets_file}, the positions stay there and the rest is removed",
            where=error.where,
        ) from error
