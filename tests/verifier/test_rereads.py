"""Re-reads of documents that differ, over a source that keeps changing and a replication that lags behind it.

A difference is proven exactly where the destination's document is wrong: it is not what the replication made of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from bson.timestamp import Timestamp
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule
from pymongo.errors import AutoReconnect

from tests.support import bsonbytes as b
from towpath_verifier import Difference, Pair, Recheck, Rereads, Same, Unresolved, id_key, proof, rereads
from towpath_verifier.raw import Key

PAIR = Pair("v.c", "v.c")
IDS = [b.document(("_id", b.int32(number))) for number in range(3)]
_DAMAGE = 99  # which the source never has
numbers = st.integers(0, len(IDS) - 1)
values = st.one_of(st.none(), st.integers(0, 2))
State = bytes | None


def document(number: int, value: int | None) -> State:
    return None if value is None else b.document(("_id", b.int32(number)), ("v", b.int32(value)))


@dataclass
class Server:
    """The documents of one side, and all that the source has ever written, by cluster time."""

    log: list[tuple[int | None, State]] = field(default_factory=list)
    """Of each change the number of the document, and its state since; a change's place + 1 is its cluster time. A drop
    has no number."""
    now: dict[int, State] = field(default_factory=dict)
    kept: dict[int, State] | None = None
    """What a majority has; None if that is `now`."""

    def at(self, number: int, time: int) -> State:
        states = [state for changed, state in self.log[:time] if changed in (number, None)]
        return states[-1] if states else None

    def drop(self) -> None:
        self.log.append((None, None))
        self.now.clear()


class Patched(pytest.MonkeyPatch):
    """The verifier reads `Server`s."""

    def __init__(self, history: bool = True) -> None:
        super().__init__()
        for module in (rereads, proof):
            self.setattr(module, "collection", lambda server, namespace: {"v.c": server}[namespace])
            self.setattr(module, "by_ids", _by_ids)
            self.setattr(module, "cluster_time", lambda server: Timestamp(len(server.log), 0))
        self.setattr(proof, "changes", _changes if history else _unknown)
        self.setattr(rereads, "_GATHER", 0)


def _by_ids(
    server: Server, ids: Sequence[bytes], at: Timestamp | None = None, only: None = None, since: Timestamp | None = None
) -> Iterator[tuple[Key, bytes]]:
    for id in ids:
        number = IDS.index(id)
        now = server.now if since is None else server.kept or server.now
        state = now.get(number) if at is None else server.at(number, at.time)
        if state is not None:
            yield id_key(state), state


def _changes(server: Server, ids: Sequence[bytes], after: Timestamp, to: Timestamp) -> dict[Key, list[Timestamp]]:
    times: dict[Key, list[Timestamp]] = {}
    for time, (number, _) in enumerate(server.log[: to.time], 1):
        if Timestamp(time, 0) <= after:
            continue
        if number is None:
            raise proof.Replaced("it was dropped")
        if IDS[number] in ids:
            times.setdefault(id_key(IDS[number]), []).append(Timestamp(time, 0))
    return times


def _unknown(*_: Any) -> Any:
    raise proof.Unknown("no privilege")


class Interleaved(RuleBasedStateMachine):
    """Writes, a replication that lags, damage, and re-reads, in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.patched = Patched()
        self.source, self.destination, self.applied = Server(), Server(), 0
        self.rereads = Rereads(
            self.source,  # type: ignore[arg-type]
            self.destination,  # type: ignore[arg-type]
            Recheck(first=0, tries=2, patience=1e9),
            lambda time: self.applied >= time.time,
        )
        self.suspected: set[int] = set()

    @initialize(values=st.lists(values, min_size=len(IDS), max_size=len(IDS)))
    def begin(self, values: list[int | None]) -> None:
        for number, value in enumerate(values):
            self.write(number, value)
            self.apply()

    @rule(number=numbers, value=values)
    def write(self, number: int, value: int | None) -> None:
        self.source.now[number] = document(number, value)
        self.source.log.append((number, document(number, value)))

    @rule()
    def drop(self) -> None:
        self.source.drop()

    @rule()
    def apply(self) -> None:
        if self.applied < len(self.source.log):
            number, state = self.source.log[self.applied]
            if number is None:
                self.destination.now.clear()
            else:
                self.destination.now[number] = state
            self.applied += 1

    @rule()
    def catch_up(self) -> None:
        while self.applied < len(self.source.log):
            self.apply()

    @rule(number=numbers)
    def damage(self, number: int) -> None:
        self.destination.now[number] = document(number, _DAMAGE)

    @rule(number=numbers)
    def compare(self, number: int) -> None:
        if number not in self.suspected and (found := self.rereads.differing(PAIR, [IDS[number]])):
            self.rereads.add(PAIR, found, owner=number)
            self.suspected.add(number)

    def is_wrong(self, number: int) -> bool:
        return self.destination.now.get(number) != self.source.at(number, self.applied)

    @rule()
    def reread(self) -> None:
        for number, outcome in self.rereads.step():
            assert outcome.id == IDS[number]
            assert not isinstance(outcome, Unresolved)
            assert isinstance(outcome, Difference) == self.is_wrong(number), outcome
            if isinstance(outcome, Difference):
                assert outcome.destination == self.destination.now.get(number)
            self.suspected.discard(number)
        assert len(self.rereads) == len(self.suspected)

    def teardown(self) -> None:
        try:
            self.catch_up()
            for _ in range(5):
                self.reread()
            assert not self.suspected, "each document has an outcome once the replication has caught up"
        finally:
            self.patched.undo()


TestInterleaved = Interleaved.TestCase
TestInterleaved.settings = settings(max_examples=settings().max_examples, stateful_step_count=30)


@pytest.fixture
def patched() -> Iterator[Patched]:
    patched = Patched()
    yield patched
    patched.undo()


@pytest.fixture
def sides() -> tuple[Server, Server]:
    source, destination = Server(), Server()
    for number in range(len(IDS)):
        source.now[number] = destination.now[number] = document(number, 0)
        source.log.append((number, document(number, 0)))
    return source, destination


class Read(dict[int, State]):
    """The documents of a side of which one has another state at each read; the last state stays."""

    def __init__(self, number: int, *states: State) -> None:
        super().__init__({other: document(other, 0) for other in range(len(IDS)) if other != number})
        self._number, self._states = number, list(states)

    def get(self, number: int, default: Any = None) -> Any:
        if number != self._number:
            return super().get(number, default)
        return self._states.pop(0) if len(self._states) > 1 else self._states[0]


def changed(source: Server, *values: int | None) -> None:
    for value in values:
        source.log.append((1, document(1, value)))
        source.now[1] = document(1, value)


@pytest.mark.parametrize("known", [0, 5, 6, None])
def test_a_state_that_the_source_has_had_is_the_same(
    patched: Patched, sides: tuple[Server, Server], known: int | None
) -> None:
    """It changes on and on, and the destination lags."""
    source, destination = sides
    rereads = Rereads(source, destination, Recheck(first=0, tries=1))  # type: ignore[arg-type]
    rereads.add(PAIR, [IDS[1]])
    changed(source, 5, None, 6, 7)
    destination.now[1] = document(1, known)
    assert rereads.step() == [(0, Same("v.c", IDS[1]))]


@pytest.mark.parametrize("wrong", [8, None])
def test_a_state_that_the_source_never_had_must_be_seen_three_times(
    patched: Patched, sides: tuple[Server, Server], wrong: int | None
) -> None:
    source, destination = sides
    rereads = Rereads(source, destination, Recheck(first=0, tries=1, patience=1e9))  # type: ignore[arg-type]
    rereads.add(PAIR, [IDS[1]])
    changed(source, 5, 6)
    destination.now[1] = document(1, wrong)
    assert rereads.step() == rereads.step() == []
    ((owner, outcome),) = rereads.step()
    assert isinstance(outcome, Difference)
    assert (owner, outcome.id, outcome.destination) == (0, IDS[1], document(1, wrong))
    assert outcome.source in {document(1, value) for value in (0, 5, 6)}


def test_a_read_that_fails_is_no_try(
    patched: Patched, sides: tuple[Server, Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A primary is elected while a document is judged that the destination has not got yet."""
    source, destination = sides
    rereads = Rereads(source, destination, Recheck(first=0, tries=1, patience=1e9))  # type: ignore[arg-type]
    rereads.add(PAIR, [IDS[1]])
    changed(source, 5, 6)
    destination.now[1] = document(1, 8)
    judge, failures = proof.Judge.judge, [AutoReconnect("gone"), AutoReconnect("gone"), AutoReconnect("gone")]

    def fails(*arguments: Any) -> Any:
        found = judge(*arguments)
        if failures:
            raise failures.pop()
        return found

    monkeypatch.setattr(proof.Judge, "judge", fails)
    monkeypatch.setattr("tenacity.nap.time.sleep", lambda seconds: None)
    assert rereads.step() == [] and not failures
    [(_, _, suspect)] = rereads._waiting
    assert (suspect.tried, suspect.strikes) == (1, 1)
    destination.now[1] = document(1, 6)
    assert rereads.step() == [(0, Same("v.c", IDS[1]))]


def test_a_change_before_the_time_that_was_passed_does_not_count(
    patched: Patched, sides: tuple[Server, Server]
) -> None:
    source, destination = sides
    changed(source, 5, 6)
    destination.now[1] = document(1, 5)
    (outcome,) = outcomes(sides, Recheck(first=0, tries=1), lambda time: True)
    assert outcome == Difference("v.c", IDS[1], document(1, 6), document(1, 5))


def test_of_two_states_the_nearer_is_shown(patched: Patched, sides: tuple[Server, Server]) -> None:
    def two(a: int, z: int) -> bytes:
        return b.document(("_id", b.int32(1)), ("a", b.int32(a)), ("z", b.int32(z)))

    source, destination = sides
    rereads = Rereads(source, destination, Recheck(first=0, tries=1))  # type: ignore[arg-type]
    rereads.add(PAIR, [IDS[1]])
    for state in (two(1, 1), two(1, 2), two(5, 5)):
        source.log.append((1, state))
        source.now[1] = state
    destination.now[1] = two(2, 2)
    rereads.step(), rereads.step()
    assert [outcome for _, outcome in rereads.step()] == [Difference("v.c", IDS[1], two(1, 2), two(2, 2))]


@pytest.mark.parametrize("history", [True, False])
def test_what_is_equal_when_it_is_judged_is_the_same(sides: tuple[Server, Server], history: bool) -> None:
    patched = Patched(history)
    sides[1].now = Read(1, document(1, 8), document(1, 8), document(1, 0))
    try:
        assert outcomes(sides, Recheck(first=0, tries=1), lambda time: True) == [Same("v.c", IDS[1])]
    finally:
        patched.undo()


def test_without_past_states_all_tries_are_needed(sides: tuple[Server, Server]) -> None:
    patched = Patched(history=False)
    sides[1].now[1] = document(1, 8)
    rereads = Rereads(*sides, Recheck(first=0, tries=3), lambda time: True)  # type: ignore[arg-type]
    try:
        rereads.add(PAIR, [IDS[1]])
        assert rereads.step() == rereads.step() == []
        assert rereads.step() == [(0, Difference("v.c", IDS[1], document(1, 0), document(1, 8)))]
    finally:
        patched.undo()


def test_a_document_that_changed_too_often_is_judged_later(patched: Patched, sides: tuple[Server, Server]) -> None:
    patched.setattr(proof, "_MOST", 3)  # with the state at the beginning
    source, destination = sides
    rereads = Rereads(source, destination, Recheck(first=0, tries=1, patience=0))  # type: ignore[arg-type]
    source.full_name = "v.c"  # type: ignore[attr-defined]
    rereads.add(PAIR, [IDS[1]])
    changed(source, 1, 2)
    destination.now[1] = document(1, 1)
    assert rereads.step() == [(0, Same("v.c", IDS[1]))]
    rereads.add(PAIR, [IDS[1]])
    changed(source, 3, 4, 5)
    ((_, outcome),) = rereads.step()
    assert isinstance(outcome, Unresolved)
    assert outcome.why == (
        "it keeps changing, and its past states cannot be read: a document of v.c changed 4 times in between"
    )


def test_a_document_is_due_after_its_pause(patched: Patched, sides: tuple[Server, Server]) -> None:
    rereads = Rereads(*sides, Recheck(first=100))  # type: ignore[arg-type]
    assert rereads.pause() is None
    rereads.add(PAIR, IDS)
    assert rereads.step() == []
    assert 80 < (rereads.pause() or 0) < 111
    assert rereads.size == len(b"".join(IDS))


@pytest.mark.parametrize("passed", [None, lambda time: True])
def test_what_was_dropped_at_the_source_is_judged_once_the_pipeline_has_passed_that(
    patched: Patched, sides: tuple[Server, Server], passed: Any
) -> None:
    source, destination = sides
    rereads = Rereads(source, destination, Recheck(first=0, tries=1, patience=1e9), passed)  # type: ignore[arg-type]
    rereads.add(PAIR, [IDS[1]])
    source.drop()
    assert rereads.step() == [], "the destination may not have dropped it yet"
    [(_, _, suspect)] = rereads._waiting
    assert (suspect.seen_at, suspect.why) == (Timestamp(4, 0), "it was dropped")
    assert rereads.step() == [(0, Difference("v.c", IDS[1], None, document(1, 0)))]


def test_what_a_primary_shows_that_is_to_lose_it_proves_nothing(patched: Patched, sides: tuple[Server, Server]) -> None:
    """It is cut off: no member has its last write, which no change stream will show."""
    source, destination = sides
    rereads = Rereads(source, destination, Recheck(first=0, tries=1), lambda time: True)  # type: ignore[arg-type]
    source.kept = dict(source.now)
    source.now[1] = document(1, 7)
    rereads.add(PAIR, [IDS[1]])
    assert rereads.step() == [(0, Same("v.c", IDS[1]))]


def outcomes(sides: tuple[Server, Server], recheck: Recheck, passed: Any = None, **how: Any) -> list[Any]:
    rereads = Rereads(*sides, recheck, passed, **how)  # type: ignore[arg-type]
    return list(rereads.outcomes([(PAIR, IDS)]))


@pytest.mark.parametrize("history", [True, False])
def test_without_a_pipeline_a_difference_counts_after_all_tries(sides: tuple[Server, Server], history: bool) -> None:
    patched = Patched(history)
    sides[1].now[1] = None
    try:
        assert outcomes(sides, Recheck(first=0, tries=3)) == [Difference("v.c", IDS[1], document(1, 0), None)]
    finally:
        patched.undo()


def test_what_the_pipeline_never_passes_is_given_up(sides: tuple[Server, Server]) -> None:
    patched = Patched()
    sides[1].now[1] = None
    try:
        (outcome,) = outcomes(sides, Recheck(first=0, tries=2, patience=0), lambda time: False)
        assert outcome == Unresolved("v.c", IDS[1], "the pipeline has not passed Timestamp(3, 0)")
    finally:
        patched.undo()


def test_without_past_states_a_document_that_changes_is_no_difference(sides: tuple[Server, Server]) -> None:
    patched, (source, destination) = Patched(history=False), sides
    destination.now[1] = document(1, 7)
    rereads = Rereads(source, destination, Recheck(first=0, tries=2, patience=1e9))  # type: ignore[arg-type]
    try:
        rereads.add(PAIR, [IDS[1]])
        for value in range(8):
            assert rereads.step() == []
            source.now[1] = document(1, 10 + value)
        source.now[1] = document(1, 7)
        assert rereads.step() == [(0, Same("v.c", IDS[1]))]
    finally:
        patched.undo()


def test_a_document_that_changes_must_be_wrong_three_times(sides: tuple[Server, Server]) -> None:
    patched, (source, destination) = Patched(), sides
    destination.now[1] = document(1, _DAMAGE)
    rereads = Rereads(source, destination, Recheck(first=0, tries=1))  # type: ignore[arg-type]
    try:
        rereads.add(PAIR, [IDS[1]])
        for value in range(2):
            source.log.append((1, document(1, value)))
            source.now[1] = document(1, value)
            assert rereads.step() == []
        assert isinstance(rereads.step()[0][1], Difference)
    finally:
        patched.undo()


def test_the_order_of_fields_is_ignored_if_that_is_wanted(sides: tuple[Server, Server]) -> None:
    patched, fields = Patched(), [("a", b.NULL), ("b", b.NULL)]
    for server, inner in zip(sides, (fields, reversed(fields)), strict=True):
        server.now[1] = b.document(("_id", b.int32(1)), *inner)
    try:
        assert outcomes(sides, Recheck(first=0, tries=1), ignore_field_order=True) == []
        (found,) = outcomes(sides, Recheck(first=0, tries=1))
        assert found.kind == "order"
    finally:
        patched.undo()


def test_pauses_double_up_to_the_last_and_vary_a_little() -> None:
    recheck = Recheck(first=1, tries=4)
    for tried, middle in enumerate((1, 2, 4, 8, 8, 8)):
        pauses = {recheck.pause(tried) for _ in range(50)}
        assert len(pauses) > 1
        assert all(0.9 * middle <= pause <= 1.1 * middle for pause in pauses)


@pytest.mark.parametrize(
    "wrong", [{"first": -1}, {"first": float("nan")}, {"tries": 0}, {"patience": -1}, {"patience": float("inf")}]
)
def test_pauses_that_cannot_be_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="is not valid"):
        Recheck(**wrong)
