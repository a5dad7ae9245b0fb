"""`towpath resnapshot`"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

import click

from towpath import barrier, state_files
from towpath import resnapshot as resnapshots
from towpath.barrier import asking, passing
from towpath.cli import verify
from towpath.cli.options import json_option, opened, pipeline_argument, say
from towpath.errors import Refused
from towpath.events import as_line
from towpath.log import reread_requests
from towpath.repair import targets
from towpath.repair.rereads import Left, repair
from towpath.repair.targets import Wanted
from towpath.resnapshot import Captured
from towpath.session import Session
from towpath.verification import full_verdict
from towpath.verification.run import Asked, differences
from towpath.verification.scope import pairs
from towpath.verification.verdict_file import Examples, Found, figures
from verifier import Options, Verification

_LOST_FOR = 60.0  # seconds for which a server may be lost while both sides are compared


@click.command()
@pipeline_argument
@click.option("--only", multiple=True, help="Only this namespace or pattern (source's names); repeatable.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@click.option("--dry-run", is_flag=True, help="Print what would be done, and change nothing.")
@click.option("--timeout", default=600.0, show_default=True, help="Seconds in which the sink must apply the log.")
@json_option
def resnapshot(file: Path, only: tuple[str, ...], yes: bool, dry_run: bool, timeout: float, as_json: bool) -> None:
    """Re-read all documents of PIPELINE through the log, and continue the stream.

    Run it when the source's oplog no longer holds the next changes to capture. The source connector re-reads all
    documents into the log, in order with all changes. Then both sides are compared, and documents that were deleted
    at the source meanwhile are removed through the log too. The destination is not emptied. After an interrupt or a
    kill, run the same command again to continue. It ends with the verdict of `verify`.

    Exit codes: 0 both sides are the same; 1 they differ; 2 it cannot be done.
    """
    verify.refuse_bad_patterns(only)
    with opened(file) as it:
        reread_requests.refuse_unable(it.pipeline)
        it.require_deployed()
        found = resnapshots.read_captured(it.pipeline, it.connect)
        name = _going_on(it, found, only)
        for line in _words(it, found, name, only):
            say(line)
        if dry_run:
            return
        if name is None and not yes:
            click.confirm("Re-read these documents?", abort=True)
        if any(one.lost for one in found):
            full_verdict.forget(it)
        name = _begun(it, name, only)
        _bring_back(it, name, only, timeout)
        verdict = verify.run(it, pairs(it.pipeline, only), _options(), Asked(False, only=only), as_json=as_json)
    verify.end(verdict.verdict, verdict.differences)


def _going_on(it: Session, found: Sequence[Captured], only: tuple[str, ...]) -> str | None:
    """The name of the resnapshot that was interrupted; None when a new one is to begin. Raises `Refused`."""
    if not found:
        raise Refused(f"{it.pipeline.name} has not captured anything yet; `towpath status` shows its state")
    begun = [one for one in found if one.under_way]
    if begun:
        if any(one.only != resnapshots.expression(it.pipeline, only) for one in begun):
            raise Refused(
                f"a resnapshot of {it.pipeline.name} with a different --only ({begun[0].resnapshot}) is not finished;"
                " to continue it, pass the same --only"
            )
        lost_anew = any(one.lost and one.state.resnapshot == one.resnapshot for one in begun)
        return None if lost_anew else begun[0].resnapshot
    copying = next((one for one in found if one.state.phase == "copy" and not one.lost), None)
    if copying:
        raise Refused(
            f"{copying.connector} has not finished the initial copy; wait until it has, it continues by itself"
        )
    if only and any(one.lost for one in found):
        raise Refused(
            f"changes of all collections since {found[0].since} are lost: a resnapshot of {', '.join(only)} alone"
            " would leave the other collections as they were then; run it without --only"
        )
    return None


def _words(it: Session, found: Sequence[Captured], name: str | None, only: tuple[str, ...]) -> Iterator[str]:
    if name is not None:
        yield f"continuing the resnapshot {name}"
        return
    chosen = ", ".join(only) or ", ".join(it.pipeline.include)
    for one in found:
        since = datetime.fromtimestamp(one.since.seconds, UTC).strftime("%Y-%m-%d %H:%M:%S")
        if one.lost:
            yield (
                f"{one.connector}: the source no longer holds the changes since {one.since} ({since} UTC): all"
                f" documents of {chosen} are re-read, and the stream restarts after them"
            )
        else:
            yield (
                f"{one.connector}: the source still holds the changes since {one.since} ({since} UTC), so nothing is"
                f" lost: documents of {chosen} are re-read in their place in the stream, and the stream continues"
            )
    yield (
        "then both sides are compared; documents that the source does not hold are removed from the destination,"
        " through the log"
    )
    if any(one.lost for one in found):
        yield (
            "the log does not hold the changes in between: `replay --until` cannot rebuild any point in time from then"
            " until this resnapshot has ended"
        )


def _begun(it: Session, name: str | None, only: tuple[str, ...]) -> str:
    if name is not None:
        resnapshots.resume(it.pipeline, it.connect)
        return name
    fresh = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    resnapshots.begin(it.pipeline, it.connect, fresh, resnapshots.expression(it.pipeline, only))
    return fresh


def _bring_back(it: Session, name: str, only: tuple[str, ...], timeout: float) -> None:
    """Everything is read again, what was deleted meanwhile is removed, and the log is whole."""
    pipeline = it.pipeline
    resnapshots.wait_copied(pipeline, it.connect, name, say)
    barrier.wait(pipeline, it.connect, it.topics, timeout, say)
    say("comparing both sides, to find documents that were deleted meanwhile")
    _compare(it, only)
    with passing(it) as passed:
        left = [one for one in repair(it, _gone(it, only), passed, timeout, say) if isinstance(one, Left)]
    for one in left[:10]:
        say(f"left {one.wanted.namespace} {one.wanted.id.hex()}: {one.kind}: {one.why}")
    resnapshots.close(pipeline, it.connect, it.topics, name, timeout)


def _options() -> Options:
    return Options(lost_for=_LOST_FOR)


def _compare(it: Session, only: tuple[str, ...]) -> None:
    """Keep what differs, in the form of a verdict, from which it is told what to read once more."""
    pipeline, examples = it.pipeline, Examples(0)
    with asking(it) as passed, state_files.writing(_found(it)) as file:
        both = pairs(pipeline, only)
        comparing = Verification(
            pipeline.source_uri, pipeline.destination_uri, both, _options(), passed=passed, say=say
        )
        for one in differences(it, comparing, examples, resumable=False):
            file.write(one.line)
        found = Found(comparing.verdict, examples.found, None)
        file.write(as_line(figures(found)))


def _found(it: Session) -> Path:
    """No verdict: it is of before what was deleted is removed."""
    return state_files.folder(it.pipeline.name) / "resnapshot.jsonl"


def _gone(it: Session, only: tuple[str, ...]) -> Iterator[Wanted]:
    """What differs, and what the destination refused: the log has that, and it may be gone at the source."""
    yield from targets.of_verdicts([_found(it)])
    if not it.pipeline.exactly_once:
        return
    names = {pair.source for pair in pairs(it.pipeline, only)}
    for one in targets.of_dead_letters(it.pipeline, it.topics):
        if one.namespace in names:
            yield one
