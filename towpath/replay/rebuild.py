"""The steps of `towpath replay --rebuild`: empty the pipeline's own destination and apply the log to it again."""

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
from towpath.mongo.uri import without_credentials
from towpath.replay import connector, rebuild_marker
from towpath.replay import preconditions as refuse
from towpath.replay.plan import namespaces
from towpath.replay.rebuild_marker import Rebuild
from towpath.replay.steps import Watcher, check_log, documents, length, question, run
from towpath.replay.verdict import Verdict
from towpath.session import Session
from towpath.verification import full_verdict


@dataclass(frozen=True, slots=True)
class RebuildOptions:
    """`timeout` is in seconds without progress."""

    only: tuple[str, ...]
    force: bool
    timeout: float


def rebuild(session: Session, options: RebuildOptions, watcher: Watcher) -> Verdict:
    """Run a rebuild to its end, or continue an interrupted one. Raises `Refused` for what is not supported."""
    refuse.refuse_plain(session.pipeline)
    session.require_deployed()
    cutover.refuse(session.pipeline)
    refuse_loop_on_resuming(session.pipeline, session.connect, session.topics)
    with connected(session.pipeline.destination_uri, "destination") as client:
        existing = rebuild_marker.marker(client, session.pipeline)
    rebuild, check = _resume(session, options, existing, watcher) if existing else _begin(session, options, watcher)
    if rebuild.phase == "emptying":
        rebuild = _empty(session, rebuild)
    session.connect.resume(session.pipeline.sink_connector)
    if any(connector.failures for connector in statuses(session.connect, [session.pipeline.sink_connector])):
        session.connect.restart(session.pipeline.sink_connector, only_failed=True)
    session.say(f"rebuild: {length(rebuild.log)}, to {without_credentials(session.pipeline.destination_uri)}")
    progress = rebuild_marker.sink_progress(session.pipeline, rebuild, session.connect, session.topics)
    run(progress, options.timeout, "rebuild", "`towpath status` shows it as well", session.say, watcher)
    return _finish(session, rebuild, check, resumed=existing is not None)


def _begin(session: Session, options: RebuildOptions, watcher: Watcher) -> tuple[Rebuild, LogCheck | None]:
    """Check and confirm a new rebuild, and write its marker; nothing else is changed yet."""
    pipeline = session.pipeline
    topics = refuse.selected(pipeline, options.only, session.topics.all())
    refuse.refuse_uncopied(pipeline, force=options.force)
    log = session.topics.ends(topics)
    check = check_log(
        session, log, refuse.capture_state(pipeline, session.connect).copied, watcher, until=None, force=options.force
    )
    letters = dead_letters.end(pipeline, session.topics)
    with connected(pipeline.destination_uri, "destination") as client:
        counts = refuse.document_counts(
            client, [pipeline.renames.destination(name) for name in namespaces(pipeline, log)]
        )
        if counts:
            watcher.confirm(question(counts, pipeline.destination_uri))
        rebuild = Rebuild(options.only, check is not None, time.time(), letters, log)
        rebuild_marker.mark(client, pipeline, rebuild)
    full_verdict.forget(session)
    return rebuild, check


def _resume(
    session: Session, options: RebuildOptions, existing: Rebuild, watcher: Watcher
) -> tuple[Rebuild, LogCheck | None]:
    if set(existing.only) != set(options.only):
        patterns = " ".join(f"--only {pattern}" for pattern in existing.only) or "no --only"
        raise Refused(
            f"a rebuild of {session.pipeline.name} with {patterns} has started and is not finished; give the same"
            " options to continue it"
        )
    session.say("continuing the rebuild that was started before")
    if not existing.forced:
        return existing, None
    copied = refuse.capture_state(session.pipeline, session.connect).copied
    return existing, check_log(session, existing.log, copied, watcher, until=None, force=True)


def _empty(session: Session, rebuild: Rebuild) -> Rebuild:
    """Stop the sink, delete the positions of the topics, empty their namespaces; in this order."""
    pipeline = session.pipeline
    session.say(f"stopping {pipeline.sink_connector}")
    stop_sink(pipeline, session.connect)
    with connected(pipeline.destination_uri, "destination") as client:
        rebuild_marker.forget_positions(client, pipeline, rebuild.topics)
        rebuild_marker.begin_late(client, pipeline, rebuild)
        targets = [pipeline.renames.destination(name) for name in namespaces(pipeline, rebuild.log)]
        rebuild_marker.empty(client, refuse.document_counts(client, targets), session.say)
        emptied = replace(rebuild, phase="applying")
        rebuild_marker.mark(client, pipeline, emptied)
    return emptied


def _finish(session: Session, rebuild: Rebuild, check: LogCheck | None, *, resumed: bool) -> Verdict:
    pipeline = session.pipeline
    with connected(pipeline.destination_uri, "destination") as client:
        rebuild_marker.unmark(client, pipeline)
    return Verdict(
        name="rebuild",
        records=sum(end - first for first, end in rebuild.log.values()),
        counted=False,
        documents=documents(pipeline, pipeline.destination_uri, "destination", rebuild.log),
        seconds=time.time() - rebuild.began,
        until=None,
        following=False,
        check=check,
        resumed=resumed,
        uncopied=pipeline.copy.method == "none",
        refused=connector.dead_letters_since(pipeline, session.topics, rebuild.letters),
        letters=pipeline.dead_letter_topic,
        deleted=connector.deleted_heads(pipeline, rebuild.log, session.topics),
    )
