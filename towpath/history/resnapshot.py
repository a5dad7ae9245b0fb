"""A resnapshot: the source connector re-reads documents into the log, in place of changes that are lost to it.

The configuration of the connector names the resnapshot. The connector begins it when the name changes. If its stream
cannot continue, it starts over with a copy like the initial one; otherwise it copies while the stream continues. Then
documents that were deleted during this must be removed, by re-read requests. A special request closes the resnapshot:
it says that all of these have been sent. From then on, the log can rebuild every state again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import bson

from towpath.checks import target
from towpath.checks.capture import EVERYTHING, Captured, read_captured
from towpath.checks.facts import RESNAPSHOT, RESNAPSHOT_ONLY
from towpath.checks.rule import Finding, error, require, rules
from towpath.clients.connect.control import Wait
from towpath.config.events import Reread
from towpath.config.pipeline import Pipeline
from towpath.config.text import first_few
from towpath.deploy import deployment
from towpath.deploy.schema import Listing
from towpath.errors import NotYet, TowpathError
from towpath.history import rebuild
from towpath.log import barrier, reread_requests
from towpath.log.source_offsets import SourceState, read_state
from towpath.session import Session, unsaid
from towpath.store import cutover as cutovers
from towpath.store import state_files, verdict
from towpath.verify import repair
from towpath.verify.repair import DocumentRef
from towpath.verify.result import VerificationResult, as_event
from towpath.verify.run import differences
from towpath_verifier import Difference, Options, Passed, Verdict, Verification

_SHOWN = 3
_UNREACHABLE_S = 60.0  # how long a worker may not answer, in waits without a timeout


@dataclass(frozen=True, slots=True)
class Captures:
    """What the rules of a resnapshot read. `only` are the patterns of the command."""

    pipeline: Pipeline
    captured: Sequence[Captured]
    only: tuple[str, ...]

    @property
    def started(self) -> list[Captured]:
        """Those that have begun one. One that was only asked to, as its task refused, may be asked for another."""
        return [one for one in self.captured if one.under_way and one.state.resnapshot == one.resnapshot]

    @property
    def interrupted(self) -> str | None:
        """The name of an interrupted resnapshot to continue; None to start a new one."""
        lost = any(connector.lost for connector in self.started)
        return self.started[0].resnapshot if self.started and not lost else None


def something_captured(captures: Captures) -> Iterator[Finding]:
    if not captures.captured:
        yield error(f"{captures.pipeline.name} has not captured anything yet", "`towpath status` shows its state")


def same_only(captures: Captures) -> Iterator[Finding]:
    """An interrupted resnapshot is continued with its own --only."""
    if any(connector.only != expression(captures.pipeline, captures.only) for connector in captures.started):
        name = captures.started[0].resnapshot
        yield error(
            f"a resnapshot of {captures.pipeline.name} with a different --only ({name}) is not finished",
            "to continue it, pass the same --only",
        )


def copied(captures: Captures) -> Iterator[Finding]:
    for connector in () if captures.started else captures.captured:
        if connector.state.is_initial and not (connector.lost or connector.reselects):
            yield error(
                f"{connector.connector} has not finished the initial copy",
                "wait until it has: it continues automatically",
            )


def all_that_is_lost(captures: Captures) -> Iterator[Finding]:
    """Where changes of all collections are lost, all collections are re-read."""
    if captures.only and not captures.started and any(connector.lost for connector in captures.captured):
        yield error(
            f"changes of all collections since {captures.captured[0].since} are lost: a resnapshot of"
            f" {', '.join(captures.only)} alone would leave the other collections as they were then",
            "run it without --only",
        )


RULES = rules("resnapshot", something_captured, same_only, copied, all_that_is_lost)


def read(session: Session, only: tuple[str, ...]) -> Captures:
    """What the rules read. Raises the first precondition of a resnapshot that does not hold."""
    deployment.refuse_change(session.pipeline, "a resnapshot")
    reread_requests.refuse_unable(session.pipeline)
    session.require_deployed()
    target.require_own(session)
    cutovers.refuse(session)
    rebuild.refuse_unfinished(session)
    with session.source.connected() as client:
        states = partial(read_state, session.connect)
        captured = read_captured(client, session.pipeline, states, session.connect.config)
    captures = Captures(session.pipeline, captured, only)
    require(RULES, captures)
    return captures


def run(session: Session, captures: Captures, timeout: float) -> None:
    """Re-read all, remove documents that were deleted during this, and mark the log as whole again.

    `timeout` is in seconds: for the sink, for a batch of re-reads, and for the source to answer the last of them.

    Raises `Refused` once a takeover has begun, such as since someone was asked. Raises `TowpathError` if it is not
    known of all documents whether they were deleted: the log may lack a delete, and the resnapshot stays open.
    """
    cutovers.refuse_takeover(session)
    lost = any(connector.lost or connector.reselects for connector in captures.captured)
    if lost or any(connector.has_other_rules for connector in captures.captured):
        why = "changes were lost" if lost else "its rules have changed"
        with session.destination.connected() as client:
            verdict.begin_history(client, session.pipeline, f"a resnapshot began, because {why}")
    name = start(session, captures.interrupted, captures.only)
    wait_copied(session, name)
    barrier.wait(session, timeout, session.say)
    session.say("comparing both sides, to find documents that were deleted during this")
    with barrier.asking(session) as passed:
        errors = compare(session, captures.only, passed).errors
    # what the destination refuses, or someone has written there since, is in the log as the source has it
    left = [one for one in reread(session, captures.only, timeout) if one.kind == "unknown"]
    if unknown := [*errors, *(f"{one.namespace} {one.id_bson}: {one.reason}" for one in left)]:
        raise TowpathError(
            f"the resnapshot {name} stays open, because the log may lack deletes: {first_few(unknown, _SHOWN)}",
            "run the same command again: it continues",
        )
    close(session, name, timeout)


def reread(session: Session, only: tuple[str, ...], timeout: float) -> list[Reread]:
    """Re-read what `compare` has found, and return what still differs. `timeout` is in seconds, for a batch."""
    with barrier.passing(session) as passed:
        outcomes = repair.repair(session, _to_reread(session, only), passed, timeout)
        left = [outcome for outcome in outcomes if outcome.result == "left"]
    for outcome in left[:10]:
        session.say(f"left {outcome.namespace} {outcome.id_bson}: {outcome.kind}: {outcome.reason}")
    return left


def compare(
    session: Session,
    only: tuple[str, ...],
    passed: Passed | None,
    options: Options | None = None,
    found: Callable[[Difference], object] = lambda difference: None,
) -> Verdict:
    """Compare both sides, and write the differences in the form of a verdict, which names the documents to re-read.

    `found` receives each difference.
    """
    pipeline = session.pipeline
    with state_files.writing(_differences_file(session)) as file:
        uris = pipeline.source.uri, pipeline.destination.uri
        pairs = Listing.read(session).pairs(only)
        verification = Verification(*uris, pairs, options, passed=passed, say=session.say)
        for difference in differences(session, _told(verification, found), [], resumable=False):
            file.write(difference.line)
        file.write(as_event(VerificationResult(verification.verdict), "everything", only=only).line)
    return verification.verdict


def _told(found: Iterable[Difference], tell: Callable[[Difference], object]) -> Iterator[Difference]:
    for difference in found:
        tell(difference)
        yield difference


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


def expression(pipeline: Pipeline, only: Iterable[str]) -> str:
    """The regular expression of the namespaces that match one of the patterns `only`; of all without patterns."""
    patterns = tuple(only)
    return replace(pipeline.selection, only=patterns).namespace_regex if patterns else EVERYTHING


def start(session: Session, interrupted: str | None, only: Iterable[str]) -> str:
    """Make every source connector begin a resnapshot, or continue the interrupted one; return its name.

    This also restarts failed connectors and resumes paused ones.
    """
    connect, name = session.connect, interrupted or datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    for connector in session.pipeline.source_connectors:
        config = connect.config(connector) or {}
        if config.get(RESNAPSHOT) != name:
            connect.put(connector, {**config, RESNAPSHOT: name, RESNAPSHOT_ONLY: expression(session.pipeline, only)})
        connect.resume(connector)
        if interrupted is not None:
            connect.restart(connector, only_failed=True)
    return name


def wait_copied(session: Session, name: str) -> None:
    """Return once every source connector has re-read everything. Raises `TowpathError` when one has failed."""

    def progress(state: SourceState) -> str:
        if state.resnapshot != name:
            return "begins"
        if state.is_initial or state.copying:
            rows, total = sum(c.rows for c in state.copies), sum(max(c.documents, c.rows) for c in state.copies)
            return f"has re-read {rows:,} of about {total:,} documents"
        return ""

    _wait(session, progress, None)


def close(session: Session, name: str, timeout: float) -> None:
    """Close the resnapshot: all re-read requests have been sent. Return once the log is whole again.

    Raises `TopicError`, and `NotYet` after `timeout` seconds.
    """
    reread_requests.send(session.pipeline, session.topics, [bson.encode({"resnapshot": name})])

    def progress(state: SourceState) -> str:
        return "" if state.closed == name else "has not answered all re-read requests yet"

    _wait(replace(session, say=unsaid), progress, timeout)


def _wait(session: Session, progress: Callable[[SourceState], str], timeout: float | None) -> None:
    """Return once `progress` is empty for every source connector. Raises `NotYet` after `timeout` seconds."""
    reported, connectors = 0.0, session.pipeline.source_connectors
    seconds = _UNREACHABLE_S if timeout is None else timeout
    waiting = Wait(session.connect, connectors, seconds, "not in time", say=session.say)

    def check() -> None:
        nonlocal reported
        remaining = {name: progress(read_state(session.connect, name)) for name in connectors}
        line = "; ".join(f"{name} {words}" for name, words in remaining.items() if words)
        if not line:
            return
        if timeout is None:
            waiting.extend()
        if time.monotonic() > reported + 10:
            session.say(line)
            reported = time.monotonic()
        raise NotYet(line)

    waiting.until(check)
