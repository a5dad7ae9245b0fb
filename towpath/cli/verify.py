"""`towpath verify`"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import NoReturn

import click

from towpath.barrier import asking
from towpath.cli.options import duration, json_option, opened, pipeline_argument, print_json, say
from towpath.cli.progress import shown
from towpath.cli.report.verdict import write_report
from towpath.cli.verdict_text import show
from towpath.events import Definition, Difference, Event, Followed
from towpath.namespaces import is_pattern
from towpath.schema import unreplicated
from towpath.session import Session
from towpath.state_files import following_alone, journaled
from towpath.verification import run as verification
from towpath.verification.follower import follow
from towpath.verification.run import Asked, Beginning, Newest
from towpath.verification.scope import metadata, pairs
from towpath.verification.verdict_file import Found
from verifier import Options, Pair, Recheck, Verdict

_EXAMPLES = 10  # differences that are shown in full
_DIFFERENT, _TROUBLE = 1, 2


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
    help="Number of processes that read; default: the number of cores.",
)
@click.option(
    "--ignore-field-order", is_flag=True, help="Accept documents that differ only in the order of their fields."
)
@click.option(
    "--quiet", is_flag=True, help="Compare by dbHash while nobody writes. Stops without a verdict when it sees a write."
)
@click.option(
    "--screen",
    is_flag=True,
    help="Compare by digests, for a slow network. Digests cover only the integer part of numbers.",
)
@click.option("--first", default=Recheck().first, show_default=True, help="Seconds until a difference is re-read.")
@click.option(
    "--factor", default=Recheck().factor, show_default=True, help="Factor by which each pause is longer than the last."
)
@click.option("--jitter", default=Recheck().jitter, show_default=True, help="Random share of each pause.")
@click.option("--tries", default=Recheck().tries, show_default=True, help="How often a difference is re-read.")
@click.option(
    "--patience",
    default=Recheck().patience,
    show_default=True,
    help="Seconds that a difference may wait for the pipeline.",
)
@click.option(
    "--lost-for",
    type=click.FloatRange(0, 86_400),
    default=60.0,
    show_default=True,
    help="Seconds to wait for a server that does not answer.",
)
@click.option(
    "--alone", is_flag=True, help="Do not query Connect and Kafka for the pipeline's progress; rely on --tries alone."
)
@click.option("--resume", is_flag=True, help="Continue the run that was interrupted.")
@click.option("--last", type=click.IntRange(min=1), help="Compare only the documents of this many newest records.")
@click.option("--since", callback=duration, help="Compare only the documents changed within this time, such as 10m.")
@click.option("--follow", "follows", is_flag=True, help="Then compare each document that changes, until interrupted.")
@click.option(
    "--metadata/--no-metadata",
    "described",
    default=None,
    help="Also compare options, views and indexes, and print the commands that fix them; default: yes, except with"
    " --last and --since.",
)
@click.option("--report", type=click.Path(path_type=Path, dir_okay=False), help="Write an HTML report of the verdict.")
@json_option
def verify(
    file: Path,
    only: tuple[str, ...],
    processes: int,
    ignore_field_order: bool,
    quiet: bool,
    screen: bool,
    first: float,
    factor: float,
    jitter: float,
    tries: int,
    patience: float,
    lost_for: float,
    alone: bool,
    resume: bool,
    last: int | None,
    since: timedelta | None,
    follows: bool,
    described: bool | None,
    report: Path | None,
    as_json: bool,
) -> None:
    """Compare every document of PIPELINE on both sides, byte for byte, while the pipeline runs.

    Run it before a cutover, and whenever you need proof that both sides are the same. A difference is re-read until
    it is gone, or until the pipeline has passed it, which proves it. Only proven differences are reported.

    Exit codes: 0 both sides are the same; 1 they differ; 2 there is no verdict.
    """
    recent = newest(last, since, only)
    refuse_together(quiet=quiet, screen=screen, resume=resume, log=bool(recent or follows))
    refuse_bad_patterns(only)
    try:
        recheck = Recheck(first, factor, jitter, tries, patience)
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    options = Options(processes, recheck, ignore_field_order, screen, quiet, lost_for, resume=resume)
    with opened(file) as it, following_alone(it.pipeline.name) if follows else nullcontext():
        done = () if recent or resume or alone else unreplicated.passed_marks(it)  # before namespaces are listed
        besides = recent is None if described is None else described
        odd = metadata(it.pipeline, only) if besides else None
        asked = Asked(alone or quiet, recent, odd, only, done)
        begin = Beginning.look(it, asked, options) if follows else None
        if begin and begin.goes_on:
            found = _described(asked, as_json=as_json)
        else:
            compared = [] if recent else pairs(it.pipeline, only)
            with nullcontext(options) if recent or quiet else journaled(it.pipeline.name, options, it.say) as chosen:
                found = run(it, compared, chosen, asked, as_json=as_json, report=report)
        if begin:
            end(found.verdict, _follow(it, begin, found, asked, options, as_json=as_json))
    end(found.verdict, found.differences)


def _described(asked: Asked, *, as_json: bool) -> Found:
    """What is found where no document needs to be compared but those that change: options, views and indexes."""
    show_event = print_json if as_json else _print
    for one in asked.definitions:
        show_event(one)
    return Found(Verdict([]), (), asked.metadata)


def _print(found: Event) -> None:
    """A difference in a line."""
    if isinstance(found, Difference):
        id = f"BSON {found.id_bson}" if found.id is None else json.dumps(found.id, ensure_ascii=False)
        click.echo(f"{found.namespace} {id}: {found.kind}")
    elif isinstance(found, Definition):
        click.echo(f"{found.namespace}: {found.what}")


def _follow(it: Session, begin: Beginning, found: Found, asked: Asked, options: Options, *, as_json: bool) -> int:
    """Follow until interrupted, and print each difference as it settles; how many there are at the end.

    Exits when documents could not be judged.
    """
    show_event = print_json if as_json else _print
    begin = replace(begin, state=replace(begin.state, whole=begin.state.whole and not found.verdict.trouble))
    with nullcontext() if asked.alone else asking(it) as passed:
        signal.signal(signal.SIGTERM, signal.default_int_handler)  # a service's stop is an interrupt
        say("comparing what changes, until interrupted; `towpath status` shows the progress")
        ended = follow(it, begin.state, begin.known(it.pipeline.name), passed, show_event, asked.only, options)
    if as_json:
        print_json(Followed(**ended.as_json()))
    else:
        click.echo(ended.words)
    if ended.unsettled:
        raise click.exceptions.Exit(_TROUBLE)
    return ended.differences + (len(found.metadata.differences) if found.metadata else 0)


def newest(last: int | None, since: timedelta | None, only: Sequence[str]) -> Newest | None:
    """None when neither is asked for. Raises `UsageError` when both are."""
    if last is not None and since is not None:
        raise click.UsageError("give one of --last and --since, not both")
    return None if last is None and since is None else Newest(last, since, only)


def refuse_together(*, quiet: bool, screen: bool, resume: bool, log: bool) -> None:
    """Raise `UsageError` for options that exclude each other."""
    if quiet and (screen or resume):
        raise click.UsageError(
            f"--quiet does not go with --{'screen' if screen else 'resume'}: it compares all at once"
        )
    if log and (quiet or screen or resume):
        raise click.UsageError("--last, --since and --follow do not go with --quiet, --screen and --resume")


def refuse_bad_patterns(patterns: Sequence[str]) -> None:
    """Raise `UsageError` for what is no pattern of namespaces."""
    for pattern in patterns:
        if not is_pattern(pattern):
            raise click.UsageError(
                f"{pattern!r} is not a namespace: write database.collection, with * for any characters"
            )


def run(
    it: Session, compared: list[Pair], options: Options, asked: Asked, *, as_json: bool, report: Path | None = None
) -> Found:
    """Compare, and print what is found and the verdict."""
    with shown() as tell:
        found = verification.run(it, compared, options, asked, tell, print_json if as_json else lambda event: None)
    if not as_json:
        show(replace(found, examples=found.examples[:_EXAMPLES]))
    if report:
        write_report(report, it.pipeline, found)
        say(f"wrote the report to {report}")
    if not asked.alone:
        tell_unfollowed(it)
    return found


def tell_unfollowed(it: Session) -> None:
    """What was done to the source's collections as such and is not settled; this may just have been settled."""
    for line in unreplicated.lines(it):
        say(line)


def end(verdict: Verdict, differences: int) -> NoReturn:
    """Leave with the exit status of a verdict, and of how many differences are there at the end."""
    for words in verdict.trouble:
        say(f"towpath: {words}")
    if verdict.trouble:
        raise click.exceptions.Exit(_TROUBLE)
    raise click.exceptions.Exit(_DIFFERENT if differences else 0)
