"""`towpath cutover`, its events as text, and its report as an HTML page: the gate, the steps with their times."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import click

from towpath.cli import DIFFERENT, report
from towpath.cli.options import FILE, duration, flag, json_option, opened, pipeline_argument, print_json, say
from towpath.config.events import CutoverNote, Gate, Step, Switch, TimedEvent
from towpath.config.mongo_uri import without_credentials
from towpath.config.text import counted, utc
from towpath.cutover.machine import Machine
from towpath.cutover.sides import Sides, read_sides
from towpath.cutover.steps import CutoverOptions
from towpath.deploy import deployment
from towpath.errors import Refused
from towpath.signals import Interrupts, handle
from towpath.store.state_files import alone

_DEFAULTS = CutoverOptions()
_STOP_STEP = "stopping the writers"
_MARKS = {
    "ok": click.style("ok  ", fg="green"),
    "warning": click.style("warn", fg="yellow"),
    "error": click.style("red ", fg="red", bold=True),
}


@click.command()
@pipeline_argument
@flag("--back", "goes_back", help="Fail back: the source becomes primary again.")
@flag("--undo", "undoes", help="Undo an interrupted cutover.")
@flag("--dry-run", help="Only check that everything is ready.")
@flag("--block-writes", "blocks", help="Block writes at the server (setUserWriteBlockMode, MongoDB 6.0).")
@click.option(
    "--stop-with",
    metavar="COMMAND",
    help="Command that stops the writers. Without it and --block-writes, the cutover asks you to stop them. If the"
    " cutover is undone, start them again.",
)
@click.option(
    "--switch-with", metavar="COMMAND", help="Command that redirects the writers once the other side is primary."
)
@click.option(
    "--last",
    "newest",
    default=_DEFAULTS.newest,
    type=click.IntRange(min=1),
    help="How many of the newest records to verify just before the pause.",
)
@flag("--quiet", help="During the pause, also compare all documents by dbHash.")
@click.option(
    "--max-lag",
    default=_DEFAULTS.max_lag,
    type=click.FloatRange(min=0),
    help="Largest lag, in seconds, with which a cutover may begin.",
)
@click.option(
    "--verified-within",
    default=f"{_DEFAULTS.max_age / 3600:.0f}h",
    callback=duration,
    help="Largest age of the last full verification.",
)
@flag(
    "--no-reverse-pipeline",
    help="Create no reverse pipeline: nothing is written to the source afterwards.",
)
@click.option(
    "--timeout",
    default=_DEFAULTS.timeout,
    help="Seconds that a step before the pause may wait; a verification has no limit.",
)
@click.option(
    "--max-pause",
    default=f"{_DEFAULTS.max_pause:.0f}s",
    callback=duration,
    help="Longest time from when the writers are asked to stop until the other side is primary.",
)
@flag(
    "--rebuild-later",
    "rebuilds_later",
    help="On MongoDB 5.0, rebuild unique and TTL indexes after the switch, also with --back; until then duplicates are"
    " accepted.",
)
@click.option("--report", "report_path", type=FILE, help="Write an HTML report of the cutover.")
@json_option
def cutover(
    file: Path,
    goes_back: bool,
    undoes: bool,
    dry_run: bool,
    blocks: bool,
    stop_with: str | None,
    switch_with: str | None,
    newest: int,
    quiet: bool,
    max_lag: float,
    verified_within: timedelta,
    no_reverse_pipeline: bool,
    timeout: float,
    max_pause: timedelta,
    rebuilds_later: bool,
    report_path: Path | None,
    as_json: bool,
) -> None:
    """Make the destination of PIPELINE primary, in a pause of seconds.

    Run it when you want to move the writers to the destination, after a clean `verify`. The cutover checks that
    everything is ready, verifies the documents of the newest records and stops the writes at the source. Then it
    applies and verifies the rest, restores indexes, TTL and validators, and starts a reverse pipeline, so that --back
    fails back without loss. It undoes everything when a check fails, when a write reaches the source after the stop,
    when the pause reaches --max-pause, and on Ctrl-C, SIGTERM or SIGHUP. After the switch, only --back returns.

    Exit codes, whatever happens to the output: 0 done; 1 not done, everything is as before; 2 something is left to do,
    and the message names it.
    """
    if goes_back and undoes:
        raise click.UsageError("give one of --back and --undo")
    if goes_back and no_reverse_pipeline:
        raise click.UsageError(
            "--no-reverse-pipeline belongs to the cutover; a cutover with it cannot fail back with --back"
        )
    if undoes and dry_run:
        raise click.UsageError(
            "give one of --undo and --dry-run: --dry-run checks readiness, which --undo does not need"
        )
    handle(signals := Interrupts(once=True))
    told = list[TimedEvent]()

    def tell(event: TimedEvent) -> None:
        told.append(event := with_words(event))
        (print_json if as_json else print_event)(event)

    options = CutoverOptions(
        max_lag=max_lag,
        max_age=verified_within.total_seconds(),
        newest=newest,
        quiet=quiet,
        blocks=blocks,
        stop_with=stop_with,
        switch_with=switch_with,
        timeout=timeout,
        max_pause=max_pause.total_seconds(),
        rebuilds_later=rebuilds_later,
    )
    with ExitStack() as stack:
        session = stack.enter_context(opened(file))
        deployment.refuse_change(session.pipeline, "a cutover")
        if not session.pipeline.exactly_once:
            raise Refused(
                f'{file}: a cutover needs mode = "exactly-once", which stores positions with the documents',
                "docs/how-to/cutover.md says how a pipeline in plain mode is switched manually",
            )
        if not dry_run:
            stack.enter_context(alone(session.pipeline.name, "cutover"))
        sides = read_sides(
            session,
            stack,
            goes_forward=not (undoes or goes_back),
            undoes=undoes,
            has_reverse_pipeline=not no_reverse_pipeline,
        )
        machine = Machine(
            sides=sides,
            options=options,
            report=tell,
            signals=signals,
            dry_run=dry_run,
            report_path=report_path,
            write_report=lambda: write_report(report_path, sides, told),
            has_reverse=not no_reverse_pipeline,
        )
        is_done = machine.undo() if undoes else machine.back() if goes_back else machine.run()
    if not is_done:
        raise click.exceptions.Exit(DIFFERENT)


def with_words(event: TimedEvent) -> TimedEvent:
    """The event as it is shown: with the time, and with words for people."""
    match event:
        case Step():
            counts = "".join(f", {counted(count, noun.removesuffix('s'))}" for noun, count in event.counts.items())
            words = f"{event.step}: {event.seconds:.1f} s{counts}"
        case Switch():
            words = f"the {event.primary} is primary: redirect the writers there"
            if event.pause_seconds is not None:
                words += f" (writes were stopped for {event.pause_seconds:.1f} s)"
        case _:
            words = event.words or ""
    return replace(event, at=datetime.now(UTC), words=words)


def print_event(event: TimedEvent) -> None:
    """Print the words of an event; for the gate, a line for each check."""
    if not isinstance(event, Gate):
        click.echo(event.words)
        return
    width = max((len(finding["subject"]) for finding in event.findings), default=0)
    for finding in event.findings:
        click.echo(f"{_MARKS[finding['level']]} {finding['subject']:<{width}}  {finding['finding']}")
        if finding["level"] != "ok" and finding["advice"]:
            click.echo(f"     {'':<{width}}  → {finding['advice']}")


def write_report(place: Path | None, sides: Sides, events: Sequence[TimedEvent]) -> None:
    """Write the page, if it has a place. Raises `TowpathError` when it cannot be written."""
    if place is None:
        return
    switch = next((event for event in events if isinstance(event, Switch)), None)
    report.write(
        place,
        "cutover",
        name=sides.forward.pipeline.name,
        headline=f"the {switch.primary} is primary" if switch else "not done",
        mark="same" if switch else "bad",
        facts=_facts(sides, events, switch),
        gates=[event.findings for event in events if isinstance(event, Gate)],
        steps=list(_steps(events)),
        events=[event for event in events if not isinstance(event, Gate)],
    )
    say(f"wrote the report to {place}")


def _facts(sides: Sides, events: Sequence[TimedEvent], switch: Switch | None) -> dict[str, str]:
    pipeline, marker, reverse = sides.forward.pipeline, sides.marker, "" if sides.reverse else "none"
    if sides.reverse and marker and marker.state == "destination primary":
        own = f"{sides.reverse.pipeline.name} ({sides.reverse.file.name})"
        reverse = f"{own}; towpath cutover {sides.forward.file.name} --back"
    return {
        "source": without_credentials(pipeline.source.uri),
        "destination": without_credentials(pipeline.destination.uri),
        "begun": utc(events[0].reported_at.timestamp()) if events else "",
        "primary now": switch.primary if switch else "as before",
        "switched": utc(switch.reported_at.timestamp()) if switch else "never",
        "writes had stopped for": f"{switch.pause_seconds:.1f} s"
        if switch and switch.pause_seconds is not None
        else "",
        "everything up to": f"{marker.cluster_time}, cluster time of the source"
        if marker and marker.cluster_time
        else "",
        "reverse pipeline": reverse,
    }


def _steps(events: Sequence[TimedEvent]) -> Iterator[tuple[Step, float, float, bool]]:
    """Each step on the time line of all: where it begins and how wide it is, in per cent, and whether in the pause."""
    steps = [event for event in events if isinstance(event, Step)]
    if not steps:
        return
    first, last = _start(steps[0]), steps[-1].reported_at
    requested = (
        event.reported_at for event in events if isinstance(event, CutoverNote) and event.event == "stop writes"
    )
    stopping = (step.reported_at - timedelta(milliseconds=1) for step in steps if step.step.startswith(_STOP_STEP))
    stopped = next(requested, next(stopping, last))
    switched = next((event.reported_at for event in events if isinstance(event, Switch)), last)
    percent = 100 / max((last - first).total_seconds(), 0.001)
    for step in steps:
        left = (_start(step) - first).total_seconds() * percent
        yield step, left, step.seconds * percent, stopped < step.reported_at <= switched


def _start(step: Step) -> datetime:
    return step.reported_at - timedelta(seconds=step.seconds)
