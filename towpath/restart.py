"""`towpath restart`"""

from __future__ import annotations

from pathlib import Path

import click

from connectors import sink_state
from connectors.clusters import connected
from connectors.errors import Refused, TopicError
from connectors.lifecycle import require, statuses, wait_running
from towpath import full_verdict
from towpath.ends import end
from towpath.opened import Opened, opened, pipeline_argument, say


@click.command()
@pipeline_argument
@click.option("--all", "everything", is_flag=True, help="Restart also what has not failed.")
@click.option(
    sink_state.MISSED_DELETES,
    "accept",
    is_flag=True,
    help="Have a sink go on that stopped because deletes may be gone from the log that it did not apply;"
    " verify and repair are to be run next.",
)
@click.option("--timeout", default=60.0, show_default=True, help="Seconds to wait until all connectors run.")
def restart(file: Path, everything: bool, accept: bool, timeout: float) -> None:
    """Restart the connectors and tasks of PIPELINE that have failed; each goes on where it was.

    First ends the transactions whose end Kafka has lost, which a task may wait for, as had been decided.
    """
    with opened(file) as it:
        _end_transactions(it)
        require(it.connect, it.topics, it.pipeline)
        if accept:
            _accept_missed_deletes(it)
        for name in it.pipeline.connectors:
            it.connect.restart(name, only_failed=not everything)
        wait_running(it.connect, it.pipeline, timeout)
        click.echo(f"{it.pipeline.name}: running")
        if accept:
            say(
                f"deletes may have been missed: run `towpath verify {file}`, which finds the documents that should be"
                f" gone, and then `towpath repair {file}`, which deletes them"
            )


def _end_transactions(it: Opened) -> None:
    """What cannot be ended is told: what has failed may start all the same."""
    try:
        for words in end(it, list(it.topics.open_transactions())):
            say(words)
    except TopicError as error:
        say(f"towpath: {error}")


def _accept_missed_deletes(it: Opened) -> None:
    """Raises `Refused` where nothing was stopped: what may be missed is not to be accepted beforehand."""
    sink = it.pipeline.sink_connector
    [found] = statuses(it.connect, [sink])
    if not any(sink_state.MISSED_DELETES in reason for reason in found.failures):
        raise Refused(
            f"{sink} has not stopped because of missed deletes, so there is nothing to accept;"
            " `towpath restart` without the option restarts what has failed"
        )
    with connected(it.pipeline.destination_uri, "destination") as client:
        count = sink_state.accept_missed_deletes(client, it.pipeline)
    full_verdict.forget(it)
    say(f"{it.pipeline.name}: goes on at {count} positions, whatever deletes were missed there")
