"""`towpath replay`"""

from __future__ import annotations

import json
from pathlib import Path

import click

from towpath.cli.options import json_option, opened, pipeline_argument
from towpath.cli.replay_progress import Terminal
from towpath.replay import rebuild as rebuilt
from towpath.replay import steps
from towpath.replay.options import Given, destination, moment
from towpath.replay.verdict import Verdict


@click.command()
@pipeline_argument
@click.option("--destination", "uri", metavar="URI", help="The replica set to write to; a URI without a password.")
@click.option(
    "--destination-file",
    "uri_file",
    metavar="PATH",
    type=click.Path(path_type=Path, dir_okay=False),
    help="A file that holds the URI, which only you can read.",
)
@click.option("--destination-env", "uri_env", metavar="NAME", help="An environment variable that holds the URI.")
@click.option("--rebuild", is_flag=True, help="Empty the pipeline's own destination and write it anew from the log.")
@click.option(
    "--only",
    multiple=True,
    metavar="NAMESPACE",
    help="Only this namespace or pattern, by the source's names; repeatable.",
)
@click.option(
    "--until",
    metavar="TIME",
    help="As of this moment: 2026-11-21T18:00:00+01:00, up to the end of that second (UTC without a zone), or a cluster"
    " time, seconds:ordinal. Every change at or before it is applied, and none after it.",
)
@click.option("--follow", is_flag=True, help="Go on as a continuous second destination, in Kafka Connect.")
@click.option("--empty", is_flag=True, help="Delete the documents that these namespaces hold first; asks.")
@click.option("--force", is_flag=True, help="Rebuild what can be rebuilt when the log is not whole, and list the rest.")
@click.option("--name", "label", metavar="LABEL", help="What the replay is called; default: a hash of the destination.")
@click.option("--yes", is_flag=True, help="Do not ask before documents are deleted.")
@click.option(
    "--timeout",
    default=300.0,
    show_default=True,
    help="Seconds without any progress after which to give up waiting; the replay itself stays.",
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
    """Read the log of PIPELINE from the beginning and write it to another destination, or to its own anew.

    The destination is a replica set whose namespaces hold nothing yet. The replay runs in Kafka Connect, beside the
    pipeline: interrupt this command or kill what you like, and give the same command again to go on. It ends when all
    that was in the log at its beginning is applied. `towpath remove PIPELINE --replay LABEL` gives one up, or ends one
    that follows.

    --rebuild stops the pipeline's sink, empties the namespaces at the pipeline's destination (asks), and has the sink
    apply the log from the beginning and go on from there.

    Exit 0 when the destination is whole, 1 when the log was not, or documents were refused (they are named), 2 when it
    cannot be done.
    """
    given = Given(uri, uri_file, uri_env)
    if rebuild:
        if given.count or until or follow or empty or label:
            raise click.UsageError(
                "--rebuild goes with --only, --force, --yes and --timeout: it is about the pipeline's own destination"
            )
    elif given.count != 1:
        raise click.UsageError("give one of --destination, --destination-file, --destination-env, or --rebuild")
    elif until and follow:
        raise click.UsageError("give one of --until and --follow, not both: a moment of the past does not go on")
    target = None if rebuild else destination(given)
    upto = moment(until) if until else None
    with opened(file) as it:
        if target is None:
            verdict = rebuilt.rebuild(it, rebuilt.Asked(only, force, timeout), Terminal(yes))
        else:
            asked = steps.Asked(target, label, only, upto, follow, empty, force, timeout)
            verdict = steps.replay(it, asked, Terminal(yes))
        _tell(verdict, as_json=as_json)


def _tell(verdict: Verdict, *, as_json: bool) -> None:
    """Print it; exit 1 when the destination is not whole."""
    if as_json:
        click.echo(json.dumps(verdict.as_json(), ensure_ascii=False))
    else:
        for line in verdict.words():
            click.echo(line)
    if not verdict.is_whole:
        raise click.exceptions.Exit(1)
