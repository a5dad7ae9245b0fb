"""`towpath replay`"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import click

from towpath.cli.options import json_option, opened, pipeline_argument, print_json
from towpath.cli.progress import replay_bars
from towpath.clients.mongo.client import ClusterTime
from towpath.config import mongo_uri
from towpath.config.loading import holds_secret
from towpath.config.logins import refuse_files, refuse_open
from towpath.deploy import operator
from towpath.errors import TowpathError
from towpath.history.replay import rebuild as rebuilding
from towpath.history.replay import steps
from towpath.history.replay.plan import END_OF_SECOND, RebuildOptions, ReplayOptions
from towpath.history.replay.verdict import Verdict


@click.command()
@pipeline_argument
@click.option("--destination", "uri", metavar="URI", help="URI of the replica set to write to, without a password.")
@click.option(
    "--destination-file",
    "uri_file",
    metavar="PATH",
    type=click.Path(path_type=Path, dir_okay=False),
    help="File that holds the URI and that only you can read.",
)
@click.option("--destination-env", "uri_env", metavar="NAME", help="Environment variable that holds the URI.")
@click.option("--rebuild", is_flag=True, help="Empty the pipeline's own destination and rebuild it from the log.")
@click.option(
    "--only",
    multiple=True,
    metavar="NAMESPACE",
    help="Only this namespace or pattern (source's names); repeatable.",
)
@click.option(
    "--until",
    metavar="TIME",
    help="Stop at this point in time: 2026-11-21T18:00:00+01:00, which includes that whole second (UTC without a"
    " zone), or a cluster time, seconds:ordinal. Every change at or before it is applied, and none after it.",
)
@click.option("--follow", is_flag=True, help="Continue as a second destination that stays in sync, in Kafka Connect.")
@click.option("--empty", is_flag=True, help="First delete the documents in these namespaces, after confirmation.")
@click.option("--force", is_flag=True, help="When the log is not whole, rebuild what is possible and list the rest.")
@click.option("--name", "label", metavar="LABEL", help="Name of the replay; default: a hash of the destination.")
@click.option("--yes", is_flag=True, help="Do not ask before documents are deleted.")
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

    Exit codes: 0 the destination is whole; 1 the log was not whole, or the destination refused documents, which are
    listed; 2 it cannot be done.
    """
    target = DestinationOptions(uri, uri_file, uri_env)
    if rebuild:
        if target.count or until or follow or empty or label:
            raise click.UsageError(
                "--rebuild goes only with --only, --force, --yes and --timeout: it writes to the pipeline's destination"
            )
    elif target.count != 1:
        raise click.UsageError("give one of --destination, --destination-file, --destination-env, or --rebuild")
    elif until and follow:
        raise click.UsageError(
            "give one of --until and --follow, not both: a replay ends at the point in time of --until"
        )
    uri = None if rebuild else destination(target)
    end = point_in_time(until) if until else None

    def confirm(question: str) -> None:
        if not yes:
            click.confirm(question, abort=True, err=True)

    with opened(file) as session:
        operator.refuse_change(session.pipeline, "a rebuild" if rebuild else "a replay")
        with replay_bars() as report:
            if uri is None:
                verdict = rebuilding.rebuild(session, RebuildOptions(only, force, timeout), report, confirm)
            else:
                options = ReplayOptions(only, force, timeout, uri, label, end, follow, empty)
                verdict = steps.replay(session, options, report, confirm)
        _report(verdict, as_json=as_json)


def _report(verdict: Verdict, *, as_json: bool) -> None:
    """Print the verdict; exit with 1 when the destination is not whole."""
    if as_json:
        print_json(verdict.event)
    else:
        for line in verdict.lines():
            click.echo(line)
    if not verdict.event.whole:
        raise click.exceptions.Exit(1)


@dataclass(frozen=True, slots=True, repr=False)
class DestinationOptions:
    """The three options that name the destination; exactly one of them must be given."""

    uri: str | None
    file: Path | None
    variable: str | None

    @property
    def count(self) -> int:
        return sum(value is not None for value in (self.uri, self.file, self.variable))


def destination(options: DestinationOptions) -> str:
    """The URI. Raises `TowpathError` if it is not valid, or if other users could read its password."""
    if options.variable is not None:
        uri, where = os.environ.get(options.variable, ""), f"--destination-env {options.variable}"
        if not uri:
            raise TowpathError(f"{where}: the environment variable is not set")
    elif options.file is not None:
        uri, where = _read_uri_file(options.file), f"--destination-file {options.file}"
    else:
        uri, where = options.uri or "", "--destination"
    if not uri.startswith(("mongodb://", "mongodb+srv://")):
        raise TowpathError(f"{where}: the URI must begin with mongodb:// or mongodb+srv://")
    if options.uri is not None and holds_secret(uri):
        raise TowpathError(
            "--destination: the URI holds a password, which everyone on this machine can read in the process list;"
            " put the URI into a file that only you can read and pass --destination-file FILE, or into an environment"
            " variable and pass --destination-env NAME"
        )
    refuse_files(mongo_uri.files(uri), where, plain_sink=False)
    return uri


def _read_uri_file(file: Path) -> str:
    try:
        uri = file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise TowpathError(f"--destination-file: cannot read {file}: {error}") from error
    refuse_open(file, "it holds the URI of the replay's destination")
    return uri


def point_in_time(text: str) -> ClusterTime:
    """Parse a cluster time `seconds:ordinal`, or an ISO 8601 time to the second, UTC if it has no zone.

    An ISO 8601 time means the end of that second. Raises `TowpathError` for any other text.
    """
    if re.fullmatch(r"\d{1,10}:\d{1,10}", text):
        seconds, _, ordinal = text.partition(":")
        if int(seconds) < 2**32 and int(ordinal) < 2**31:
            return ClusterTime(int(seconds), int(ordinal))
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise _bad_time(text, "neither a time nor a cluster time") from None
    if not re.search(r"[T ]\d\d:?\d\d:?\d\d", text):
        raise _bad_time(text, "the time of day or its seconds are missing")
    if time.microsecond:
        raise _bad_time(text, "cluster times are whole seconds")
    timestamp = int((time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp())
    if not 0 < timestamp < 2**32:
        raise _bad_time(text, "it is out of range")
    return ClusterTime(timestamp, END_OF_SECOND)


def _bad_time(text: str, why: str) -> TowpathError:
    return TowpathError(
        f"--until {text!r}: {why}; give a time in ISO 8601 to the second, such as 2026-11-21T18:00:00Z, or a cluster"
        " time as seconds:ordinal"
    )
