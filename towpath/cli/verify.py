"""`towpath verify`"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import NoReturn

import click

from connectors.control import require
from towpath import state_files
from towpath.cli.verify_progress import shown
from towpath.errors import NoSuchConnector, TowpathError
from towpath.lock import following_alone, journaled
from towpath.namespaces import is_pattern
from towpath.passing import passing
from towpath.pipeline import Pipeline
from towpath.schema import unreplicated
from towpath.session import Opened, json_option, opened, pipeline_argument, say
from towpath.verification import full_verdict, origin, verdict_file
from towpath.verification.by_log import Asked, Beginning, duration, go_on, newest
from towpath.verification.metadata import metadata
from towpath.verification.namespaces import pairs
from towpath.verification.recent import RecentVerification
from towpath.verification.report import write_report
from towpath.verification.words import Examples, Found, counts, show
from verifier import Options, Pair, Passed, Progress, Recheck, Verdict, Verification, VerifierError

_EXAMPLES, _IN_REPORT = 10, 50  # differences that are shown in full
_DIFFERENT, _TROUBLE = 1, 2


@click.command()
@pipeline_argument
@click.option(
    "-n", "--namespace", "only", multiple=True, help="Compare only these (source's names, * allowed); again for more."
)
@click.option(
    "--processes",
    type=click.IntRange(1, 64),
    default=os.cpu_count() or 1,
    help="Processes that read; default: the machine's cores.",
)
@click.option(
    "--ignore-field-order", is_flag=True, help="Let documents pass of which only the order of fields differs."
)
@click.option("--quiet", is_flag=True, help="Nobody writes: compare by dbHash; refused when something is written.")
@click.option(
    "--screen", is_flag=True, help="Compare by digests, for a thin line; blind to all but the whole part of numbers."
)
@click.option("--first", default=Recheck().first, show_default=True, help="Seconds until a difference is read again.")
@click.option(
    "--factor", default=Recheck().factor, show_default=True, help="By which each pause is longer than the last."
)
@click.option("--jitter", default=Recheck().jitter, show_default=True, help="Part of a pause that is left to chance.")
@click.option("--tries", default=Recheck().tries, show_default=True, help="Times that a difference is read again.")
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
    help="Seconds to wait for a server that is lost.",
)
@click.option(
    "--alone", is_flag=True, help="Do not ask Connect and Kafka how far the pipeline is: go by the tries alone."
)
@click.option("--resume", is_flag=True, help="Go on with the run that was interrupted.")
@click.option("--last", type=click.IntRange(min=1), help="Only the documents that the newest N records are about.")
@click.option("--since", callback=duration, help="Only the documents changed within this time, such as 10m.")
@click.option("--follow", "follows", is_flag=True, help="Then go on with what changes, until interrupted.")
@click.option(
    "--metadata/--no-metadata",
    "described",
    default=None,
    help="Options, views and indexes too, and what mends them; default: yes, but not with --last and --since.",
)
@click.option("--report", type=click.Path(path_type=Path, dir_okay=False), help="Write the verdict as a page of HTML.")
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
    """Compare every document of PIPELINE on both sides, byte for byte, while it runs.

    What differs is read again until it is gone, or the pipeline is past it and it is proven. Exit 0 when both sides
    are the same, 1 when they differ, 2 when there is no verdict.
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
        done = () if recent or resume or alone else unreplicated.passed(it)  # before namespaces are listed
        besides = recent is None if described is None else described
        odd = metadata(it.pipeline, only) if besides else None
        asked = Asked(as_json, report, alone or quiet, recent, odd, only, done)
        begin = Beginning.look(it, asked, options) if follows else None
        if begin and begin.goes_on:
            found = _described(asked)
        else:
            compared = [] if recent else pairs(it.pipeline, only)
            with nullcontext(options) if recent or quiet else journaled(it.pipeline.name, options) as chosen:
                found = run(it, compared, chosen, asked)
        if begin:
            end(found.verdict, _follow(it, begin, found, asked, options))
    end(found.verdict, found.differences)


def _described(asked: Asked) -> Found:
    """What is found where no document needs to be compared but those that change: options, views and indexes."""
    for one in asked.metadata.differences if asked.metadata else ():
        click.echo(verdict_file.line(one.as_json()) if asked.as_json else f"{one.pair.source}: {one.what}\n", nl=False)
    return Found(Verdict([]), (), asked.metadata)


def _follow(it: Opened, begin: Beginning, found: Found, asked: Asked, options: Options) -> int:
    """How many differences there are at the end. Exits when documents could not be judged."""
    begin = replace(begin, state=replace(begin.state, whole=begin.state.whole and not found.verdict.trouble))
    with nullcontext() if asked.alone else asking(it) as passed:
        ended = go_on(it, begin, asked.only, options, passed, as_json=asked.as_json)
    if ended.unsettled:
        raise click.exceptions.Exit(_TROUBLE)
    return ended.differences + (len(found.metadata.differences) if found.metadata else 0)


def refuse_together(*, quiet: bool, screen: bool, resume: bool, log: bool) -> None:
    """Raise `UsageError` for options that exclude each other."""
    if quiet and (screen or resume):
        raise click.UsageError(f"--quiet does not go with --{'screen' if screen else 'resume'}: it compares at one go")
    if log and (quiet or screen or resume):
        raise click.UsageError("--last, --since and --follow do not go with --quiet, --screen and --resume")


def refuse_bad_patterns(patterns: Sequence[str]) -> None:
    """Raise `UsageError` for what is no pattern of namespaces."""
    for pattern in patterns:
        if not is_pattern(pattern):
            raise click.UsageError(f"{pattern!r} is no namespace: write database.collection, with * for any characters")


def run(it: Opened, compared: list[Pair], options: Options, asked: Asked) -> Found:
    """Compare, print what is found, keep the verdict. Raises `TowpathError` when it cannot be finished."""
    examples, place = Examples(_IN_REPORT), verdict_file.path(it.pipeline.name)
    now, unknown = origin.look(it)  # first: what is made anew while it runs is not what the verdict is of
    with ExitStack() as stack:
        passed = None if asked.alone else stack.enter_context(asking(it))
        file = stack.enter_context(state_files.writing(place, verdict_file.turn(place)))
        tell = stack.enter_context(shown())
        verification = _verification(it, compared, options, asked, passed, tell)
        found = Found(verification.verdict, examples.found, asked.metadata)
        for line in lines(it.pipeline, verification, examples, resumable=options.journal is not None):
            _keep(file, line, as_json=asked.as_json)
        for one in asked.metadata.differences if asked.metadata else ():
            _keep(file, verdict_file.line(one.as_json()), as_json=asked.as_json)
        last = counts(found) | {"of": asked.of, "ddl": list(asked.done), "only": list(asked.only), "id": asked.id}
        whole = last | {"origin": now and now.as_json()}
        file.write(verdict_file.line(whole))
    if asked.as_json:
        click.echo(verdict_file.line(last), nl=False)
    else:
        show(replace(found, examples=examples.found[:_EXAMPLES]))
    if asked.report:
        write_report(asked.report, it.pipeline, found)
        say(f"the report is in {asked.report}")
    if asked.of == full_verdict.EVERYTHING:
        full_verdict.keep_and_say(it, whole, unknown)
    if not asked.alone:
        tell_unfollowed(it)
    return found


def _verification(
    it: Opened,
    compared: list[Pair],
    options: Options,
    asked: Asked,
    passed: Passed | None,
    tell: Callable[[Progress], None],
) -> Verification | RecentVerification:
    if asked.newest:
        return asked.newest.verification(it, options, passed)
    uris = it.pipeline.source_uri, it.pipeline.destination_uri
    return Verification(*uris, compared, options, passed=passed, tell=tell, say=say)


def _keep(file: state_files.Writing, line: str, *, as_json: bool) -> None:
    file.write(line)
    if as_json:
        click.echo(line, nl=False)


def lines(
    pipeline: Pipeline, verification: Verification | RecentVerification, examples: Examples, *, resumable: bool
) -> Iterator[str]:
    """A verdict as JSON: a line for each difference of documents as it is proven."""
    hint = "; `towpath verify --resume` goes on where this ended" if resumable else ""
    try:
        for found in verification:
            examples.add(found)
            yield verdict_file.line(verdict_file.as_json(found, pipeline.renames.destination(found.namespace)))
    except VerifierError as error:
        raise TowpathError(f"{error}{hint}") from error
    except KeyboardInterrupt:
        say(f"interrupted{hint}")
        raise


def tell_unfollowed(it: Opened) -> None:
    """What was done to the source's collections as such and is not settled; this may just have been settled."""
    for line in unreplicated.lines(it):
        say(line)


@contextmanager
def asking(it: Opened) -> Iterator[Passed | None]:
    """Whether the pipeline has passed a moment; None for one that is not deployed."""
    try:
        require(it.connect, it.topics, it.pipeline)
    except NoSuchConnector:
        say(f"{it.pipeline.name} is not deployed: a difference is told when it stays through all tries")
        yield None
        return
    except TowpathError as error:
        raise TowpathError(
            f"{error}; the verifier asks how far the pipeline is; to go by the tries alone, pass --alone"
        ) from error
    with passing(it) as passed:
        yield passed


def end(verdict: Verdict, differences: int) -> NoReturn:
    """Leave with the exit status of a verdict, and of how many differences are there at the end."""
    for words in verdict.trouble:
        say(f"towpath: {words}")
    if verdict.trouble:
        raise click.exceptions.Exit(_TROUBLE)
    raise click.exceptions.Exit(_DIFFERENT if differences else 0)
