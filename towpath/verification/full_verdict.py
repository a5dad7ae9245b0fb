"""The last verdict on everything: kept at the destination and on this machine, and whether it still counts."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from bson.errors import BSONError
from pymongo.errors import PyMongoError

from towpath import state_files
from towpath.bookkeeping import verdict as stored
from towpath.errors import TowpathError
from towpath.mongo.client import briefly, connected
from towpath.session import Session
from towpath.text import duration
from towpath.verification import follow_state, scope, verdict_file
from towpath.verification.follow_state import Running
from towpath.verification.scope import Origin

#: What a verdict is of that takes in every namespace of its pipeline.
EVERYTHING = "everything"
_KEPT = (
    *("id", "at", "verdict", "clean", "compared", "missing", "extra", "different", "order"),
    *("metadata", "held_back", "of", "seconds", "origin"),
)
_FAILURES = (TowpathError, PyMongoError, BSONError)


@dataclass(frozen=True, slots=True)
class Standing:
    """What verdicts are held against: the pipeline's origin now, and what the destination keeps."""

    origin: Origin | None
    unknown: str
    """Why the origin is not known."""
    stored: Mapping[str, Any] | None
    unread: str
    """Why the destination does not show what it keeps."""

    @classmethod
    def look(cls, session: Session, topic_ids: Mapping[str, str] | None = None) -> Standing:
        """`topic_ids`: where they were asked for already."""
        now, unknown = scope.look(session, topic_ids)
        try:
            with briefly(session.pipeline.destination_uri, "destination") as client:
                return cls(now, unknown, stored.read(client, session.pipeline), "")
        except (*_FAILURES, KeyError, ValueError) as error:
            return cls(now, unknown, None, str(error))

    def doubt(self, verdict: Mapping[str, Any]) -> str:
        """Why a verdict says nothing of the pipeline as it is now; empty when it counts."""
        before = Origin.of(verdict.get("origin"))
        if before is None:
            return "it does not say of which deployment it is: Kafka did not answer, or an older version made it"
        if self.origin is None:
            return f"whether it is of this deployment cannot be told: {self.unknown}"
        return before.doubt(self.origin)

    def believed(self, here: Mapping[str, Any] | None) -> tuple[Mapping[str, Any] | None, str]:
        """The last verdict on everything that counts; or None, and why the last one does not (empty: there is none).

        `here`: what this machine keeps. A verdict that the destination took and holds no longer does not count: the
        destination may be what it was before that verdict.
        """
        last = self.stored
        if here is not None and (last is None or (here["id"] != last["id"] and here["at"] > last["at"])):
            last = here
        if last is None:
            return None, ""
        if doubt := self.doubt(last):
            return None, doubt
        if last is here and here["at_destination"]:
            why = self.unread or "it was restored from a backup, or is being re-read or rebuilt"
            return None, f"the destination no longer shows that verdict: {why}"
        return last, ""


def _path(pipeline: str) -> Path:
    return state_files.folder(pipeline) / "full.json"


def keep(session: Session, verdict: Mapping[str, Any]) -> str:
    """Keep a verdict on everything; why the destination could not take it, empty when it did."""
    summary = {name: verdict[name] for name in _KEPT}
    why = ""
    try:
        with connected(session.pipeline.destination_uri, "destination") as client:
            stored.write(client, session.pipeline, summary)
    except _FAILURES as error:
        why = str(error)
    with state_files.writing(_path(session.pipeline.name)) as file:
        file.write(json.dumps(summary | {"at_destination": not why}))
    return why


def keep_and_say(session: Session, verdict: Mapping[str, Any], unknown: str) -> None:
    """Keep a verdict on everything; say so when it will not count, or not everywhere. `unknown`: why its origin is."""
    if unknown:
        session.say(
            f"this verdict will not count for a cutover, since it cannot be told of which deployment it is: {unknown}"
        )
    if why := keep(session, verdict):
        session.say(
            f"the verdict is kept on this machine only: the destination does not take it into towpath.verdicts: {why}"
        )


def read(pipeline: str) -> dict[str, Any] | None:
    """What this machine keeps. Raises `TowpathError` for a broken file."""
    place = _path(pipeline)
    try:
        found: dict[str, Any] = json.loads(place.read_text())
        return found if found["id"] and found["at"] and isinstance(found["at_destination"], bool) else None
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise TowpathError(f"cannot read the verdict {place}: {error!r}; remove it") from error


def forget(session: Session) -> None:
    """What is done now to the destination makes every verdict before it void. Raises `TowpathError`.

    The destination no longer holds it, which takes it from other machines as well.
    """
    with connected(session.pipeline.destination_uri, "destination") as client:
        stored.forget(client, session.pipeline)
    with state_files.told(place := _path(session.pipeline.name)):
        place.unlink(missing_ok=True)


@dataclass(frozen=True, slots=True)
class Verified:
    """`last` is the newest verdict that counts, `full` the newest on everything; `following` what `verify --follow`
    keeps. `doubt`: why a newer one does not count."""

    last: Mapping[str, Any] | None = None
    full: Mapping[str, Any] | None = None
    doubt: str = ""
    following: Running | None = None

    @classmethod
    def look(cls, session: Session, topic_ids: Mapping[str, str] | None = None) -> Verified:
        """As `Standing.look`. Raises `TowpathError` for files that are broken."""
        return cls.read(session.pipeline.name, Standing.look(session, topic_ids))

    @classmethod
    def read(cls, pipeline: str, standing: Standing) -> Verified:
        """As `look`, with what was asked of the servers before."""
        full, doubt = standing.believed(read(pipeline))
        last: Mapping[str, Any] | None = verdict_file.last(pipeline)
        if last is None or "at" not in last or (full and last.get("id") != full["id"] and last["at"] < full["at"]):
            last = full
        elif full is None or last.get("id") != full["id"]:
            why = standing.doubt(last)
            if full is None and last.get("of") == EVERYTHING:
                why = why or doubt or "the documents were rebuilt or re-read since"
            if why:
                last, doubt = full, why
        return cls(last, full, doubt, _following(pipeline, standing))

    @property
    def left(self) -> int:
        """Documents that differ by a later verdict than that on everything, or by `verify --follow`."""
        later = self.last if self.full is None or (self.last and self.last["id"] != self.full["id"]) else None
        return (_total(later) if later else 0) + (self.following.differences if self.following else 0)

    def as_json(self) -> dict[str, Any]:
        return {
            "verify": self.following and self.following.as_json(),
            "last_verdict": _shown(self.last),
            "full_verdict": _shown(self.full),
            "verdict_doubt": self.doubt,
        }

    def lines(self) -> Iterator[tuple[str, bool]]:
        """A line each, and whether it tells of differences."""
        if self.full is not None and self.last is not None and self.full["id"] != self.last["id"]:
            yield words(self.full), not self.full["clean"]
        if self.last is not None:
            yield words(self.last), not self.last["clean"]
        if self.doubt:
            yield f"the last verdict does not count: {self.doubt}", False
        if self.following is not None:
            yield self.following.words, bool(self.following.differences)


def _following(pipeline: str, standing: Standing) -> Running | None:
    """The running verdict, when it is of this life of the pipeline."""
    found, state = follow_state.read_running(pipeline), follow_state.read(pipeline)
    before = Origin.of(state.origin) if state else None
    if found is None or before is None or (standing.origin and before.doubt_of_life(standing.origin)):
        return None
    return found


def _shown(verdict: Mapping[str, Any] | None) -> dict[str, Any] | None:
    return (
        None
        if verdict is None
        else {name: value for name, value in verdict.items() if name not in ("v", "event", "origin")}
    )


def _total(verdict: Mapping[str, Any]) -> int:
    return sum(verdict.get(name) or 0 for name in verdict_file.KINDS)


def words(last: Mapping[str, Any]) -> str:
    """A verdict in a line."""
    counts = {name: last.get(name) or 0 for name in (*verdict_file.KINDS, "metadata")}
    found = ", ".join(f"{count:,} {name}" for name, count in counts.items() if count)
    told = "repaired since" if last.get("repaired") and not found else last["verdict"]
    head = f"{told}{f' ({found})' if found else ''}: {last['compared']:,} documents, {last['of']}"
    return f"{head}, {duration(age(last))} ago"


def age(verdict: Mapping[str, Any]) -> float:
    """In seconds."""
    return max(0.0, time.time() - datetime.fromisoformat(verdict["at"]).timestamp())
