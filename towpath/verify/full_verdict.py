"""The last verdict on everything: stored at the destination and on this machine; whether it still counts."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from bson.errors import BSONError
from pymongo.errors import PyMongoError

from towpath.config.text import duration, first_few
from towpath.deploy.schema import Listing
from towpath.errors import TowpathError
from towpath.session import Session
from towpath.store import state_files, verdict_file
from towpath.store import verdict as stored
from towpath.store.verdict_file import RunningVerdict
from towpath.verify import origin as origins
from towpath.verify.origin import Origin

#: The value of `of` in a verdict on all namespaces of its pipeline.
EVERYTHING = "everything"
_STORED_FIELDS = (
    *("id", "at", "verdict", "clean", "compared", "missing", "extra", "different", "order"),
    *("metadata", "deferred", "of", "seconds", "since", "origin"),
)
_FAILURES = (TowpathError, PyMongoError, BSONError)
_SHOWN = 3  # collections that are named; the others are counted


@dataclass(frozen=True, slots=True)
class VerdictContext:
    """What decides whether a verdict counts: the pipeline's origin now, and the verdict stored at the destination."""

    origin: Origin | None
    unknown: str
    """Why the origin is not known."""
    stored: Mapping[str, Any] | None
    unread: str
    """Why the stored verdict cannot be read."""

    @classmethod
    def read(
        cls, session: Session, topic_ids: Mapping[str, str] | None = None, listing: Listing | None = None
    ) -> VerdictContext:
        """`topic_ids`, of the pipeline's topics, and `listing`: if already known."""
        now, unknown = origins.try_origin(session, topic_ids, listing)
        try:
            with session.destination.briefly() as client:
                return cls(now, unknown, stored.read(client, session.pipeline), "")
        except (*_FAILURES, KeyError, ValueError) as error:
            return cls(now, unknown, None, str(error))

    def doubt(self, verdict: Mapping[str, Any]) -> str:
        """Why a verdict does not count for the pipeline as it is now; empty if it counts."""
        before = Origin.from_json(verdict.get("origin"))
        if before is None:
            return "it does not name its deployment: Kafka did not answer then"
        if self.origin is None:
            return f"cannot check whether it is of this deployment: {self.unknown}"
        return before.doubt(self.origin)

    def newest_full(self, local: Mapping[str, Any] | None) -> tuple[Mapping[str, Any] | None, str]:
        """The last verdict on everything; or None, and why it does not count (empty: there is none).

        `local`: the one stored on this machine. If the destination has lost it, it does not count: the destination may
        have been reset to a state before that verdict.
        """
        last = self.stored
        if local is not None and (last is None or (local["id"] != last["id"] and local["at"] > last["at"])):
            last = local
        if last is None:
            return None, ""
        if doubt := self.doubt(last):
            return None, doubt
        if last is local and local["at_destination"]:
            reason = self.unread or "it was restored from a backup"
            return None, f"the destination no longer has that verdict: {reason}"
        return last, ""


def store(session: Session, verdict: Mapping[str, Any], unknown: str) -> None:
    """Store a verdict on everything; say when it will not count everywhere. `unknown`: why it has no origin."""
    if unknown:
        session.say(f"this verdict will not count for a cutover, because its deployment is not known: {unknown}")
    summary = {name: verdict[name] for name in _STORED_FIELDS}
    reason = ""
    try:
        with session.destination.connected() as client:
            stored.write(client, session.pipeline, summary)
    except _FAILURES as error:
        reason = str(error)
    with state_files.writing(verdict_file.full_path(session.pipeline.name)) as file:
        file.write(json.dumps(summary | {"at_destination": not reason}))
    if reason:
        session.say(
            "the verdict is stored on this machine only: cannot write it to towpath.verdicts at the destination:"
            f" {reason}"
        )


@dataclass(frozen=True, slots=True)
class Verified:
    """`last` is the newest verdict that counts, `full` the newest on everything, `following` that of `verify --follow`.

    `doubt`: why a newer one does not count.
    """

    last: Mapping[str, Any] | None = None
    full: Mapping[str, Any] | None = None
    doubt: str = ""
    following: RunningVerdict | None = None
    created: Sequence[str] = ()
    """Collections that were created since `full`, by their names at the source: it did not compare them."""

    @classmethod
    def read(cls, session: Session, topic_ids: Mapping[str, str] | None = None) -> Verified:
        """`topic_ids` as in `VerdictContext.read`. Raises `TowpathError` for broken files."""
        return cls.of(session.pipeline.name, VerdictContext.read(session, topic_ids))

    @classmethod
    def of(cls, pipeline: str, context: VerdictContext) -> Verified:
        """As `read`, with a context that was read before."""
        full, doubt = context.newest_full(verdict_file.read_full(pipeline))
        last: Mapping[str, Any] | None = verdict_file.last(pipeline)
        if last is None or "at" not in last or (full and last.get("id") != full["id"] and last["at"] < full["at"]):
            last = full
        elif full is None or last.get("id") != full["id"]:
            reason = context.doubt(last)
            if full is None and last.get("of") == EVERYTHING:
                reason = reason or doubt or "the destination no longer has it"
            if reason:
                last, doubt = full, reason
        before = Origin.from_json(full["origin"]) if full else None
        created = before.created(context.origin) if before and context.origin else ()
        return cls(last, full, doubt, _following(pipeline, context), created)

    @property
    def left(self) -> int:
        """Differences found since the verdict on everything, by later verdicts or by `verify --follow`."""
        later = self.last if self.full is None or (self.last and self.last["id"] != self.full["id"]) else None
        return (_total(later) if later else 0) + (self.following.differences if self.following else 0)

    @property
    def created_names(self) -> str:
        """`created` as text, the first few by name."""
        return first_few(self.created, _SHOWN)

    def lines(self) -> Iterator[tuple[str, bool]]:
        """Lines of text, each with whether it reports differences."""
        if self.full is not None and self.last is not None and self.full["id"] != self.last["id"]:
            yield summary(self.full), not self.full["clean"]
        if self.created:
            yield f"created after the verdict on everything, and not compared: {self.created_names}", False
        if self.last is not None:
            yield summary(self.last), not self.last["clean"]
        if self.doubt:
            yield f"the last verdict does not count: {self.doubt}", False
        if self.following is not None:
            yield self.following.description, bool(self.following.differences)


def _following(pipeline: str, context: VerdictContext) -> RunningVerdict | None:
    """The running verdict, if it is of this deployment."""
    running, state = verdict_file.read_running(pipeline), verdict_file.read_followed(pipeline)
    before = Origin.from_json(state.origin) if state else None
    if running is None or before is None or (context.origin and before.deployment_doubt(context.origin)):
        return None
    return running


def _total(verdict: Mapping[str, Any]) -> int:
    return sum(verdict.get(name) or 0 for name in verdict_file.KINDS)


def summary(last: Mapping[str, Any]) -> str:
    """A verdict in one line."""
    counts = {name: last.get(name) or 0 for name in (*verdict_file.KINDS, "metadata")}
    differences = ", ".join(f"{count:,} {name}" for name, count in counts.items() if count)
    headline = "repaired since" if last.get("repaired") and not differences else last["verdict"]
    head = f"{headline}{f' ({differences})' if differences else ''}: {last['compared']:,} documents, {last['of']}"
    seconds = age(last)
    return f"{head}, {duration(seconds)} ago" if seconds >= 0 else f"{head}, dated {duration(-seconds)} in the future"


def age(verdict: Mapping[str, Any]) -> float:
    """Seconds since the oldest comparison of a verdict began; negative for one of the future, whose clock was wrong."""
    return time.time() - datetime.fromisoformat(verdict["since"]).timestamp()
