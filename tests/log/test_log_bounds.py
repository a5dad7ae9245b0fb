"""Which positions are not in their log, as Python judges; `LogBoundsTest` has the same cases for the sink."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import Uuid
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tests.checks.test_check_judgements import PIPELINE
from tests.support.memory_topics import MemoryTopics
from tests.support.sessions import session_of
from towpath.clients.kafka.topics import Place, Topic, topic_id
from towpath.errors import Refused, TowpathError
from towpath.history.plan import chosen
from towpath.log import bounds
from towpath.log.bounds import Break, LogState, describe, is_overgrown, judge
from towpath.session import Session
from towpath.store.positions import Applied

PLACE = ("shop.shop.orders", 3)
KEY = b"key"


def code(applied: Applied, log: tuple[int, int], topic: str = "id", *, transactional: bool = True) -> str:
    found = judge({PLACE: applied}, {PLACE: log}, {PLACE[0]: topic}, transactional=transactional)
    return found[0].code if found else ""


@pytest.mark.parametrize(
    ("offset", "clear", "log", "found"),
    [
        (10, 0, (0, 20), ""),
        (10, 0, (10, 10), ""),
        (0, 0, (0, 0), ""),
        (10, 0, (11, 20), "TWP-LOG-GAP"),
        (10, 0, (12, 12), "TWP-LOG-GAP"),
        (0, 0, (5, 20), "TWP-LOG-GAP"),
        (10, 15, (16, 20), "TWP-LOG-GAP"),
        (10, 15, (15, 30), ""),
        (10, 0, (11, 11), ""),
        (10, 0, (0, 9), "TWP-LOG-END"),
    ],
)
def test_positions_below_the_start_or_beyond_the_end_are_told(
    offset: int, clear: int, log: tuple[int, int], found: str
) -> None:
    assert code(Applied(offset, 1, clear, "id"), log) == found
    assert code(Applied(offset, 1, clear), log) == found, "of a position that a command has moved"


class Log(RuleBasedStateMachine):
    """One partition: transactions are appended, retention deletes its beginning, the sink applies what it has."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[bool] = []
        """Of each offset whether it is a record, and not the control record behind a transaction."""
        self.first = self.position = self.clear = 0

    @rule(count=st.integers(1, 3))
    def append(self, count: int) -> None:
        self.records += [True] * count + [False]

    @rule(count=st.integers(1, 4))
    def abort(self, count: int) -> None:
        self.records += [False] * count

    @rule(count=st.integers(1, 4))
    def delete(self, count: int) -> None:
        self.first = min(len(self.records), self.first + count)

    @precondition(lambda self: self.is_whole())
    @rule(count=st.integers(1, 4))
    def apply(self, count: int) -> None:
        """The next offset to apply is the one behind the last applied record: the sink sees no control record."""
        waiting = [offset for offset in range(self.position, len(self.records)) if self.records[offset]]
        self.position = max([self.position, *(offset + 1 for offset in waiting[:count])])

    @precondition(lambda self: not self.is_whole())
    @rule()
    def accept(self) -> None:
        self.position = self.first

    @precondition(lambda self: not any(self.records[self.position :]))
    @rule()
    def idle(self) -> None:
        self.clear = len(self.records)

    def is_whole(self) -> bool:
        """Whether the log has all records that are not applied."""
        return not any(self.records[self.position : self.first])

    @invariant()
    def what_is_lost_is_told(self) -> None:
        found = code(Applied(self.position, 1, self.clear, "id"), (self.first, len(self.records)))
        if not self.is_whole():
            assert found == "TWP-LOG-GAP"
        elif self.first <= max(self.position, self.clear) or self.first == len(self.records) == self.position + 1:
            assert found == ""

    @precondition(lambda self: self.position > self.first)
    @rule(count=st.integers(1, 4))
    def a_log_that_is_cut_is_told(self, count: int) -> None:
        end = max(self.first, self.position - count)
        assert code(Applied(self.position, 1, self.clear, "id"), (self.first, end)) == "TWP-LOG-END"


TestLog = Log.TestCase


def test_without_transactions_the_last_offset_of_a_log_is_a_record() -> None:
    assert code(Applied(10, 1), (11, 11), transactional=False) == "TWP-LOG-GAP"
    assert code(Applied(11, 1), (11, 11), transactional=False) == ""


@pytest.mark.parametrize("log", [(0, 9), (0, 20), (11, 20)])
def test_another_topic_is_another_log_wherever_it_is(log: tuple[int, int]) -> None:
    assert code(Applied(10, 1, 0, "before"), log) == "TWP-LOG-TOPIC"


def test_a_topic_that_is_gone_is_told_unless_that_was_accepted() -> None:
    (found,) = judge({PLACE: Applied(10, 1, 0, "id")}, {}, {}, transactional=True)
    assert (found.code, found.position, found.resume_at) == ("TWP-LOG-TOPIC", 10, 0)
    assert judge({PLACE: Applied(0, 2)}, {}, {}, transactional=True) == ()


AT = datetime(2026, 1, 2, 3, 4, 5, 678_000, tzinfo=UTC)
AT_MS = 1_767_323_045_678


@pytest.mark.parametrize(
    ("last_at", "found_ms", "may_be_cleaned", "expected"),
    [
        (AT, AT_MS, False, False),
        (AT, AT_MS + 1, False, True),
        (AT, AT_MS - 1, True, True),
        (AT, None, False, True),
        (AT, None, True, False),
        (None, AT_MS, False, False),
    ],
)
def test_a_log_that_was_cut_and_has_grown_holds_another_record_before_the_position(
    last_at: datetime | None, found_ms: int | None, may_be_cleaned: bool, expected: bool
) -> None:
    assert is_overgrown(Applied(10, 1, last_at=last_at), found_ms, may_be_cleaned=may_be_cleaned) is expected


def test_a_partition_that_waits_at_a_schema_change_has_read_it() -> None:
    document = {"offset": 10, "epoch": 1, "lastAt": AT}
    assert [Applied.of(document | more).last_read for more in ({}, {"barrier": "change"})] == [9, 10]


def test_a_log_that_has_grown_is_not_called_shorter() -> None:
    words = Break("TWP-LOG-END", *PLACE, position=10, first=0, end=30, last_at=AT).description
    assert "has grown since" in words and "shorter" not in words


def test_where_a_sink_goes_on_and_what_is_told() -> None:
    at = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    begins = {
        found: Break(found, *PLACE, position=10, first=20, end=30, last_at=at).resume_at
        for found in ("TWP-LOG-GAP", "TWP-LOG-END", "TWP-LOG-TOPIC")
    }
    assert begins == {"TWP-LOG-GAP": 20, "TWP-LOG-END": 30, "TWP-LOG-TOPIC": 20}
    words = describe([Break("TWP-LOG-GAP", *PLACE, position=10, first=20, end=30, last_at=at)] * 3)
    for part in ("shop.shop.orders, partition 3", "offset 10", "from 20 to 30", "2026-01-02 03:04:05", "2 more"):
        assert part in words


def test_the_id_of_a_topic_is_written_as_java_writes_it() -> None:
    assert topic_id(Uuid(-1, -1)) == "_____________________w"


GAP = Break("TWP-LOG-GAP", *PLACE, position=5, first=9, end=20, last_at=None)


@pytest.mark.parametrize(
    ("second", "found"),
    [
        ((GAP,), (GAP,)),
        ((), ()),
        ((replace(GAP, position=9),), ()),
        ((replace(GAP, partition=4),), ()),
        ((replace(GAP, code="TWP-LOG-END"),), ()),
        ((replace(GAP, end=21), replace(GAP, partition=4)), (replace(GAP, end=21),)),
    ],
)
def test_a_break_counts_when_a_second_reading_finds_it_at_the_same_position(
    second: tuple[Break, ...], found: tuple[Break, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    session, state = session_of(PIPELINE), LogState({}, {}, {})
    readings = iter([(session, state, (GAP,)), (session, None, second)])

    def suspected(of: Session, given: LogState | None = None) -> tuple[Break, ...]:
        *asked, breaks = next(readings)
        assert asked == [of, given], "the first reading may be one that is known, the second is another"
        return breaks

    monkeypatch.setattr(bounds, "suspected", suspected)
    monkeypatch.setattr(bounds, "_RECHECK", 0)
    assert bounds.confirmed(session, state) == found


@pytest.mark.parametrize("mode", ["exactly-once", "plain"])
def test_a_gap_is_accepted_while_the_sink_stands_and_after_a_new_history_began(
    mode: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[Any] = []
    moved = replace(GAP, position=7)  # where the sink was once it had stopped
    readings = iter([(GAP,), (moved,), (moved,)])
    monkeypatch.setattr(bounds, "_RECHECK", 0)
    connect = SimpleNamespace(move_offsets=lambda *to: done.append(to))
    session = session_of(PIPELINE.changed(mode=mode), connect)
    monkeypatch.setattr(bounds, "suspected", lambda of, _=None: next(readings) if of is session else ())
    monkeypatch.setattr(bounds, "stop", lambda *args: done.append(args))
    monkeypatch.setattr(bounds.verdict, "begin_history", lambda *args: done.append(args))
    for name in ("note_breaks", "skip_to"):
        monkeypatch.setattr(bounds, name, lambda *args: done.append((*args[:3], args[3].utcoffset())))
    assert bounds.accept(session) == (moved,)
    there, utc = ("destination", session.pipeline), timedelta(0)
    positions: list[Any] = [("move-sink", {PLACE: 9})]
    if mode == "exactly-once":
        positions = [(*there, {}, utc), (*there, {PLACE: 9}, utc)]
    assert done == [(connect, "move-sink"), (*there, "a gap in the log was accepted"), *positions]
    assert list(readings) == [], "read twice once the positions no longer move"


def test_a_break_that_is_gone_once_the_sink_stands_is_not_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    readings = iter([(GAP,), ()])
    monkeypatch.setattr(bounds, "suspected", lambda *args: next(readings))
    monkeypatch.setattr(bounds, "stop", lambda *args: None)
    assert bounds.accept(session_of(PIPELINE)) == ()


def test_nothing_is_stopped_and_no_history_begins_where_there_is_no_break(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "suspected", lambda *args: ())
    with pytest.raises(Refused, match="nothing to accept"):
        bounds.accept(session_of(PIPELINE))


OWN = PIPELINE.changed(mode="exactly-once")
ONE: Place = ("move.shop.one", 0)
TWO: Place = ("move.shop.one", 1)


@pytest.fixture
def topics(monkeypatch: pytest.MonkeyPatch) -> MemoryTopics:
    """A log of two partitions of ten records each, a second apart, of which the first has lost three."""
    made = MemoryTopics(**{"move.shop.one": 2, "other.shop.one": 1})
    for number in range(10):
        for partition in (0, 1):
            made.write("move.shop.one", (KEY, None, 1), partition=partition, at_ms=1_000 * number)
    made.write("other.shop.one", (KEY, None, 1))
    made.cut("move.shop.one", 6)
    made.cut("other.shop.one", 1)
    return made


def position(monkeypatch: pytest.MonkeyPatch, **by_number: Applied) -> None:
    """What the destination has of these partitions."""
    stored = {("destination", "move"): {("move.shop.one", int(name[-1])): of for name, of in by_number.items()}}
    monkeypatch.setattr(bounds, "positions", lambda client, pipeline: stored[client, pipeline.name])


def found(breaks: Iterable[Break]) -> list[tuple[Place, str, int]]:
    return [(gap.place, gap.code, gap.position) for gap in breaks]


def test_a_sink_without_a_position_begins_at_offset_0(topics: MemoryTopics, monkeypatch: pytest.MonkeyPatch) -> None:
    position(monkeypatch)
    session = session_of(OWN, topics=topics)
    assert found(bounds.suspected(session)) == [(ONE, "TWP-LOG-GAP", 0)]
    position(monkeypatch, p0=Applied(6, 1))
    assert found(bounds.suspected(session)) == []


def test_positions_of_the_plain_sink_are_those_of_its_consumers_and_others_are_not_judged(topics: MemoryTopics) -> None:
    session = session_of(PIPELINE, topics=topics)
    assert found(bounds.suspected(session)) == []
    topics.positions = {ONE: 5, TWO: 21}
    assert found(bounds.suspected(session)) == [(ONE, "TWP-LOG-GAP", 5), (TWO, "TWP-LOG-END", 21)]


def test_a_topic_that_was_recreated_and_records_that_are_not_committed(
    topics: MemoryTopics, monkeypatch: pytest.MonkeyPatch
) -> None:
    topics.write("move.shop.one", (KEY, None, 1), partition=1, commit=None)
    position(monkeypatch, p0=Applied(6, 1, 0, "id"), p1=Applied(21, 1, 0, "id"))
    session = session_of(OWN, topics=topics)
    assert found(bounds.suspected(session)) == [], "the end is that of all that was written"
    topics.topic_ids = {"move.shop.one": "another"}
    assert [code for _, code, _ in found(bounds.suspected(session))] == ["TWP-LOG-TOPIC"] * 2


@pytest.mark.parametrize(
    ("done", "known", "expected"),
    [
        ((20, 20), ((6, 20), (0, 20)), []),
        ((20, 20), ((6, 19), (0, 20)), []),  # it has applied more since: what was known is too old to judge that
        ((20, 21), ((6, 20), (0, 20)), [(TWO, "TWP-LOG-END", 21)]),
        ((4, 20), ((6, 20), (0, 20)), [(ONE, "TWP-LOG-GAP", 4)]),
    ],
)
def test_ends_that_were_read_before_the_sink_reached_them_are_not_read_again(
    topics: MemoryTopics,
    monkeypatch: pytest.MonkeyPatch,
    done: tuple[int, int],
    known: tuple[tuple[int, int], tuple[int, int]],
    expected: list[tuple[Place, str, int]],
) -> None:
    monkeypatch.setattr(bounds, "_RECHECK", 0)
    position(monkeypatch, p0=Applied(done[0], 1), p1=Applied(done[1], 1))
    read: list[int] = []
    ends = bounds.pipeline_ends
    monkeypatch.setattr(bounds, "pipeline_ends", lambda *of, **how: read.append(1) or ends(*of, **how))
    session, window = session_of(OWN, topics=topics), dict(zip((ONE, TWO), known, strict=True))
    if expected:
        with pytest.raises(TowpathError, match=rf"{expected[0][1]}: move\.shop\.one, partition {expected[0][0][1]}"):
            bounds.refuse(session, window)
    else:
        bounds.refuse(session, window)
        is_enough = all(one <= end for one, (_, end) in zip(done, known, strict=True))
        assert read == ([] if is_enough else [1])


@pytest.mark.parametrize(
    ("before", "asked"),
    [
        ({}, {ONE, TWO}),
        ({ONE: (6, 20), TWO: (0, 20)}, set()),
        ({ONE: (6, 20), TWO: (0, 18)}, {TWO}),
        ({ONE: (5, 20), TWO: (0, 20)}, {ONE}),
    ],
)
def test_where_nothing_was_written_since_the_last_look_only_positions_are_compared(
    topics: MemoryTopics,
    monkeypatch: pytest.MonkeyPatch,
    before: dict[Place, tuple[int, int]],
    asked: set[Place],
) -> None:
    monkeypatch.setattr(bounds, "_RECHECK", 0)
    ids, records = list[set[str]](), list[set[Place]]()
    monkeypatch.setattr(topics, "ids", lambda of: ids.append(set(of)) or {})
    monkeypatch.setattr(topics, "offsets_at", lambda of: records.append(set(of)) or {})
    session, window = session_of(OWN, topics=topics), {ONE: (6, 20), TWO: (0, 20)}
    position(monkeypatch, p0=Applied(20, 1, last_at=at(4)), p1=Applied(20, 1, last_at=at(4)))
    bounds.refuse(session, window, before)
    assert (ids, records) == ([{name for name, _ in asked}], [asked])
    position(monkeypatch, p0=Applied(4, 1), p1=Applied(20, 1))
    with pytest.raises(TowpathError, match="TWP-LOG-GAP"):
        bounds.refuse(session, window, before)


def at(second: int) -> datetime:
    return datetime.fromtimestamp(second, UTC)


@pytest.mark.parametrize(
    ("applied", "code"),
    [
        (Applied(9, 1, last_at=at(4)), ""),
        (Applied(9, 1, last_at=at(3)), "TWP-LOG-END"),
        (Applied(9, 1, last_at=at(2)), "TWP-LOG-END"),
        (Applied(8, 1, last_at=at(4), stands=True), ""),
        (Applied(8, 1, last_at=at(3), stands=True), "TWP-LOG-END"),
        (Applied(20, 1, last_at=at(1)), "TWP-LOG-END"),
        (Applied(6, 1, last_at=at(1)), ""),
    ],
)
def test_a_log_that_was_cut_and_has_grown_is_seen_by_the_time_of_the_last_applied_record(
    topics: MemoryTopics, applied: Applied, code: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The record at offset 8 is of second 4. Of the partition 7, the topic has nothing."""
    position(monkeypatch, p0=applied, p7=Applied(5, 1, last_at=at(1)))
    expected = [(ONE, code, applied.offset)] if code else []
    assert found(bounds.suspected(session_of(OWN, topics=topics))) == expected
    compacted = OWN.changed(log={"compact": True})
    topics.clean("move.shop.one", applied.last_read)
    assert found(bounds.suspected(session_of(compacted, topics=topics))) == [], "the cleaner may have removed it"


def test_a_brokers_clock_that_went_back_is_no_break(topics: MemoryTopics, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last applied record, at offset 8, is what it was; what is around it is younger."""
    for offset in (6, 9):
        record = topics.message("move.shop.one", 0, offset, KEY, None, at_ms=60_000)
        topics.stored[ONE].offsets[offset] = 60_000, record
    position(monkeypatch, p0=Applied(9, 1, last_at=at(4)))
    assert found(bounds.suspected(session_of(OWN, topics=topics))) == []


def test_a_topic_that_was_deleted_is_told_by_its_positions(
    topics: MemoryTopics, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was not applied of it looks applied. One that is excluded is not judged."""
    monkeypatch.setattr(bounds, "_RECHECK", 0)
    position(monkeypatch, p0=Applied(6, 1, 0, "id"), p1=Applied(4, 1, 0, "id"))
    before = topics.ends([topics.all()["move.shop.one"]])
    session = session_of(OWN, topics=topics)
    bounds.refuse(session, before)
    topics.make("move.shop.two")
    del topics._topics["move.shop.one"]
    assert found(bounds.suspected(session)) == [(ONE, "TWP-LOG-TOPIC", 6), (TWO, "TWP-LOG-TOPIC", 4)]
    with pytest.raises(TowpathError, match=r"TWP-LOG-TOPIC: move\.shop\.one, partition 0: the topic was deleted"):
        bounds.refuse(session, topics.ends([topics.all()["move.shop.two"]]))
    excluded = OWN.changed(collections={"include": ("shop.*",), "exclude": ("shop.one",)})
    assert found(bounds.suspected(session_of(excluded, topics=topics))) == []


def test_a_topic_that_was_created_after_the_ends_were_read_is_not_gone(
    topics: MemoryTopics, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sink has applied some of it: the second reading finds it."""
    monkeypatch.setattr(bounds, "_RECHECK", 0)
    position(monkeypatch, p0=Applied(6, 1, 0, "id"))
    bounds.refuse(session_of(OWN, topics=topics), {("move.shop.old", 0): (0, 9)})


def test_of_the_log_of_a_replay_a_deleted_topic_must_be_applied(topics: MemoryTopics) -> None:
    log, gone = {ONE: (6, 20), TWO: (0, 20)}, "TWP-LOG-TOPIC"
    del topics._topics["move.shop.one"]
    assert found(bounds.breaks_within(log, topics, {TWO: Applied(18, 1)})) == [(ONE, gone, 6), (TWO, gone, 18)]
    whole = {ONE: Applied(19, 1, 0, "id"), TWO: Applied(9, 1, 20, "id")}
    assert found(bounds.breaks_within(log, topics, whole)) == []


def test_a_partition_with_a_break_is_named_once(topics: MemoryTopics, monkeypatch: pytest.MonkeyPatch) -> None:
    position(monkeypatch, p0=Applied(9, 1, 0, "before", at(1)))
    assert [code for _, code, _ in found(bounds.suspected(session_of(OWN, topics=topics)))] == ["TWP-LOG-TOPIC"]


def test_of_the_log_of_a_replay_what_is_not_applied_must_be_there(topics: MemoryTopics) -> None:
    log = {ONE: (4, 18), TWO: (4, 18)}
    assert found(bounds.breaks_within(log, topics, {})) == [(ONE, "TWP-LOG-GAP", 4)]
    assert found(bounds.breaks_within(log, topics, {ONE: Applied(6, 1), TWO: Applied(99, 1)})) == [
        (TWO, "TWP-LOG-END", 99)
    ]
    longer = {ONE: (6, 20), TWO: (0, 25)}
    assert found(bounds.breaks_within(longer, topics, {TWO: Applied(20, 1)})) == [(TWO, "TWP-LOG-END", 20)]
    assert bounds.still_in_log(log, topics) == {ONE: (6, 18), TWO: (4, 18)}
    assert bounds.still_in_log({ONE: (4, 6), ("move.shop.gone", 0): (0, 9)}, topics) == {}
    assert bounds.still_in_log({}, topics) == {}


def test_a_log_that_was_cut_short_says_why_for_each_partition(
    topics: MemoryTopics, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = dict.fromkeys((ONE, TWO, ("move.shop.gone", 0)), (0, 20))
    noted = {TWO: "TWP-LOG-TOPIC", ("move.shop.other", 0): "TWP-LOG-END"}
    topics.make("move.shop.other")  # of another --only
    stored = {("destination", "move"): noted}
    monkeypatch.setattr(bounds, "noted_breaks", lambda client, pipeline: stored[client, pipeline.name])
    position(monkeypatch, p0=Applied(9, 1, last_at=at(1)))
    session = session_of(OWN, topics=topics)
    assert {place: why[:13] for place, why in bounds.cut_short(session, log, OWN.selection).items()} == {
        ONE: "TWP-LOG-END: ",
        TWO: "TWP-LOG-TOPIC",
    }
    position(monkeypatch, p0=Applied(3, 1), p1=Applied(99, 1))
    reasons = bounds.cut_short(session, log, OWN.selection)
    assert list(reasons) == [TWO], "lost beginnings show in the offsets"
    assert reasons[TWO].startswith("TWP-LOG-END: the log is shorter"), "what is found now says more than what was noted"


@pytest.mark.parametrize("is_accepted", [False, True])
def test_a_deleted_topic_is_missing_from_the_log_of_its_namespace_only(
    topics: MemoryTopics, is_accepted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log that is left does not have it. One that is newer than the log, or of no chosen namespace, is not."""
    topics.make("move.shop.new")
    topics.make("move.shop.kept")
    gone: Place = ("move.shop.gone", 0)
    names = ("move.shop.gone", "move.shop.new", "move.shop.kept", "move.left.out")
    done = {} if is_accepted else {(name, 0): Applied(0, 1, 0, "id") for name in names}
    noted = {(name, 0): "TWP-LOG-TOPIC" for name in ("move.shop.gone", "move.left.out")} if is_accepted else {}
    monkeypatch.setattr(bounds, "positions", lambda client, pipeline: done)
    monkeypatch.setattr(bounds, "noted_breaks", lambda client, pipeline: noted)
    pipeline = OWN.changed(collections={"include": ("shop.*", "left.*"), "exclude": ("left.out",)})
    session, log = session_of(pipeline, topics=topics), {("move.shop.kept", 0): (0, 0)}
    for only, found in (((), [gone]), (("shop.gone",), [gone]), (("shop.kept",), [])):
        reasons = bounds.cut_short(session, log, chosen(pipeline, only))
        assert list(reasons) == found
        assert all(why.startswith("TWP-LOG-TOPIC: ") for why in reasons.values())


def test_a_break_in_json_has_its_time_as_text() -> None:
    shown = replace(GAP, last_at=AT).as_json()
    assert (shown["code"], shown["position"], shown["last_at"]) == ("TWP-LOG-GAP", 5, AT.isoformat())
    assert GAP.as_json()["last_at"] is None


def test_a_position_that_is_not_in_the_log_is_refused_with_its_code(monkeypatch: pytest.MonkeyPatch) -> None:
    session = session_of(PIPELINE)
    monkeypatch.setattr(bounds, "suspected", lambda of, _=None: (GAP,) if of is session else ())
    monkeypatch.setattr(bounds, "_RECHECK", 0)
    with pytest.raises(TowpathError) as refused:
        bounds.refuse(session)
    assert (refused.value.code, refused.value.where) == ("TWP-LOG-GAP", PLACE[0])


def test_a_topic_with_another_number_of_partitions_is_not_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    """The source connector cannot write to it, so the pipeline would look well and stand still."""
    gap = Break("TWP-LOG-TOPIC", *PLACE, position=10, first=0, end=10, last_at=None)
    monkeypatch.setattr(bounds, "suspected", lambda session: (gap,))
    monkeypatch.setattr(bounds, "confirmed", lambda session: ())
    stopped = list[str]()
    monkeypatch.setattr(bounds, "stop", lambda connect, name: stopped.append(name))
    count = PIPELINE.kafka.partitions

    def accept(partitions: int) -> None:
        topics: Any = SimpleNamespace(all=lambda: {PLACE[0]: Topic(PLACE[0], partitions)})
        bounds.accept(session_of(PIPELINE, topics=topics))

    for other in (1, count + 1):
        with pytest.raises(Refused, match=rf"{PLACE[0]} again, with {other} partitions? instead of {count}"):
            accept(other)
    assert not stopped
    accept(count)
    assert stopped


@pytest.mark.parametrize(
    ("creates", "words"), [("deploy", "`towpath deploy shop.toml`"), ("exist", "as `towpath topics shop.toml` prints")]
)
def test_who_creates_such_a_topic_is_advised(creates: str, words: str) -> None:
    gap = Break("TWP-LOG-TOPIC", *PLACE, position=10, first=0, end=10, last_at=None)
    session = session_of(PIPELINE.changed(kafka={"topics": creates}), topics=MemoryTopics(**{PLACE[0]: 1}))
    with pytest.raises(Refused) as refused:
        bounds._refuse_other_count(session, [gap])
    assert refused.value.advice is not None and words in refused.value.advice
    assert ("deploy" in refused.value.advice) == (creates == "deploy")
