"""`towpath replay`"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import click

from towpath.cli import DIFFERENT, ERROR
from towpath.cli.options import FILE, flag, json_option, opened, pipeline_argument, print_json
from towpath.cli.progress import replay_bars
from towpath.clients.mongo.client import cluster_time
from towpath.config import mongo_uri
from towpath.config.events import Replayable, Replayed
from towpath.config.loading import holds_secret
from towpath.config.logins import refuse_files, refuse_open
from towpath.config.text import counted, duration
from towpath.deploy import deployment
from towpath.errors import TowpathError
from towpath.history import dry_run as rehearsals
from towpath.history import rebuild as rebuilds
from towpath.history import replay as replays
from towpath.history.plan import DRILL, Options, format_time, point_in_time
from towpath.history.sink_run import SHOWN, missing_lines
from towpath.session import unsaid
from towpath.store.state_files import alone

_UNCOPIED = 'missing  what the source held when the log began ([capture] copy = "none")'
_DESTINATIONS: tuple[Callable[[Any], Any], ...] = (
    click.option("--destination", "uri", metavar="URI", help="URI of the replica set to write to, without a password."),
    click.option(
        "--destination-file",
        "uri_file",
        metavar="PATH",
        type=FILE,
        help="File that holds the URI and that only you can read.",
    ),
    click.option("--destination-env", "uri_env", metavar="NAME", help="Environment variable that holds the URI."),
)


def destination_options(command: Any) -> Any:
    """The options of which one names the destination of a replay."""
    for option in reversed(_DESTINATIONS):
        command = option(command)
    return command


@click.command()
@pipeline_argument
@destination_options
@flag("--rebuild", help="Empty the pipeline's own destination and rebuild it from the log.")
@click.option(
    "--only",
    multiple=True,
    metavar="NAMESPACE",
    help="Only this namespace or pattern (source's names); repeatable.",
)
@click.option(
    "--until",
    metavar="TIME",
    help="Stop at a point in time: 2026-11-21T18:00:00+01:00, which includes that whole second (UTC without a"
    " zone), or a cluster time, seconds:ordinal. Every change at or before it is applied, and none after it.",
)
@flag("--follow", help="Continue as a second destination that stays in sync, in Kafka Connect.")
@flag("--empty", help="First delete the documents in these namespaces, after confirmation.")
@flag("--force", help="When the log is incomplete, rebuild what is possible and list the rest.")
@click.option("--name", "label", metavar="LABEL", help="Name of the replay; default: a hash of the destination.")
@flag("--yes", help="Do not ask before documents are deleted.")
@flag("--dry-run", help="Check everything, print what would be done, and change nothing. Needs no destination.")
@click.option(
    "--timeout",
    default=300.0,
    show_default=True,
    help="Seconds without progress before the command stops waiting; the replay itself stays.",
)
@json_option
def replay(
    file: Path,
    uri: str | None,
    uri_file: Path | None,
    uri_env: str | None,
    rebuild: bool,
    only: tuple[str, ...],
    until: str | None,
    follow: bool,
    empty: bool,
    force: bool,
    label: str | None,
    yes: bool,
    dry_run: bool,
    timeout: float,
    as_json: bool,
) -> None:
    """Apply the log of PIPELINE from the beginning to another destination, or rebuild its own.

    Run it when you need a second copy, the data of a past point in time, or a new destination. The destination is a
    replica set whose namespaces are empty. The replay runs in Kafka Connect, beside the pipeline. After an interrupt
    or a kill, run the same command again to continue. The replay ends when everything that was in the log at its
    start is applied. `towpath remove PIPELINE --replay LABEL` removes a replay, also one that follows.

    --rebuild stops the pipeline's sink, empties the namespaces at the pipeline's destination after confirmation, and
    lets the sink apply the log from the beginning and continue from there.

    --dry-run shows whether --until is accepted, the earliest point in time that can be rebuilt now, and how many
    records would be read. Without a destination, only the log is checked.

    Exit codes: 0 the destination is complete; 1 the log was incomplete, or the destination refused documents, which are
    listed; 2 it cannot be done. With --dry-run: 0 it would be complete; 1 the log is incomplete; 2 it cannot be done.
    """
    if rebuild:
        if any((uri, uri_file, uri_env)) or until or follow or empty or label:
            raise click.UsageError(
                "--rebuild goes only with --only, --force, --yes, --dry-run and --timeout: it writes to the pipeline's"
                " destination"
            )
    elif until and follow:
        raise click.UsageError(
            "give one of --until and --follow, not both: a replay ends at the point in time of --until"
        )
    if label == DRILL:
        raise click.UsageError(f"{DRILL} is the label of `takeover --drill`: give another --name")
    only_log = dry_run and not rebuild and not any((uri, uri_file, uri_env))
    target = None if rebuild or only_log else one_destination(uri, uri_file, uri_env, ", or --rebuild")
    end = point_in_time(until) if until else None
    options = Options(
        only,
        force=force,
        timeout=timeout,
        uri=target,
        label=label,
        until=end,
        follow=follow,
        empty=empty,
        only_log=only_log,
    )

    with opened(file) as session:
        deployment.refuse_change(session.pipeline, "a rebuild" if rebuild else "a replay")
        if dry_run:
            with replay_bars() as report:
                found = rehearsals.dry_run(session, options, report)
            print_json(found) if as_json else click.echo("\n".join(rehearsed(found)))
            raise click.exceptions.Exit(_exit_code(found))
        only_one = alone(session.pipeline.name, "rebuild", "replay --rebuild") if rebuild else nullcontext()
        with only_one, replay_bars() as report:
            run = rebuilds.rebuild if rebuild else replays.replay
            verdict = run(session, options, report, unsaid if yes else confirm)
        if as_json:
            print_json(verdict)
        else:
            click.echo("\n".join(lines(verdict)))
    if not verdict.whole:
        raise click.exceptions.Exit(1)


def lines(event: Replayed) -> Iterator[str]:
    """The verdict as text."""
    documents = f"{sum(event.documents.values()):,} documents in {counted(len(event.documents), 'namespace')}"
    follows = ", and follows from now on" if event.following else ""
    until = f", as of {_time(event.until)}" if event.until else ""
    about = "about " if event.done == "rebuild" else ""  # with transaction markers
    did = "read" if event.until else "applied"  # what is later was not applied
    rate = f"{event.records / max(event.seconds, 0.1):,.0f} a second"
    yield (
        f"{event.done}: {did} {about}{event.records:,} records in {duration(event.seconds)}, {rate};"
        f" {documents}{until}{follows}"
    )
    if event.uncopied:
        yield _UNCOPIED
    yield from missing_lines(event.missing)
    for head in event.deleted_since:
        yield f"deleted by retention in the meantime, and perhaps not applied: {head}"
    if event.earliest and event.until:
        yield (
            f"Kafka has compacted the log past {_time(event.until)} by now, so documents may be missing;"
            f" the earliest point in time that can be rebuilt now is {_time(event.earliest)}"
        )
    for letter in event.dead_letters[:SHOWN]:
        code = f" ({letter['code']})" if letter["code"] else ""
        yield f"refused  {letter['namespace']} {letter['key']}: {letter['reason']}{code}"
    if event.refused > SHOWN:
        yield f"         and {event.refused - SHOWN:,} more"
    if event.refused:
        yield f"{event.refused:,} records that the destination refused are in the topic {event.dead_letter_topic}"
    if not event.whole:
        yield f"{event.done}: not whole"


def rehearsed(found: Replayable) -> Iterator[str]:
    """A dry run as text."""
    for finding in found.findings:
        yield f"{finding['level']:<8} " + "; ".join(filter(None, (finding["finding"], finding["advice"])))
    if found.uncopied:
        yield _UNCOPIED
    yield from missing_lines(found.missing)
    if found.until:
        yield f"--until {_time(found.until)} is {'accepted' if found.until_accepted else 'rejected'}"
    if found.earliest:
        yield f"the earliest point in time that can be rebuilt now: {_time(found.earliest)}"
    for namespace, count in found.deletes.items():
        yield f"would first delete about {count:,} documents of {namespace}"
    if not found.accepted:
        ending = "" if _exit_code(found) == ERROR else "; --force rebuilds what is possible, and lists the rest"
        yield f"{found.would}: would not begin{ending}"
        return
    verb = "continue with" if found.continues else "read"
    yield f"{found.would}: would {verb} about {found.records:,} records{'' if found.whole else '; not whole'}"


def _exit_code(found: Replayable) -> int:
    """Of a dry run."""
    if any(finding["level"] == "error" for finding in found.findings):
        return ERROR
    return 0 if found.whole else DIFFERENT


def _time(text: str) -> str:
    return format_time(cluster_time(text))


def confirm(question: str) -> None:
    """Raises `click.Abort` for a no."""
    click.confirm(question, abort=True, err=True)


def one_destination(uri: str | None, file: Path | None, variable: str | None, otherwise: str = "") -> str:
    """As `destination`, of options of which exactly one must be given."""
    if sum(value is not None for value in (uri, file, variable)) != 1:
        raise click.UsageError(f"give one of --destination, --destination-file, --destination-env{otherwise}")
    return destination(uri, file, variable)


def destination(uri: str | None, file: Path | None, variable: str | None) -> str:
    """The URI that one of them gives. Raises `TowpathError` if it is not valid, or others could read its password."""
    where = "--destination"
    if uri is not None and holds_secret(uri):
        raise TowpathError(
            f"{where}: the URI holds a password, which everyone on this machine can read in the process list",
            "put the URI into a file that only you can read and pass --destination-file FILE, or into an environment"
            " variable and pass --destination-env NAME",
        )
    if variable is not None:
        uri, where = os.environ.get(variable, ""), f"--destination-env {variable}"
        if not uri:
            raise TowpathError(f"{where}: the environment variable is not set")
    elif file is not None:
        uri, where = _read_uri_file(file), f"--destination-file {file}"
    if uri is None or not uri.startswith(("mongodb://", "mongodb+srv://")):
        raise TowpathError(f"{where}: the URI must begin with mongodb:// or mongodb+srv://")
    refuse_files(mongo_uri.files(uri), where, plain_sink=False)
    return uri


def _read_uri_file(file: Path) -> str:
    try:
        uri = file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise TowpathError(f"--destination-file: cannot read {file}: {error}") from error
    refuse_open(file, "it holds the URI of the replay's destination")
    return uri
