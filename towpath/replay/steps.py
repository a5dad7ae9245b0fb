"""The steps of `towpath replay` to another destination."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from towpath.errors import MongoUnreachable, NotWhole, Refused, TowpathError
from towpath.events import Progress
from towpath.finding import require
from towpath.kafka.topics import Place
from towpath.log import bounds, dead_letters, integrity
from towpath.log.integrity import LogCheck
from towpath.mongo.client import REPLAY_SIDE, connected
from towpath.mongo_uri import without_credentials
from towpath.pipeline import ClusterTime, Pipeline
from towpath.replay import connector, rebuild_marker
from towpath.replay.connector import SinkProgress
from towpath.replay.plan import Log, Plan, Replay, ReplayOptions, find, name_of, namespaces
from towpath.replay.preconditions import (
    OF_LABEL,
    OF_REPLAY,
    ReplayInventory,
    capture_state,
    format_counts,
    refuse_too_early,
)
from towpath.replay.verdict import Verdict, missing_lines
from towpath.session import Say, Session
from towpath.text import counted, utc

#: Receives the progress, as events.
Report = Callable[[Progress], None]
#: Asks a question: returns for a yes, raises for a no.
Confirm = Callable[[str], None]


def replay(session: Session, options: ReplayOptions, report: Report, confirm: Confirm) -> Verdict:
    """Run a replay to its end, or continue an existing one. Raises `Refused` for what is not supported."""
    session.topics.brokers()  # first: without Kafka, Connect lets every request wait for 90 s
    inventory = ReplayInventory(session, options)
    require(OF_LABEL, inventory)
    label = inventory.label
    existing = find(session.connect, session.pipeline, label)
    running = _resume(inventory, existing, report) if existing else _begin(inventory, report, confirm)
    name = f"replay {label}"
    session.say(f"{name}: {length(running.replay.plan.log)}, to {without_credentials(options.uri)}")
    hint = f"`towpath remove PIPELINE --replay {label}` gives it up"
    progress = connector.sink_progress(running.replay, session.connect, session.topics)
    run(progress, options.timeout, name, hint, session.say, report)
    return _finish(session, running, name, report)


@dataclass(frozen=True, slots=True)
class _Running:
    replay: Replay
    check: LogCheck | None
    """What the log lacks; None when it is whole."""
    resumed: bool


def _begin(inventory: ReplayInventory, report: Report, confirm: Confirm) -> _Running:
    """Start a new replay: all checks, then its connector."""
    session, options, pipeline = inventory.session, inventory.options, inventory.pipeline
    for finding in require(OF_REPLAY, inventory):
        session.say(finding.finding)
    log = inventory.log
    check = check_log(session, log, report, copied=inventory.capture.copied, until=options.until, force=options.force)
    if inventory.counts:
        confirm(question(inventory.counts, options.uri))
        with connected(options.uri, REPLAY_SIDE) as client:
            rebuild_marker.empty(client, inventory.counts, session.say)
    letters = dead_letters.end(replace(pipeline, name=name_of(pipeline, inventory.label)), session.topics)
    plan = Plan(options.only, options.until, options.follow, check is not None, time.time(), letters, log)
    replay = Replay(pipeline, inventory.label, inventory.target.replica_set, options.uri, plan)
    connector.begin(replay, session.connect, session.topics, session.say)
    return _Running(replay, check, resumed=False)


def _resume(inventory: ReplayInventory, existing: Replay, report: Report) -> _Running:
    """Continue the replay with this label, which was interrupted or follows."""
    session, options, plan, label = inventory.session, inventory.options, existing.plan, existing.label
    same_options = plan.matches(options.only, options.until, follow=options.follow)
    if not existing.destination.is_same(inventory.target.replica_set) or not same_options:
        raise Refused(
            f"there is a replay {label} to {existing.destination} already, started with {plan.words}; give the same"
            " options to continue it, another --name for one beside it, or give it up: towpath remove PIPELINE"
            f" --replay {label}"
        )
    replay = replace(existing, uri=options.uri)
    lost = connector.lost_partitions(replay, session.topics)
    if lost:
        raise Refused(
            "the log no longer holds what the replay had not applied yet: " + "; ".join(lost) + "; start again: towpath"
            f" remove PIPELINE --replay {label}, then replay with --empty"
        )
    session.say(f"replay {label}: continuing the replay started at {utc(plan.began)}")
    connector.resume(replay, session.connect, session.say)
    check = check_log(session, plan.log, report, force=True) if plan.forced else None
    return _Running(replay, check, resumed=True)


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
    if until is not None:
        refuse_too_early(until, result.earliest)
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
        return bounds.cut_short(session.pipeline, session.topics, log)
    except MongoUnreachable as error:
        session.say(f"cannot check whether a topic of the log was truncated or recreated: {error}")
        return {}


def question(counts: Mapping[str, int], uri: str) -> str:
    """The confirmation question before documents are deleted."""
    count, address = sum(counts.values()), without_credentials(uri)
    return f"Delete all {count:,} documents of {format_counts(counts)} at {address}?"


def run(progress: SinkProgress, timeout: float, name: str, hint: str, say: Say, report: Report) -> None:
    """Wait until the log is applied. Raises `TowpathError` on Ctrl-C, with what continues and `hint`."""
    try:
        progress.wait_until_applied(timeout, report, say)
    except KeyboardInterrupt:
        raise TowpathError(
            f"{name}: goes on in Kafka Connect. Run the same command again to see its progress and to finish it; {hint}"
        ) from None


def _finish(session: Session, running: _Running, name: str, report: Report) -> Verdict:
    """The verdict. Unless it follows, the replay ends and is removed."""
    replay = running.replay
    plan = replay.plan
    if not plan.follow:
        connector.stop(replay, session.connect)
    verdict = Verdict(
        name=name,
        records=connector.counts(replay).records,
        counted=True,
        documents=documents(session.pipeline, replay.sink.destination_uri, REPLAY_SIDE, plan.log),
        seconds=time.time() - plan.began,
        until=plan.until,
        following=plan.follow,
        check=running.check,
        resumed=running.resumed,
        uncopied=session.pipeline.copy.method == "none",
        refused=connector.dead_letters_since(replay.sink, session.topics, plan.letters),
        letters=replay.dead_letter_topic,
        deleted=connector.deleted_heads(session.pipeline, plan.log, session.topics),
        earliest=None if plan.until is None else _overrun(session, plan.log, plan.until, report),
    )
    if not plan.follow:
        connector.remove(replay, session.connect, session.topics, keep_letters=True, say=session.say)
    return verdict


def _overrun(session: Session, log: Log, until: ClusterTime, report: Report) -> ClusterTime | None:
    """The earliest point in time that can be rebuilt now, if it is later than `until`."""
    earliest = _read_log(session, log, capture_state(session.pipeline, session.connect).copied, report).earliest
    return earliest if earliest is not None and until < earliest else None


def documents(pipeline: Pipeline, uri: str, side: str, log: Log) -> dict[str, int]:
    """Namespace at the destination → its number of documents, estimated."""
    counts = {}
    with connected(uri, side) as client:
        for name in namespaces(pipeline, log):
            target = pipeline.renames.destination(name)
            database, collection = target.split(".", 1)
            counts[target] = client[database][collection].estimated_document_count()
    return counts


def length(log: Log) -> str:
    records = sum(end - first for first, end in log.values())
    return f"about {records:,} records of {counted(len({topic for topic, _ in log}), 'topic')}"
