"""`towpath pause`, `resume`, `restart` and `remove`"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import click

from towpath.checks import target
from towpath.checks.change import refuse_loop_on_resuming
from towpath.checks.facts import Facts, OwnTopics, is_foreign
from towpath.checks.rule import require
from towpath.cli.options import flag, opened, pipeline_argument, say
from towpath.clients.connect.control import statuses, stop, wait_running
from towpath.deploy import conversions, deployment
from towpath.errors import MongoUnreachable, Refused, TopicError, TowpathError
from towpath.history import rebuild
from towpath.history.plan import find, find_all, find_interrupted, find_leftovers, refuse_label
from towpath.history.replay import remove as remove_replay
from towpath.log import bounds
from towpath.run.restarts import end_transactions
from towpath.session import ERRORS, Session
from towpath.store import cutover, positions, verdict


@click.command()
@pipeline_argument
def pause(file: Path) -> None:
    """Pause all connectors of PIPELINE. They keep their positions.

    Run it before maintenance, for example. `resume` must come while the source's oplog still holds the changes since
    the pause; after that only `resnapshot` helps. A connector that is stopped, such as the sink after a cutover, stays
    stopped.

    Exit codes: 0 paused; 2 it cannot be done.
    """
    with opened(file) as session:
        deployment.refuse_state(session.pipeline, "paused")
        session.require_deployed()
        for connector in statuses(session.connect, session.pipeline.connectors):
            if connector.state == "STOPPED":
                say(f"{connector.name} stays stopped")
            else:
                session.connect.pause(connector.name)
        click.echo(f"{session.pipeline.name}: paused")


@click.command()
@pipeline_argument
@click.option("--timeout", default=60.0, help="Seconds to wait until all connectors are running.")
def resume(file: Path, timeout: float) -> None:
    """Resume the paused or stopped connectors of PIPELINE where they stopped.

    Run it after `pause`, or if someone stopped a connector in Connect. After a cutover, the sink must stay stopped:
    then it resumes the capture only, and stops the sink if someone has started or paused it. It refuses during a
    cutover, after a takeover, while a rebuild empties the destination, and if the file names another destination than
    the deployed sink.

    Exit codes: 0 running; 1 a connector does not run yet; 2 it cannot be done.
    """
    with opened(file) as session:
        deployment.refuse_state(session.pipeline, "running")
        session.require_deployed()
        target.require_same(session)
        if cutover.is_cut_over(session):
            _resume_capture(session, timeout)
            return
        cutover.refuse(session)
        rebuild.refuse_emptying(session)
        refuse_loop_on_resuming(session)
        facts = Facts(session)
        for name in session.pipeline.connectors:
            deployment.resume(facts, name)
        wait_running(session.connect, session.pipeline.connectors, timeout)
        click.echo(f"{session.pipeline.name}: running")


def _resume_capture(session: Session, timeout: float) -> None:
    """As the cutover left it: a fail back needs a capture that runs, and a sink that is stopped."""
    pipeline, connect = session.pipeline, session.connect
    stop(connect, pipeline.sink_connector)
    for name in pipeline.source_connectors:
        connect.resume(name)
    wait_running(connect, pipeline.source_connectors, timeout)
    click.echo(f"{pipeline.name}: the capture runs; the sink stays stopped, because the destination is primary")


@click.command()
@pipeline_argument
@flag("--all", "everything", help="Also restart what has not failed.")
@flag(
    positions.MISSED_DELETES,
    "accept_deletes",
    help="Continue a sink that stopped because the log may have lost deletes before the sink applied them. Run verify"
    " and repair next.",
)
@flag(
    positions.LOG_GAP,
    "accept_gap",
    help="Continue a sink whose position is not in its log, because the log lost records before the sink applied them,"
    " or because the topic was truncated or recreated. Run verify and repair next.",
)
@click.option("--timeout", default=60.0, help="Seconds to wait until all connectors are running.")
def restart(file: Path, everything: bool, accept_deletes: bool, accept_gap: bool, timeout: float) -> None:
    """Restart the failed connectors and tasks of PIPELINE. Each continues where it stopped.

    Run it after you have fixed the cause that `status` shows. It first ends hanging transactions in Kafka, which a
    task may wait for: each is committed or aborted, as its coordinator had decided. After a cutover, it leaves the sink
    as it is.

    Exit codes: 0 running; 1 a connector does not run yet; 2 a connector fails again, or it cannot be done.
    """
    with opened(file) as session:
        _end_transactions(session)
        session.require_deployed()
        if accept_deletes or accept_gap:
            target.require_own(session)
        if accept_deletes:
            _accept_missed_deletes(session)
        if accept_gap:
            _accept_log_gap(session)
        [sink] = statuses(session.connect, [session.pipeline.sink_connector])
        stopped: tuple[str, ...] = ()
        with suppress(*ERRORS):  # a destination that is away keeps no connector from its restart
            stopped = deployment.stopped_by_cutover(session)
        names = [name for name in session.pipeline.connectors if name not in stopped]
        for name in names:
            session.connect.restart(name, only_failed=not everything)
        wait_running(session.connect, names, timeout)
        if any(cause.code in bounds.CODES for cause in sink.failures):
            bounds.refuse(session)  # the sink reports RUNNING until it has checked its log
        for name in stopped:
            say(f"{name} stays as it is: the destination is primary since the cutover")
        click.echo(f"{session.pipeline.name}: running")
        if accept_gap:
            say(
                f"changes are missing at the destination: run `towpath verify {file}`, which finds the documents that"
                f" differ, and then `towpath repair {file}`, which re-reads them at the source"
            )
            if session.pipeline.ddl.apply:
                say(
                    f"a schema change may wait for partitions that have gone past it: `towpath ddl {file}` shows that,"
                    " and with --skip it continues without the change"
                )
        if accept_deletes:
            say(
                f"deletes may be missing at the destination: run `towpath verify {file}`, which finds the documents"
                f" that should be gone, and then `towpath repair {file}`, which deletes them"
            )


def _end_transactions(session: Session) -> None:
    """End hanging transactions. Those that cannot be ended are only reported: the tasks may start all the same."""
    try:
        for message in end_transactions(session, list(session.topics.open_transactions())):
            say(message)
    except TopicError as error:
        say(f"towpath: {error}")


def _accept_log_gap(session: Session) -> None:
    cutover.refuse(session)
    rebuild.refuse_emptying(session)
    refuse_loop_on_resuming(session)
    gaps = bounds.accept(session)
    for gap in gaps:
        say(f"{gap.description}; the sink continues at offset {gap.resume_at:,}")
    session.connect.resume(session.pipeline.sink_connector)


def _accept_missed_deletes(session: Session) -> None:
    """Raises `Refused` unless the sink stopped for missed deletes: they cannot be accepted in advance."""
    name = session.pipeline.sink_connector
    [sink] = statuses(session.connect, [name])
    if not any(cause.code == "TWP-DELETES-MISSED" for cause in sink.failures):
        raise Refused(
            f"{name} did not stop because of missed deletes, so there is nothing to accept; run `towpath restart`"
            " without this option to restart what has failed"
        )
    with session.destination.connected() as client:
        verdict.begin_history(client, session.pipeline, "missed deletes were accepted")
        count = positions.accept_missed_deletes(client, session.pipeline)
    say(f"{session.pipeline.name}: continues at {count} positions; deletes that were missed there stay missed")


@click.command()
@pipeline_argument
@flag("--topics", "log", help="Also delete the log: all topics, and the positions.")
@flag("--yes", help="Do not ask before the log is deleted.")
@click.option("--replay", "label", metavar="LABEL", help="Remove only this replay, finished or not.")
@flag("--dry-run", help="Print what would be removed, and remove nothing.")
def remove(file: Path, log: bool, yes: bool, label: str | None, dry_run: bool) -> None:
    """Remove the connectors of PIPELINE. The documents of both clusters stay as they are.

    Run it to end a pipeline. Without --topics the log and the positions stay: `deploy` continues from there while the
    source's oplog still holds the changes since. With --topics the pipeline's replays also end, because their log is
    gone; it lists the topics that were made for the pipeline, and leaves others whose names are like theirs. It is
    refused while a cutover or a takeover is under way, or was interrupted; with --topics also while a TTL is to be
    restored or an index to be converted after one. It prints what nothing else knows then: the commands of those that
    the server has refused, and that the destination has taken over, or that the source's writes are blocked.

    Exit codes: 0 removed; 2 it cannot be done, or you did not confirm.
    """
    if label is not None and log:
        raise click.UsageError("give one of --topics and --replay: a replay has no separate log")
    with opened(file) as session:
        session.topics.brokers()  # first: without Kafka, every request to Connect blocks for 90 s
        if label is not None:
            _remove_replay(session, label, dry_run=dry_run)
            return
        deployment.refuse_removal(session.pipeline, session.connect, log=log)
        facts = Facts(session)
        _refuse_removal(facts, log=log)
        replays = find_all(session.connect, session.pipeline) if log else ()
        if log:  # also what an interrupted removal has left of them
            replays += find_interrupted(session.connect, session.topics, session.pipeline)
        topics = facts.own_topics if log else OwnTopics({})
        deleted = () if session.pipeline.kafka.topics == "exist" else tuple(topics.ids)
        lost = _lost(session) if log else []
        for words in lost:
            say(words)
        if dry_run:
            connectors = [name for name in session.pipeline.connectors if not is_foreign(facts, name)]
            for name in (*(replay.name for replay in replays), *connectors, *deleted):
                say(f"would remove {name}")
            _report_others(topics)
            return
        if (topics.ids or lost) and not yes:
            for name in deleted:
                say(f"topic {name}")
            ending = f" and end {len(replays)} replays" if replays else ""
            what = f"these {len(deleted)} topics with all their records" if deleted else "the positions, but no topic"
            question = f"Delete {what}{ending}? This cannot be undone"
            click.confirm(question, abort=True)
            _refuse_since(session, lost)
        for replay in replays:
            remove_replay(replay, session, keep_letters=False)
        deployment.remove(session, log=log, say=say, facts=facts)
        _report_others(topics)
        if session.pipeline.has_operator:
            say(f"next: {deployment.removal(session.pipeline)}")
        click.echo(f"{session.pipeline.name}: removed" + ("" if log else "; its log and positions are kept"))


def _refuse_removal(facts: Facts, *, log: bool) -> None:
    """Raise `Refused` during a cutover, or if the positions and topics to remove may be those of another pipeline.

    Without the log nothing at the destination is deleted, which may be lost then.
    """
    try:
        require(target.OF_REMOVAL, target.gather(facts, with_source=False))
        cutover.refuse_removal(facts.session, log=log)
    except MongoUnreachable as error:
        if log and facts.pipeline.exactly_once:
            raise
        say(f"towpath: {error}")
    if log:
        require(target.OF_LOG, facts)


def _lost(session: Session) -> list[str]:
    """What nothing else knows once the log is removed, in words."""
    if not session.pipeline.exactly_once:
        return []
    return [*conversions.by_hand(session), *cutover.known_to_marker(session)]


def _refuse_since(session: Session, lost: list[str]) -> None:
    """Raise `Refused` if a cutover or takeover has begun or changed while it asked. `lost`: as it was shown."""
    cutover.refuse_removal(session, log=True)
    if _lost(session) != lost:
        raise Refused(
            f"a cutover or a takeover of {session.pipeline.name} has changed what would be lost, while this asked;"
            " nothing was removed",
            "run the same command again, and read what it shows",
        )


def _report_others(topics: OwnTopics) -> None:
    for name in topics.others:
        say(f"left the topic {name}: it has a name of this pipeline, and nothing shows that it was made for it")


def _remove_replay(session: Session, label: str, *, dry_run: bool) -> None:
    refuse_label(label)
    replay = find(session.connect, session.pipeline, label) or find_leftovers(session.topics, session.pipeline, label)
    if replay is None:
        names = ", ".join(existing.label for existing in find_all(session.connect, session.pipeline)) or "none"
        raise TowpathError(f"{session.pipeline.name} has no replay {label}; existing replays: {names}")
    if dry_run:
        say(f"would remove {replay.name}")
        return
    remove_replay(replay, session, keep_letters=False)
    click.echo(f"{session.pipeline.name}: replay {label} removed; its destination keeps what it holds")
