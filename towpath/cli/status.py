"""`towpath status`, as text or JSON, once or repeatedly."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import click
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from towpath.cli.options import flag, json_option, opened, pipeline_argument, print_json, print_tables
from towpath.config.text import counted, duration, size, utc
from towpath.deploy import unreplicated
from towpath.deploy.schema_changes import UNREAD
from towpath.log import bounds
from towpath.log.source_offsets import Splices
from towpath.run import report
from towpath.run.report import RATE_WINDOW, Copied, Copy, Lag, Problem, ReplayState, Report, TopicLog
from towpath.run.restarts import lasting
from towpath.run.status import read_log, read_status, with_replays
from towpath.session import ERRORS, Session
from towpath.store.positions import Counts
from towpath.threads import begin
from towpath.verify.verdict import VerdictContext, Verification

_INTERVAL = 1.0  # seconds between two reads of --watch


@click.command()
@pipeline_argument
@flag("--watch", help="Refresh in place until interrupted.")
@json_option
def status(file: Path, watch: bool, as_json: bool) -> None:
    """Show the state of PIPELINE: connectors, copy, lag, rate, sink writes, retries and dead letters.

    Run it at any time; it changes nothing. With --watch it also shows a server that does not answer, and retries
    until interrupted.

    Exit codes: 0 running; 1 not running, as after a cutover, or the log lost records before the sink applied them, or
    a schema change waits for a decision; 2 the state is unknown, or the destination does not answer.
    """
    with opened(file) as session:
        if watch:
            current = _watch_json(session) if as_json else _watch_screen(session)
        else:
            current = read_status(session)
            if as_json:
                print_json(report.as_json(_complete(session, current)))
            else:
                print_tables(_screen(session, current))
    raise click.exceptions.Exit(exit_code(current))


def exit_code(status: Report | None) -> int:
    if status is None or status.is_partial:
        return 2
    stuck = status.raw.changes.stuck if status.raw.changes else ()
    return 1 if status.state != "running" or status.log_breaks or stuck else 0


def _complete(session: Session, status: Report) -> Report:
    """With what only `--json` shows."""
    found, ddl = _with_slow(session, status), unreplicated.source_changes(session, status.raw.ddl)
    return replace(found, verification=found.verification.reported, ddl=ddl)


def _with_slow(session: Session, status: Report) -> Report:
    """With verdicts, replays and the topics of the log."""
    context = begin(lambda: VerdictContext.read(session, status.raw.topic_ids), "verdicts")
    log = begin(lambda: read_log(session, status.raw), "log")
    found, verification = with_replays(session, status), Verification.of(session.pipeline.name, context.result())
    return replace(found, verification=verification, log=log.result())


def _watch(session: Session, show: Callable[[Report], None], failed: Callable[[Exception], None]) -> Report | None:
    """Read and show the status again and again until Ctrl-C. Returns the last one; None if the last read failed."""
    status: Report | None = None
    with suppress(KeyboardInterrupt, SystemError):  # Kafka's client may turn the one into the other
        while True:
            try:
                status = read_status(session)
                show(status)
            except ERRORS as error:
                status = None
                failed(error)
            time.sleep(_INTERVAL)
    return status


def _watch_json(session: Session) -> Report | None:
    """Print a line for each read; when it fails, `state` is unknown."""

    def failed(error: Exception) -> None:
        print_json(report.as_json(replace(report.unknown(session), errors=(Problem.of(error),))))

    return _watch(session, lambda status: print_json(report.as_json(_complete(session, status))), failed)


def _watch_screen(session: Session) -> Report | None:
    """Refresh the screen in place. When a read fails, the last status stays, with the error below it."""
    with Live(console=Console(), auto_refresh=False) as live:
        last: list[RenderableType] = []

        def draw(status: Report) -> None:
            last[:] = [_screen(session, status)]
            live.update(last[0], refresh=True)

        def failed(error: Exception) -> None:
            at = datetime.now(UTC)
            line = Text(f"no status at {at:%H:%M:%S} UTC: {error}; retrying until it answers", style="red")
            live.update(Group(*last, line), refresh=True)

        return _watch(session, draw, failed)


def _screen(session: Session, status: Report) -> RenderableType:
    changes = [*_changes(session, status), *unreplicated.lines(session, status.raw.ddl)]
    return screen(_with_slow(session, status), changes)


def _changes(session: Session, status: Report) -> list[str]:
    if status.raw.changes is None:
        return [UNREAD] if session.pipeline.ddl.apply else []
    return [shown.line(session.file) for shown in status.raw.changes.open]


_MAX_LINES = 20  # of collections, causes or topics; the rest is counted
_HEALTHY = ("RUNNING", "UNASSIGNED", "RESTARTING")  # states of a replay's connector


def screen(status: Report, ddl: Iterable[str] = ()) -> RenderableType:
    facts = Table.grid(padding=(0, 2))
    facts.add_row("pipeline", f"{status.name}: {status.state} ({status.mode})")
    if status.cutover_words:
        facts.add_row("cutover", Text(status.cutover_words, style="yellow"))
    copy = _copy(status.copy) if status.copy and status.state != "missing" else ()  # missing: no connector copies
    for name, line in (*copy, *_numbers(status), *_sink(status), *_dead_letters(status), *_log(status)):
        # Text: servers' messages may hold [markup]
        facts.add_row(Text(name), Text(line) if isinstance(line, str) else line)
    for line, is_different in status.verification.lines():
        facts.add_row("verified", Text(line, style="red" if is_different else ""))
    for name, line, style in _replays(status):
        facts.add_row(name, Text(line, style=style))
    messages = [Text(f"{c.name}: {reason}", style="red") for c in status.connectors for reason in c.reasons]
    messages += [Text(error.message, style="red") for error in status.errors]
    if status.log_breaks:
        messages.append(Text(f"A restart does not help: {bounds.describe(status.log_breaks)}", style="red"))
    elif failure := lasting(failure.code for c in status.connectors for failure in c.failures):
        messages.append(Text(f"A restart does not help; run: {failure.text('PIPELINE')}"))
    elif messages:
        messages.append(Text("Fix the cause, then run: towpath restart PIPELINE"))
    warnings = (*_skipped(status), *ddl, *(status.log.warnings if status.log else ()))
    messages += [Text(warning, style="yellow") for warning in warnings]
    return Group(facts, Text(), _connectors(status), *messages)


def _copy(copies: Copy) -> Iterator[tuple[str, RenderableType]]:
    number = f", round {copies.round:,}" if (copies.round or 0) > 1 else ""
    yield "copy", "done" if copies.done else _total(copies.collections) + number
    under_way = [copy for copy in copies.collections if copy.started and not copy.done]
    for copy in under_way[:_MAX_LINES]:
        bar = ProgressBar(total=max(copy.estimated_documents, 1), completed=copy.documents, width=24)
        line = Table.grid(padding=(0, 1))
        line.add_row(bar, _progress(copy))
        yield f"  {copy.namespace}", line
        if copy.retries:
            yield "", f"retried {_times(copy.retries)}, last reason: {_short(copy.reason)}"
    more = len(copies.collections) - min(len(under_way), _MAX_LINES)
    if more:
        done = sum(copy.done for copy in copies.collections)
        counts = {"done": done, "not started": len(copies.collections) - len(under_way) - done}
        yield "", f"and {more:,} more" + "".join(f", {name}: {count:,}" for name, count in counts.items() if count)
    if awaiting := copies.awaiting_stream:
        others = f" and {len(awaiting) - 1:,} more" if len(awaiting) > 1 else ""
        latest = max((copy.time for copy in awaiting), key=lambda time: tuple(map(int, time.split(":"))))
        yield "  copied", f"{awaiting[0].namespace}{others}; linear history once the stream has passed {latest}"


def _total(copies: tuple[Copied, ...]) -> str:
    if len(copies) < 2:
        return "under way"
    documents, of = sum(copy.documents for copy in copies), sum(copy.estimated_documents for copy in copies)
    rate = sum(copy.records_per_second for copy in copies)
    left = f", {duration((of - documents) / rate)} left" if rate > 0 else ""
    return f"under way: {documents:,} of about {of:,} in {len(copies):,} collections, {rate:,.0f} a second{left}"


def _progress(copy: Copied) -> str:
    ranges = f", {copy.done_ranges:,} of {copy.ranges:,} ranges" if copy.ranges is not None else ""
    pending = f", {copy.pending_documents:,} changed in the meantime are re-read next" if copy.pending_documents else ""
    speed = f", {copy.records_per_second:,.0f} a second" if copy.records_per_second else ""
    left = "" if copy.remaining_seconds is None else f", {duration(copy.remaining_seconds)} left"
    return f"{copy.documents:,} of about {copy.estimated_documents:,}{ranges}{pending}{speed}{left}"


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count:,} times"


def _short(reason: str) -> str:
    """The reason without the server's whole response, which the driver appends; `--json` shows all of it."""
    return reason.partition(" The full response is ")[0]


def lag_text(lag: Lag) -> str:
    if lag.records is None:
        return "unknown: the destination, which holds the positions, does not answer"
    return f"{lag.records:,} records, {'unknown' if lag.seconds is None else f'{lag.seconds:.1f} s'}"


def _numbers(status: Report) -> Iterator[tuple[str, str]]:
    yield "lag", lag_text(status.lag)
    behind, is_copied = status.lag.capture_seconds, status.copy is not None and status.copy.done
    if behind is not None and is_copied and status.cutover is None:
        limit = status.recovery_point_seconds
        yield (
            "recovery",
            f"{lost_text(behind, status.lag.capture_changes)} would be lost with the source"
            f"{'' if limit is None else f' (limit {limit:g} s)'}",
        )
        if (takes := status.lag.takeover_seconds) is not None:
            yield "takeover", f"about {takes:,.0f} s if the source were lost now"
    yield "rate", f"{status.records_per_second or 0:,.0f} records/s into the log, over {RATE_WINDOW} s"
    yield from _splices(status.splices or Splices())
    for shown in status.raw.changes.latest[:1] if status.raw.changes else ():
        ended = f" at {shown.change.ended:%Y-%m-%d %H:%M:%S} UTC" if shown.change.ended else ""
        yield "schema", f"last change {shown.change.state}: {shown.description}{ended}"
    for waiting in status.requests_waiting or ():
        why = f": {waiting.reason}" if waiting.reason else ""
        yield "re-reads", f"{waiting.requests:,} requests wait for {waiting.connector}{why}"


def lost_text(seconds: float, changes: int | None) -> str:
    """What would be lost with the source."""
    return f"{seconds:.1f} s" + ("" if changes is None else f" ({counted(changes, 'change')})")


def _skipped(status: Report) -> Iterator[str]:
    if count := status.requests_skipped:
        yield (
            f"TWP-REQUEST: {count:,} re-read requests could not be answered, or not for all of their documents; the log"
            " of the source connector's worker has the reasons"
        )


def _splices(splices: Splices) -> Iterator[tuple[str, str]]:
    if splices.splices or splices.dropped:
        forgotten = f"; {splices.dropped:,} forgotten for want of space ([capture] splice_cache)"
        saved = f"{splices.splices:,} arrays as splices, {size(splices.saved)} saved"
        yield "splices", saved + (forgotten if splices.dropped else "")


def _sink(status: Report) -> Iterator[tuple[str, str]]:
    yield from _written(status.sink or Counts())
    if all_epochs := [epoch for partitions in status.epochs.values() for epoch in partitions.values()]:
        least, most = min(all_epochs), max(all_epochs)
        epochs = f"{most:,}" if least == most else f"{least:,} to {most:,}"
        yield "epochs", f"{epochs} on {len(all_epochs):,} partitions"
    for task in status.sink_tasks:
        if task.counts.retries:
            at = f" at {task.retried_at:%Y-%m-%d %H:%M:%S} UTC" if task.retried_at else ""
            yield f"sink task {task.task}", f"retried {_times(task.counts.retries)}, last{at}: {_short(task.reason)}"


def _written(sink: Counts) -> Iterator[tuple[str, str]]:
    if not sink.batches:
        return
    per_write = f" ({sink.records / sink.writes:,.1f} a write)" if sink.writes else ""
    kinds = {"inserts": sink.inserts, "updates": sink.updates, "deletes": sink.deletes}
    counts = "".join(f", {count:,} {name}" for name, count in kinds.items() if count)
    yield "sink", f"{sink.records:,} records in {sink.writes:,} writes{per_write}{counts}"
    mean = f"{sink.records / sink.batches:,.0f} records and {sink.batch_ms / sink.batches:,.0f} ms"
    yield "", f"{sink.batches:,} transactions of {mean} on average, {sink.waves:,} waves"
    missed = f"; {sink.without_document:,} found no document" if sink.without_document else ""
    yield "", f"{size(sink.bytes)} in, {size(sink.bytes_out)} out{missed}"


def _dead_letters(status: Report) -> Iterator[tuple[str, str]]:
    count, causes = status.dead_letters, status.dead_letter_causes
    if count is None:
        yield "dead letters", "unknown"
        return
    known = ", repaired ones included" if count else ""
    yield "dead letters", f"{count:,}{known}" + ("" if status.dead_letters_complete else "; causes of the newest ones:")
    for cause in causes[:_MAX_LINES]:
        code = f" ({cause.code})" if cause.code else ""
        yield f"  {cause.namespace}", f"{cause.records:,}: {cause.reason}{code}"
    if len(causes) > _MAX_LINES:
        yield "", f"and {len(causes) - _MAX_LINES:,} more causes"
    if count:
        yield "", "to print them: towpath tail PIPELINE --dead-letters"


def _log(status: Report) -> Iterator[tuple[str, str]]:
    """A row for each topic, those with the most unprotected updates first."""
    topics = sorted(
        status.log.topics if status.log else (),
        key=lambda topic: (-(topic.unprotected_documents or 0), topic.namespace),
    )
    for number, topic in enumerate(topics[:_MAX_LINES]):
        disk = "" if topic.bytes is None else f", {size(topic.bytes)}"
        line = f"{topic.namespace}: {topic.offsets:,} offsets{disk}"
        yield (
            "" if number else "log",
            f"{line}, {_protection(topic)}" if status.compaction_lag_seconds is not None else line,
        )
    if len(topics) > _MAX_LINES:
        yield "", f"and {len(topics) - _MAX_LINES:,} more topics"


def _protection(topic: TopicLog) -> str:
    if topic.reported_seconds is None or topic.unprotected_documents is None:
        return "not read by `towpath compact` yet"
    oldest = "" if topic.oldest_seconds is None else f", the oldest {duration(topic.oldest_seconds)} old"
    reported = f"reported {duration(topic.reported_seconds)} ago{'' if topic.compacted else '; not compacted yet'}"
    return f"{topic.unprotected_documents:,} documents with unprotected updates{oldest}, {reported}"


def _replays(status: Report) -> Iterator[tuple[str, str, str]]:
    """Label, text and style of each row."""
    if (rebuild := status.rebuild) is not None:
        progress = f"{rebuild.records_done:,} of about {rebuild.records:,} records applied"
        words = f"since {utc(rebuild.since)}, {progress}; the same `towpath replay --rebuild` continues it"
        yield "rebuilding", words, ""
    if status.rebuild_error is not None:
        yield "rebuilding", f"unknown: {status.rebuild_error.message}", "red"
    for state in status.replays:
        bad = bool(state.reasons or state.dead_letters) or state.state not in _HEALTHY
        yield f"replay {state.label}", _replay(state), "red" if bad else ""


def _replay(state: ReplayState) -> str:
    text = f"to {state.destination}: "
    if state.records_done is None:
        text += f"progress unknown ({state.error.message if state.error else ''})"
    elif state.records_done < state.records:
        text += f"{state.records_done:,} of about {state.records:,} records"
    elif state.follow:
        text += f"follows, {state.records_behind or 0:,} records behind"
    else:
        text += "all of the log is applied; the same `towpath replay` ends it"
    if state.dead_letters:
        text += f"; {state.dead_letters:,} dead letters in {state.dead_letter_topic}"
    if state.state != "RUNNING":
        text += f"; {state.state}" + (f": {'; '.join(state.reasons)}" if state.reasons else "")
    return text


def _connectors(status: Report) -> Table:
    table = Table("connector", "state", "tasks", "worker", box=None, padding=(0, 2, 0, 0))
    for connector in status.connectors:
        tasks = ", ".join(f"{task.id} {task.state}" for task in connector.tasks)
        table.add_row(connector.name, connector.state, tasks or "none", connector.worker)
    return table
