"""`towpath status`, as text or JSON, once or repeatedly."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from towpath.bookkeeping.positions import Counts
from towpath.cli.options import json_option, opened, pipeline_argument, print_json
from towpath.errors import fields
from towpath.log import bounds
from towpath.schema import unreplicated
from towpath.session import TROUBLE, Session
from towpath.status import log_figures, replay_states
from towpath.status.collector import look
from towpath.status.figures import RATE_WINDOW, Copied, Status
from towpath.status.log_figures import LogSeen
from towpath.status.replay_states import Replays
from towpath.supervisor.restarts import lasting
from towpath.text import duration, size
from towpath.verification.full_verdict import Verified

_PAUSE = 1.0  # seconds between two looks of --watch
_UNWRAPPED = 1000  # columns, where no terminal wraps the lines


@click.command()
@pipeline_argument
@click.option("--watch", is_flag=True, help="Refresh in place until interrupted.")
@json_option
def status(file: Path, watch: bool, as_json: bool) -> None:
    """Show the state of PIPELINE: connectors, copy, lag, rate, sink writes, retries and dead letters.

    Run it at any time; it changes nothing. With --watch it also shows a server that does not answer, and retries
    until interrupted.

    Exit codes: 0 running; 1 not running, or the log lost records before the sink applied them; 2 the state is
    unknown.
    """
    with opened(file) as it:
        if watch:
            found = _watch_json(it) if as_json else _watch_screen(it)
        else:
            found = look(it.pipeline, it.connect, it.topics)
            if as_json:
                print_json(_as_json(it, found))
            else:
                show(_screen(it, found))
    if found is None or found.state != "running" or found.breaks:
        raise click.exceptions.Exit(2 if found is None else 1)


def _as_json(it: Session, found: Status) -> dict[str, Any]:
    more = Verified.look(it, found.topic_ids).as_json() | replay_states.report(it).as_json()
    more |= {"ddl": unreplicated.as_json(it, found.ddl)}
    return found.as_json() | more | {"log": log_figures.report(it, found.ends).as_json()}


def show(shown: RenderableType) -> None:
    """Print the status for people."""
    console = Console()
    console.width = console.width if console.is_terminal else _UNWRAPPED
    console.print(shown)


def _watch(it: Session, show: Callable[[Status], None], trouble: Callable[[Exception], None]) -> Status | None:
    """Look again and again until Ctrl-C; the last status, None when the last look failed."""
    found: Status | None = None
    with suppress(KeyboardInterrupt, SystemError):  # the latter is what Kafka's client may leave of the former
        while True:
            try:
                found = look(it.pipeline, it.connect, it.topics)
                show(found)
            except TROUBLE as error:
                found = None
                trouble(error)
            time.sleep(_PAUSE)
    return found


def _watch_json(it: Session) -> Status | None:
    """A line for each look; `state` is unknown where it failed."""

    def trouble(error: Exception) -> None:
        told = {"trouble": [str(error)], "errors": [fields(error)]}
        print_json({"name": it.pipeline.name, "state": "unknown"} | told)

    return _watch(it, lambda found: print_json(_as_json(it, found)), trouble)


def _watch_screen(it: Session) -> Status | None:
    """Refreshed in place. While a look fails, the last one that did not stays, with the trouble below it."""
    with Live(console=Console(), auto_refresh=False) as live:
        last: list[RenderableType] = []

        def shown(found: Status) -> None:
            last[:] = [_screen(it, found)]
            live.update(last[0], refresh=True)

        def trouble(error: Exception) -> None:
            at = datetime.now(UTC)
            line = Text(f"no status at {at:%H:%M:%S} UTC: {error}; retrying until it answers", style="red")
            live.update(Group(*last, line), refresh=True)

        return _watch(it, shown, trouble)


def _screen(it: Session, found: Status) -> RenderableType:
    ddl = unreplicated.lines(it, found.ddl)
    return screen(
        found, Verified.look(it, found.topic_ids), replay_states.report(it), log_figures.report(it, found.ends), ddl
    )


#: More collections or causes than this are told as a number.
_SHOWN = 20


def screen(
    found: Status,
    verified: Verified | None = None,
    replays: Replays | None = None,
    log: LogSeen | None = None,
    ddl: Iterable[str] = (),
) -> RenderableType:
    facts = Table.grid(padding=(0, 2))
    facts.add_row("pipeline", f"{found.name}: {found.state} ({found.mode})")
    if found.cutover is not None:
        facts.add_row("cutover", Text(found.cutover.description, style="yellow"))
    for name, line in (*_copy(found), *_numbers(found), *_sink(found), *_dead_letters(found)):
        facts.add_row(Text(name), Text(line) if isinstance(line, str) else line)  # no [markup] in what servers say
    for name, line in log.rows() if log else ():
        facts.add_row(Text(name), Text(line))
    for line, is_different in verified.lines() if verified else ():
        facts.add_row("verified", Text(line, style="red" if is_different else ""))
    for name, line, style in replays.rows() if replays else ():
        facts.add_row(name, Text(line, style=style))
    warnings = [*ddl, *(log.warnings if log else ())]
    words = [Text(f"{c.name}: {reason}", style="red") for c in found.connectors for reason in c.failures]
    words += [Text(trouble, style="red") for trouble in found.trouble]
    if found.breaks:
        words.append(Text(f"A restart does not help: {bounds.describe(found.breaks)}", style="red"))
    elif known := lasting(cause.code for c in found.connectors for cause in c.causes):
        verbs = "; ".join(" ".join(["towpath", verb, "PIPELINE", *options]) for verb, *options in known.verbs)
        words.append(Text(f"A restart does not help; run: {verbs}"))
    elif words:
        words.append(Text("Fix the cause, then run: towpath restart PIPELINE"))
    words += [Text(warning, style="yellow") for warning in warnings]
    return Group(facts, Text(), _connectors(found), *words)


def _copy(found: Status) -> Iterator[tuple[str, RenderableType]]:
    if found.state == "missing":  # nothing copies, whatever was committed before
        return
    yield "copy", "done" if found.snapshot_done else _total(found.snapshot)
    under_way = [copied for copied in found.snapshot if copied.begun and not copied.done]
    for copied in under_way[:_SHOWN]:
        bar = ProgressBar(total=max(copied.of, 1), completed=copied.documents, width=24)
        line = Table.grid(padding=(0, 1))
        line.add_row(bar, _progress(copied))
        yield f"  {copied.namespace}", line
        if copied.retries:
            yield "", f"retried {_times(copied.retries)}, last reason: {_short(copied.reason)}"
    more = len(found.snapshot) - min(len(under_way), _SHOWN)
    if more:
        done = sum(copied.done for copied in found.snapshot)
        counts = {"done": done, "not begun": len(found.snapshot) - len(under_way) - done}
        yield "", f"and {more:,} more" + "".join(f", {name}: {count:,}" for name, count in counts.items() if count)
    if found.held:
        first = found.held[0]
        more_held = f" and {len(found.held) - 1:,} more" if len(found.held) > 1 else ""
        yield "  copied", f"{first.namespace}{more_held}; linear history once the stream has passed {_latest(found)}"


def _latest(found: Status) -> str:
    return max((held.time for held in found.held), key=lambda time: tuple(map(int, time.split(":"))))


def _total(copies: tuple[Copied, ...]) -> str:
    if len(copies) < 2:
        return "under way"
    documents, of = sum(copied.documents for copied in copies), sum(copied.of for copied in copies)
    rate = sum(copied.per_second for copied in copies)
    left = f", {duration((of - documents) / rate)} left" if rate > 0 else ""
    return f"under way: {documents:,} of about {of:,} in {len(copies):,} collections, {rate:,.0f} a second{left}"


def _progress(copied: Copied) -> str:
    ranges = f", {copied.ranges_done:,} of {copied.ranges:,} ranges" if copied.ranges is not None else ""
    left = copied.seconds_left
    speed = f", {copied.per_second:,.0f} a second" if copied.per_second else ""
    return (
        f"{copied.documents:,} of about {copied.of:,}{ranges}{speed}"
        f"{f', {duration(left)} left' if left is not None else ''}"
    )


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count:,} times"


def _short(reason: str) -> str:
    """Without the server's whole response, which the driver adds and `--json` shows."""
    return reason.partition(" The full response is ")[0]


def _numbers(found: Status) -> Iterator[tuple[str, str]]:
    if found.lag_records is None:
        yield "lag", "unknown: the destination, which holds the positions, does not answer"
    else:
        yield "lag", f"{found.lag_records:,} records, {found.lag_seconds:.1f} s"
    yield "rate", f"{found.records_per_second:,.0f} records/s into the log, over {RATE_WINDOW} s"
    for waiting in found.waiting:
        why = f": {waiting.reason}" if waiting.reason else ""
        yield "re-reads", f"{waiting.requests:,} requests wait for {waiting.connector}{why}"


def _sink(found: Status) -> Iterator[tuple[str, str]]:
    yield from _written(found.sink)
    if found.epochs:
        least, most = min(found.epochs.values()), max(found.epochs.values())
        taken = f"{most:,}" if least == most else f"{least:,} to {most:,}"
        yield "epochs", f"{taken} on {len(found.epochs):,} partitions"
    for task in found.tasks:
        if task.counts.retries:
            at = f" at {task.retried_at:%Y-%m-%d %H:%M:%S} UTC" if task.retried_at else ""
            yield (
                f"sink task {task.task}",
                f"retried {_times(task.counts.retries)}, last{at}: {_short(task.reason)}",
            )


def _written(sink: Counts) -> Iterator[tuple[str, str]]:
    if not sink.batches:
        return
    a_write = f" ({sink.records / sink.writes:,.1f} a write)" if sink.writes else ""
    kinds = {"inserts": sink.inserts, "updates": sink.updates, "deletes": sink.deletes}
    counted = "".join(f", {count:,} {name}" for name, count in kinds.items() if count)
    yield "sink", f"{sink.records:,} records in {sink.writes:,} writes{a_write}{counted}"
    mean = f"{sink.records / sink.batches:,.0f} records and {sink.batch_ms / sink.batches:,.0f} ms"
    yield "", f"{sink.batches:,} transactions of {mean} on average, {sink.waves:,} waves"
    missed = f"; {sink.without_document:,} found no document" if sink.without_document else ""
    yield "", f"{size(sink.bytes)} in, {size(sink.bytes_out)} out{missed}"


def _dead_letters(found: Status) -> Iterator[tuple[str, str]]:
    letters = found.dead_letters
    yield "dead letters", f"{letters.count:,}" + ("" if letters.complete else "; causes of the newest ones:")
    for cause in letters.causes[:_SHOWN]:
        code = f" ({cause.code})" if cause.code else ""
        yield f"  {cause.namespace}", f"{cause.records:,}: {cause.reason}{code}"
    if len(letters.causes) > _SHOWN:
        yield "", f"and {len(letters.causes) - _SHOWN:,} more causes"
    if letters.count:
        yield "", "to print them: towpath tail PIPELINE --dead-letters"


def _connectors(found: Status) -> Table:
    table = Table("connector", "state", "tasks", "worker", box=None, padding=(0, 2, 0, 0))
    for connector in found.connectors:
        tasks = ", ".join(f"{task.id} {task.state}" for task in connector.tasks)
        table.add_row(connector.name, connector.state, tasks or "none", connector.worker)
    return table
