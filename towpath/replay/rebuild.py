"""The steps of `towpath replay --rebuild`: the pipeline's own destination is emptied and written anew."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

from connectors.control import statuses, stop_sink
from towpath.bookkeeping import cutover
from towpath.deploy.other_pipelines import refuse_loop_on_resuming
from towpath.errors import Refused
from towpath.log import dead_letters
from towpath.log.integrity import LogCheck
from towpath.mongo.client import connected
from towpath.mongo_uri import without_credentials
from towpath.replay import connector as replaying
from towpath.replay import preconditions as refuse
from towpath.replay import rebuild_marker
from towpath.replay.plan import namespaces
from towpath.replay.rebuild_marker import Rebuild
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
    refuse_loop_on_resuming(it.pipeline, it.connect, it.topics)
    with connected(it.pipeline.destination_uri, "destination") as client:
        found = rebuild_marker.marker(client, it.pipeline)
    rebuild, lacks = _begun(it, asked, watcher) if found is None else _gone_on(it, asked, found, watcher)
    if rebuild.phase == "emptying":
        rebuild = _empty(it, rebuild)
    it.connect.resume(it.pipeline.sink_connector)
    if any(connector.failures for connector in statuses(it.connect, [it.pipeline.sink_connector])):
        it.connect.restart(it.pipeline.sink_connector, only_failed=True)
    it.say(f"rebuild: {length(rebuild.log)}, to {without_credentials(it.pipeline.destination_uri)}")
    course = rebuild_marker.course(it.pipeline, rebuild, it.connect, it.topics)
    run(course, asked.timeout, "rebuild", "`towpath status` shows it as well", it.say, watcher)
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
        rebuild_marker.mark(client, pipeline, begun)
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
        rebuild_marker.forget_positions(client, pipeline, begun.topics)
        rebuild_marker.begin_late(client, pipeline, begun)
        targets = [pipeline.renames.destination(name) for name in namespaces(pipeline, begun.log)]
        rebuild_marker.empty(client, refuse.holding(client, targets), it.say)
        emptied = replace(begun, phase="applying")
        rebuild_marker.mark(client, pipeline, emptied)
    return emptied


def _ended(it: Session, rebuild: Rebuild, lacks: LogCheck | None, *, resumed: bool) -> Verdict:
    pipeline = it.pipeline
    with connected(pipeline.destination_uri, "destination") as client:
        rebuild_marker.unmark(client, pipeline)
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
        uncopied=pipeline.copy.method == "none",
        refused=replaying.refused(pipeline, it.topics, rebuild.letters),
        letters=pipeline.dead_letter_topic,
        heads=[words for _, words in replaying.moved_heads(pipeline, rebuild.log, it.topics).values()],
    )
