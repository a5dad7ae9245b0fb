"""What must hold before a cutover begins: one list, each line green or red. Nothing is changed by looking."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pymongo.errors import PyMongoError

from towpath.errors import TowpathError, fields
from towpath.events import Check
from towpath.mongo import write_block
from towpath.mongo.client import connected
from towpath.preflight.everything import everything
from towpath.schema import unreplicated
from towpath.session import Session
from towpath.status.collector import look
from towpath.status.figures import Status
from towpath.supervisor.dead_letters import SetAside
from towpath.text import counted, duration
from towpath.verification.full_verdict import Verified, age, words
from towpath.verification.scope import metadata
from verifier import VerifierError

_SHOWN = 3  # of many findings


@dataclass(frozen=True, slots=True)
class Limits:
    """In seconds."""

    lag: float
    verified: float
    """How old a full verification may be."""


Look = Callable[[], Check]


def gate(it: Session, limits: Limits, *, blocks: bool, back: Session | None) -> list[Check]:
    """All checks of a pipeline that is to be cut over to its destination; `back` is the way back, where one is wanted.

    `blocks`: whether writes to the source are to be blocked.
    """
    return [*_pipeline(it, limits), _of(_verified, it, limits), *_besides(it, blocks), *(_way(back) if back else ())]


def gate_back(back: Session, limits: Limits, *, blocks: bool) -> list[Check]:
    """All checks before the return; what was changed since the cutover is verified by the return itself."""
    return [*_pipeline(back, limits), *_besides(back, blocks)]


def _of(check: Callable[..., Check], *arguments: Any) -> Check:
    """A check that cannot be made is red."""
    try:
        return check(*arguments)
    except (TowpathError, VerifierError, PyMongoError) as error:
        name, told = check.__name__.strip("_").replace("_", " "), fields(error)
        return Check(name, False, getattr(error, "sentence", str(error)), told["advice"], told["where"], told["code"])


def looked(checks: Iterable[Look]) -> list[Check]:
    """These as well."""
    return [_of(check) for check in checks]


def _pipeline(it: Session, limits: Limits) -> Iterator[Check]:
    try:
        found = look(it.pipeline, it.connect, it.topics)
    except (TowpathError, PyMongoError) as error:
        yield Check("connectors", False, str(error), f"towpath status {it.file}")
        return
    yield _connectors(it, found)
    copied = sum(copied.done for copied in found.snapshot)
    words = "done" if found.snapshot_done else f"{copied:,} of {counted(len(found.snapshot), 'collection')}"
    yield Check("copy", found.snapshot_done, words, f"towpath status {it.file} --watch")
    records = found.lag_records
    lag = "unknown" if records is None else f"{found.lag_seconds:.1f} s, {counted(records, 'record')}"
    in_step = records is not None and found.lag_seconds <= limits.lag
    yield Check("lag", in_step, f"{lag} (limit {limits.lag:g} s)", "wait until it is less, or allow more: --max-lag")
    waiting = sum(one.requests for one in found.waiting)
    advice = "a repair or compaction is under way: wait until it is done"
    yield Check(
        "reading again", not waiting, f"{counted(waiting, 'request')} waiting" if waiting else "nothing", advice
    )
    yield _of(_set_aside, it)
    yield _of(_collections, it, found)


def _connectors(it: Session, found: Status) -> Check:
    reasons = [f"{one.name}: {reason}" for one in found.connectors for reason in one.failures]
    reasons += found.trouble
    good = found.state == "running" and not reasons
    words = "; ".join([found.state, *reasons[:_SHOWN]])
    return Check("connectors", good, words, f"towpath status {it.file}; towpath restart {it.file}")


def _set_aside(it: Session) -> Check:
    aside = SetAside(it)
    for _ in aside.read(time.monotonic()):
        pass
    words = f"{counted(aside.left, 'document')} that the destination refused" if aside.left else "nothing"
    return Check("set aside", not aside.left, words, f"towpath repair {it.file} --dead-letters")


def _collections(it: Session, found: Status) -> Check:
    lines = [one.line for one in unreplicated.unsettled(it, found.ddl, remember=False)]
    words = "; ".join(lines[:_SHOWN]) if lines else "nothing was done to them that the other side has not followed"
    return Check("collections", not lines, words, f"towpath ddl {it.file}")


def _verified(it: Session, limits: Limits) -> Check:
    advice = f"towpath verify {it.file}"
    found = Verified.look(it)
    if (full := found.full) is None:
        return Check("verified", False, found.doubt or "never: no verdict on everything is known", advice)
    told = words(full)
    if found.left:
        told += f"; {counted(found.left, 'difference')} found since"
        advice = f"towpath repair {it.file}"
    good = full["verdict"] == "same" and bool(full["clean"]) and age(full) <= limits.verified and not found.left
    return Check("verified", good, f"{told} (limit {duration(limits.verified)})", advice)


def _besides(it: Session, blocks: bool) -> Iterator[Check]:
    yield _of(_metadata, it)
    if blocks:
        yield _of(_block, it)


def _metadata(it: Session) -> Check:
    found = metadata(it.pipeline, ())
    words = "; ".join(f"{one.pair.source}: {one.what}" for one in found.differences[:_SHOWN])
    more = len(found.differences) - _SHOWN
    words += f"; and {more} more" if more > 0 else ""
    same = f"the same, {len(found.held_back)} held back until the cutover"
    return Check("metadata", not found.differences, words or same, f"towpath prepare {it.file}")


def _block(it: Session) -> Check:
    with connected(it.pipeline.source_uri, "source") as client:
        trouble = write_block.trouble(client)
    return Check("write block", not trouble, trouble or "the user may block writes", "or leave --block-writes out")


def _way(back: Session) -> Iterator[Check]:
    yield _of(_way_back, back, back.file)


def _way_back(back: Session, file: Path) -> Check:
    errors = [
        one for one in everything(back, file, create_stopped=back.pipeline.source_connectors) if one.level == "error"
    ]
    words = "; ".join(f"{one.subject}: {one.finding}" for one in errors[:_SHOWN])
    advice = "; ".join(one.advice for one in errors[:_SHOWN])
    return Check("way back", not errors, words or f"can be begun ({file.name})", f"{advice}; or --no-way-back")


def red(checks: Sequence[Check]) -> list[Check]:
    return [one for one in checks if not one.good]
