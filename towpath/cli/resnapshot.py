"""`towpath resnapshot`"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click

from towpath.cli import verify
from towpath.cli.options import flag, json_option, opened, pipeline_argument, say
from towpath.deploy.schema import Listing
from towpath.history import resnapshot as resnapshots
from towpath.history.plan import format_time
from towpath.history.resnapshot import Captures
from towpath.verify.run import VerifyRequest
from towpath_verifier import Options


@click.command()
@pipeline_argument
@click.option("--only", multiple=True, help="Only this namespace or pattern (source's names); repeatable.")
@flag("--yes", help="Do not ask for confirmation.")
@flag("--dry-run", help="Print what would be done, and change nothing.")
@click.option("--timeout", default=600.0, help="Seconds in which the sink must apply the log.")
@json_option
def resnapshot(file: Path, only: tuple[str, ...], yes: bool, dry_run: bool, timeout: float, as_json: bool) -> None:
    """Re-read all documents of PIPELINE through the log, and continue the stream.

    Run it when the source's oplog no longer holds the next changes to capture. The source connector re-reads all
    documents into the log, in order with all changes. Then both sides are compared, and documents that were deleted
    at the source in the meantime are also removed through the log. The destination is not emptied. After an interrupt
    or a kill, run the same command again to continue. It ends with the verdict of `verify`.

    Exit codes: 0 both sides are the same; 1 they differ; 2 it cannot be done.
    """
    verify.refuse_bad_patterns(only)
    with opened(file) as session:
        captures = resnapshots.read(session, only)
        for line in _plan(captures):
            say(line)
        if dry_run:
            return
        if captures.interrupted is None and not yes:
            click.confirm("Re-read these documents?", abort=True)
        resnapshots.run(session, captures, timeout)
        listing = Listing.read(session)
        request = VerifyRequest(False, only=only, listing=listing)
        result = verify.run(session, listing.pairs(only), Options(), request, as_json=as_json)
    verify.end(result.verdict, result.differences)


def _plan(captures: Captures) -> Iterator[str]:
    if captures.interrupted is not None:
        yield f"continuing the resnapshot {captures.interrupted}"
        return
    chosen = ", ".join(captures.only or captures.pipeline.collections.include)
    for connector in captures.captured:
        at = format_time(connector.since)
        since = f"the changes since {at}"
        if connector.lost:
            why = "its offsets are lost" if connector.state.lost else f"the source no longer holds {since}"
            if connector.restored:
                why = f"the source has another history than what is captured up to {at}"
            outcome = f"{why}: all documents of {chosen} are re-read, and the stream restarts after them"
        else:
            outcome = (
                f"the source still holds {since}, so nothing is lost: documents of {chosen} are re-read in their place"
                " in the stream, and the stream continues"
            )
        yield f"{connector.connector}: {outcome}"
    yield (
        "then both sides are compared; documents that the source does not hold are removed from the destination,"
        " through the log"
    )
    if any(connector.restored for connector in captures.captured):
        yield "these may be last copies: `towpath verify PIPELINE --alone` shows what the source lacks. Save that first"
    if any(connector.lost for connector in captures.captured):
        yield (
            "the log does not hold the changes in between: `replay --until` cannot rebuild any point in time from then"
            " until this resnapshot has ended"
        )
