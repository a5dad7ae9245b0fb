"""The steps of `towpath replay` to another destination."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any, Protocol

from pymongo import MongoClient

from towpath.deploy.inventory import Inventory
from towpath.errors import MongoUnreachable, NotWhole, Refused, TowpathError
from towpath.kafka.topics import Place
from towpath.log import bounds, dead_letters
from towpath.log.integrity import LogCheck, check
from towpath.mongo.client import REPLAY_SIDE, ReplicaSet, connected, replay_set
from towpath.mongo.uri import without_credentials
from towpath.pipeline import ClusterTime, Pipeline
from towpath.replay import connector, rebuild_marker
from towpath.replay import preconditions as refuse
from towpath.replay.connector import Progress, SinkProgress
from towpath.replay.plan import Log, Plan, Replay, default_label, find, name_of, namespaces, refuse_label
from towpath.replay.verdict import Verdict, missing_lines
from towpath.session import Say, Session
from towpath.text import counted, utc

Client = MongoClient[dict[str, Any]]


@dataclass(frozen=True, slots=True, repr=False)
class ReplayOptions:
    """`uri` may contain a password; without a `label`, it is derived from the destination."""

    uri: str
    label: str | None
    only: tuple[str, ...]
    until: ClusterTime | None
    follow: bool
    empty: bool
    force: bool
    timeout: float


class Watcher(Protocol):
    """Shows the progress of a replay or a rebuild, and confirms that documents may be deleted."""

    def checking(self) -> AbstractContextManager[Callable[[int, int], None]]:
        """Receives how many records of the log have been checked, and of how many."""

    def applying(self) -> AbstractContextManager[Callable[[Progress], None]]:
        """Receives the progress of the sink."""

    def confirm(self, question: str) -> None:
        """Return for a yes, raise for a no."""


def replay(session: Session, options: ReplayOptions, watcher: Watcher) -> Verdict:
    """Run a replay to its end, or continue an existing one. Raises `Refused` for what is not supported."""
    session.topics.brokers()  # first: without Kafka, Connect lets every request wait for 90 s
    refuse.refuse_plain(session.pipeline)
    with connected(options.uri, REPLAY_SIDE) as client:
        destination = replay_set(client)
    label = options.label or default_label(destination)
    refuse_label(label)
    existing = find(session.connect, session.pipeline, label)
    running = (
        _resume(session, options, existing, destination, watcher)
        if existing
        else _begin(session, options, label, destination, watcher)
    )
    name = f"replay {label}"
    session.say(f"{name}: {length(running.replay.plan.log)}, to {without_credentials(options.uri)}")
    hint = f"`towpath remove PIPELINE --replay {label}` gives it up"
    progress = connector.sink_progress(running.replay, session.connect, session.topics)
    run(progress, options.timeout, name, hint, session.say, watcher)
    return _finish(session, running, name, watcher)


@dataclass(frozen=True, slots=True)
class _Running:
    replay: Replay
    check: LogCheck | None
    """What the log lacks; None when it is whole."""
    resumed: bool


def _begin(session: Session, options: ReplayOptions, label: str, destination: ReplicaSet, watcher: Watcher) -> _Running:
    """Start a new replay: all checks, then its connector."""
    pipeline, inventory = session.pipeline, Inventory(session.pipeline, session.connect, session.topics)
    topics = refuse.selected(pipeline, options.only, inventory.existing)
    refuse.refuse_name_taken(pipeline, label, inventory.existing)
    refuse.refuse_source(inventory, destination, session.say)
    refuse.refuse_own_destination(inventory, destination, session.say)
    capture = refuse.capture_state(pipeline, session.connect)
    refuse.refuse_uncopied(pipeline, force=options.force)
    if not options.follow:
        refuse.refuse_copying(pipeline, capture, options.only)
    if options.until is not None:
        refuse.refuse_until(pipeline, options.until, capture)
    log = session.topics.ends(topics)
    targets = [pipeline.renames.destination(name) for name in namespaces(pipeline, log)]
    refuse.refuse_written(inventory, label, destination, targets)
    to_delete = _documents_to_delete(options, targets)
    check = check_log(session, log, capture.copied, watcher, until=options.until, force=options.force)
    if to_delete:
        watcher.confirm(question(to_delete, options.uri))
        with connected(options.uri, REPLAY_SIDE) as client:
            rebuild_marker.empty(client, to_delete, session.say)
    letters = dead_letters.end(replace(pipeline, name=name_of(pipeline, label)), session.topics)
    plan = Plan(options.only, options.until, options.follow, check is not None, time.time(), letters, log)
    replay = Replay(pipeline, label, destination, options.uri, plan)
    connector.begin(replay, session.connect, session.topics, session.say)
    return _Running(replay, check, resumed=False)


def _resume(
    session: Session, options: ReplayOptions, existing: Replay, destination: ReplicaSet, watcher: Watcher
) -> _Running:
    """Continue the replay with this label, which was interrupted or follows."""
    plan, label = existing.plan, existing.label
    same_options = plan.matches(options.only, options.until, follow=options.follow)
    if not existing.destination.is_same(destination) or not same_options:
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
    copied = refuse.capture_state(session.pipeline, session.connect).copied
    check = check_log(session, plan.log, copied, watcher, until=None, force=True) if plan.forced else None
    return _Running(replay, check, resumed=True)


def check_log(
    session: Session, log: Log, copied: ClusterTime | None, watcher: Watcher, *, until: ClusterTime | None, force: bool
) -> LogCheck | None:
    """What the log lacks; None when it is whole. Unless `force`, prints what it lacks and raises `NotWhole`."""
    with watcher.checking() as report:
        result = check(session.pipeline, session.topics, namespaces(session.pipeline, log), copied, report)
    result = replace(result, cut_short=_cut_short(session, log))
    if until is not None:
        refuse.refuse_too_early(until, result.earliest)
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


def _cut_short(session: Session, log: Log) -> Mapping[Place, str]:
    """Partitions that were truncated or recreated, by the positions at the pipeline's destination.

    A lost destination is a reason for a replay, so it does not prevent one.
    """
    try:
        return bounds.cut_short(session.pipeline, session.topics, log)
    except MongoUnreachable as error:
        session.say(f"cannot check whether a topic of the log was truncated or recreated: {error}")
        return {}


def _documents_to_delete(options: ReplayOptions, targets: Iterable[str]) -> dict[str, int]:
    """Documents to delete, by namespace. Raises `Refused` for documents without --empty."""
    with connected(options.uri, REPLAY_SIDE) as client:
        counts = refuse.document_counts(client, targets)
    if not options.empty:
        refuse.refuse_documents(counts)
    return counts


def question(counts: Mapping[str, int], uri: str) -> str:
    """The confirmation question before documents are deleted."""
    count, address = sum(counts.values()), without_credentials(uri)
    return f"Delete all {count:,} documents of {refuse.format_counts(counts)} at {address}?"


def run(progress: SinkProgress, timeout: float, name: str, hint: str, say: Say, watcher: Watcher) -> None:
    """Wait until the log is applied. Raises `TowpathError` on Ctrl-C, with what continues and `hint`."""
    with watcher.applying() as report:
        try:
            progress.wait_until_applied(timeout, report, say)
        except KeyboardInterrupt:
            raise TowpathError(
                f"{name}: goes on in Kafka Connect. Run the same command again to see its progress and to finish it;"
                f" {hint}"
            ) from None


def _finish(session: Session, running: _Running, name: str, watcher: Watcher) -> Verdict:
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
        earliest=None if plan.until is None else _overrun(session, plan.log, plan.until, watcher),
    )
    if not plan.follow:
        connector.remove(replay, session.connect, session.topics, keep_letters=True, say=session.say)
    return verdict


def _overrun(session: Session, log: Log, until: ClusterTime, watcher: Watcher) -> ClusterTime | None:
    """The earliest point in time that can be rebuilt now, if it is later than `until`."""
    copied = refuse.capture_state(session.pipeline, session.connect).copied
    with watcher.checking() as report:
        earliest = check(session.pipeline, session.topics, namespaces(session.pipeline, log), copied, report).earliest
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
