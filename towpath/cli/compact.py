"""`towpath compact`"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing, suppress
from datetime import timedelta
from functools import partial
from pathlib import Path

import click
import tenacity

from towpath.checks.rule import require
from towpath.cli.options import duration, flag, json_option, opened, pipeline_argument, print_json, say
from towpath.config.events import Round
from towpath.config.text import counted
from towpath.errors import NotYet, Refused, TowpathError
from towpath.history.compaction.preconditions import RULES, CompactedLog, interval
from towpath.history.compaction.reader import Reader
from towpath.history.compaction.service import Compactor
from towpath.verify.repair import unreadable


@click.command()
@pipeline_argument
@click.option(
    "--every",
    callback=duration,
    help="Time from one round to the next, at most half of compaction_lag. Default: 1 hour, or a quarter of"
    " compaction_lag if that is less.",
)
@flag("--once", help="Run one round, which protects all updates in the log now, then exit.")
@flag("--from-beginning", help="Read the whole log, including updates protected before.")
@click.option("--timeout", default=3600.0, help="With --once: seconds before it gives up.")
@json_option
def compact(
    file: Path, every: timedelta | None, once: bool, from_beginning: bool, timeout: float, as_json: bool
) -> None:
    """Prepare the log of PIPELINE for compaction by Kafka's log cleaner.

    Leave it running as a service when the file has [log] compact = true. The cleaner keeps only the last record of
    each document. That record may be an update, which is useless without the document. In each round, the source
    connector therefore re-reads the documents with updates since their last whole record. These documents
    enter the log in order. Several processes may run side by side; they share the work.

    Exit codes: 0 done, or the service was stopped; 1 --once left documents unprotected; 2 it cannot be done.
    """
    with opened(file) as session:
        every_ms = None if every is None else every // timedelta(milliseconds=1)
        require(RULES, CompactedLog(session, every_ms))
        log = session.pipeline.log
        report = print_json if as_json else _print_round
        with closing(Reader(session.pipeline, session.topics, from_beginning=from_beginning)) as reader:
            compactor = Compactor(session, reader, unreadable, timeout if once else None)
            if once:
                _run_once(compactor, timeout, report)
                return
            seconds = (every_ms or interval(log)) / 1000
            say(
                f"{session.pipeline.name}: a round every {seconds:,.0f} s; compaction_lag is"
                f" {log.compaction_lag / 1000:,.0f} s"
            )
            with suppress(KeyboardInterrupt):
                _run_service(compactor, seconds, report)


def _run_service(compactor: Compactor, seconds: float, report: Callable[[Round], None]) -> None:
    while True:
        started = time.monotonic()
        _retry_outages(compactor, tenacity.stop_never, lambda: report(compactor.round()))
        remaining = max(0.0, started + seconds - time.monotonic())
        _retry_outages(compactor, tenacity.stop_never, partial(compactor.pause, remaining))


def _run_once(compactor: Compactor, timeout: float, report: Callable[[Round], None]) -> None:
    rounds: list[Round] = []
    _retry_outages(compactor, tenacity.stop_after_delay(timeout), lambda: rounds.append(compactor.round()))
    last = rounds[-1]
    report(last)
    if last.asked > last.arrived or last.unreadable:
        raise click.exceptions.Exit(1)


def _retry_outages(compactor: Compactor, stop: tenacity.stop.stop_base, act: Callable[[], None]) -> None:
    """Call `act`, and again when Kafka or Connect did not answer."""
    tenacity.Retrying(
        retry=tenacity.retry_if_exception(_is_outage),
        wait=tenacity.wait_exponential(multiplier=1, max=60),
        stop=stop,
        sleep=compactor.rest,
        before_sleep=_report_retry,
        reraise=True,
    )(act)


def _is_outage(error: BaseException) -> bool:
    return isinstance(error, TowpathError) and not isinstance(error, Refused | NotYet)


def _report_retry(state: tenacity.RetryCallState) -> None:
    error = state.outcome.exception() if state.outcome else None
    wait = state.next_action.sleep if state.next_action else 0
    say(f"{error}; retrying in {wait:.0f} s")


def _print_round(event: Round) -> None:
    for topic in event.switched_on:
        say(f"{topic} is protected: cleanup.policy now lets Kafka's log cleaner compact it")
    oldest = "none" if event.oldest_seconds is None else f"{event.oldest_seconds:,.0f} s old"
    unreadable = f", {event.unreadable:,} cannot be requested (odd _id)" if event.unreadable else ""
    click.echo(
        f"{time.strftime('%Y-%m-%d %H:%M:%S', time.gmtime())} UTC  read {counted(event.records, 'record')} of"
        f" {counted(event.partitions, 'partition')}; requested {counted(event.asked, 'document')},"
        f" {event.arrived:,} arrived{unreadable}; oldest unprotected update: {oldest}; {event.seconds:.1f} s"
    )
