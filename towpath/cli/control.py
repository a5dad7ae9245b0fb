"""`towpath pause`, `resume` and `restart`"""

from __future__ import annotations

from pathlib import Path

import click

from towpath.checks import target
from towpath.checks.other_pipelines import refuse_loop_on_resuming
from towpath.cli.options import flag, opened, pipeline_argument, say
from towpath.clients.connect.control import statuses, wait_running
from towpath.deploy import operator
from towpath.errors import Refused, TopicError
from towpath.log import bounds
from towpath.run.restarts import end_transactions
from towpath.session import Session
from towpath.store import cutover, positions, verdict


@click.command()
@pipeline_argument
def pause(file: Path) -> None:
    """Pause all connectors of PIPELINE. They keep their positions.

    Run it before maintenance, for example. `resume` must come while the source's oplog still holds the changes since
    the pause; after that only `resnapshot` helps.

    Exit codes: 0 paused; 2 it cannot be done.
    """
    with opened(file) as session:
        operator.refuse_state(session.pipeline, "paused")
        session.require_deployed()
        for name in session.pipeline.connectors:
            session.connect.pause(name)
        click.echo(f"{session.pipeline.name}: paused")


@click.command()
@pipeline_argument
@click.option("--timeout", default=60.0, help="Seconds to wait until all connectors are running.")
def resume(file: Path, timeout: float) -> None:
    """Resume the paused connectors of PIPELINE where they stopped.

    Run it after `pause`.

    Exit codes: 0 running; 1 a connector does not run yet; 2 it cannot be done.
    """
    with opened(file) as session:
        operator.refuse_state(session.pipeline, "running")
        session.require_deployed()
        cutover.refuse(session)
        refuse_loop_on_resuming(session)
        for name in session.pipeline.connectors:
            session.connect.resume(name)
        wait_running(session.connect, session.pipeline.connectors, timeout)
        click.echo(f"{session.pipeline.name}: running")


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
    task may wait for: each is committed or aborted, as its coordinator had decided.

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
        for name in session.pipeline.connectors:
            session.connect.restart(name, only_failed=not everything)
        wait_running(session.connect, session.pipeline.connectors, timeout)
        if any(cause.code in bounds.CODES for cause in sink.causes):
            bounds.refuse(session)  # the sink reports RUNNING until it has checked its log
        click.echo(f"{session.pipeline.name}: running")
        if accept_gap:
            say(
                f"changes are missing at the destination: run `towpath verify {file}`, which finds the documents that"
                f" differ, and then `towpath repair {file}`, which re-reads them at the source"
            )
            if session.pipeline.ddl.apply:
                say(
                    f"a schema change may wait for partitions that have gone past it: `towpath ddl {file}` shows that,"
                    " and with --skip it goes on without the change"
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
    refuse_loop_on_resuming(session)
    gaps = bounds.accept(session)
    for gap in gaps:
        say(f"{gap.description}; the sink continues at offset {gap.resume_at:,}")
    session.connect.resume(session.pipeline.sink_connector)


def _accept_missed_deletes(session: Session) -> None:
    """Raises `Refused` unless the sink stopped for missed deletes: they cannot be accepted in advance."""
    name = session.pipeline.sink_connector
    [sink] = statuses(session.connect, [name])
    if not any(cause.code == "TWP-DELETES-MISSED" for cause in sink.causes):
        raise Refused(
            f"{name} did not stop because of missed deletes, so there is nothing to accept; run `towpath restart`"
            " without this option to restart what has failed"
        )
    with session.destination.connected() as client:
        verdict.begin_history(client, session.pipeline, "missed deletes were accepted")
        count = positions.accept_missed_deletes(client, session.pipeline)
    say(f"{session.pipeline.name}: continues at {count} positions; deletes that were missed there stay missed")
