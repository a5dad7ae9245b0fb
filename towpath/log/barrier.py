"""`wait`: everything that was written to the source before the call is applied at the destination, or a dead letter.

It is proven in three steps, without a write to a collection of the source: capture has passed the source's cluster time
at the call, and no copy is in progress; the log has the answers to all re-read requests; and the sink has passed every
partition up to its end at that time. A record that the destination refused is passed too: it is a dead letter.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field

from bson.timestamp import Timestamp
from pymongo.errors import PyMongoError

from towpath.clients.connect.control import Wait, statuses
from towpath.clients.connect.rest import Connect, failure
from towpath.clients.kafka.consume import NOTHING, Window
from towpath.clients.kafka.topics import Place, Topics
from towpath.clients.mongo.client import ANSWER_S, Cluster, ClusterTime
from towpath.clients.mongo.replica_set import ReplicaSet, passed_time, source_set
from towpath.config.pipeline import Pipeline
from towpath.config.text import counted
from towpath.errors import NoSuchConnector, NotYet, Refused, TowpathError
from towpath.log import bounds, reread_requests
from towpath.log.definitions import SOURCE_BACK, SOURCE_SET, other_source
from towpath.log.lag import applied, change_topics, committed_ends, gaps, peek, pipeline_ends, pipeline_written, unread
from towpath.log.source_offsets import SELECTION, CollectionCopy, SourceState, read_state
from towpath.session import Say, Session
from towpath.store import schema_changes
from towpath.store.schema_changes import OPEN, STUCK, State

_PAUSE_S = 0.1


def wait(session: Session, timeout: float, say: Say, target: ClusterTime | None = None) -> dict[Place, tuple[int, int]]:
    """Wait until all that the source acknowledged before the call is applied at the destination, or a dead letter.

    `timeout` is in seconds. With a `target`, which `passed_time` returned, it waits for what was acknowledged before
    that call instead. Raises `NotYet` with the last state when the time is over, and `TowpathError` with the reason as
    soon as a connector has failed. `say` receives a message at the start of each step. The result is the log that the
    sink has applied: partition → (first offset, end).
    """
    log = wait_applied(session, timeout, say, target)
    bounds.refuse(session, log)
    return log


def wait_applied(
    session: Session, timeout: float, say: Say, target: ClusterTime | None = None, *, before: Window = NOTHING
) -> dict[Place, tuple[int, int]]:
    """As `wait`, but what the log has lost counts as applied: `bounds.refuse` with the result still has to tell.

    `before` is what an earlier wait returned: of a partition without new records, the log is not read again, only what
    the sink has applied: a destination may have lost that.
    """
    pipeline, topics = session.pipeline, session.topics
    waiting = _waiting(session, timeout, say)
    target = target or passed_time(session.source)
    requests_end = reread_requests.end(pipeline, topics) if pipeline.has_own_source else 0
    _wait_captured(pipeline, waiting, target, say)
    if requests_end:
        say("waiting until all requested documents are re-read")
        _wait_answered(pipeline, topics, waiting, requests_end)
    ends = committed_ends(topics, change_topics(pipeline, topics.all()), waiting.until, before)
    say(f"waiting until the sink has applied {len(ends)} partitions up to their present ends")
    _wait_applied(session, waiting, ends)
    return ends


def wait_captured(session: Session, timeout: float, say: Say) -> None:
    """Return once all that the source acknowledged before the call is in the log, whatever the sink does.

    `timeout` and errors as for `wait`.
    """
    _wait_captured(session.pipeline, _waiting(session, timeout, say), passed_time(session.source), say)


def wait_drained(session: Session, timeout: float, say: Say) -> dict[Place, tuple[int, int]]:
    """Return once the sink has applied all that is in the log, to which nothing is written any more.

    The source need not answer. `timeout`, errors and result as for `wait`.
    """
    pipeline, topics = session.pipeline, session.topics
    waiting = _waiting(session, timeout, say, [pipeline.sink_connector])
    ends = committed_ends(topics, change_topics(pipeline, topics.all()), waiting.until)
    say(f"waiting until the sink has applied {len(ends)} partitions up to their ends")
    _wait_applied(session, waiting, ends)
    bounds.refuse(session, ends)
    return ends


def _waiting(session: Session, timeout: float, say: Say, connectors: Collection[str] = ()) -> Wait:
    names, late = connectors or session.pipeline.connectors, "not caught up in time"
    return Wait(session.connect, names, timeout, late, pause=_PAUSE_S, failed_for=0, say=say)


def _wait_captured(pipeline: Pipeline, waiting: Wait, target: ClusterTime, say: Say) -> None:
    say(f"waiting until capture has passed {target}, the source's time now")

    def captured() -> None:
        if reason := _uncaptured(pipeline, waiting.connect, target):
            raise NotYet(reason)

    waiting.until(captured)


def _uncaptured(pipeline: Pipeline, connect: Connect, target: ClusterTime) -> str:
    """Why the first lagging source connector has not passed `target`; empty when all have."""
    for name in pipeline.source_connectors:
        config = (connect.config(name) or {}) if pipeline.has_own_source else {}
        if reason := uncaptured(name, read_state(connect, name), target, config.get(SELECTION)):
            return reason
    return ""


def uncaptured(name: str, state: SourceState, target: ClusterTime, selection: str | None) -> str:
    """Why a source connector has not captured everything up to the cluster time `target`; empty when it has.

    `selection` is the setting that MongoSource must have applied; None for Debezium's own connector.
    """
    position = state.position
    if state.is_initial:
        return f"{name} is still making the initial copy{_first_of(state.copying)}"
    if position is None:
        return f"{name} has not captured anything yet"
    if position.snapshot_running:
        return f"{name} is still making the initial copy"
    if selection is not None and state.selection != selection:
        return f"{name} has not applied the present [collections] yet"
    if state.copying:
        return f"{name} is still copying collections new to the pipeline{_first_of(state.copying)}"
    for refill in state.schema.refills if state.schema and state.schema.is_on else ():
        if refill.end is None:
            return f"{name} is still reading {refill.namespace}, which was renamed or replaced at {refill.start}"
    if state.changed:
        namespace, documents = next(iter(state.changed.items()))
        return f"{name} has still to read {counted(documents, 'changed document')} of {namespace}"
    # up to then, a document that changed while it was copied in natural order may be missing
    latest = max(target, state.copied or target)
    if not position.has_passed(latest):
        return f"{name} has captured up to {position.time}, and must pass {latest}"
    return ""


def _first_of(copying: Sequence[CollectionCopy]) -> str:
    if not copying:
        return ""
    first = copying[0]
    more = f"; {len(copying)} collections in all" if len(copying) > 1 else ""
    return f" ({first.namespace}: {first.rows:,} of about {first.documents:,}{more})"


def _wait_answered(pipeline: Pipeline, topics: Topics, waiting: Wait, requests_end: int) -> None:
    def answered() -> None:
        for name in pipeline.source_connectors:
            requests = read_state(waiting.connect, name).requests
            answered_end = requests.next if requests else 0
            if reread_requests.waiting(pipeline, topics, name, answered_end, requests_end) is not None:
                why = f" ({requests.waiting})" if requests and requests.waiting else ""
                raise NotYet(f"{name} has answered re-read requests up to {answered_end} of {requests_end}{why}")

    waiting.until(answered)


def _wait_applied(session: Session, waiting: Wait, ends: Window) -> None:
    pipeline, topics = session.pipeline, session.topics
    peeked_at: dict[Place, int] = {}
    remaining, is_checked = dict(ends), False
    with applied(session) as done:

        def all_applied() -> None:
            nonlocal is_checked
            unapplied = gaps(remaining, done())
            moved = {place: gap for place, gap in unapplied.items() if peeked_at.get(place) != gap[0]}
            for place, contents in peek(topics, moved, limit=0).items():
                peeked_at[place] = unapplied[place][0]
                if not contents.records:  # control records only
                    del remaining[place], unapplied[place]
            if unapplied and not is_checked:
                bounds.refuse(session)  # what the log has lost never comes
                is_checked = True
            for (topic, partition), (start, end) in unapplied.items():
                first = f"{pipeline.sink_connector} has applied {topic}, partition {partition}, up to {start} of {end}"
                held_up = holdup(session.destination, pipeline, {topic for topic, _ in unapplied})
                raise NotYet(f"{first} ({len(unapplied)} partitions are behind){held_up and f'; {held_up}'}")

        waiting.until(all_applied)


def holdup(
    destination: Cluster,
    pipeline: Pipeline,
    topics: Collection[str],
    states: Sequence[State] = OPEN,
    command: str = "towpath ddl",
) -> str:
    """Which schema change, in one of these states, the records of one of these topics wait for; empty if none.

    `destination` is that of the pipeline, or of a replay of it; `command` shows the schema change.
    """
    if not pipeline.exactly_once:
        return ""
    with destination.connected(answer=ANSWER_S) as client:
        for change in schema_changes.open_changes(client, pipeline):
            if change.state in states and not change.topics.keys().isdisjoint(topics):
                why = f" ({change.reason})" if change.reason else ""
                what = f"{change.kind} of {change.namespace}"
                return f"the schema change {what} is {change.state}{why}: `{command}` shows it"
    return ""


_LATE = 10.0  # seconds behind after which a message reports it
_LASTS = 30.0  # seconds for which a failure must last before a comparison ends: tasks may be starting
_TRIED = 600.0  # seconds after which what could not be read is not waited for any more
_HALTED = ("PAUSED", "STOPPED", "MISSING")
_KEPT = 1_000  # points in time whose ends of the log are kept


@dataclass(slots=True)
class Passing:
    """The barrier of `towpath wait` without waiting: `passed(target)` checks once.

    What is not passed while a connector has failed, is paused or stopped, is reported with its name and the reason.
    """

    session: Session
    done: Callable[[], dict[Place, int]]
    ends: bool = False
    """Raise a failure that lasts, and has a code: no restart cures it. Others may be cured by one."""
    silent: bool = False
    _ends: dict[ClusterTime, dict[Place, tuple[int, int]]] = field(default_factory=dict)
    _written: dict[ClusterTime, dict[Place, int]] = field(default_factory=dict)
    """Ends that include open transactions."""
    _reported: bool = False
    _waits: bool = False
    """Whether records wait whose reason is reported."""
    _unread: dict[str, float] = field(default_factory=dict)
    """What could not be read when that was tried last, and when that was."""
    _behind_since: float | None = None
    _failed_since: float | None = None

    def __call__(self, target: Timestamp) -> bool:
        try:
            has_passed = self._passed(target)
            failed = None if has_passed else self._failed()
        except (TowpathError, PyMongoError) as error:  # it may succeed when the next document is due
            self._report_unread("progress", error)
            return False
        self._report_read("progress")
        if failed and self.ends and failed.code and time.monotonic() - (self._failed_since or 0.0) > _LASTS:
            raise TowpathError(
                failed.what, "it proves nothing before that is fixed", where=failed.where, code=failed.code
            )
        return has_passed

    def applied(self) -> dict[Place, int]:
        """Up to where the sink has applied each partition; none, which is reported, while that cannot be read."""
        try:
            done = self.done()
        except (TowpathError, PyMongoError) as error:
            self._report_unread("position", error)
            return {}
        self._report_read("position")
        return done

    def report_waiting(self, topics: Collection[str]) -> None:
        """Report once why records of these topics are not applied, if that is known; none: they are applied again."""
        if not topics:
            self._report_read("reason")
            if self._waits:
                self.session.say("the pipeline applies all records again")
                self._waits = self._reported = False
            return
        try:
            if not self._is_silent and not self._failed():
                self._report_holdup(topics)
        except (TowpathError, PyMongoError) as error:
            self._report_unread("reason", error)
        else:
            self._report_read("reason")
            self._waits = self._reported

    def _failed(self) -> TowpathError | None:
        """The failure of connectors; reported when it is first seen, as is a connector that is paused or stopped."""
        if self._is_silent and not self.ends:
            return None
        connectors = statuses(self.session.connect, self.session.pipeline.connectors)
        failed = failure(connectors)
        self._failed_since = (self._failed_since or time.monotonic()) if failed else None
        halted = [f"{each.name} is {each.state}" for each in connectors if each.state in _HALTED]
        if reason := failed or "; ".join(halted):
            self._report(f"differences wait for the pipeline: {reason}")
        return failed

    def _passed(self, target: Timestamp) -> bool:
        at = ClusterTime(target.time, target.inc)
        ends = self._ends.get(at)
        if ends is None:
            if not self._captured(at):
                return False
            for kept in (self._ends, self._written):
                while len(kept) >= _KEPT:
                    del kept[next(iter(kept))]
            pipeline, topics = self.session.pipeline, self.session.topics
            if at not in self._written:
                self._written[at] = pipeline_written(pipeline, topics)
            ends = pipeline_ends(pipeline, topics)
            if unread(self._written[at], ends):
                return False
            self._ends[at] = ends
        unapplied = gaps(ends, self.done())
        contents = peek(self.session.topics, unapplied, limit=0)
        behind = {topic for (topic, _), gap in contents.items() if gap.records}  # else control records only
        if behind and not self._is_silent:
            self._report_holdup(behind)
        return not behind

    def _report_holdup(self, topics: Collection[str]) -> None:
        if reason := holdup(self.session.destination, self.session.pipeline, topics, STUCK):
            self._report(f"differences wait for the pipeline: {reason}")

    def _captured(self, target: ClusterTime) -> bool:
        """Whether capture has passed `target`. Reports once when it has lagged for `_LATE` seconds."""
        reason = _uncaptured(self.session.pipeline, self.session.connect, target)
        self._behind_since = (self._behind_since or time.monotonic()) if reason else None
        if self._behind_since and time.monotonic() - self._behind_since > _LATE:
            self._report(f"differences wait for the pipeline: {reason}")
        return not reason

    def _report_unread(self, what: str, error: Exception) -> None:
        if not self._unread and not self.silent:
            self.session.say(f"cannot read the pipeline's position: {error}; differences wait for it")
        self._unread[what] = time.monotonic()

    def _report_read(self, what: str) -> None:
        if not self._unread:
            return
        since = time.monotonic() - _TRIED
        self._unread = {other: at for other, at in self._unread.items() if other != what and at > since}
        if not self._unread and not self.silent:
            self.session.say("the pipeline's position can be read again")

    @property
    def _is_silent(self) -> bool:
        return self.silent or self._reported

    def _report(self, words: str) -> None:
        if not self._is_silent:
            self.session.say(words)
        self._reported = True


def refuse_other_source(session: Session) -> None:
    """Raise `Refused` unless the source is the one that the deployed connector captures.

    Of another one, what the pipeline has passed proves nothing.
    """
    config = session.connect.config(session.pipeline.source_connector) or {}
    if captured := config.get(SOURCE_SET):
        with session.source.connected() as client:
            source = source_set(client)
        if words := other_source(ReplicaSet.parse(captured), source):
            raise Refused(words, SOURCE_BACK)


@contextlib.contextmanager
def passing(session: Session, *, silent: bool = False, ends: bool = False) -> Iterator[Passing]:
    """The barrier of a deployed pipeline. Raises `TowpathError` when the sink's position cannot be read."""
    with applied(session) as done:
        yield Passing(session, done, ends, silent)


@contextlib.contextmanager
def asking(session: Session, *, ends: bool = False) -> Iterator[Passing | None]:
    """As `passing`; None for a pipeline that is not deployed."""
    try:
        session.require_deployed()
    except NoSuchConnector:
        session.say(f"{session.pipeline.name} is not deployed: a difference is reported after all tries")
        yield None
        return
    except TowpathError as error:
        raise TowpathError(
            f"{error}; the verifier needs the pipeline's position; to rely on repeated comparisons alone, pass --alone"
        ) from error
    refuse_other_source(session)
    with passing(session, ends=ends) as passed:
        yield passed
