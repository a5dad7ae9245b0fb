"""The steps of `towpath replay` into another destination."""

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
from towpath.mongo_uri import without_credentials
from towpath.pipeline import ClusterTime, Pipeline
from towpath.replay import connector, rebuild_marker
from towpath.replay import preconditions as refuse
from towpath.replay.connector import Course, Progress
from towpath.replay.plan import Log, Plan, Replay, default_label, find, name_of, namespaces, refuse_label
from towpath.replay.verdict import Verdict, lacking
from towpath.session import Say, Session
from towpath.text import counted, utc

Client = MongoClient[dict[str, Any]]


@dataclass(frozen=True, slots=True, repr=False)
class Asked:
    """What a replay is asked for. `uri` may hold a password; `label` None takes the destination's."""

    uri: str
    label: str | None
    only: tuple[str, ...]
    until: ClusterTime | None
    follow: bool
    empty: bool
    force: bool
    timeout: float


class Watcher(Protocol):
    """Who looks on while a replay or a rebuild works, and is asked before documents are deleted."""

    def checking(self) -> AbstractContextManager[Callable[[int, int], None]]:
        """Is given how many records of the log are read before it begins, and of how many."""

    def applying(self) -> AbstractContextManager[Callable[[Progress], None]]:
        """Is given how far it has come."""

    def confirm(self, question: str) -> None:
        """Returns for a yes, and raises for a no."""


def replay(it: Session, asked: Asked, watcher: Watcher) -> Verdict:
    """Run a replay to its end, or go on with the one that is there. Raises with words for what is refused."""
    it.topics.brokers()  # first: without Kafka, Connect lets every request wait for 90 s
    refuse.refuse_plain(it.pipeline)
    with connected(asked.uri, REPLAY_SIDE) as client:
        destination = replay_set(client)
    label = asked.label or default_label(destination)
    refuse_label(label)
    found = find(it.connect, it.pipeline, label)
    running = (
        _gone_on(it, asked, found, destination, watcher) if found else _begun(it, asked, label, destination, watcher)
    )
    what = f"replay {label}"
    it.say(f"{what}: {length(running.replay.plan.log)}, to {without_credentials(asked.uri)}")
    follow_up = f"`towpath remove PIPELINE --replay {label}` gives it up"
    run(connector.course(running.replay, it.connect, it.topics), asked.timeout, what, follow_up, it.say, watcher)
    return _ended(it, running, what, watcher)


@dataclass(frozen=True, slots=True)
class _Running:
    replay: Replay
    check: LogCheck | None
    """What the log lacks; None when it is whole."""
    resumed: bool


def _begun(it: Session, asked: Asked, label: str, destination: ReplicaSet, watcher: Watcher) -> _Running:
    """A replay that was not there before, with its connector."""
    pipeline, inventory = it.pipeline, Inventory(it.pipeline, it.connect, it.topics)
    topics = refuse.selected(pipeline, asked.only, inventory.existing)
    refuse.refuse_name_taken(pipeline, label, inventory.existing)
    refuse.refuse_source(inventory, destination, it.say)
    refuse.refuse_own_destination(inventory, destination, it.say)
    now = refuse.captured(pipeline, it.connect)
    refuse.refuse_uncopied(pipeline, force=asked.force)
    if not asked.follow:
        refuse.refuse_copying(pipeline, now, asked.only)
    if asked.until is not None:
        refuse.refuse_moment(pipeline, asked.until, now)
    log = it.topics.ends(topics)
    targets = [pipeline.renames.destination(name) for name in namespaces(pipeline, log)]
    refuse.refuse_written(inventory, label, destination, targets)
    filled = _filled(asked, targets)
    found = checked(it, log, now.copied, watcher, until=asked.until, force=asked.force)
    if filled:
        watcher.confirm(question(filled, asked.uri))
        with connected(asked.uri, REPLAY_SIDE) as client:
            rebuild_marker.empty(client, filled, it.say)
    letters = dead_letters.end(replace(pipeline, name=name_of(pipeline, label)), it.topics)
    plan = Plan(asked.only, asked.until, asked.follow, found is not None, time.time(), letters, log)
    begun = Replay(pipeline, label, destination, asked.uri, plan)
    connector.begin(begun, it.connect, it.topics, it.say)
    return _Running(begun, found, resumed=False)


def _gone_on(it: Session, asked: Asked, found: Replay, destination: ReplicaSet, watcher: Watcher) -> _Running:
    """The replay of that label, which was interrupted, or follows."""
    if not found.destination.is_same(destination) or not found.plan.is_asked(
        asked.only, asked.until, follow=asked.follow
    ):
        raise Refused(
            f"there is a replay {found.label} to {found.destination} already, begun with {found.plan.words}; give the"
            " same again to go on with it, another --name for one beside it, or give it up: towpath remove PIPELINE"
            f" --replay {found.label}"
        )
    found = Replay(found.pipeline, found.label, found.destination, asked.uri, found.plan)
    lost = connector.overtaken(found, it.topics)
    if lost:
        raise Refused(
            "the log no longer holds what the replay had not applied yet: " + "; ".join(lost) + "; begin anew: towpath"
            f" remove PIPELINE --replay {found.label}, then replay with --empty"
        )
    it.say(f"replay {found.label}: going on with what was begun at {utc(found.plan.began)}")
    connector.go_on(found, it.connect, it.say)
    copied = refuse.captured(it.pipeline, it.connect).copied
    lacks = checked(it, found.plan.log, copied, watcher, until=None, force=True) if found.plan.forced else None
    return _Running(found, lacks, resumed=True)


def checked(
    it: Session, log: Log, copied: ClusterTime | None, watcher: Watcher, *, until: ClusterTime | None, force: bool
) -> LogCheck | None:
    """What the log lacks; None when it is whole. Says what it lacks and raises `NotWhole`, unless `force`."""
    with watcher.checking() as tell:
        found = check(it.pipeline, it.topics, namespaces(it.pipeline, log), copied, tell)
    found = replace(found, cut_short=_cut_short(it, log))
    if until is not None:
        refuse.refuse_too_early(until, found.earliest)
    if found.is_whole:
        return None
    if not force:
        for line in lacking(found):
            it.say(line)
        if found.cut_short:
            it.say("what was cut short or made again is begun anew by `towpath remove PIPELINE --topics` and `deploy`")
        raise NotWhole(
            "the log cannot rebuild all documents, and nothing was changed. --force rebuilds what can be rebuilt, and"
            " lists the rest; `towpath repair --ids` re-reads documents at the source, which puts them whole into"
            " the log"
        )
    return found


def _cut_short(it: Session, log: Log) -> Mapping[Place, str]:
    """As the pipeline's destination tells; one that is lost is a reason for a replay, and keeps none from beginning."""
    try:
        return bounds.cut_short(it.pipeline, it.topics, log)
    except MongoUnreachable as error:
        it.say(f"cannot make sure that no topic of the log was cut short or made again: {error}")
        return {}


def _filled(asked: Asked, targets: Iterable[str]) -> dict[str, int]:
    """What the namespaces hold, and is to be deleted. Raises `Refused` when it is not."""
    with connected(asked.uri, REPLAY_SIDE) as client:
        filled = refuse.holding(client, targets)
    if not asked.empty:
        refuse.refuse_filled(filled)
    return filled


def question(filled: Mapping[str, int], uri: str) -> str:
    """To be answered with a yes before documents are deleted."""
    count, address = sum(filled.values()), without_credentials(uri)
    return f"Delete all {count:,} documents of {refuse.listed(filled)} at {address}?"


def run(course: Course, timeout: float, what: str, follow_up: str, say: Say, watcher: Watcher) -> None:
    with watcher.applying() as tell:
        try:
            course.run(timeout, tell, say)
        except KeyboardInterrupt:
            raise TowpathError(
                f"{what}: goes on in Kafka Connect. The same command again shows how far it is, and ends it;"
                f" {follow_up}"
            ) from None


def _ended(it: Session, running: _Running, what: str, watcher: Watcher) -> Verdict:
    """The verdict; unless it follows, the replay is over and removed."""
    replay = running.replay
    plan = replay.plan
    if not plan.follow:
        connector.stop(replay, it.connect)
    verdict = Verdict(
        what=what,
        records=connector.counts(replay).records,
        counted=True,
        documents=documents(it.pipeline, replay.sink.destination_uri, REPLAY_SIDE, plan.log),
        seconds=time.time() - plan.began,
        until=plan.until,
        following=plan.follow,
        check=running.check,
        resumed=running.resumed,
        uncopied=it.pipeline.copy.method == "none",
        refused=connector.refused(replay.sink, it.topics, plan.letters),
        letters=replay.dead_letter_topic,
        heads=[words for _, words in connector.moved_heads(it.pipeline, plan.log, it.topics).values()],
        earliest=None if plan.until is None else _overrun(it, plan.log, plan.until, watcher),
    )
    if not plan.follow:
        connector.remove(replay, it.connect, it.topics, keep_letters=True, say=it.say)
    return verdict


def _overrun(it: Session, log: Log, until: ClusterTime, watcher: Watcher) -> ClusterTime | None:
    """The earliest moment that can be rebuilt by now, when that is later than `until`."""
    copied = refuse.captured(it.pipeline, it.connect).copied
    with watcher.checking() as tell:
        earliest = check(it.pipeline, it.topics, namespaces(it.pipeline, log), copied, tell).earliest
    return earliest if earliest is not None and until < earliest else None


def documents(pipeline: Pipeline, uri: str, side: str, log: Log) -> dict[str, int]:
    """How many documents the destination's namespaces hold."""
    found = {}
    with connected(uri, side) as client:
        for name in namespaces(pipeline, log):
            target = pipeline.renames.destination(name)
            database, collection = target.split(".", 1)
            found[target] = client[database][collection].estimated_document_count()
    return found


def length(log: Log) -> str:
    records = sum(end - first for first, end in log.values())
    return f"about {records:,} records of {counted(len({topic for topic, _ in log}), 'topic')}"
