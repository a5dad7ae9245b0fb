"""`towpath verify`"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import asdict, replace
from datetime import timedelta
from pathlib import Path
from typing import NoReturn

import click

from towpath.cli import DIFFERENT, ERROR, Output
from towpath.cli.options import FILE, duration, flag, json_option, opened, pipeline_argument, print_json, say
from towpath.cli.progress import comparison_bar
from towpath.cli.verdict import show, write_report
from towpath.config.events import Definition, Difference, Event, Followed
from towpath.config.namespaces import is_pattern
from towpath.deploy import schema_changes as changes
from towpath.deploy import unreplicated
from towpath.deploy.schema import Listing, metadata, remember, time_to_remember
from towpath.log.barrier import asking
from towpath.log.lag import pipeline_ends
from towpath.session import Session
from towpath.signals import Interrupts, handle
from towpath.store import state_files, verdict_file
from towpath.store.cutover import no_copy
from towpath.store.verdict_file import FollowState
from towpath.verify import run as verification
from towpath.verify.follower import follow
from towpath.verify.result import VerificationResult
from towpath.verify.run import VerifyRequest, follow_start
from towpath_verifier import Options, Pair, Recheck, Verdict, started_ahead

_EXAMPLES = 10  # differences that are shown in full
_PATIENCE = 10.0  # seconds in which --follow ends after a signal; then what it waits for is interrupted


@click.command()
@pipeline_argument
@click.option(
    "-n",
    "--namespace",
    "only",
    multiple=True,
    help="Compare only this namespace or pattern (source's names); repeatable.",
)
@click.option(
    "--processes",
    type=click.IntRange(1, 64),
    default=os.cpu_count() or 1,
    show_default=False,
    help="Number of processes that read; default: the number of cores.",
)
@flag("--ignore-field-order", help="Accept documents that differ only in the order of their fields.")
@flag("--quiet", help="Compare by dbHash while no one writes. Stops without a verdict when it sees a write.")
@flag("--screen", help="Compare by digests, for a slow network. Digests cover only the integer part of numbers.")
@click.option(
    "--tries", default=Recheck().tries, help="How often a difference is re-read; each pause is twice the one before."
)
@click.option("--patience", default=Recheck().patience, help="Seconds that a difference may wait for the pipeline.")
@flag("--alone", help="Do not query Connect and Kafka for the pipeline's progress; rely on --tries alone.")
@flag("--resume", help="Continue the run that was interrupted.")
@click.option("--last", type=click.IntRange(min=1), help="Compare only the documents of this many newest records.")
@click.option("--since", callback=duration, help="Compare only the documents changed within this time, such as 10m.")
@flag("--follow", "follows", help="Then compare each document that changes, until interrupted.")
@click.option(
    "--metadata/--no-metadata",
    "with_metadata",
    default=None,
    help="Also compare options, views and indexes, and print the commands that fix them; default: yes, except with"
    " --last and --since.",
)
@click.option("--report", type=FILE, help="Write an HTML report of the verdict.")
@json_option
def verify(
    file: Path,
    only: tuple[str, ...],
    processes: int,
    ignore_field_order: bool,
    quiet: bool,
    screen: bool,
    tries: int,
    patience: float,
    alone: bool,
    resume: bool,
    last: int | None,
    since: timedelta | None,
    follows: bool,
    with_metadata: bool | None,
    report: Path | None,
    as_json: bool,
) -> None:
    """Compare every document of PIPELINE on both sides, byte for byte, while the pipeline runs.

    Run it before a cutover, and whenever you need proof that both sides are the same. A difference is re-read until
    it is gone, or until the pipeline has passed it, which proves it. Only proven differences are reported.

    Exit codes: 0 both sides are the same; 1 they differ; 2 there is no verdict.
    """
    if last and since:
        raise click.UsageError("give one of --last and --since, not both")
    if quiet and (screen or resume):
        excluded = "screen" if screen else "resume"
        raise click.UsageError(f"--quiet does not go with --{excluded}: it compares all at once")
    if (last or since or follows) and (quiet or screen or resume):
        raise click.UsageError("--last, --since and --follow do not go with --quiet, --screen and --resume")
    refuse_bad_patterns(only)
    try:
        recheck = Recheck(tries=tries, patience=patience)
        options = Options(
            processes, recheck, ignore_field_order=ignore_field_order, screen=screen, quiet=quiet, resume=resume
        )
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    recent = bool(last or since)
    with (
        opened(file) as session,
        state_files.alone(session.pipeline.name, state_files.FOLLOW, "verify --follow") if follows else nullcontext(),
        nullcontext() if recent or quiet else started_ahead(),
    ):
        ddl = () if recent or resume or alone else unreplicated.passed_marks(session)  # before namespaces are listed
        if with_metadata is None:
            with_metadata = not recent
        now = time_to_remember(session) if with_metadata and not only else None
        # before the collections are listed: the topic of one that is created later is followed from its beginning
        log = pipeline_ends(session.pipeline, session.topics) if follows else {}
        listing = Listing.read(session) if with_metadata or not recent else None
        definitions = metadata(session, only, listing) if with_metadata else None
        if definitions and definitions.both and now:
            remember(session, definitions.both.source, now)
        if definitions and definitions.differences and (why := no_copy(session)):
            say(f"{why}: no command is shown for options, views and indexes that differ; change nothing there")
            definitions = definitions.without_commands
        request = VerifyRequest(alone or quiet, last, since, definitions, only, ddl, listing)
        start = follow_start(session, request, options, log) if follows else None
        if start and start.began != request.id:  # only options, views and indexes are compared again
            for definition in request.definitions:
                print_json(definition) if as_json else _print(definition)
            result = VerificationResult(Verdict([]), (), definitions)
        else:
            compared = listing.pairs(only) if listing and not recent else []
            with (
                nullcontext(options)
                if recent or quiet
                else state_files.journaled(session.pipeline.name, options, session.say) as journaled_options
            ):
                result = run(session, compared, journaled_options, request, as_json=as_json, report=report)
        if start:
            end(result.verdict, _follow(session, start, result, request, options, as_json=as_json))
    end(result.verdict, result.differences)


def _print(event: Event) -> None:
    """Print a difference in one line."""
    if isinstance(event, Difference):
        id = f"BSON {event.id_bson}" if event.id is None else json.dumps(event.id, ensure_ascii=False)
        click.echo(f"{event.namespace} {id}: {event.kind}")
    elif isinstance(event, Definition):
        click.echo(f"{event.namespace}: {event.what}")


def _follow(
    session: Session,
    start: FollowState,
    result: VerificationResult,
    request: VerifyRequest,
    options: Options,
    *,
    as_json: bool,
) -> int:
    """Follow until interrupted, and print each difference once it is proven. Returns their number at the end.

    Exits when none is proven and documents are not judged or not compared, and when its output cannot be written:
    without a reader it would not end.
    """
    if output := click.get_current_context().find_object(Output):
        output.is_required = True
    state, name = replace(start, whole=start.whole and not result.verdict.errors), session.pipeline.name
    known = verdict_file.path(name) if start.began == request.id else verdict_file.followed_path(name)
    handle(stop := Interrupts(patience=_PATIENCE))
    with nullcontext() if request.alone else asking(session) as passed:
        say("comparing documents that change, until interrupted; `towpath status` shows the progress")
        report = print_json if as_json else _print
        verdict = follow(session, state, known, passed, report, request.only, options, lambda: stop.came)
    stop.hold()
    print_json(Followed(**asdict(verdict))) if as_json else click.echo(verdict.description)
    differences = verdict.differences + (len(result.metadata.differences) if result.metadata else 0)
    if not differences and (verdict.unresolved or verdict.waiting or verdict.behind_records != 0):
        raise click.exceptions.Exit(ERROR)
    return differences


def refuse_bad_patterns(patterns: Sequence[str]) -> None:
    """Raise `UsageError` if one is not a pattern of namespaces."""
    for pattern in patterns:
        if not is_pattern(pattern):
            raise click.UsageError(
                f"{pattern!r} is not a namespace: write database.collection, with * for any characters"
            )


def run(
    session: Session,
    compared: list[Pair],
    options: Options,
    request: VerifyRequest,
    *,
    as_json: bool,
    report: Path | None = None,
) -> VerificationResult:
    """Compare, and print the differences and the verdict."""
    with comparison_bar() as update:
        show_event = print_json if as_json else lambda event: None
        result = verification.run(session, compared, options, request, update, show_event)
    if not as_json:
        show(replace(result, examples=result.examples[:_EXAMPLES]))
    if report:
        write_report(report, session.pipeline, result)
        say(f"wrote the report to {report}")
    if not request.alone:
        for line in (*changes.lines(session), *unreplicated.lines(session)):
            say(line)  # the comparison may have resolved some
    return result


def end(verdict: Verdict, differences: int) -> NoReturn:
    """Exit with the status of a verdict: no verdict, `differences` at the end, or none."""
    for message in verdict.errors:
        say(f"towpath: {message}")
    raise click.exceptions.Exit(ERROR if verdict.errors else DIFFERENT if differences else 0)
