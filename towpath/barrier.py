"""`wait`: everything that was written to the source before the call is at the destination.

Not silence, but a proof in steps, without a write to the source: the source's time at the call has passed through
the log, with nothing left to copy; the answers to all re-read requests are in the log; and then every partition of
every topic is applied up to the end that it had at that time.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from bson.timestamp import Timestamp
from pymongo.errors import PyMongoError

from connectors.rest import Connect, Connector, failure
from towpath.errors import NoSuchConnector, NotYet, TowpathError
from towpath.kafka.topics import Place, Topics
from towpath.log import bounds, reread_requests
from towpath.log.lag import applied, gaps, peek, pipeline_ends
from towpath.log.source_offsets import SELECTION, CollectionCopy, SourceState, read_state
from towpath.mongo.client import connected, operation_time
from towpath.pipeline import ClusterTime, Pipeline
from towpath.session import Session

_PAUSE = 0.2  # seconds between two looks


def wait(pipeline: Pipeline, connect: Connect, topics: Topics, timeout: float, say: Callable[[str], None]) -> None:
    """Return once all that the source acknowledged before the call is at the destination.

    `timeout` is in seconds. Raises `NotYet` with the last state seen when it is over, `TowpathError` with the
    reason as soon as a connector has failed. `say` is told what is waited for, once per step.
    """
    deadline = time.monotonic() + timeout
    moment = _source_time(pipeline)
    asked = reread_requests.end(pipeline, topics, topics.all()) if pipeline.has_own_source else 0
    _wait_captured(pipeline, connect, moment, deadline, say)
    if asked:
        say("waiting until all requested documents are re-read")
        for name in pipeline.source_connectors:
            _wait_answered(pipeline, connect, topics, name, asked, deadline)
    ends = _committed_ends(pipeline, connect, topics, deadline)
    say(f"waiting until the sink has applied {len(ends)} partitions up to their present ends")
    _wait_applied(pipeline, connect, topics, ends, deadline)


def wait_captured(pipeline: Pipeline, connect: Connect, timeout: float, say: Callable[[str], None]) -> None:
    """Return once all that the source acknowledged before the call is in the log, whatever the sink does.

    `timeout` and what is raised are as with `wait`.
    """
    _wait_captured(pipeline, connect, _source_time(pipeline), time.monotonic() + timeout, say)


def _source_time(pipeline: Pipeline) -> ClusterTime:
    with connected(pipeline.source_uri, "source") as client:
        return operation_time(client)


def _wait_captured(
    pipeline: Pipeline, connect: Connect, moment: ClusterTime, deadline: float, say: Callable[[str], None]
) -> None:
    say(f"waiting until capture has passed {moment}, the source's time now")
    for name in pipeline.source_connectors:
        config = (connect.config(name) or {}) if pipeline.has_own_source else {}
        while words := uncaptured(name, read_state(connect, name), moment, config.get(SELECTION)):
            _go_on(pipeline, connect, deadline, words)


def uncaptured(name: str, state: SourceState, moment: ClusterTime, selection: str | None) -> str:
    """What a source connector has yet to capture of what was there at `moment`, in words; empty when nothing.

    `selection` is what MongoSource has to have taken up of its settings; None for Debezium's own connector.
    """
    position = state.position
    if state.phase == "copy":
        return f"{name} is still copying what was there at its start{_first_of(state.copying)}"
    if position is None:
        return f"{name} has not captured anything yet"
    if position.snapshot_running:
        return f"{name} is still copying what was there at its start"
    if selection is not None and state.selection != selection:
        return f"{name} has not taken up yet which collections belong to the pipeline now"
    if state.copying:
        return f"{name} is still copying what came into the pipeline{_first_of(state.copying)}"
    if not position.has_passed(moment):
        return f"{name} has captured up to {position.time}, and {moment} was asked for"
    return ""


def _first_of(copying: Sequence[CollectionCopy]) -> str:
    if not copying:
        return ""
    first = copying[0]
    more = f"; {len(copying)} collections in all" if len(copying) > 1 else ""
    return f" ({first.namespace}: {first.rows:,} of about {first.documents:,}{more})"


def _wait_answered(
    pipeline: Pipeline, connect: Connect, topics: Topics, name: str, asked: int, deadline: float
) -> None:
    while True:
        found = read_state(connect, name).requests
        answered = found.next if found else 0
        if reread_requests.waiting(pipeline, topics, name, answered, asked) is None:
            return
        why = f" ({found.waiting})" if found and found.waiting else ""
        words = f"{name} has answered re-read requests up to {answered} of {asked}{why}"
        _go_on(pipeline, connect, deadline, words)


def _committed_ends(
    pipeline: Pipeline, connect: Connect, topics: Topics, deadline: float
) -> dict[Place, tuple[int, int]]:
    """The ends of the log, behind all that is in it at the call.

    Brokers hear one after another that a transaction was committed: its records can be unreadable still when the
    source's position, which was committed with them, is read.
    """
    written = pipeline_ends(pipeline, topics, stable=False)
    while True:
        ends = pipeline_ends(pipeline, topics)
        left = unread(written, ends)
        if not left:
            return ends
        topic, partition = left[0]
        _go_on(pipeline, connect, deadline, f"a transaction on {topic}, partition {partition}, is not over")


def unread(written: Mapping[Place, tuple[int, int]], ends: Mapping[Place, tuple[int, int]]) -> list[Place]:
    """Partitions in which something that was written cannot be read yet."""
    return [place for place, (_, end) in written.items() if place in ends and ends[place][1] < end]


def _wait_applied(
    pipeline: Pipeline, connect: Connect, topics: Topics, ends: dict[Place, tuple[int, int]], deadline: float
) -> None:
    bounds.refuse(pipeline, topics)
    looked_at: dict[Place, int] = {}
    with applied(pipeline, topics) as done:
        while True:
            left = gaps(ends, done())
            moved = {place: gap for place, gap in left.items() if looked_at.get(place) != gap[0]}
            for place, found in peek(topics, moved, most=0).items():
                looked_at[place] = left[place][0]
                if not found.records:  # control records only
                    del ends[place], left[place]
            if not left:
                bounds.refuse(pipeline, topics)  # what is gone looks like what is applied
                return
            (topic, partition), (start, end) = next(iter(left.items()))
            words = f"{pipeline.sink_connector} has applied {topic}, partition {partition}, up to {start} of {end}"
            _go_on(pipeline, connect, deadline, f"{words} ({len(left)} partitions are behind)")


def _go_on(pipeline: Pipeline, connect: Connect, deadline: float, last_seen: str) -> None:
    """Pause before the next look, unless a connector has failed or the time is over."""
    found = [_status(connect, name) for name in pipeline.connectors]
    if failed := failure(found):
        raise failed
    if time.monotonic() > deadline:
        stopped = ", ".join(f"{c.name} is {c.state}" for c in found if c.state != "RUNNING")
        raise NotYet(f"not caught up in time: {last_seen}{'; ' + stopped if stopped else ''}")
    time.sleep(_PAUSE)


def _status(connect: Connect, name: str) -> Connector:
    try:
        return connect.status(name)
    except NoSuchConnector as error:
        raise NoSuchConnector(
            f"there is no connector {name} at {connect.url}; `towpath deploy` the pipeline"
        ) from error


_LATE = 10.0  # seconds behind after which it is told
_KEPT = 1_000  # moments of which the ends of the log are remembered


@dataclass(slots=True)
class Passing:
    """The barrier of `towpath wait` as a question: `passed(moment)` looks once and does not wait."""

    opened: Session
    done: Callable[[], dict[Place, int]]
    _ends: dict[ClusterTime, dict[Place, tuple[int, int]]] = field(default_factory=dict)
    _written: dict[ClusterTime, dict[Place, tuple[int, int]]] = field(default_factory=dict)
    """Ends with transactions that are not over; see `towpath.barrier`."""
    _told: bool = False
    _behind_since: float | None = None

    def __call__(self, moment: Timestamp) -> bool:
        try:
            return self._passed(moment)
        except (TowpathError, PyMongoError) as error:  # it may be back when the next document is due
            if not self._told:
                self.opened.say(f"cannot ask how far the pipeline is: {error}; differences wait until it answers")
            self._told = True
            return False

    def _passed(self, moment: Timestamp) -> bool:
        asked = ClusterTime(moment.time, moment.inc)
        ends = self._ends.get(asked)
        if ends is None:
            if not self._captured(asked):
                return False
            for kept in (self._ends, self._written):
                while len(kept) >= _KEPT:
                    del kept[next(iter(kept))]
            pipeline, topics = self.opened.pipeline, self.opened.topics
            written = self._written.setdefault(asked, pipeline_ends(pipeline, topics, stable=False))
            ends = pipeline_ends(pipeline, topics)
            if unread(written, ends):
                return False
            self._ends[asked] = ends
        left = gaps(ends, self.done())
        for place, found in peek(self.opened.topics, left, most=0).items():
            if not found.records:  # control records only
                del left[place]
        return not left

    def _captured(self, moment: ClusterTime) -> bool:
        pipeline, connect = self.opened.pipeline, self.opened.connect
        for name in pipeline.source_connectors:
            config = (connect.config(name) or {}) if pipeline.has_own_source else {}
            words = uncaptured(name, read_state(connect, name), moment, config.get(SELECTION))
            if words:
                self._say_late(words)
                return False
        self._behind_since = None
        return True

    def _say_late(self, words: str) -> None:
        """Tell once what capture is at, when it has been behind for a while."""
        self._behind_since = self._behind_since or time.monotonic()
        if not self._told and time.monotonic() - self._behind_since > _LATE:
            self.opened.say(f"differences wait for the pipeline: {words}")
            self._told = True


@contextlib.contextmanager
def passing(opened: Session, *, silent: bool = False) -> Iterator[Passing]:
    """The question for a deployed pipeline. Raises `TowpathError` where nobody answers."""
    with applied(opened.pipeline, opened.topics) as done:
        yield Passing(opened, done, _told=silent)


@contextlib.contextmanager
def asking(opened: Session) -> Iterator[Passing | None]:
    """As `passing`; None for a pipeline that is not deployed."""
    try:
        opened.require_deployed()
    except NoSuchConnector:
        opened.say(f"{opened.pipeline.name} is not deployed: a difference is told when it stays through all tries")
        yield None
        return
    except TowpathError as error:
        raise TowpathError(
            f"{error}; the verifier asks how far the pipeline is; to go by the tries alone, pass --alone"
        ) from error
    with passing(opened) as passed:
        yield passed
