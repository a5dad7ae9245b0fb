"""`towpath compact`"""

from __future__ import annotations

import time
from contextlib import closing, suppress
from datetime import timedelta
from pathlib import Path

import click
import tenacity

from towpath.checks.facts import Facts
from towpath.checks.rule import require
from towpath.cli.options import duration, flag, json_option, opened, pipeline_argument, print_json, say
from towpath.config.events import Pass
from towpath.config.text import counted, first_few
from towpath.errors import NotYet, Refused, TowpathError
from towpath.history.compaction import Compactor, Reader, interval, preconditions

_SHOWN = 3  # topics


@click.command()
@pipeline_argument
@click.option(
    "--every",
    callback=duration,
    help="Time from one pass to the next, at most half of compaction_lag. Default: 1 hour, or a quarter of"
    " compaction_lag if that is less.",
)
@flag("--once", help="Run one pass, which protects all updates in the log now, then exit.")
@flag("--from-beginning", help="Read the whole log, including updates protected before.")
@click.option("--timeout", default=3600.0, help="With --once: seconds before it gives up.")
@json_option
def compact(
    file: Path, every: timedelta | None, once: bool, from_beginning: bool, timeout: float, as_json: bool
) -> None:
    """Prepare the log of PIPELINE for compaction by Kafka's log cleaner.

    Leave it running as a service when the file has [log] compact = true. The cleaner keeps only the last record of
    each document. That record may be an update, which is useless without the document. In each pass, the source
    connector therefore re-reads the documents with updates since their last whole record. These documents
    enter the log in order. Several processes may run side by side; they share the work.

    Exit codes: 0 done, or the service was stopped; 1 --once left documents unprotected; 2 it cannot be done.
    """
    with opened(file) as session:
        log, report = session.pipeline.log, print_json if as_json else _print_pass
        every_ms = interval(log) if every is None else every // timedelta(milliseconds=1)
        require(preconditions(every_ms), Facts(session))
        with closing(Reader(session.pipeline, session.topics, from_beginning=from_beginning)) as reader:
            compactor = Compactor(session, reader, timeout if once else None)
            if once:
                done = _retrying(compactor, tenacity.stop_after_delay(timeout))(compactor.run_pass)
                report(done)
                compactor.sweep_all()
                if done.asked > done.arrived or done.unreadable:
                    raise click.exceptions.Exit(1)
                return
            say(
                f"{session.pipeline.name}: a pass every {every_ms / 1000:,.0f} s; compaction_lag is"
                f" {log.compaction_lag / 1000:,.0f} s"
            )
            retrying = _retrying(compactor, tenacity.stop_never)
            with suppress(KeyboardInterrupt):
                while True:
                    started = time.monotonic()
                    report(retrying(compactor.run_pass))
                    retrying(compactor.pause, max(0.0, started + every_ms / 1000 - time.monotonic()))


def _retrying(compactor: Compactor, stop: tenacity.stop.stop_base) -> tenacity.Retrying:
    """Calls again when Kafka or Connect did not answer."""
    return tenacity.Retrying(
        retry=tenacity.retry_if_exception_type(TowpathError) & tenacity.retry_if_not_exception_type((Refused, NotYet)),
        wait=tenacity.wait_exponential(multiplier=1, max=60),
        stop=stop,
        sleep=compactor.rest,
        before_sleep=_report_retry,
        reraise=True,
    )


def _report_retry(state: tenacity.RetryCallState) -> None:
    error = state.outcome.exception() if state.outcome else None
    wait = state.next_action.sleep if state.next_action else 0
    say(f"{error}; retrying in {wait:.0f} s")


def _print_pass(event: Pass) -> None:
    for topic in event.switched_on:
        say(f"{topic} is protected: cleanup.policy now lets Kafka's log cleaner compact it")
    if event.ready:
        names = first_few(event.ready, _SHOWN)
        say(f"protected, and not compacted yet: {names}; apply what `towpath topics` prints now")
    oldest = "none" if event.oldest_seconds is None else f"{event.oldest_seconds:,.0f} s old"
    unreadable = f", {event.unreadable:,} cannot be requested" if event.unreadable else ""
    click.echo(
        f"{time.strftime('%Y-%m-%d %H:%M:%S', time.gmtime())} UTC  read {counted(event.records, 'record')} of"
        f" {counted(event.partitions, 'partition')}; requested {counted(event.asked, 'document')},"
        f" {event.arrived:,} arrived{unreadable}; oldest unprotected update: {oldest}; {event.seconds:.1f} s"
    )
