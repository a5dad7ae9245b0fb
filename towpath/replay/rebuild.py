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


def rebuild(session: Session, asked: Asked, watcher: Watcher) -> Verdict:
    """Run a rebuild to its end, or go on with the one that was interrupted. Raises with words for what is refused."""
    refuse.refuse_plain(session.pipeline)
    session.require_deployed()
    cutover.refuse(session.pipeline)
    refuse_loop_on_resuming(session.pipeline, session.connect, session.topics)
    with connected(session.pipeline.destination_uri, "destination") as client:
        found = rebuild_marker.marker(client, session.pipeline)
    rebuild, lacks = _begun(session, asked, watcher) if found is None else _gone_on(session, asked, found, watcher)
    if rebuild.phase == "emptying":
        rebuild = _empty(session, rebuild)
    session.connect.resume(session.pipeline.sink_connector)
    if any(connector.failures for connector in statuses(session.connect, [session.pipeline.sink_connector])):
        session.connect.restart(session.pipeline.sink_connector, only_failed=True)
    session.say(f"rebuild: {length(rebuild.log)}, to {without_credentials(session.pipeline.destination_uri)}")
    course = rebuild_marker.course(session.pipeline, rebuild, session.connect, session.topics)
    run(course, asked.timeout, "rebuild", "`towpath status` shows it as well", session.say, watcher)
    return _ended(session, rebuild, lacks, resumed=found is not None)


def _begun(session: Session, asked: Asked, watcher: Watcher) -> tuple[Rebuild, LogCheck | None]:
    """A rebuild that is asked for and marked; nothing else is done yet."""
    pipeline = session.pipeline
    topics = refuse.selected(pipeline, asked.only, session.topics.all())
    refuse.refuse_uncopied(pipeline, force=asked.force)
    log = session.topics.ends(topics)
    found = checked(
        session, log, refuse.captured(pipeline, session.connect).copied, watcher, until=None, force=asked.force
    )
    letters = dead_letters.end(pipeline, session.topics)
    with connected(pipeline.destination_uri, "destination") as client:
        filled = refuse.holding(client, [pipeline.renames.destination(name) for name in namespaces(pipeline, log)])
        if filled:
            watcher.confirm(question(filled, pipeline.destination_uri))
        begun = Rebuild(asked.only, found is not None, time.time(), letters, log)
        rebuild_marker.mark(client, pipeline, begun)
    full_verdict.forget(session)
    return begun, found


def _gone_on(session: Session, asked: Asked, found: Rebuild, watcher: Watcher) -> tuple[Rebuild, LogCheck | None]:
    if set(found.only) != set(asked.only):
        words = " ".join(f"--only {pattern}" for pattern in found.only) or "no --only"
        raise Refused(
            f"a rebuild of {session.pipeline.name} with {words} was begun and is not over; give the same to go on with it"
        )
    session.say("going on with the rebuild that was begun before")
    if not found.forced:
        return found, None
    copied = refuse.captured(session.pipeline, session.connect).copied
    return found, checked(session, found.log, copied, watcher, until=None, force=True)


def _empty(session: Session, begun: Rebuild) -> Rebuild:
    """Stop the sink, forget how far these topics are applied, empty their namespaces; in this order."""
    pipeline = session.pipeline
    session.say(f"stopping {pipeline.sink_connector}")
    stop_sink(pipeline, session.connect)
    with connected(pipeline.destination_uri, "destination") as client:
        rebuild_marker.forget_positions(client, pipeline, begun.topics)
        rebuild_marker.begin_late(client, pipeline, begun)
        targets = [pipeline.renames.destination(name) for name in namespaces(pipeline, begun.log)]
        rebuild_marker.empty(client, refuse.holding(client, targets), session.say)
        emptied = replace(begun, phase="applying")
        rebuild_marker.mark(client, pipeline, emptied)
    return emptied


def _ended(session: Session, rebuild: Rebuild, lacks: LogCheck | None, *, resumed: bool) -> Verdict:
    pipeline = session.pipeline
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
        uncopied=pipeline.copy.way == "none",
        refused=replaying.refused(pipeline, session.topics, rebuild.letters),
        letters=pipeline.dead_letter_topic,
        heads=[words for _, words in replaying.moved_heads(pipeline, rebuild.log, session.topics).values()],
    )
