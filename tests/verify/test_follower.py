"""`verify --follow` over a log in memory and a sink that lags, loses records, or stops."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.checks import test_check_judgements
from tests.support.memory_topics import MemoryTopics
from tests.support.sessions import FakeCluster, session_of
from tests.verifier.test_rereads import IDS, PAIR, Patched, Server, document
from towpath.errors import KafkaUnreachable, NotYet, TowpathError
from towpath.log import changed_keys
from towpath.log import lag as lags
from towpath.log.barrier import Passing
from towpath.log.changed_keys import LogFollower
from towpath.log.lag import pipeline_ends
from towpath.session import Session
from towpath.store.verdict_file import FollowState
from towpath.verify import follower, run
from towpath_verifier import Options, Recheck, Rereads

PIPELINE = test_check_judgements.PIPELINE.changed(collections={"include": [PAIR.source, "v.other"]})
TOPIC = f"{PIPELINE.name}.v.c"
PLACE = (TOPIC, 0)


class World:
    """A source, its log, and a destination. A write is one transaction; its end has an offset as well."""

    def __init__(self) -> None:
        self.source, self.destination, self.topics = Server(), Server(), MemoryTopics(**{TOPIC: 1})
        self.applied, self.passed = dict[tuple[str, int], int](), 0
        self.found = list[Any]()
        self.log = LogFollower(PIPELINE, self.topics, {}, lambda: self.applied)
        recheck = Recheck(first=0, tries=2, patience=1e9)
        rereads = Rereads(self.source, self.destination, recheck, lambda time: self.passed >= time.time)  # type: ignore[arg-type]
        state = FollowState("id", "everything", False, True, None, 0.0, {}, ())
        self.it = follower._Follower(session_of(PIPELINE), self.log, rereads, self.found.append, state)

    def write(self, value: int | None, number: int = 1) -> None:
        state = document(number, value)
        self.source.now[number] = state
        self.source.log.append((number, state))
        self.topics.write(TOPIC, (IDS[number], state, len(self.source.log)))

    def apply(self, *values: int | None) -> None:
        """Give the destination's document 1 these values, one after another; the sink has passed the whole log."""
        for value in values:
            self.destination.now[1] = document(1, value)
        self.applied[PLACE] = self.topics.stored[PLACE].end - 1
        self.passed = len(self.source.log)

    @property
    def behind(self) -> int | None:
        return self.it.verdict(following=True).behind_records

    @property
    def kinds(self) -> list[str]:
        return [one.kind for one in self.found]


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    patched = Patched()
    monkeypatch.setattr(follower, "pair_of", lambda pipeline, namespace: PAIR)
    monkeypatch.setattr(follower, "_GATHER_S", 0.01)
    monkeypatch.setattr(follower._Follower, "_save", lambda self, *, following: None)
    monkeypatch.setattr(changed_keys, "_REFRESH", 0)
    yield World()
    patched.undo()


def turns(world: World, count: int = 4) -> None:
    for _ in range(count):
        world.it.turn()


@pytest.mark.parametrize(("last", "kinds"), [(6, []), (5, ["different"]), (None, ["missing"])])
def test_the_last_change_of_a_document_that_waits_is_compared(world: World, last: int | None, kinds: list[str]) -> None:
    it, namespace = world.it, PAIR.source
    world.write(5)
    it._compare(namespace, [IDS[1]])
    world.write(6)
    it._compare(namespace, [IDS[1]])
    world.apply(last)
    while it.waiting:
        for _, outcome in it.rereads.step():
            it._resolved(outcome)
    assert (world.kinds, it.again) == (kinds, set())


def test_a_document_that_was_equal_when_its_last_change_was_compared_does_not_wait_again(world: World) -> None:
    it, namespace = world.it, PAIR.source
    for value in (5, 6):
        world.write(value)
        it._compare(namespace, [IDS[1]])
    assert it.again
    world.destination.now[1] = document(1, 6)
    it._compare(namespace, [IDS[1]])
    ((_, outcome),) = it.rereads.step()
    it._resolved(outcome)
    assert not it.waiting and not it.again


@pytest.mark.parametrize(
    ("written", "applied", "kinds"),
    [
        ((1, None), (1,), ["extra"]),
        ((1, None), (1, None), []),
        ((1, 2, 1), (1, 2), ["different"]),
        ((1, 2, 1), (1, 2, 1), []),
    ],
)
def test_what_is_equal_only_because_the_sink_lags_is_compared_once_it_is_applied(
    world: World, written: list[int | None], applied: list[int | None], kinds: list[str]
) -> None:
    for value in written:
        world.write(value)
    world.destination.now[1] = document(1, written[-1])  # as before
    turns(world)
    assert (world.it.compared, world.behind, world.log.places) == (0, 2 * len(written), {PLACE: 0})
    world.apply(*applied)
    turns(world)
    assert (world.kinds, world.behind) == (kinds, 0)
    assert world.log.places == world.it.state.places == {PLACE: 2 * len(written)}


def test_each_record_is_compared_as_soon_as_it_is_applied(world: World) -> None:
    world.write(0, 0)
    world.write(1)
    world.write(2, 2)
    world.destination.now |= {number: document(number, number) for number in range(3)}
    world.applied[PLACE] = 3  # the second record, and not the third
    turns(world, 1)
    assert (world.it.compared, world.log.places) == (2, {PLACE: 4})


def test_while_the_sink_lags_only_so_many_records_are_read(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follower, "_BATCH", 3)
    slept = list[float]()
    monkeypatch.setattr(changed_keys.time, "sleep", slept.append)
    for value in range(9):
        world.write(value)
    monkeypatch.setattr(changed_keys, "batch", lambda consumer, seconds: consumer.consume(1, seconds))
    turns(world)
    assert (world.log.records, world.behind) == (3, 18)
    assert len(slept) == 3 and max(slept) > 0, "it does not ask again and again"
    world.apply(8)
    turns(world)
    assert (world.log.records, world.behind) == (9, 0)


def test_without_a_pipeline_to_ask_all_that_is_read_is_compared(world: World) -> None:
    with LogFollower(PIPELINE, world.topics, {}) as log:
        world.write(5)
        assert [one.key for one in log.take(0.01, 10)] == [IDS[1]]
        assert log.places == {PLACE: 2}


@pytest.mark.parametrize(("alone", "start"), [(False, 3), (True, 6)])
def test_it_begins_with_what_the_full_pass_could_not_see(
    world: World, monkeypatch: pytest.MonkeyPatch, alone: bool, start: int
) -> None:
    for value in (5, 6, 7):
        world.write(value)
    world.topics.positions = {PLACE: 3}
    monkeypatch.setattr(run.VerdictContext, "read", lambda *_, **more: SimpleNamespace(origin=None))
    monkeypatch.setattr(run.verdict_file, "read_followed", lambda name: None)
    session = session_of(PIPELINE, topics=world.topics)
    log = pipeline_ends(session.pipeline, session.topics)
    assert run.follow_start(session, run.VerifyRequest(alone), Options(), log).places == {PLACE: start}


def test_what_the_newest_records_changed_is_compared_once_it_is_applied(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited = list[float]()

    def wait(session: Session, patience: float, say: object) -> Any:
        waited.append(patience)
        ends = pipeline_ends(PIPELINE, world.topics)
        world.write(2, 2)
        if patience < 1:
            raise NotYet("not caught up in time")
        return ends

    monkeypatch.setattr(run, "wait_drained", wait)
    session, request = session_of(PIPELINE, topics=world.topics), run.VerifyRequest(False, last=10)
    world.write(1)
    found = run._recent(session, request, Options(recheck=Recheck(patience=9)))
    assert [one.key for one in found] == [IDS[1]], "what came in the meantime may not be applied"
    with pytest.raises(TowpathError, match="there is no verdict: not caught up in time"):
        run._recent(session, request, Options(recheck=Recheck(patience=0)))
    assert waited == [9, 0]
    assert [one.key for one in run._recent(session, request, None)] == [IDS[2], IDS[1]], "nothing to wait for"


@pytest.mark.parametrize(("position", "lag"), [(0, 900.0), (3, 100.0), (6, 0.0), (5, 0.0)])
def test_the_lag_is_that_of_the_oldest_record_that_is_not_applied(
    world: World, monkeypatch: pytest.MonkeyPatch, position: int, lag: float
) -> None:
    for second in (100, 800, 900):
        world.topics.write(TOPIC, (IDS[1], None, second))
    world.topics.positions = {PLACE: position}
    monkeypatch.setattr(lags.measure, "__defaults__", (lambda: 1_000.0,))
    assert run._lag(session_of(PIPELINE, topics=world.topics)) == lag


def fail_kafka(world: World) -> None:
    world.topics.failure = KafkaUnreachable("no broker answers")


@pytest.mark.parametrize(
    ("last", "behind"),
    [
        (lambda world: world.write(5), 2),
        (lambda world: (world.write(5), world.apply(5)), 0),
        (fail_kafka, None),
        (lambda world: None, 0),
    ],
    ids=["not applied", "applied", "without Kafka", "quiet"],
)
def test_at_its_end_it_tells_what_it_has_not_compared(
    world: World, last: Callable[[World], object], behind: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns(world)
    monkeypatch.setattr(changed_keys, "_REFRESH", 60)
    last(world)
    world.it.finish()
    end = world.it.verdict(following=False)
    assert (end.behind_records, end.compared) == (behind, int(behind == 0 and len(world.source.log)))
    assert ("unknown how far behind" in end.description) is (behind is None)


def interrupt() -> bool:
    raise KeyboardInterrupt


@pytest.mark.parametrize(("last", "behind"), [(lambda: True, 2), (interrupt, None)], ids=["asked", "interrupted"])
def test_one_that_is_asked_to_end_compares_what_is_applied(
    world: World, tmp_path: Path, last: Callable[[], bool], behind: int | None
) -> None:
    """Of one that is interrupted it is not known what it has read and not compared."""
    (tmp_path / "known").write_text('{"clean": true}\n')
    sides = {"source": FakeCluster(world.source), "destination": FakeCluster(world.destination)}
    session = session_of(PIPELINE, topics=world.topics, **sides)
    barrier, state = Passing(session, lambda: world.applied), world.it.state
    turns = [False, True]

    def is_over() -> bool:
        if is_last := turns.pop(0):
            world.write(5)
            world.apply(5)
            world.write(6)
        return is_last and last()

    end = follower.follow(session, state, tmp_path / "known", barrier, print, (), Options(), is_over)
    assert (end.behind_records, end.compared) == (behind, int(behind is not None))


OTHER = f"{PIPELINE.name}.v.other"


def fill(world: World, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Nine records that are not applied, and room for four; returns the time."""
    now = [changed_keys.time.monotonic()]
    clock = SimpleNamespace(monotonic=lambda: now[0], sleep=lambda seconds: None, time=changed_keys.time.time)
    monkeypatch.setattr(changed_keys, "time", clock)
    monkeypatch.setattr(follower, "_BATCH", 4)

    def read(consumer: Any, seconds: float) -> Any:
        if not (found := consumer.consume(1, seconds)):
            now[0] += seconds
        return found

    monkeypatch.setattr(changed_keys, "batch", read)
    for value in range(9):
        world.write(value)
    turns(world)
    assert world.log.records == 4
    return now


def test_a_partition_that_is_not_applied_does_not_keep_others_from_being_compared(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, waits = fill(world, monkeypatch), list[set[str]]()
    world.it.report_waiting = lambda topics: waits.append(set(topics))
    turns(world, 1)
    world.topics.make(OTHER)
    for _ in range(5):
        world.topics.write(OTHER, (IDS[0], None, 1))
    world.applied[OTHER, 0] = 10
    turns(world, 1)
    assert (world.it.compared, waits) == (0, [set(), set()])
    now[0] += 11
    turns(world)
    assert world.it.compared > 0 and waits[-1] == {TOPIC}
    assert world.log.places == {PLACE: 0, (OTHER, 0): 10} and world.behind == 18
    assert sum(map(len, world.log._waiting.values())) == 1
    world.apply(*range(9))
    turns(world, 9)
    assert (world.log.places, world.log.records, world.log.stuck) == ({PLACE: 18, (OTHER, 0): 10}, 14, set())


def test_where_all_is_stuck_only_so_many_records_are_kept(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    now = fill(world, monkeypatch)
    world.topics.make(OTHER, 7)
    for number in range(7):
        world.topics.write(OTHER, *[(IDS[0], None, 1)] * 9, partition=number)
    for _ in range(20):
        now[0] += 11
        turns(world, 1)
        assert sum(map(len, world.log._waiting.values())) <= 8


def test_what_is_not_selected_is_not_read_and_its_places_advance(world: World) -> None:
    world.topics.make(OTHER)
    with LogFollower(PIPELINE, world.topics, {}, lambda: {}, lambda name: name == "v.c") as log:
        for second in range(5):
            world.topics.write(OTHER, (IDS[1], None, second))
        world.write(5)
        assert log.take(0.01, 10) == []
        assert (log.records, log.places) == (1, {PLACE: 0, (OTHER, 0): 10})
        assert log.unread().records == 2


@pytest.mark.parametrize("came", [True, False])
def test_an_interrupt_that_kafka_s_client_makes_an_error_of_ends_it(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, came: bool
) -> None:
    (known := tmp_path / "known").write_text('{"clean": true}\n')
    source, destination = FakeCluster(world.source), FakeCluster(world.destination)
    session = session_of(PIPELINE, topics=world.topics, source=source, destination=destination)
    asked = [False, came]

    def turn(self: object) -> None:
        raise SystemError("returned NULL without setting an exception")

    monkeypatch.setattr(follower._Follower, "turn", turn)
    with nullcontext() if came else pytest.raises(SystemError):
        end = follower.follow(session, world.it.state, known, None, print, (), Options(), lambda: asked.pop(0))
        assert end.behind_records is None
