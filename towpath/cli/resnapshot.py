"""`towpath resnapshot`"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import click

from towpath.checks import target
from towpath.checks.capture import Captured, read_captured
from towpath.checks.rule import require
from towpath.cli import verify
from towpath.cli.options import flag, json_option, opened, pipeline_argument, say
from towpath.config.events import as_line
from towpath.deploy import operator
from towpath.deploy.schema import Listing
from towpath.history import resnapshot as resnapshots
from towpath.history.plan import format_time
from towpath.log import barrier, reread_requests
from towpath.log.barrier import asking, passing
from towpath.log.source_offsets import read_state
from towpath.session import Session
from towpath.store import state_files, verdict
from towpath.verify import repair
from towpath.verify.repair import DocumentRef, NotRepaired
from towpath.verify.result import VerificationResult, figures
from towpath.verify.run import VerifyRequest, differences
from towpath_verifier import Options, Verification


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
        operator.refuse_change(session.pipeline, "a resnapshot")
        reread_requests.refuse_unable(session.pipeline)
        session.require_deployed()
        target.require_own(session)
        with session.source.connected() as client:
            states = partial(read_state, session.connect)
            connectors = read_captured(client, session.pipeline, states, session.connect.config)
        captures = resnapshots.Captures(session.pipeline, connectors, only)
        require(resnapshots.RULES, captures)
        name = captures.interrupted
        for line in _plan(session, connectors, name, only):
            say(line)
        if dry_run:
            return
        if name is None and not yes:
            click.confirm("Re-read these documents?", abort=True)
        if any(connector.lost or connector.reselects for connector in connectors):
            with session.destination.connected() as client:
                verdict.begin_history(client, session.pipeline, "a resnapshot began, because changes were lost")
        name = resnapshots.start(session, name, only)
        _complete(session, name, only, timeout)
        listing = Listing.read(session)
        request = VerifyRequest(False, only=only, listing=listing)
        result = verify.run(session, listing.pairs(only), Options(), request, as_json=as_json)
    verify.end(result.verdict, result.differences)


def _plan(session: Session, connectors: Sequence[Captured], name: str | None, only: tuple[str, ...]) -> Iterator[str]:
    if name is not None:
        yield f"continuing the resnapshot {name}"
        return
    chosen = ", ".join(only) or ", ".join(session.pipeline.collections.include)
    for connector in connectors:
        since = f"the changes since {format_time(connector.since)}"
        if connector.lost:
            why = "its offsets are lost" if connector.state.lost else f"the source no longer holds {since}"
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
    if any(connector.lost for connector in connectors):
        yield (
            "the log does not hold the changes in between: `replay --until` cannot rebuild any point in time from then"
            " until this resnapshot has ended"
        )


def _complete(session: Session, name: str, only: tuple[str, ...], timeout: float) -> None:
    """Wait for the re-reads, remove documents that were deleted during this, and mark the log as whole again."""
    resnapshots.wait_copied(session, name)
    barrier.wait(session, timeout, say)
    say("comparing both sides, to find documents that were deleted during this")
    _compare(session, only)
    with passing(session) as passed:
        outcomes = repair.repair(session, _to_reread(session, only), passed, timeout)
        left = [outcome for outcome in outcomes if isinstance(outcome, NotRepaired)]
    for outcome in left[:10]:
        say(f"left {outcome.document.namespace} {outcome.document.id.hex()}: {outcome.kind}: {outcome.reason}")
    resnapshots.close(session, name, timeout)


def _compare(session: Session, only: tuple[str, ...]) -> None:
    """Compare both sides, and write the differences in the form of a verdict, which names the documents to re-read."""
    pipeline = session.pipeline
    with asking(session) as passed, state_files.writing(_differences_file(session)) as file:
        uris = pipeline.source.uri, pipeline.destination.uri
        verification = Verification(*uris, Listing.read(session).pairs(only), passed=passed, say=say)
        for difference in differences(session, verification, [], resumable=False):
            file.write(difference.line)
        file.write(as_line(figures(VerificationResult(verification.verdict))))


def _differences_file(session: Session) -> Path:
    """Not the verdict of the pipeline: it is older than the removal of deleted documents."""
    return state_files.folder(session.pipeline.name) / "resnapshot.jsonl"


def _to_reread(session: Session, only: tuple[str, ...]) -> Iterator[DocumentRef]:
    """Documents that differ, and dead letters, whose documents may be deleted at the source."""
    yield from repair.of_verdicts([_differences_file(session)])
    if not session.pipeline.exactly_once:
        return
    names = {pair.source for pair in Listing.read(session).pairs(only)}
    for document in repair.of_dead_letters(session.pipeline, session.topics):
        if document.namespace in names:
            yield document
