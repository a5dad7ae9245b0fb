"""What `status` and the metrics show of a part that cannot be read: nothing, and never 0."""

from __future__ import annotations

import pytest

from tests.run.test_screens import reported, shown, status
from towpath.clients.mongo.client import ClusterTime
from towpath.errors import TopicError
from towpath.log import dead_letters
from towpath.monitor.metrics import ROWS
from towpath.run.status.gather import _Gathering
from towpath.run.status.report import Lag
from towpath.run.status.status import Status, behind


@pytest.fixture
def gathering() -> _Gathering:
    """One that has read nothing yet."""
    found = object.__new__(_Gathering)
    found.errors = []
    return found


def samples(found: Status, *names: str) -> list[str]:
    reports = [reported(found)]
    return [row.name for row in ROWS if row.name in names and row.family(reports).samples]


LAGS = ("towpath_lag_seconds", "towpath_capture_lag_seconds", "towpath_apply_lag_seconds")


@pytest.mark.parametrize(("now", "seconds"), [(None, None), (ClusterTime(110, 1), 9.0), (ClusterTime(100, 1), 0.0)])
def test_how_far_the_log_is_behind_a_source_that_does_not_answer_is_unknown(
    now: ClusterTime | None, seconds: float | None
) -> None:
    assert behind(now, [ClusterTime(200, 1), ClusterTime(100, 1), None]) == seconds
    assert behind(now, [None]) == 0


def test_a_lag_is_unknown_while_a_side_does_not_answer(capsys: pytest.CaptureFixture[str]) -> None:
    away = status(capture_seconds=None, apply_seconds=4.0, lag_records=3)
    assert reported(away).lag == Lag(3, None, None, 4.0)
    assert samples(away, *LAGS) == ["towpath_apply_lag_seconds"]
    assert "3 records, unknown" in shown(capsys, capture_seconds=None, lag_records=3)
    other = status(capture_seconds=400.0, apply_seconds=None, lag_records=None)
    assert samples(other, *LAGS) == ["towpath_capture_lag_seconds"]
    assert set(samples(status(capture_seconds=1.0), *LAGS)) == set(LAGS)


def test_dead_letters_that_cannot_be_read_are_not_none(
    gathering: _Gathering, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object) -> None:
        raise TopicError("cannot read shop.dead-letters")

    gathering.pipeline = gathering.topics = gathering.existing = None  # type: ignore[assignment]
    monkeypatch.setattr(dead_letters, "summarize", fail)
    found = status(dead_letters=gathering.dead_letters())
    assert [str(error) for error in gathering.errors] == ["cannot read shop.dead-letters"]
    assert (reported(found).dead_letters, reported(found).dead_letters_complete) == (None, False)
    assert samples(found, "towpath_dead_letters") == []
    assert samples(status(), "towpath_dead_letters") == ["towpath_dead_letters"]
    (line,) = (line for line in shown(capsys, dead_letters=None).splitlines() if "dead letters" in line)
    assert line.split() == ["dead", "letters", "unknown"]
