"""What the barrier of `wait` and of the verifier looks at twice, or only after something else, without a server."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from bson.timestamp import Timestamp

from tests.checks.test_check_judgements import PIPELINE
from tests.support.sessions import session_of
from towpath.clients.kafka.topics import Place
from towpath.errors import NotYet, TowpathError
from towpath.log import barrier, bounds
from towpath.log.bounds import Break
from towpath.log.lag import GapContents

PLACE: Place = ("move.shop.a", 0)
GAP = Break("TWP-LOG-GAP", *PLACE, position=5, first=9, end=20, last_at=None)
#: Stands for a service that no test here calls.
NONE: Any = None
ONCE: Any = SimpleNamespace(connect=NONE, until=lambda check: check())


class Log:
    """A log of one partition: the ends that readers of committed and of all records find, in turn; what is applied."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.committed, self.written = iter([20]), iter([20])
        self.done, self.records, self.uncaptured = 20, 0, ""
        self.asked = 0
        patch.setattr(barrier, "pipeline_ends", self._ends)
        patch.setattr(barrier, "applied", self._applied)
        patch.setattr(barrier, "peek", lambda topics, gaps, limit: {one: GapContents(self.records) for one in gaps})
        patch.setattr(barrier, "_uncaptured", lambda *args: self.uncaptured)
        patch.setattr(barrier, "holdup", lambda *args: "")

    def _ends(self, *args: Any, stable: bool = True) -> dict[Place, tuple[int, int]]:
        self.asked += 1
        return {PLACE: (0, next(self.committed if stable else self.written))}

    @contextmanager
    def _applied(self, *args: Any) -> Iterator[Any]:
        yield lambda: {PLACE: self.done}

    def passing(self) -> barrier.Passing:
        return barrier.Passing(session_of(PIPELINE, say=print), lambda: {PLACE: self.done})


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> Log:
    return Log(monkeypatch)


def apply(log: Log) -> None:
    barrier._wait_applied(session_of(PIPELINE), ONCE, {PLACE: (0, 20)})


def applied_late(log: Log) -> Any:
    """A wait that finds a record unapplied at its first attempt, and everything applied at its second."""
    log.done, log.records = 19, 1

    def until(check: Any) -> None:
        with pytest.raises(NotYet):
            check()
        log.done = 20
        check()

    return SimpleNamespace(connect=NONE, until=until)


@pytest.mark.parametrize("lost", ["before", "meanwhile", "while nothing was to wait for"])
def test_records_that_are_lost_are_not_taken_for_applied_ones(
    lost: str, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    readings = iter([(), (GAP,), (GAP,)] if lost == "meanwhile" else [(GAP,), (GAP,)])
    monkeypatch.setattr(bounds, "_RECHECK", 0)
    monkeypatch.setattr(bounds, "suspected", lambda *args: next(readings))
    if lost == "before":
        log.done, log.records = 19, 1
    waiting = applied_late(log) if lost == "meanwhile" else ONCE
    with pytest.raises(TowpathError, match="TWP-LOG-GAP"):
        barrier._wait_applied(session_of(PIPELINE), waiting, {PLACE: (0, 20)})
    assert list(readings) == []


def test_where_all_is_applied_the_log_is_checked_once_afterwards(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each check costs a pause time for each topic."""
    checks: list[int] = []
    monkeypatch.setattr(bounds, "refuse", lambda *args: checks.append(1))
    apply(log)
    log.done = 19  # what remains is a control record
    apply(log)
    assert len(checks) == 2


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
        barrier._committed_ends(PIPELINE, NONE, ONCE)
    log.written = iter([20])
    assert barrier._committed_ends(PIPELINE, NONE, ONCE) == {PLACE: (0, 20)}


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
    assert passed(target) and log.asked == 4, "later records do not delay what was passed"
