"""When a reverse pipeline may begin, and when the sink may skip what it wrote, without servers: nothing is replicated
twice or lost, and what an earlier one left is never taken for the new one's."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.cutover_world import pipeline_of
from tests.support.memory_topics import MemoryTopics
from tests.support.pipeline import pipeline_text
from tests.support.sessions import FakeCluster, session_of
from towpath.clients.connect.rest import Connector, Task
from towpath.clients.mongo.client import ClusterTime
from towpath.cutover import reverse_pipeline
from towpath.cutover.reverse_pipeline import begin, make_ready, refuse_existing, skip_to_end, wait_begun, written_ends
from towpath.errors import NotYet, Refused
from towpath.history import rebuild
from towpath.history.plan import Plan
from towpath.log.source_offsets import SourceState
from towpath.session import Session
from towpath.store.positions import Applied

TOPIC = "shop-back.shop.orders"
RECORD = b"key", b"value", 1
BEFORE = ClusterTime(100, 1)


class Reverse:
    """The reverse pipeline, by what is there of it, and what was done."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.forward = pipeline_of(folder, "shop")
        self.pipeline = pipeline_of(
            folder, "shop-back", "destination", "source", '[capture]\nwhole_documents = ["shop.o"]'
        )
        self.topics = MemoryTopics()
        for name in (TOPIC, "shop-back.dead-letters", "__debezium-heartbeat.shop-back", "shop.shop.orders"):
            self.topics.make(name)
        self.configs: dict[str, Any] = {}
        self.statuses = {
            name: Connector(name, "STOPPED", "w", ()) for name in ("shop-sink", *self.pipeline.source_connectors)
        }
        self.offsets: dict[str, list[Any]] = {}
        self.positions: dict[Any, Applied] = {}
        self.others: tuple[str, ...] = ()
        self.starts: dict[str, ClusterTime | None] = dict.fromkeys(self.pipeline.source_connectors, BEFORE)
        self.is_asked = True
        self.done: list[Any] = []
        self.patch = patch
        patch.setattr(reverse_pipeline, "Facts", self._facts)
        patch.setattr(reverse_pipeline.positions, "positions", self._positions)
        patch.setattr(reverse_pipeline, "operation_time", lambda client: BEFORE if client == "destination" else None)
        patch.setattr(reverse_pipeline, "read_state", self._state)
        patch.setattr(reverse_pipeline, "_POLL_S", 0)

    def _facts(self, session: Session, **asked: Any) -> Any:
        assert session.pipeline is self.pipeline
        self.asked = asked
        return SimpleNamespace(own_topics=SimpleNamespace(others=self.others))

    def _state(self, connect: Any, name: str) -> SourceState:
        assert connect.status is not None and self.is_asked, "that costs the worker more than the state of tasks"
        return SourceState(None, start=self.starts[name])

    def _positions(self, client: str, pipeline: Any) -> dict[Any, Applied]:
        assert (client, pipeline) == ("source", self.pipeline)
        return self.positions

    def session(self) -> Session:
        connect = SimpleNamespace(
            config=lambda name: self.configs.get(name),
            status=lambda name: self.statuses[name],
            offsets=lambda name: self.offsets.get(name, []),
            forget_offsets=lambda name: self.done.append(("forget", name)),
            resume=lambda name: self.done.append(("resume", name)),
        )
        clusters = FakeCluster("destination"), FakeCluster("source")
        return session_of(self.pipeline, connect, self.topics, source=clusters[0], destination=clusters[1])


@pytest.fixture
def reverse(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Reverse:
    return Reverse(tmp_path, monkeypatch)


#: What an earlier reverse pipeline may have left, and a part of the refusal.
LEFT = {
    "a connector": "there is a reverse pipeline already: shop-back-source-whole",
    "records": "shop-back.shop.orders hold records of an earlier reverse pipeline",
    "a record that is not committed": "shop-back.shop.orders hold records of an earlier reverse pipeline",
    "dead letters": "shop-back.dead-letters hold records",
    "another's topic": "have names of the log of shop-back, whose source would stop there",
    "another's dead letters": r"have names of topics of shop-back; `towpath remove --topics` leaves shop-back\.dead-",
    "positions": "the sink shop-back-sink has positions of an earlier reverse pipeline",
}


def leave(reverse: Reverse, what: str) -> None:
    match what:
        case "a connector":
            reverse.configs["shop-back-source-whole"] = {"name": "shop-back-source-whole"}
        case "dead letters" | "another's dead letters":
            reverse.topics.write("shop-back.dead-letters", RECORD)
            reverse.others = ("shop-back.dead-letters",) if "another" in what else ()
        case "positions":
            reverse.positions = {(TOPIC, 0): Applied(0, 1), (TOPIC, 1): Applied(1, 1)}
        case _:
            reverse.topics.write(TOPIC, RECORD, commit=None if "not committed" in what else True)
            reverse.others = (TOPIC,) if what == "another's topic" else ()


@pytest.mark.parametrize("what", LEFT)
def test_what_an_earlier_reverse_pipeline_left_is_refused(reverse: Reverse, what: str) -> None:
    leave(reverse, what)
    with pytest.raises(Refused, match=LEFT[what]):
        refuse_existing(reverse.session())
    with pytest.raises(Refused, match=LEFT[what]):
        make_ready(reverse.session())
    assert reverse.done == []


def test_topics_that_someone_else_creates_are_theirs_to_empty(reverse: Reverse) -> None:
    """`remove --topics` leaves them, also after a fail back."""
    kafka = reverse.pipeline.kafka.model_copy(update={"topics": "exist"})
    reverse.pipeline = reverse.pipeline.model_copy(update={"kafka": kafka})
    refuse_existing(reverse.session())
    reverse.others = (TOPIC,)
    reverse.topics.write(TOPIC, RECORD)
    with pytest.raises(Refused, match=rf"^{TOPIC} hold records") as refused:
        refuse_existing(reverse.session())
    assert "create them again, as `towpath topics PIPELINE --reverse` prints them" in refused.value.advice


def test_heartbeats_records_of_others_and_positions_at_the_beginning_are_nothing_that_is_left(
    reverse: Reverse,
) -> None:
    for name in ("__debezium-heartbeat.shop-back", "shop.shop.orders"):
        reverse.topics.write(name, RECORD)
    reverse.positions = {(TOPIC, 0): Applied(0, 3)}
    refuse_existing(reverse.session())


def test_all_is_made_and_stopped_before_it_begins_and_old_positions_of_its_capture_are_forgotten(
    reverse: Reverse, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = "shop-back-source-whole"
    changes = [
        SimpleNamespace(description=name, apply=lambda name=name: reverse.done.append(("create", name)))
        for name in "ab"
    ]
    monkeypatch.setattr(reverse_pipeline.deployment, "plan", lambda facts: changes)
    for name in ("wait_stopped", "wait_running"):
        monkeypatch.setattr(reverse_pipeline, name, lambda _, *of, name=name: reverse.done.append((name, *of)))
    reverse.offsets[whole] = [{"partition": {}, "offset": {}}]
    make_ready(reverse.session(), 7)
    assert reverse.asked == {"allow_missing": True, "create_stopped": reverse.pipeline.source_connectors}
    assert reverse.done == [
        ("create", "a"),
        ("create", "b"),
        ("wait_stopped", "shop-back-source"),
        ("wait_stopped", whole),
        ("forget", whole),
        ("wait_running", ["shop-back-sink"], 7),
    ]


def test_capture_begins_after_a_time_that_is_read_while_both_are_stopped(reverse: Reverse) -> None:
    assert begin(reverse.session(), reverse.forward) == BEFORE
    assert reverse.done == [("resume", name) for name in reverse.pipeline.source_connectors]


@pytest.mark.parametrize("name", ["shop-sink", "shop-back-source", "shop-back-source-whole"])
@pytest.mark.parametrize("state", ["RUNNING", "a task"])
def test_nothing_begins_while_a_sink_or_a_capture_may_run(reverse: Reverse, name: str, state: str) -> None:
    tasks = (Task(0, "RUNNING", "w"),) if state == "a task" else ()
    reverse.statuses[name] = Connector(name, "STOPPED" if tasks else state, "w", tasks)
    with pytest.raises(Refused, match=f"{name} is .* not STOPPED"):
        begin(reverse.session(), reverse.forward)
    assert reverse.done == []


@pytest.mark.parametrize(
    ("section", "wanted"),
    [
        ("", None),
        ("[ddl]", {"drop": "hold"}),
        ('[ddl]\ndrop = "apply"', {"drop": "apply"}),
        ("[ddl]\napply = false", None),
    ],
)
def test_schema_changes_come_back_in_the_way_in_which_they_went(
    tmp_path: Path, section: str, wanted: dict[str, str] | None
) -> None:
    file = tmp_path / "shop.toml"
    file.write_text(
        pipeline_text("mongodb://a/?replicaSet=rs0", "mongodb://b/?replicaSet=rs0", more=section), encoding="utf-8"
    )
    assert tomllib.loads(reverse_pipeline.reverse_file_text(file)).get("ddl") == wanted


def waited(reverse: Reverse, monkeypatch: pytest.MonkeyPatch) -> ClusterTime:
    class Once:
        def __init__(self, connect: Any, names: Any, timeout: float, late: str, **how: Any) -> None:
            assert connect.status is not None and late
            assert (list(names), timeout) == (list(reverse.pipeline.source_connectors), 7)
            assert how == {"pause": 0, "failed_for": 0}, "writes wait during this"

        def until(self, condition: Any) -> Any:
            return condition()

    monkeypatch.setattr(reverse_pipeline, "Wait", Once)
    return wait_begun(reverse.session(), BEFORE, 7)


def test_what_is_written_once_every_capture_has_begun_is_replicated(
    reverse: Reverse, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, whole = reverse.pipeline.source_connectors
    reverse.starts = {one: ClusterTime(100, 3), whole: ClusterTime(100, 2)}
    tasks = Task(0, "RUNNING", "w"), Task(1, "UNASSIGNED", "w")
    reverse.statuses |= {one: Connector(one, "RUNNING", "w", tasks[:1]), whole: Connector(whole, "RUNNING", "w", tasks)}
    reverse.is_asked = False
    with pytest.raises(NotYet, match=f"^{whole} is not running"):
        waited(reverse, monkeypatch)
    reverse.statuses[whole] = Connector(whole, "RUNNING", "w", tasks[:1])
    reverse.is_asked = True
    assert waited(reverse, monkeypatch) == ClusterTime(100, 3), "before that, one did not capture"
    reverse.starts[whole] = None
    with pytest.raises(NotYet, match=f"^{whole} has not committed anything"):
        waited(reverse, monkeypatch)
    reverse.starts[whole] = ClusterTime(100, 0)
    with pytest.raises(Refused, match="continues from its old position"):
        waited(reverse, monkeypatch)


def test_the_ends_are_those_of_all_that_is_written_once_its_transactions_have_ended(
    reverse: Reverse, monkeypatch: pytest.MonkeyPatch
) -> None:
    topics = reverse.topics
    session = session_of(reverse.forward, None, topics)
    topics.write("shop.shop.orders", RECORD)
    assert written_ends(session, 0) == {("shop.shop.orders", 0): 2}, "none is open"
    topics.write("shop.shop.orders", RECORD, commit=None)
    looks: list[int] = []

    def end(_: float) -> None:
        looks.append(1)
        if len(looks) == 2:
            topics.stored["shop.shop.orders", 0].stable = None
            topics.write("shop.shop.orders", RECORD)  # what comes later is not skipped

    clock: Iterator[float] = iter(range(100))
    monkeypatch.setattr(reverse_pipeline, "time", SimpleNamespace(monotonic=lambda: next(clock), sleep=end))
    assert written_ends(session, 50) == {("shop.shop.orders", 0): 3}
    assert len(looks) == 2
    topics.write("shop.shop.orders", RECORD, commit=None)
    looks.extend([1, 1])
    with pytest.raises(NotYet, match=r"shop\.shop\.orders, partition 0: a transaction has not ended"):
        written_ends(session, 5)


#: Of three records in one transaction, whose end has the last offset.
REBUILD = Plan(only=(), forced=False, began=1.0, letters=0, log={("shop.shop.orders", 0): (0, 4)})


@pytest.mark.parametrize(
    ("state", "phase", "left", "refused"),
    [
        ("STOPPED", None, 0, ""),
        ("RUNNING", None, 0, "not STOPPED"),
        ("STOPPED", "emptying", 0, "is being rebuilt"),
        ("STOPPED", "applying", 1, "is being rebuilt"),
        ("STOPPED", "applying", 0, ""),  # it was killed before its end, and nothing else can end it after the cutover
    ],
)
def test_only_a_sink_that_is_stopped_and_not_rebuilding_skips_what_its_destination_has(
    reverse: Reverse, state: str, phase: Any, left: int, refused: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    skipped: list[Any] = []
    ends = {(TOPIC, 0): 5, (TOPIC, 1): 7}
    status = Connector("shop-sink", state, "w", ())
    connect = SimpleNamespace(status=lambda name: {"shop-sink": status}[name])
    session = session_of(reverse.forward, connect, reverse.topics)
    reverse.topics.write("shop.shop.orders", RECORD, RECORD, RECORD)
    there = "destination", session.pipeline
    plan = phase and replace(REBUILD, phase=phase)
    monkeypatch.setattr(reverse_pipeline.positions, "skip_to", lambda *args: skipped.append(args))
    monkeypatch.setattr(rebuild, "running", lambda *of: plan if of == there else None)
    applied = {("shop.shop.orders", 0): Applied(3 - left, 1)}
    monkeypatch.setattr(rebuild.positions, "positions", lambda *of: applied)
    if refused:
        with pytest.raises(Refused, match=refused):
            skip_to_end(session, ends)
        assert skipped == []
    else:
        assert skip_to_end(session, ends) == 2
        ((*where, to, at),) = skipped
        assert (where, to) == ([*there], ends)
        assert isinstance(at, datetime) and abs((datetime.now(UTC) - at).total_seconds()) < 60
