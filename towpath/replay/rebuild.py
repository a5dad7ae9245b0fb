"""The steps of `towpath replay --rebuild`: empty the pipeline's own destination and apply the log to it again."""

from __future__ import annotations

import time
from dataclasses import replace

from connectors.control import statuses, stop_sink
from towpath.bookkeeping import cutover
from towpath.deploy.other_pipelines import refuse_loop_on_resuming
from towpath.errors import Refused
from towpath.finding import require
from towpath.log import dead_letters
from towpath.log.integrity import LogCheck
from towpath.mongo.client import connected
from towpath.mongo_uri import without_credentials
from towpath.replay import connector, rebuild_marker
from towpath.replay.plan import RebuildOptions, namespaces
from towpath.replay.preconditions import OF_MODE, OF_REBUILD, Inventory, document_counts
from towpath.replay.rebuild_marker import Rebuild
from towpath.replay.steps import Confirm, Report, check_log, documents, length, question, run
from towpath.replay.verdict import Verdict
from towpath.session import Session
from towpath.verification import full_verdict


def rebuild(session: Session, options: RebuildOptions, report: Report, confirm: Confirm) -> Verdict:
    """Run a rebuild to its end, or continue an interrupted one. Raises `Refused` for what is not supported."""
    inventory, pipeline = Inventory(session, options), session.pipeline
    require(OF_MODE, inventory)
    session.require_deployed()
    cutover.refuse(pipeline)
    refuse_loop_on_resuming(pipeline, session.connect, session.topics)
    with connected(pipeline.destination_uri, "destination") as client:
        existing = rebuild_marker.marker(client, pipeline)
    rebuild, check = _resume(session, options, existing, report) if existing else _begin(inventory, report, confirm)
    if rebuild.phase == "emptying":
        rebuild = _empty(session, rebuild)
    session.connect.resume(pipeline.sink_connector)
    if any(connector.failures for connector in statuses(session.connect, [pipeline.sink_connector])):
        session.connect.restart(pipeline.sink_connector, only_failed=True)
    session.say(f"rebuild: {length(rebuild.log)}, to {without_credentials(pipeline.destination_uri)}")
    progress = rebuild_marker.sink_progress(pipeline, rebuild, session.connect, session.topics)
    run(progress, options.timeout, "rebuild", "`towpath status` shows it as well", session.say, report)
    return _finish(session, rebuild, check, resumed=existing is not None)


def _begin(inventory: Inventory, report: Report, confirm: Confirm) -> tuple[Rebuild, LogCheck | None]:
    """Check and confirm a new rebuild, and write its marker; nothing else is changed yet."""
    session, options, pipeline = inventory.session, inventory.options, inventory.pipeline
    require(OF_REBUILD, inventory)
    check = check_log(session, inventory.log, report, force=options.force)
    letters = dead_letters.end(pipeline, session.topics)
    if inventory.counts:
        confirm(question(inventory.counts, pipeline.destination_uri))
    rebuild = Rebuild(options.only, check is not None, time.time(), letters, inventory.log)
    with connected(pipeline.destination_uri, "destination") as client:
        rebuild_marker.mark(client, pipeline, rebuild)
    full_verdict.forget(session)
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
    """Stop the sink, delete the positions of the topics, empty their namespaces; in this order."""
    pipeline = session.pipeline
    session.say(f"stopping {pipeline.sink_connector}")
    stop_sink(pipeline, session.connect)
    with connected(pipeline.destination_uri, "destination") as client:
        rebuild_marker.forget_positions(client, pipeline, rebuild.topics)
        rebuild_marker.begin_late(client, pipeline, rebuild)
        targets = [pipeline.renames.destination(name) for name in namespaces(pipeline, rebuild.log)]
        rebuild_marker.empty(client, document_counts(client, targets), session.say)
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
