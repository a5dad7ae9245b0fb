"""The last verdicts: what they belong to, whether they still count, and where the one on everything is stored.

A verdict belongs to its origin: clusters, collections, selection, deployment. All of it can be read with few
privileges. A cluster is identified by its replica set and the UUIDs of its collections, which are new for each
collection. A deployment is identified by the ids of the pipeline's topics, which are new for each topic:
`remove --topics` and `deploy` start another one. Within a deployment, a new history begins at the destination when
changes may be missing there or it is rebuilt (`towpath.store.verdict`).
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Self

from bson.errors import BSONError
from pydantic import Field
from pymongo.errors import PyMongoError

from towpath.clients.mongo.client import Client
from towpath.clients.mongo.replica_set import ReplicaSet, replica_set
from towpath.config.events import Following, VerdictSummary
from towpath.config.pipeline import Pipeline
from towpath.config.text import counted, duration, first_few
from towpath.deploy.schema import Listing, at_destination, at_source
from towpath.errors import TowpathError
from towpath.log import field_rules
from towpath.log.definitions import pipeline_topics
from towpath.session import Session
from towpath.store import state_files, verdict_file
from towpath.store import verdict as stored
from towpath.store.verdict import Before
from towpath.store.verdict_file import KINDS

#: The value of `of` in a verdict on all namespaces of its pipeline.
EVERYTHING = "everything"
_FAILURES = (TowpathError, PyMongoError, BSONError)
_SHOWN = 3  # collections that are named; the others are counted
_SIDES = ("source", "destination")


@dataclass(frozen=True, slots=True)
class Origin:
    """`sets`: side → replica set; `uuids`: side → namespace → UUID; `topics`: topic → id; `history`: see above."""

    sets: Mapping[str, str]
    uuids: Mapping[str, Mapping[str, str]]
    topics: Mapping[str, str]
    selection: Mapping[str, Any]
    history: str

    @classmethod
    def read(cls, session: Session, topic_ids: Mapping[str, str] | None = None, listing: Listing | None = None) -> Self:
        """The origin as of now. `topic_ids`, of the pipeline's topics, and `listing`: if already known.

        Raises `TowpathError` when a cluster or Kafka does not answer.
        """
        pipeline = session.pipeline
        with session.source.briefly() as client:
            source = str(replica_set(client, "source"))
            ours = listing.source if listing else at_source(client, pipeline)
        with session.destination.briefly() as client:
            destination = str(replica_set(client, "destination"))
            theirs = listing.destination if listing else at_destination(client, pipeline)
            history = stored.history(client, pipeline)
        if topic_ids is None:
            topic_ids = session.topics.ids(pipeline_topics(pipeline, session.topics.all()))
        uuids = {
            side: {collection.namespace: collection.uuid for collection in by_name.values() if collection.uuid}
            for side, by_name in zip(_SIDES, (ours, theirs), strict=True)
        }
        sets = dict(zip(_SIDES, (source, destination), strict=True))
        return cls(sets, uuids, topic_ids, _selection(pipeline), history)

    @classmethod
    def from_json(cls, value: Mapping[str, Any] | None) -> Self | None:
        """None for a verdict whose origin could not be read."""
        return None if value is None else cls(**value)

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    def doubt(self, now: Origin) -> str:
        """Why a verdict of this origin does not count for the pipeline as it is now; empty if it counts."""
        return self.deployment_doubt(now) or self.history_doubt(now.history) or next(self._changed(now), "")

    def deployment_doubt(self, now: Origin) -> str:
        """As `doubt`, but only for the clusters and the log."""
        if reason := self.clusters_doubt(now):
            return reason
        if not self.topics:
            return "it was made while the pipeline was not deployed"
        common = sorted(self.topics.keys() & now.topics.keys())
        if not common:
            return "the pipeline's log is gone: it was removed since"
        recreated = (name for name in common if self.topics[name] != now.topics[name])
        if name := next(recreated, ""):
            return f"the pipeline was removed and deployed again since: the topic {name} is another one"
        if self.selection == now.selection and (gone := sorted(self.topics.keys() - now.topics.keys())):
            return f"a part of the pipeline's log is gone: {first_few(gone, _SHOWN)}"
        return ""

    def clusters_doubt(self, now: Origin) -> str:
        """As `doubt`, but only for the clusters."""
        for side in _SIDES:
            before, after = self.sets[side], now.sets[side]
            if not ReplicaSet.parse(before).is_same(ReplicaSet.parse(after)):
                return f"the {side} was {before}, and is {after}"
        return ""

    def history_doubt(self, now: str) -> str:
        """As `doubt`, but only for the history at the destination, which is `now`."""
        if self.history == now:
            return ""
        return f"the destination has another history since {now}" if now else "the destination has an older history"

    def created(self, now: Origin) -> list[str]:
        """The collections, by their names at the source, that exist now, and did not when this origin was read."""
        before, after = ({name for side in _SIDES for name in one.uuids[side]} for one in (self, now))
        return sorted(after - before)

    def _changed(self, now: Origin) -> Iterator[str]:
        for side in _SIDES:
            before, after = self.uuids[side], now.uuids[side]
            gone = [name for name, uuid in before.items() if after.get(name) != uuid]
            if gone:
                more = f" and {len(gone) - _SHOWN:,} more" if len(gone) > _SHOWN else ""
                yield f"at the {side} {', '.join(sorted(gone)[:_SHOWN])}{more} was dropped since, or is another one"
        if self.selection != now.selection:
            yield "the pipeline file named other collections then"


def _selection(pipeline: Pipeline) -> dict[str, Any]:
    rules = {"rules": field_rules.identity(pipeline)} if pipeline.collections.rules else {}
    return {
        "include": list(pipeline.collections.include),
        "exclude": list(pipeline.collections.exclude),
        "rename": dict(pipeline.collections.rename),
        **rules,
    }


def try_origin(
    session: Session, topic_ids: Mapping[str, str] | None = None, listing: Listing | None = None
) -> tuple[Origin | None, str]:
    """As `Origin.read`; or None, and why the origin cannot be read."""
    try:
        return Origin.read(session, topic_ids, listing), ""
    except TowpathError as error:
        return None, str(error)


@dataclass(frozen=True, kw_only=True)
class Verdict(VerdictSummary):
    """A verdict of `verify`; times are ISO 8601."""

    repaired: int
    """Documents that were repaired since, as this machine knows."""

    @classmethod
    def read(cls, verdict: Mapping[str, Any]) -> Self:
        """From a stored one."""
        stored: dict[str, Any] = {**verdict, "repaired": verdict.get("repaired") or 0}
        return cls(**{name: stored[name] for name in cls.__dataclass_fields__})

    @property
    def began(self) -> float:
        """When its oldest comparison began, in seconds since the epoch."""
        return datetime.fromisoformat(self.since).timestamp()

    @property
    def age(self) -> float:
        """Seconds since then; negative for one of the future, whose clock was wrong."""
        return time.time() - self.began

    @property
    def shown(self) -> str:
        """What it says now."""
        if not self.clean and self.verdict not in ("not the same", "no verdict"):
            return "differences since"
        return "repaired since" if self.repaired and self.clean else self.verdict

    @property
    def differences(self) -> int:
        """Documents that differ."""
        return sum(getattr(self, kind) for kind in KINDS)

    @property
    def line(self) -> str:
        """All of it in one line."""
        counts = {name: getattr(self, name) or 0 for name in (*KINDS, "metadata")}
        differences = ", ".join(f"{count:,} {name}" for name, count in counts.items() if count)
        headline = "repaired since" if self.repaired and not differences else self.verdict
        head = (
            f"{headline}{f' ({differences})' if differences else ''}: {counted(self.compared, 'document')}, {self.of}"
        )
        age = self.age
        return f"{head}, {duration(age)} ago" if age >= 0 else f"{head}, dated {duration(-age)} in the future"


@dataclass(frozen=True, slots=True)
class VerdictContext:
    """What decides whether a verdict counts: the pipeline's origin now, and what is stored at the destination."""

    origin: Origin | None
    unknown: str
    """Why the origin is not known."""
    stored: Mapping[str, Any] | None
    unread: str
    """Why the stored verdict cannot be read."""
    found: str = ""
    """When a difference was found last that may be left, on any machine, ISO 8601; empty if there is none."""

    @classmethod
    def read(
        cls, session: Session, topic_ids: Mapping[str, str] | None = None, listing: Listing | None = None
    ) -> VerdictContext:
        """`topic_ids`, of the pipeline's topics, and `listing`: if already known."""
        now, unknown = try_origin(session, topic_ids, listing)
        try:
            with session.destination.briefly() as client:
                verdict, found = stored.read(client, session.pipeline)
                return cls(now, unknown, verdict, "", found)
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
        have been reset to a state before that verdict. One of the future, whose clock was wrong, is not known to be the
        newer one.
        """
        last = self.stored
        if local is not None and (last is None or (local["id"] != last["id"] and _is_later(local, last))):
            last = local
        if last is None:
            return None, ""
        if doubt := self.doubt(last):
            return None, doubt
        if last is local and local["at_destination"]:
            reason = self.unread or "it was restored from a backup"
            return None, f"the destination no longer has that verdict: {reason}"
        return last, ""


def _is_later(verdict: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    return bool(other["since"] < verdict["since"] <= datetime.now(UTC).isoformat(timespec="milliseconds"))


def before(session: Session) -> Before:
    """What is stored at the destination when a verification begins; nothing if that cannot be read."""
    try:
        with session.destination.briefly() as client:
            return stored.before(client, session.pipeline)
    except _FAILURES:
        return Before()


def store(session: Session, verdict: Mapping[str, Any], unknown: str, before: Before, lag: float) -> None:
    """Store a verdict on everything; say when it will not count everywhere. `unknown`: why it has no origin.

    `before`: when its verification began. `lag`: by how many seconds the destination lagged then.
    """
    if unknown:
        session.say(f"this verdict will not count for a cutover, because its deployment is not known: {unknown}")
    summary = {**asdict(Verdict.read(verdict)), "origin": verdict["origin"], "lag": lag}
    reason = _written(session, lambda client: stored.write(client, session.pipeline, summary, before))
    with state_files.writing(verdict_file.full_path(session.pipeline.name)) as file:
        file.write(json.dumps(summary | {"at_destination": not reason}))
    if reason:
        session.say(
            "the verdict is stored on this machine only: cannot write it to towpath.verdicts at the destination:"
            f" {reason}"
        )


def note_found(session: Session, id: str) -> None:
    """Store at the destination that the verification with this id has proven a difference; say when that cannot be.

    Call it before the difference is stored on this machine.
    """
    if reason := _written(session, lambda client: stored.note_found(client, session.pipeline, id)):
        session.say(
            "differences were found, which is known on this machine only: cannot write to towpath.verdicts at the"
            f" destination: {reason}"
        )


def forget_found(session: Session, ids: Iterable[str]) -> bool:
    """All that the verifications with these ids have found is the same again. Says and returns when that is not stored.

    Call it after that is stored on this machine.
    """
    reason = _written(session, lambda client: stored.forget_found(client, session.pipeline, ids))
    if reason:
        session.say(
            "nothing differs any more, but a cutover will need `towpath verify`: cannot write to towpath.verdicts at"
            f" the destination: {reason}"
        )
    return not reason


def _written(session: Session, write: Callable[[Client], None]) -> str:
    """Why this cannot be written to the destination; empty if it is done."""
    try:
        with session.destination.connected() as client:
            write(client)
    except _FAILURES as error:
        return str(error)
    return ""


@dataclass(frozen=True, slots=True)
class Verification:
    """`last` is the newest verdict that counts, `full` the newest on everything: not clean while there is `found`."""

    last: Verdict | None = None
    full: Verdict | None = None
    doubt: str = ""
    """Why a newer verdict does not count."""
    found: str = ""
    """When a difference was found last that may be left, on any machine, ISO 8601; empty if there is none."""
    follow: Following | None = None
    created: Annotated[Sequence[str], Field(exclude=True)] = ()
    """Collections that were created since `full`, by their names at the source: it did not compare them."""
    lag: Annotated[float, Field(exclude=True)] = 0.0
    """By how many seconds the destination lagged when `full` began."""
    clock: Annotated[float, Field(exclude=True)] = 0.0
    """By how many seconds the clock of that machine was ahead of the destination's."""
    followed: Annotated[str, Field(exclude=True)] = ""
    """What `follow` covers, as `of` in a verdict."""

    @classmethod
    def of(cls, pipeline: str, context: VerdictContext) -> Verification:
        """What is verified now. Raises `TowpathError` for broken files."""
        full, doubt = context.newest_full(verdict_file.read_full(pipeline))
        place = verdict_file.path(pipeline)
        last: Mapping[str, Any] | None = verdict_file.counts(place) if place.exists() else None
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
        newest, whole = (Verdict.read(one) if one else None for one in (last, full))
        if whole and context.found:
            whole = replace(whole, clean=False)
            newest = replace(newest, clean=False) if newest and newest.id == whole.id else newest
        follow, followed = _following(pipeline, context)
        lag, clock = (full.get("lag", 0.0), _clock(full)) if full else (0.0, 0.0)
        return cls(newest, whole, doubt, context.found, follow, created, lag, clock, followed)

    @property
    def reported(self) -> Verification:
        """As of now, and with what was repaired since, which `last` alone has."""
        full = self.last if self.last and self.full and self.last.id == self.full.id else self.full
        return replace(self, full=full, follow=self.follow and self.follow.as_of_now())

    @property
    def proven_since(self) -> float | None:
        """Since when the last full verification may not have compared a change, seconds since the epoch, also by the
        destination's clock; None unless both sides were the same, and nothing has been found since.
        """
        full = self.full
        if full is None or full.verdict != "same" or not full.clean or full.age < 0 or self.left or self.unresolved:
            return None
        return full.began - self.ahead

    @property
    def ahead(self) -> float:
        """By how many seconds `full` proves less than it says."""
        return self.lag + self.clock

    @property
    def ahead_words(self) -> str:
        """Why it does; empty if it does not."""
        lag = f"the destination was {duration(self.lag)} behind when it began" if self.lag else ""
        clock = f"the clock of its machine was {duration(self.clock)} ahead" if self.clock else ""
        return "; ".join(filter(None, (lag, clock)))

    @property
    def left(self) -> int:
        """Differences found since the verdict on everything, as far as this machine knows their number."""
        later = self.last if self.full is None or (self.last and self.last.id != self.full.id) else None
        return (later.differences if later else 0) + (self._followed.differences if self._followed else 0)

    @property
    def unresolved(self) -> int:
        """Documents that `verify --follow` has not been able to judge since the verdict on everything."""
        return self._followed.unresolved if self._followed else 0

    def unproven(self, within: float) -> str:
        """Why no verdict says that nothing differs; empty if everything was compared, and all changes of since then.

        `within`: how many seconds ago `verify --follow` must have stored that last.
        """
        if self.full is None:
            return "no verdict on everything counts"
        follow = self.follow and self.follow.as_of_now()
        if follow is None or follow.age_seconds > within or self.followed != EVERYTHING:
            return "what changed since the verdict on everything is not compared"
        if follow.waiting or follow.unresolved or follow.behind_records != 0:  # None: it is not known
            return "not all changes are compared yet"
        return ""

    @property
    def _followed(self) -> Following | None:
        """`follow`, unless it ended before the verdict on everything began, and that is clean."""
        is_over = self.full and self.full.clean and self.follow and self.follow.at < self.full.began
        return None if is_over else self.follow

    @property
    def found_words(self) -> str:
        """What `found` says; empty where the verdicts say it already."""
        is_said = self.left or (self.full and self.full.differences)
        return found_words(self.found) if self.found and not is_said else ""

    @property
    def created_names(self) -> str:
        """`created` as text, the first few by name."""
        return first_few(self.created, _SHOWN)

    def lines(self) -> Iterator[tuple[str, bool]]:
        """Lines of text, each with whether it reports differences."""
        if self.full is not None and self.last is not None and self.full.id != self.last.id:
            yield self.full.line, not self.full.clean
        if self.created:
            yield f"created after the verdict on everything, and not compared: {self.created_names}", False
        if self.last is not None:
            yield self.last.line, not self.last.clean
        if self.found_words:
            yield self.found_words, True
        if self.doubt:
            yield f"the last verdict does not count: {self.doubt}", False
        if self.follow is not None:
            yield self.follow.description, bool(self.follow.differences or self.follow.unresolved)


def _clock(full: Mapping[str, Any]) -> float:
    """See `Verification.clock`; that of a verdict that is not stored at the destination counts as right."""
    late: timedelta = datetime.fromisoformat(full["at"]) - full["written"] if "written" in full else timedelta()
    return max(0.0, late.total_seconds())


def found_words(found: str) -> str:
    """What `Verification.found` says."""
    return f"differences were found at {datetime.fromisoformat(found):%Y-%m-%d %H:%M:%S} UTC, and may be left"


def _following(pipeline: str, context: VerdictContext) -> tuple[Following | None, str]:
    """What `verify --follow` has found, if it is of this deployment, and what it covers."""
    running, state = verdict_file.read_running(pipeline), verdict_file.read_followed(pipeline)
    before = Origin.from_json(state.origin) if state else None
    if running is None or before is None or (context.origin and before.deployment_doubt(context.origin)):
        return None, ""
    return running, state.of if state else ""
