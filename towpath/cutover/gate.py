"""What must hold before a cutover begins: a list of checks, each green or red. The checks change nothing."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pymongo.errors import PyMongoError

from towpath.errors import TowpathError, fields
from towpath.events import Check
from towpath.mongo import write_block
from towpath.mongo.client import connected
from towpath.preflight.everything import everything
from towpath.schema import unreplicated
from towpath.session import Session
from towpath.status.collector import read_status
from towpath.status.figures import Status
from towpath.supervisor.dead_letters import DeadLetterRetries
from towpath.text import counted, duration
from towpath.verification.full_verdict import Verified, age, summary
from towpath.verification.scope import metadata
from verifier import VerifierError

_SHOWN = 3  # findings in one line; the rest is only counted


@dataclass(frozen=True, slots=True)
class Limits:
    """In seconds."""

    lag: float
    verified: float
    """Largest age of the last full verification."""


def gate(session: Session, limits: Limits, *, blocks: bool, reverse: Session | None) -> list[Check]:
    """All checks before a cutover to the destination; `reverse` is the reverse pipeline, if one is to be created.

    `blocks`: whether the cutover blocks writes to the source.
    """
    checks = [*_pipeline(session, limits), _guarded("verified", _verified, session, limits), *_common(session, blocks)]
    return [*checks, _guarded("way back", _reverse_pipeline, reverse)] if reverse else checks


def fail_back_gate(reverse: Session, limits: Limits, *, blocks: bool) -> list[Check]:
    """All checks before a fail back, which itself verifies what was changed since the cutover."""
    return [*_pipeline(reverse, limits), *_common(reverse, blocks)]


def _guarded(name: str, check: Callable[..., Check], *arguments: Any) -> Check:
    """The result of `check`; red with this name when it cannot be made."""
    try:
        return check(*arguments)
    except (TowpathError, VerifierError, PyMongoError) as error:
        parts = fields(error)
        sentence = getattr(error, "sentence", str(error))
        return Check(name, False, sentence, parts["advice"], parts["where"], parts["code"])


def run_checks(checks: Iterable[Callable[[], Check]]) -> list[Check]:
    return [_guarded(check.__name__.replace("_", " "), check) for check in checks]


def _pipeline(session: Session, limits: Limits) -> Iterator[Check]:
    try:
        status = read_status(session.pipeline, session.connect, session.topics)
    except (TowpathError, PyMongoError) as error:
        yield Check("connectors", False, str(error), f"towpath status {session.file}")
        return
    yield _connectors(session, status)
    copied = sum(collection.done for collection in status.snapshot)
    copy = "done" if status.snapshot_done else f"{copied:,} of {counted(len(status.snapshot), 'collection')}"
    yield Check("copy", status.snapshot_done, copy, f"towpath status {session.file} --watch")
    records = status.lag_records
    lag = "unknown" if records is None else f"{status.lag_seconds:.1f} s, {counted(records, 'record')}"
    in_sync = records is not None and status.lag_seconds <= limits.lag
    yield Check("lag", in_sync, f"{lag} (limit {limits.lag:g} s)", "wait until it is less, or allow more: --max-lag")
    waiting = sum(requests.requests for requests in status.waiting)
    advice = "a repair or compaction is under way: wait until it is done"
    yield Check(
        "reading again", not waiting, f"{counted(waiting, 'request')} waiting" if waiting else "nothing", advice
    )
    yield _guarded("set aside", _dead_letters, session)
    yield _guarded("collections", _collections, session, status)


def _connectors(session: Session, status: Status) -> Check:
    reasons = [f"{connector.name}: {reason}" for connector in status.connectors for reason in connector.failures]
    reasons += status.trouble
    good = status.state == "running" and not reasons
    finding = "; ".join([status.state, *reasons[:_SHOWN]])
    return Check("connectors", good, finding, f"towpath status {session.file}; towpath restart {session.file}")


def _dead_letters(session: Session) -> Check:
    retries = DeadLetterRetries(session)
    for _ in retries.read(time.monotonic()):
        pass
    finding = (
        f"{counted(retries.remaining, 'document')} that the destination refused" if retries.remaining else "nothing"
    )
    return Check("set aside", not retries.remaining, finding, f"towpath repair {session.file} --dead-letters")


def _collections(session: Session, status: Status) -> Check:
    lines = [ddl.line for ddl in unreplicated.unsettled(session, status.ddl, remember=False)]
    finding = "; ".join(lines[:_SHOWN]) if lines else "no DDL that the other side has not followed"
    return Check("collections", not lines, finding, f"towpath ddl {session.file}")


def _verified(session: Session, limits: Limits) -> Check:
    advice = f"towpath verify {session.file}"
    verified = Verified.read(session)
    if (full := verified.full) is None:
        return Check("verified", False, verified.doubt or "never: no verdict on everything is known", advice)
    finding = summary(full)
    if verified.left:
        finding += f"; {counted(verified.left, 'difference')} found since"
        advice = f"towpath repair {session.file}"
    good = full["verdict"] == "same" and bool(full["clean"]) and age(full) <= limits.verified and not verified.left
    return Check("verified", good, f"{finding} (limit {duration(limits.verified)})", advice)


def _common(session: Session, blocks: bool) -> Iterator[Check]:
    yield _guarded("metadata", _metadata, session)
    if blocks:
        yield _guarded("block", _write_block, session)


def _metadata(session: Session) -> Check:
    found = metadata(session.pipeline, ())
    finding = "; ".join(f"{difference.pair.source}: {difference.what}" for difference in found.differences[:_SHOWN])
    more = len(found.differences) - _SHOWN
    finding += f"; and {more} more" if more > 0 else ""
    same = f"the same, {len(found.held_back)} held back until the cutover"
    return Check("metadata", not found.differences, finding or same, f"towpath prepare {session.file}")


def _write_block(session: Session) -> Check:
    with connected(session.pipeline.source_uri, "source") as client:
        trouble = write_block.trouble(client)
    return Check("write block", not trouble, trouble or "the user may block writes", "or leave --block-writes out")


def _reverse_pipeline(reverse: Session) -> Check:
    findings = everything(reverse, reverse.file, create_stopped=reverse.pipeline.source_connectors)
    errors = [finding for finding in findings if finding.level == "error"]
    lines = "; ".join(f"{error.subject}: {error.finding}" for error in errors[:_SHOWN])
    advice = "; ".join(error.advice for error in errors[:_SHOWN])
    return Check(
        "way back", not errors, lines or f"can be created ({reverse.file.name})", f"{advice}; or --no-way-back"
    )


def red(checks: Sequence[Check]) -> list[Check]:
    return [check for check in checks if not check.good]
