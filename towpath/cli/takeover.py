"""`towpath takeover`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import click

from towpath.cli import DIFFERENT
from towpath.cli.cutover import print_event, with_words, write_report
from towpath.cli.options import FILE, flag, json_option, opened, pipeline_argument, print_json
from towpath.cli.progress import replay_bars
from towpath.cli.replay import confirm, destination_options, one_destination
from towpath.cli.status import lost_text
from towpath.clients.mongo.client import cluster_time
from towpath.config.events import Drilled, TimedEvent
from towpath.config.text import counted, duration, utc
from towpath.cutover import drill
from towpath.cutover.machine import Machine
from towpath.cutover.sides import read_sides
from towpath.cutover.steps import CutoverOptions
from towpath.deploy import deployment
from towpath.errors import Refused
from towpath.history.plan import DRILL, Options
from towpath.session import unsaid
from towpath.signals import Interrupts, handle
from towpath.store.state_files import alone


@click.command()
@pipeline_argument
@flag("--return", "returns", help="After a takeover: make the old source, which answers again, follow the new primary.")
@flag("--undo", "undoes", help="Undo an interrupted takeover, or an interrupted return.")
@flag("--dry-run", help="Only check whether it is possible, and what would be missing.")
@flag("--yes", help="With --return and --drill: do not ask before documents are overwritten and deleted.")
@flag(
    "--source-is-lost",
    help="The source is lost, although something still answers there. What is written to it from now on is lost.",
)
@flag("--accept", "accepts", help="Take over although the destination will lack something, which a --dry-run shows.")
@flag("--drill", "drills", help="Show on a scratch destination what a takeover would give now.")
@destination_options
@flag("--empty", help="With --drill: first delete the documents in these namespaces there, after confirmation.")
@click.option("--switch-with", metavar="COMMAND", help="Command that redirects the writers to the new primary.")
@click.option("--timeout", default=600.0, help="Seconds that a step may take.")
@click.option("--report", "report_path", type=FILE, help="Write an HTML report of the takeover.")
@json_option
def takeover(
    file: Path,
    returns: bool,
    undoes: bool,
    dry_run: bool,
    yes: bool,
    source_is_lost: bool,
    accepts: bool,
    drills: bool,
    uri: str | None,
    uri_file: Path | None,
    uri_env: str | None,
    empty: bool,
    switch_with: str | None,
    timeout: float,
    report_path: Path | None,
    as_json: bool,
) -> None:
    """Make the destination of PIPELINE primary when its source is lost.

    Run it only then: `cutover` moves without loss. The takeover stops and fences the capture, applies all that is in
    the log, fences the sink, and restores indexes, TTL and validators. The destination is then as the source was at
    one point in time, which the command names: no transaction is half applied. What the source acknowledged later is
    lost. It is refused while the source answers this machine or Kafka Connect. It undoes everything when a step fails,
    and on Ctrl-C, SIGTERM or SIGHUP.

    After it, when the old source answers again, --return writes every document that the old source is to lose to a
    file, in both versions. After confirmation it makes the old source equal to the new primary, deletes included, and
    starts the reverse pipeline, so that `cutover --back` fails back without loss.

    --drill changes nothing of the pipeline: it applies the log up to the present position of the capture to a scratch
    destination (one of the options --destination…), restores the schema there, compares all with the source as of that
    time, and prints how much would have been lost.

    Exit codes, whatever happens to the output: 0 done; 1 not done, everything is as before, or a drill that found a
    problem; 2 something is left to do, and the message names it.
    """
    if undoes and (returns or dry_run or source_is_lost or accepts):
        raise click.UsageError("--undo goes with none of --return, --dry-run, --source-is-lost and --accept")
    if returns and (source_is_lost or accepts or switch_with):
        raise click.UsageError("--return goes with none of --source-is-lost, --accept and --switch-with")
    if yes and not (returns or drills):
        raise click.UsageError("--yes belongs to --return and --drill")
    if drills:
        if returns or undoes or dry_run or source_is_lost or accepts or switch_with or report_path:
            raise click.UsageError("--drill goes only with --destination…, --empty, --yes, --timeout and --json")
        _drill(file, one_destination(uri, uri_file, uri_env), empty=empty, yes=yes, timeout=timeout, as_json=as_json)
        return
    if empty or any((uri, uri_file, uri_env)):
        raise click.UsageError("--destination… and --empty belong to --drill")
    handle(signals := Interrupts(once=True))
    told = list[TimedEvent]()

    def tell(event: TimedEvent) -> None:
        told.append(event := with_words(event))
        (print_json if as_json else print_event)(event)

    options = CutoverOptions(
        switch_with=switch_with,
        timeout=timeout,
        source_is_lost=source_is_lost,
        accepts=accepts,
        ask=unsaid if yes else _ask,
    )
    with ExitStack() as stack:
        session = stack.enter_context(opened(file))
        deployment.refuse_change(session.pipeline, "a takeover")
        if not session.pipeline.exactly_once:
            raise Refused(f'{file}: a takeover needs mode = "exactly-once", which stores positions with the documents')
        if returns and session.pipeline.collections.rules:
            raise Refused(
                f"{session.pipeline.name} has rules, so the old source cannot follow: it would get what they have left",
                "docs/how-to/takeover.md says what can be done then",
            )
        if not dry_run:
            stack.enter_context(alone(session.pipeline.name, "cutover"))
        sides = read_sides(
            session, stack, goes_forward=False, undoes=undoes, has_reverse_pipeline=False, returns=returns
        )
        machine = Machine(
            sides=sides,
            options=options,
            report=tell,
            signals=signals,
            dry_run=dry_run,
            report_path=report_path,
            write_report=lambda: write_report(report_path, sides, told),
            has_reverse=False,
        )
        is_done = machine.undo() if undoes else machine.return_source() if returns else machine.take_over()
    if not is_done:
        raise click.exceptions.Exit(DIFFERENT)


def _drill(file: Path, uri: str, *, empty: bool, yes: bool, timeout: float, as_json: bool) -> None:
    with opened(file) as session, replay_bars() as report, alone(session.pipeline.name, DRILL):
        deployment.refuse_change(session.pipeline, "a drill")
        options = Options((), force=False, timeout=timeout, uri=uri, empty=empty)
        drilled = drill.drill(session, options, report, unsaid if yes else confirm)
    if as_json:
        print_json(drilled)
    else:
        click.echo("\n".join(_lines(drilled)))
    if not drilled.whole:
        raise click.exceptions.Exit(DIFFERENT)


def _lines(drilled: Drilled) -> Iterator[str]:
    at = cluster_time(drilled.cluster_time)
    yield f"time       every change before {utc(at.seconds)} ({at})"
    if drilled.recovery_seconds is not None:
        lost = lost_text(drilled.recovery_seconds, drilled.recovery_changes)
        yield f"recovery   {lost} would have been lost with the source"
    behind = "unknown" if drilled.behind_records is None else counted(drilled.behind_records, "record")
    yield f"to apply   {behind} at the destination of the pipeline"
    yield f"applied    {drilled.records:,} records of the whole log in {duration(drilled.apply_seconds)}"
    yield f"schema     restored in {drilled.schema_seconds:.1f} s, with all indexes"
    words = f"{drilled.differences:,} differ" if drilled.differences else "the same as the source at that time"
    words += ", but for what was not judged" if drilled.not_judged else ""
    yield f"compared   {counted(drilled.documents, 'document')}: {words}"
    yield from (f"not judged {words}" for words in drilled.not_judged)
    yield from (f"problem    {words}" for words in drilled.problems)


def _ask(question: str) -> None:
    """Raises `Refused` without consent."""
    try:
        agreed = click.confirm(question, err=True)
    except click.Abort as error:
        raise Refused("interrupted, or no one to answer on standard input", "--yes does not ask") from error
    if not agreed:
        raise Refused("declined")
