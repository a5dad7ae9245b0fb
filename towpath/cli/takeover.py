"""`towpath takeover`."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import click

from towpath.cli import DIFFERENT
from towpath.cli.cutover import print_event, with_words, write_report
from towpath.cli.options import FILE, flag, json_option, opened, pipeline_argument, print_json
from towpath.config.events import TimedEvent
from towpath.cutover.machine import Machine
from towpath.cutover.sides import read_sides
from towpath.cutover.steps import CutoverOptions
from towpath.deploy import deployment
from towpath.errors import Refused
from towpath.session import unsaid
from towpath.signals import Interrupts, handle
from towpath.store.state_files import alone


@click.command()
@pipeline_argument
@flag("--return", "returns", help="After a takeover: make the old source, which answers again, follow the new primary.")
@flag("--undo", "undoes", help="Undo an interrupted takeover, or an interrupted return.")
@flag("--dry-run", help="Only check whether it is possible, and what would be missing.")
@flag("--yes", help="With --return: do not ask before documents of the old source are overwritten and deleted.")
@flag(
    "--source-is-lost",
    help="The source is lost, although something still answers there. What is written to it from now on is lost.",
)
@flag("--accept", "accepts", help="Take over although the destination will lack something, which a --dry-run shows.")
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
    switch_with: str | None,
    timeout: float,
    report_path: Path | None,
    as_json: bool,
) -> None:
    """Make the destination of PIPELINE primary when its source is lost.

    Run it only then: `cutover` moves without loss. The takeover stops and fences the capture, applies all that is in
    the log, fences the sink, and restores indexes, TTL and validators. The destination is then as the source was at
    one point in time, which the command names: no transaction is half there. What the source acknowledged later is
    lost. It is refused while the source answers this machine or Kafka Connect. It undoes everything when a step fails,
    and on Ctrl-C, SIGTERM or SIGHUP.

    After it, when the old source answers again, --return writes what was never captured of it to a file, with both
    versions of each document; after confirmation it makes the old source equal to the new primary, deletes included,
    and starts the reverse pipeline, so that `cutover --back` fails back without loss.

    Exit codes, whatever happens to the output: 0 done; 1 not done, everything is as before; 2 something is left to do,
    and the message names it.
    """
    if undoes and (returns or dry_run or source_is_lost or accepts):
        raise click.UsageError("--undo goes with none of --return, --dry-run, --source-is-lost and --accept")
    if returns and (source_is_lost or accepts or switch_with):
        raise click.UsageError("--return goes with none of --source-is-lost, --accept and --switch-with")
    if yes and not returns:
        raise click.UsageError("--yes belongs to --return")
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


def _ask(question: str) -> None:
    """Raises `Refused` without consent."""
    try:
        agreed = click.confirm(question, err=True)
    except click.Abort as error:
        raise Refused("interrupted, or nobody to answer on standard input", "--yes does not ask") from error
    if not agreed:
        raise Refused("declined")
