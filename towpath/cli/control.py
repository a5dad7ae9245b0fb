"""`towpath pause`, `resume`, `restart` and `wait`"""

from __future__ import annotations

import time
from pathlib import Path

import click

from connectors.control import statuses, wait_running
from towpath import barrier
from towpath.bookkeeping import cutover, positions
from towpath.cli.options import opened, pipeline_argument, say
from towpath.deploy.other_pipelines import refuse_loop_on_resuming
from towpath.errors import Refused, TopicError
from towpath.log import bounds
from towpath.mongo.client import connected
from towpath.session import Session
from towpath.supervisor.restarts import end
from towpath.verification import full_verdict


@click.command()
@pipeline_argument
def pause(file: Path) -> None:
    """Pause all connectors of PIPELINE. They keep their positions.

    Run it before maintenance, for example. `resume` must come while the source's oplog still holds the changes since
    the pause; after that only `resnapshot` helps.

    Exit codes: 0 paused; 2 it cannot be done.
    """
    with opened(file) as it:
        it.require_deployed()
        for name in it.pipeline.connectors:
            it.connect.pause(name)
        click.echo(f"{it.pipeline.name}: paused")


@click.command()
@pipeline_argument
@click.option("--timeout", default=60.0, show_default=True, help="Seconds to wait until all connectors are running.")
def resume(file: Path, timeout: float) -> None:
    """Resume the paused connectors of PIPELINE where they stopped.

    Run it after `pause`.

    Exit codes: 0 running; 1 a connector does not run yet; 2 it cannot be done.
    """
    with opened(file) as it:
        it.require_deployed()
        cutover.refuse(it.pipeline)
        refuse_loop_on_resuming(it.pipeline, it.connect, it.topics)
        for name in it.pipeline.connectors:
            it.connect.resume(name)
        wait_running(it.connect, it.pipeline, timeout)
        click.echo(f"{it.pipeline.name}: running")


@click.command()
@pipeline_argument
@click.option("--all", "everything", is_flag=True, help="Also restart what has not failed.")
@click.option(
    positions.MISSED_DELETES,
    "accept",
    is_flag=True,
    help="Continue a sink that stopped because the log may have lost deletes before the sink applied them. Run verify"
    " and repair next.",
)
@click.option(
    positions.LOG_GAP,
    "accept_gap",
    is_flag=True,
    help="Continue a sink whose position is not in its log, because the log lost records before the sink applied them,"
    " or because the topic was truncated or recreated. Run verify and repair next.",
)
@click.option("--timeout", default=60.0, show_default=True, help="Seconds to wait until all connectors are running.")
def restart(file: Path, everything: bool, accept: bool, accept_gap: bool, timeout: float) -> None:
    """Restart the failed connectors and tasks of PIPELINE. Each continues where it stopped.

    Run it after you have fixed the cause that `status` shows. It first ends hanging transactions in Kafka, which a
    task may wait for: each is committed or aborted, as its coordinator had decided.

    Exit codes: 0 running; 1 a connector does not run yet; 2 a connector fails again, or it cannot be done.
    """
    with opened(file) as it:
        _end_transactions(it)
        it.require_deployed()
        if accept:
            _accept_missed_deletes(it)
        if accept_gap:
            _accept_log_gap(it)
        [sink] = statuses(it.connect, [it.pipeline.sink_connector])
        for name in it.pipeline.connectors:
            it.connect.restart(name, only_failed=not everything)
        wait_running(it.connect, it.pipeline, timeout)
        if any(cause.code in bounds.CODES for cause in sink.causes):
            bounds.refuse(it.pipeline, it.topics)  # it runs until it has looked at its log
        click.echo(f"{it.pipeline.name}: running")
        if accept_gap:
            say(
                f"changes are missing at the destination: run `towpath verify {file}`, which finds the documents that"
                f" differ, and then `towpath repair {file}`, which re-reads them at the source"
            )
        if accept:
            say(
                f"deletes may be missing at the destination: run `towpath verify {file}`, which finds the documents"
                f" that should be gone, and then `towpath repair {file}`, which deletes them"
            )


def _end_transactions(it: Session) -> None:
    """What cannot be ended is told: what has failed may start all the same."""
    try:
        for words in end(it, list(it.topics.open_transactions())):
            say(words)
    except TopicError as error:
        say(f"towpath: {error}")


def _accept_log_gap(it: Session) -> None:
    cutover.refuse(it.pipeline)
    refuse_loop_on_resuming(it.pipeline, it.connect, it.topics)
    found = bounds.accept(it.pipeline, it.topics, it.connect)
    full_verdict.forget(it)
    for one in found:
        say(f"{one.description}; the sink continues at offset {one.resume_at:,}")
    it.connect.resume(it.pipeline.sink_connector)


def _accept_missed_deletes(it: Session) -> None:
    """Raises `Refused` where nothing was stopped: what may be missed is not to be accepted beforehand."""
    sink = it.pipeline.sink_connector
    [found] = statuses(it.connect, [sink])
    if not any(cause.code == "TWP-DELETES-MISSED" for cause in found.causes):
        raise Refused(
            f"{sink} did not stop because of missed deletes, so there is nothing to accept; run `towpath restart`"
            " without this option to restart what has failed"
        )
    with connected(it.pipeline.destination_uri, "destination") as client:
        count = positions.accept_missed_deletes(client, it.pipeline)
    full_verdict.forget(it)
    say(f"{it.pipeline.name}: continues at {count} positions; deletes that were missed there stay missed")


@click.command()
@pipeline_argument
@click.option("--timeout", default=300.0, show_default=True, help="Seconds before it gives up with exit code 1.")
def wait(file: Path, timeout: float) -> None:
    """Wait until everything that was written to the source before the call is at the destination.

    Run it as a barrier, for example before you read from the destination. Writers may continue. It waits until nothing
    is left to copy, until the log has passed the source's cluster time at the call, until all re-read requests are
    answered, and until every partition is applied up to its end. It writes nothing to the source.

    Exit codes: 0 caught up; 1 not caught up in time; 2 it cannot be done.
    """
    with opened(file) as it:
        it.require_deployed()
        start = time.monotonic()
        barrier.wait(it.pipeline, it.connect, it.topics, timeout, say)
        click.echo(f"{it.pipeline.name}: caught up after {time.monotonic() - start:.1f} s")
