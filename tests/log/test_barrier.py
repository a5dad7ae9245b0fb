"""What the barrier of `wait` and of the verifier looks at twice, or only after something else, without a server."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from bson.timestamp import Timestamp
from click.testing import CliRunner
from pymongo.errors import AutoReconnect

from tests.checks.test_check_judgements import PIPELINE
from tests.support.member import PRIMARY, member
from tests.support.memory_topics import MemoryTopics
from tests.support.sessions import FakeCluster, session_of
from towpath.cli import wait as command
from towpath.clients.connect.rest import Connector, Task
from towpath.clients.kafka.consume import Window
from towpath.clients.kafka.topics import Place
from towpath.clients.mongo.client import Cluster, ClusterTime
from towpath.clients.mongo.replica_set import ReplicaSet
from towpath.config.pipeline import Pipeline
from towpath.errors import KafkaUnreachable, NoSuchConnector, NotYet, Refused, TopicError, TowpathError
from towpath.log import barrier, bounds
from towpath.log.bounds import Break
from towpath.log.definitions import SOURCE_SET
from towpath.log.lag import GapContents, applied, change_topics, committed_ends
from towpath.log.source_offsets import SELECTION, Requests, SourceState
from towpath.session import Say, Session, unsaid
from towpath.store.positions import Applied
from towpath.store.schema_changes import OPEN, STUCK

PLACE: Place = ("move.shop.a", 0)
GAP = Break("TWP-LOG-GAP", *PLACE, position=5, first=9, end=20, last_at=None)
#: Stand for services that are only handed on.
CONNECT: Any = SimpleNamespace(config=lambda name: None)
TOPICS: Any = SimpleNamespace(all=lambda: {}, ids=lambda names: {})
ONCE: Any = SimpleNamespace(connect=CONNECT, until=lambda check: check())
TARGET = ClusterTime(100, 1)


def session(pipeline: Pipeline = PIPELINE, say: Say = unsaid) -> Session:
    return session_of(pipeline, CONNECT, TOPICS, say=say)


class Log:
    """A log of one partition: the ends that readers of committed and of all records find, in turn; what is applied."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.patch, self.committed, self.written = patch, iter([20]), iter([20])
        self.done, self.records, self.uncaptured = 20, 0, ""
        self.asked, self.peeked, self.held_up = 0, 0, ""
        self.said: list[str] = []
        self.away: Exception | None = None
        self.connectors: list[Connector] = []
        patch.setattr(barrier, "statuses", lambda connect, names: self.connectors)
        patch.setattr(barrier, "pipeline_ends", self._ends)
        patch.setattr(barrier, "pipeline_written", self._written)
        patch.setattr(TOPICS, "ends", lambda existing: self._ends(PIPELINE, TOPICS), raising=False)
        patch.setattr(TOPICS, "written", lambda existing: self._written(PIPELINE, TOPICS), raising=False)
        patch.setattr(barrier, "applied", self._applied)
        patch.setattr(bounds, "_done", lambda of: {PLACE: Applied(self.done, 0)})
        patch.setattr(barrier, "peek", self._peek)
        patch.setattr(barrier, "_uncaptured", self._uncaptured)
        patch.setattr(barrier, "holdup", self._holdup)

    def _ends(self, pipeline: Pipeline, topics: Any) -> dict[Place, tuple[int, int]]:
        assert pipeline.name == "move" and topics is TOPICS
        self.asked += 1
        return {PLACE: (0, next(self.committed))}

    def _written(self, pipeline: Pipeline, topics: Any) -> dict[Place, int]:
        assert pipeline.name == "move" and topics is TOPICS
        self.asked += 1
        return {PLACE: next(self.written)}

    @contextmanager
    def _applied(self, of: Session) -> Iterator[Any]:
        assert of.topics is TOPICS
        yield lambda: {PLACE: self.done}

    def _peek(self, topics: Any, gaps: Window, limit: int) -> dict[Place, GapContents]:
        assert topics is TOPICS and limit == 0, "the first record is enough"
        self.peeked += len(gaps)
        return {one: GapContents(self.records) for one in gaps}

    def _uncaptured(self, pipeline: Pipeline, connect: Any, target: ClusterTime) -> str:
        assert pipeline.name == "move" and connect is CONNECT and target == TARGET
        if self.away is not None:
            raise self.away
        return self.uncaptured

    def _holdup(self, destination: Any, pipeline: Pipeline, topics: Any, states: Any = OPEN) -> str:
        assert destination.side == "destination" and pipeline.name == "move"
        assert (topics, states) in (({PLACE[0]}, OPEN), ({PLACE[0]}, STUCK))
        return self.held_up if states == STUCK or not self.held_up else f"{self.held_up}, or waits"

    def passing(self, *, ends: bool = False) -> barrier.Passing:
        return barrier.Passing(session(say=self.said.append), lambda: {PLACE: self.done}, ends)


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> Log:
    return Log(monkeypatch)


def apply(log: Log, waiting: Any = ONCE) -> None:
    log.written, log.committed = iter([20]), iter([20])
    log.patch.setattr(barrier, "_waiting", lambda *of: waiting)
    barrier.wait(session(), 5, unsaid, TARGET)


def applied_late(log: Log) -> Any:
    """A wait that finds a record unapplied at its first attempt, and everything applied at its second."""
    log.done, log.records = 19, 1

    def until(check: Any) -> Any:
        if check.__name__ == "all_applied":
            with pytest.raises(NotYet):
                check()
            log.done = 20
        return check()

    return SimpleNamespace(connect=CONNECT, until=until)


@pytest.mark.parametrize("lost", ["before", "during it", "while nothing was to wait for"])
def test_records_that_are_lost_are_not_taken_for_applied_ones(
    lost: str, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    readings = iter([(), (GAP,), (GAP,)] if lost == "during it" else [(GAP,), (GAP,)])
    monkeypatch.setattr(bounds, "_RECHECK", 0)
    monkeypatch.setattr(bounds, "suspected", lambda *args: next(readings))
    if lost == "before":
        log.done, log.records = 19, 1
    waiting = applied_late(log) if lost == "during it" else ONCE
    with pytest.raises(TowpathError, match="TWP-LOG-GAP"):
        apply(log, waiting)
    assert list(readings) == []


def test_where_all_is_applied_the_log_is_checked_once_afterwards(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each check costs a pause time for each topic."""
    checks: list[int] = []
    monkeypatch.setattr(bounds, "refuse", lambda *args: checks.append(1))
    apply(log)
    log.done = 19  # what remains is a control record
    apply(log)
    assert len(checks) == 2


def test_what_the_sink_has_applied_is_the_log_to_check(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    checks: list[Window] = []
    monkeypatch.setattr(bounds, "refuse", lambda of, window: checks.append(window))
    apply(log)
    assert checks == [{PLACE: (0, 20)}]
    log.written, log.committed = iter([20]), iter([20])
    assert barrier.wait_applied(session(), 5, unsaid, TARGET) == {PLACE: (0, 20)}
    assert len(checks) == 1, "the caller checks it"


def test_of_a_partition_without_new_records_the_log_is_not_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A topic that is new since then, or was empty and now has a record, is read. The sink's positions are compared."""
    topics, asked = MemoryTopics(**{"move.shop.a": 2, "move.shop.empty": 1, "move.requests": 1}), list[Any]()
    topics.write("move.shop.a", (b"k", b"v", 1))
    before = committed_ends(topics, change_topics(PIPELINE, topics.all()), ONCE.until)
    assert before == {("move.shop.a", 0): (0, 2), ("move.shop.a", 1): (0, 0), ("move.shop.empty", 0): (0, 0)}
    read = topics.ends

    def ends(newer: Any, *, stable: bool = True) -> Window:
        asked.extend(topic.name for topic in newer if stable)
        return read(newer, stable=stable)

    monkeypatch.setattr(topics, "ends", ends)
    monkeypatch.setattr(barrier, "_wait_captured", lambda *of: None)
    monkeypatch.setattr(barrier, "_wait_applied", lambda of, waiting, ends: asked.append(ends))
    monkeypatch.setattr(barrier, "_waiting", lambda *of: ONCE)
    waited = session_of(PIPELINE, CONNECT, topics)
    assert barrier.wait_applied(waited, 5, unsaid, TARGET, before=before) == before
    assert asked == [before]
    topics.make("move.shop.new")
    for name in ("move.shop.empty", "move.shop.new"):
        topics.write(name, (b"k", b"v", 2))
    newer = {("move.shop.empty", 0): (0, 2), ("move.shop.new", 0): (0, 2)}
    asked.clear()
    assert barrier.wait_applied(waited, 5, unsaid, TARGET, before=before) == before | newer
    assert asked == ["move.shop.empty", "move.shop.new", before | newer]
    topics.write("move.shop.a", (b"k", b"v", 3), commit=None)
    with pytest.raises(NotYet, match=r"a transaction on move\.shop\.a, partition 0, has not ended"):
        barrier.wait_applied(waited, 5, unsaid, TARGET, before=before | newer)


def test_a_gap_of_control_records_is_nothing_and_one_of_records_is_waited_for(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "suspected", lambda *args: ())
    log.done = 19
    apply(log)
    log.records = 1
    with pytest.raises(NotYet, match="up to 19 of 20"):
        apply(log)


def test_the_ends_of_the_log_are_those_after_all_that_was_written(log: Log) -> None:
    log.written, log.committed = iter([20]), iter([19, 20])
    with pytest.raises(NotYet, match="has not ended"):
        committed_ends(TOPICS, [], ONCE.until)
    log.written = iter([20])
    assert committed_ends(TOPICS, [], ONCE.until) == {PLACE: (0, 20)}


def test_a_difference_is_proven_when_capture_brokers_and_sink_have_passed_it(log: Log) -> None:
    passed, target = log.passing(), Timestamp(100, 1)
    log.uncaptured = "the source has not passed it"
    assert not passed(target) and log.asked == 0, "the ends count once capture has passed"
    log.uncaptured = ""
    log.written, log.committed = iter([20, 25]), iter([18, 20])  # five come while the first are awaited
    assert not passed(target), "records are written that no reader finds yet"
    log.done, log.records = 19, 1
    assert not passed(target), "the sink has not applied the last one"
    log.done = 20
    assert passed(target)
    assert passed(target) and log.asked == 3, "later records do not delay what was passed"


def test_each_point_in_time_has_the_ends_of_its_own(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(barrier, "_uncaptured", lambda *_: "")
    passed = log.passing()
    log.written, log.committed, log.done = iter([20, 25, 30]), iter([20, 20, 25]), 20
    assert passed(Timestamp(100, 1))
    assert not passed(Timestamp(200, 1)), "what was written for it cannot be read yet"
    log.done = 25
    assert passed(Timestamp(200, 1)) and passed(Timestamp(100, 1))


def test_nothing_is_proven_while_the_position_cannot_be_read_and_that_is_said_once(log: Log) -> None:
    passed, target = log.passing(), Timestamp(100, 1)
    log.away = TowpathError("Connect does not answer")
    assert not passed(target) and not passed(target)
    log.away = AutoReconnect("the destination is away")
    assert not passed(target)
    assert len(log.said) == 1 and "Connect does not answer" in log.said[0]
    log.away = None
    assert passed(target), "it is asked again"
    assert log.said[1:] == ["the pipeline's position can be read again"]
    log.done, log.records, log.held_up = 19, 1, "the drop of shop.a is held"
    assert not passed(target)
    assert log.said[2:] == ["differences wait for the pipeline: the drop of shop.a is held"], "what came first is over"
    log.away = TowpathError("Connect does not answer")
    passed._ends.clear()
    assert not passed(target) and len(log.said) == 4, "it is said again"


def test_where_the_sink_is_can_be_read_again_later(log: Log) -> None:
    passed, away = log.passing(), [AutoReconnect("the destination is away"), TopicError("no broker answers")]

    def done() -> dict[tuple[str, int], int]:
        if away:
            raise away.pop()
        return {PLACE: 20}

    passed.done = done
    assert [passed.applied() for _ in range(3)] == [{}, {}, {PLACE: 20}]
    assert "no broker answers" in log.said[0]
    assert log.said[1:] == ["the pipeline's position can be read again"]


def test_what_is_read_does_not_say_that_something_else_can_be_read(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(barrier, "time", SimpleNamespace(monotonic=lambda: now[0]))
    passed = log.passing()
    log.away = TowpathError("Connect does not answer")
    assert not passed(Timestamp(100, 1))
    assert passed.applied() == {PLACE: 20} and len(log.said) == 1
    now[0] += 601
    passed.applied()
    assert log.said[1:] == ["the pipeline's position can be read again"], "nothing differs any more that would ask"
    silent = barrier.Passing(session(say=log.said.append), lambda: {PLACE: 20}, silent=True)
    assert not silent(Timestamp(100, 1))
    log.away = None
    assert silent(Timestamp(100, 1)) and len(log.said) == 2


def test_why_records_wait_is_said_once_and_when_it_is_over(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    passed, waiting = log.passing(), {PLACE[0]}
    passed.report_waiting(())
    passed.report_waiting(waiting)
    assert log.said == [], "the sink is only slow"
    log.held_up = "the drop of shop.a is held"
    for _ in range(2):
        passed.report_waiting(waiting)
    assert log.said == ["differences wait for the pipeline: the drop of shop.a is held"]
    log.held_up, log.connectors = "", [sink("FAILED", "TWP-LOG-GAP")]
    for _ in range(2):
        passed.report_waiting(())
    passed.report_waiting(waiting)
    again = "the pipeline applies all records again"
    assert log.said[1:] == [again, "differences wait for the pipeline: move-sink has failed: TWP-LOG-GAP"]
    passed.report_waiting(())

    def fail(*of: object) -> str:
        raise AutoReconnect("the destination is away")

    monkeypatch.setattr(barrier, "statuses", fail)
    passed.report_waiting(waiting)
    passed.report_waiting(())
    assert "the destination is away" in log.said[-2] and "can be read again" in log.said[-1]


def test_a_schema_change_that_holds_the_sink_up_is_said_and_nothing_is_proven(log: Log) -> None:
    passed, target = log.passing(), Timestamp(100, 1)
    log.done, log.records, log.held_up = 19, 1, "the drop of shop.a is held"
    assert not passed(target) and not passed(target)
    assert log.said == ["differences wait for the pipeline: the drop of shop.a is held"]
    log.done = 20
    assert passed(target)


def test_a_capture_that_is_behind_for_long_is_said(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter([100.0, 100.0, 109.0, 200.0, 200.0, 210.0, 210.5])
    monkeypatch.setattr(barrier, "time", SimpleNamespace(monotonic=lambda: next(now)))
    passed, target = log.passing(), Timestamp(100, 1)
    log.uncaptured = "it is behind"
    assert not passed(target) and not passed(target) and log.said == []
    log.uncaptured = ""
    assert passed(target)
    log.uncaptured = "it is behind again"
    passed._ends.clear()
    assert not passed(target) and not passed(target) and log.said == [], "it has not been behind all the time"
    assert not passed(target)
    assert log.said == ["differences wait for the pipeline: it is behind again"]


def sink(state: str, trace: str = "") -> Connector:
    return Connector("move-sink", "RUNNING" if trace else state, "w", (Task(1, state, "w", trace),))


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (sink("FAILED", "TWP-LOG-GAP: the log begins at 9"), "move-sink has failed: TWP-LOG-GAP: the log begins at 9"),
        (sink("FAILED", "java.lang.Error: no memory"), "move-sink has failed: java.lang.Error: no memory"),
        (sink("PAUSED"), "move-sink is PAUSED"),
        (sink("RESTARTING"), ""),
    ],
)
@pytest.mark.parametrize("ends", [False, True])
def test_a_connector_that_has_failed_is_named_once_and_ends_what_no_restart_helps(
    found: Connector, words: str, ends: bool, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    monkeypatch.setattr(barrier, "time", SimpleNamespace(monotonic=lambda: now[0]))
    passed, target = log.passing(ends=ends), Timestamp(100, 1)
    log.done, log.records, log.connectors = 19, 1, [found]
    assert not passed(target) and not passed(target), "its tasks may be starting"
    assert log.said == ([f"differences wait for the pipeline: {words}"] if words else [])
    log.connectors = [sink("RUNNING")]
    now[0] += 40
    assert not passed(target)
    log.connectors = [found]
    assert not passed(target), "it has run in between"
    now[0] += 40
    if ends and "TWP-" in words:
        with pytest.raises(TowpathError, match=words) as raised:
            passed(target)
        assert (raised.value.where, raised.value.code) == ("move-sink", "TWP-LOG-GAP")
    else:
        assert not passed(target)
    assert len(log.said) == bool(words)
    log.done = 20
    assert passed(target), "what it has applied before it failed is proven"


def test_of_many_points_in_time_the_ends_of_the_newest_are_kept(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(barrier, "_KEPT", 2)
    monkeypatch.setattr(barrier, "_uncaptured", lambda *_: "")
    log.written, log.committed = iter([20] * 9), iter([20] * 9)
    passed = log.passing()
    for second in (1, 2, 3, 3, 2):
        assert passed(Timestamp(second, 1))
    assert log.asked == 2 * 3
    assert passed(Timestamp(1, 1)) and log.asked == 2 * 4, "those of the oldest are read again"


def test_a_gap_that_was_looked_at_is_looked_at_again_once_the_sink_has_moved(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "refuse", lambda of, *known: checks.append(of))
    checks: list[Session] = []
    log.done, log.records, log.held_up = 17, 1, "the drop of shop.a is held"

    def until(check: Any) -> None:
        for done, records, peeked in ((17, 1, 1), (17, 1, 1), (18, 1, 2), (19, 0, 3)):
            log.done, log.records = done, records
            if records:
                with pytest.raises(NotYet, match=rf"up to {done} of 20 .*; the drop of shop\.a is held, or waits"):
                    check()
            else:
                check()
            assert log.peeked == peeked

    waited = session()
    barrier._wait_applied(waited, SimpleNamespace(connect=CONNECT, until=until), {PLACE: (0, 20)})
    assert checks == [waited], "at the first look that finds records"


OWN = PIPELINE.changed(mode="exactly-once", capture={"whole_documents": ("shop.odd",)})


def test_a_position_counts_once_no_failover_can_take_it_back() -> None:
    with (
        member(PRIMARY) as destination,
        closing(Cluster(f"mongodb://{destination.address}/?directConnection=true", "destination")) as cluster,
        applied(session_of(OWN, destination=cluster)) as done,
    ):
        assert done() == {}
    (find,) = destination.commands
    assert (find["find"], find["readConcern"]) == ("offsets", {"level": "majority"})


@pytest.mark.parametrize("given", [TARGET, None])
def test_wait_is_for_capture_then_requests_then_the_sink(
    log: Log, monkeypatch: pytest.MonkeyPatch, given: ClusterTime | None
) -> None:
    asked, said = [], list[str]()
    monkeypatch.setattr(bounds, "refuse", lambda *_: None)
    monkeypatch.setattr(barrier, "passed_time", lambda source: TARGET if source.side == "source" else None)
    monkeypatch.setattr(barrier.reread_requests, "end", lambda *of: 7 if of == (OWN, TOPICS) else 0)
    monkeypatch.setattr(barrier, "_wait_answered", lambda *args: asked.append((args[:2], args[2].names, args[3])))
    barrier.wait(session(OWN, said.append), 5, said.append, given)
    assert asked == [((OWN, TOPICS), OWN.connectors, 7)]
    assert [words[:30] for words in said] == [
        "waiting until capture has pass",
        "waiting until all requested do",
        "waiting until the sink has app",
    ]
    log.written, log.committed = iter([20]), iter([20])
    barrier.wait(session(), 5, unsaid, given)
    assert len(asked) == 1, "stock Debezium answers no requests"
    log.uncaptured, log.written, log.committed = "it is behind", iter([20]), iter([20])
    log.done = 0
    waited = session(OWN)
    monkeypatch.setattr(barrier, "_waiting", lambda *of: ONCE if of == (waited, 5, unsaid) else None)
    for wait in (barrier.wait, barrier.wait_captured):
        with pytest.raises(NotYet, match="it is behind"):
            wait(waited, 5, unsaid)


def test_each_source_connector_has_to_answer_its_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    states = {
        "move-source": SourceState(None, requests=Requests(4, waiting="capture is behind")),
        "move-source-whole": SourceState(None),
    }
    open_for = dict[str, int | None]()
    asked = list[tuple[Any, ...]]()

    def waiting(pipeline: Pipeline, topics: Any, name: str, answered: int, upto: int) -> int | None:
        asked.append((pipeline, topics, name, answered, upto))
        return open_for.get(name)

    monkeypatch.setattr(barrier, "read_state", lambda connect, name: states[name] if connect is CONNECT else None)
    monkeypatch.setattr(barrier.reread_requests, "waiting", waiting)
    barrier._wait_answered(OWN, TOPICS, ONCE, 7)
    assert asked == [(OWN, TOPICS, "move-source", 4, 7), (OWN, TOPICS, "move-source-whole", 0, 7)]
    open_for["move-source"] = 5
    with pytest.raises(NotYet, match=r"move-source has answered .* up to 4 of 7 \(capture is behind\)"):
        barrier._wait_answered(OWN, TOPICS, ONCE, 7)
    open_for = {"move-source-whole": 0}
    with pytest.raises(NotYet, match=r"move-source-whole has answered .* up to 0 of 7$"):
        barrier._wait_answered(OWN, TOPICS, ONCE, 7)


@pytest.mark.parametrize("pipeline", [OWN, PIPELINE])
def test_every_source_connector_has_to_pass_the_time_with_the_selection_that_it_has(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    config: Any = {name: {SELECTION: name} for name in OWN.source_connectors}
    connect: Any = SimpleNamespace(config=lambda name: config.get(name))
    monkeypatch.setattr(barrier, "read_state", lambda of, name: (of, name))
    asked = list[Any]()

    def uncaptured(name: str, state: Any, target: ClusterTime, selection: str | None) -> str:
        assert state == (connect, name) and target == TARGET
        asked.append((name, selection))
        return behind.get(name, "")

    monkeypatch.setattr(barrier, "uncaptured", uncaptured)
    behind: dict[str, str] = {}
    assert barrier._uncaptured(pipeline, connect, TARGET) == ""
    own = [(name, name) for name in OWN.source_connectors]
    assert asked == (own if pipeline is OWN else [("move-source", None)]), "the selection is MongoSource's"
    behind = {pipeline.source_connectors[-1]: "it is behind"}
    config.clear()
    assert barrier._uncaptured(pipeline, connect, TARGET) == "it is behind"
    assert asked[-1] == (pipeline.source_connectors[-1], None)


def change(state: str, *topics: str, reason: str = "") -> Any:
    return SimpleNamespace(state=state, topics=dict.fromkeys(topics, 1), reason=reason, kind="drop", namespace="shop.a")


def test_records_wait_for_a_schema_change_of_their_topic_in_one_of_the_states(monkeypatch: pytest.MonkeyPatch) -> None:
    changes = [change("waiting", "move.shop.a"), change("held", "move.shop.b", "move.shop.c", reason="see ddl")]
    found = {("destination", OWN.name): changes}
    monkeypatch.setattr(barrier.schema_changes, "open_changes", lambda client, pipeline: found[client, pipeline.name])
    destination: Any = FakeCluster("destination")
    first = "the schema change drop of shop.a is waiting: `towpath ddl` shows it"
    second = "the schema change drop of shop.a is held (see ddl): `towpath ddl` shows it"
    for topics, states, words in (
        ({"move.shop.a"}, OPEN, first),
        ({"move.shop.c", "move.shop.z"}, OPEN, second),
        ({"move.shop.a"}, STUCK, ""),
        ({"move.shop.a", "move.shop.b"}, STUCK, second),
        ({"move.shop.z"}, OPEN, ""),
    ):
        assert barrier.holdup(destination, OWN, topics, states) == words
    assert barrier.holdup(destination, OWN, ["move.shop.a"], command="towpath replay") == first.replace(
        "towpath ddl", "towpath replay"
    )
    away: Any = FakeCluster(error=TowpathError("the plain sink stores none"))
    assert barrier.holdup(away, PIPELINE, {"move.shop.a"}) == ""


def test_only_a_pipeline_that_is_not_deployed_is_not_asked(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    asked, errors = session(say=log.said.append), list[Exception]()

    def require(of: Session) -> None:
        for error in errors:
            raise error

    monkeypatch.setattr(Session, "require_deployed", require)
    with barrier.asking(asked) as passed:
        assert passed is not None and passed(Timestamp(100, 1))
    errors.append(NoSuchConnector("there is no connector"))
    with barrier.asking(asked) as passed:
        assert passed is None
    assert log.said == ["move is not deployed: a difference is reported after all tries"]
    errors[:] = [KafkaUnreachable("no broker answers")]
    with pytest.raises(TowpathError, match=r"no broker answers; the verifier needs .*--alone"), barrier.asking(asked):
        pytest.fail("differences would be reported without the pipeline's position")


@pytest.mark.parametrize(
    ("captured", "is_same"),
    [("a/a:1,a:2", True), ("a/a:2,a:9", True), (None, True), ("b/a:1", False), ("a/b:1", False)],
)
def test_another_source_than_the_captured_one_proves_nothing(
    log: Log, monkeypatch: pytest.MonkeyPatch, captured: str | None, is_same: bool
) -> None:
    """Its time and its documents are not those of the log. A connector that was posted by hand names none."""
    config = {SOURCE_SET: captured} if captured else {}
    monkeypatch.setattr(CONNECT, "config", lambda name: config if name == "move-source" else None)
    monkeypatch.setattr(barrier, "source_set", lambda client: ReplicaSet("a", ("a:1", "a:2")))
    monkeypatch.setattr(Session, "require_deployed", lambda of: None)
    if is_same:
        with barrier.asking(session()) as passed:
            assert passed is not None
    else:
        words = rf"captures {captured}, and \[source\] uri names a/a:1,a:2: .*set \[source\] uri back;"
        with pytest.raises(Refused, match=words), barrier.asking(session()):
            pytest.fail("the documents of another source would be compared")


def test_wait_does_not_speak_of_another_source(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(of: Session) -> None:
        raise Refused("another source")

    monkeypatch.setattr(command.pipeline_file, "read", lambda file: PIPELINE)
    monkeypatch.setattr(command, "passed_time", lambda source: TARGET)
    monkeypatch.setattr(Session, "require_deployed", lambda of: None)
    monkeypatch.setattr(barrier, "refuse_other_source", refuse)
    monkeypatch.setattr(barrier, "wait", lambda *_: pytest.fail("it would be the time of another source"))
    assert str(CliRunner().invoke(command.wait, [__file__]).exception) == "another source"
