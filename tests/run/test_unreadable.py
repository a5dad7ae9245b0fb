"""What `status` and the metrics show of a part that cannot be read: nothing, and never 0."""

from __future__ import annotations

import pytest

from tests.run.test_screens import shown, status
from towpath.clients.mongo.client import ClusterTime
from towpath.errors import TopicError
from towpath.monitor.metrics import ROWS
from towpath.run.report import Lag, Report
from towpath.run.status import behind, part


def samples(found: Report, *names: str) -> list[str]:
    return [row.name for row in ROWS if row.name in names and row.family([found]).samples]


LAGS = ("towpath_lag_seconds", "towpath_capture_lag_seconds", "towpath_apply_lag_seconds")


@pytest.mark.parametrize(("now", "seconds"), [(None, None), (ClusterTime(110, 1), 9.0), (ClusterTime(100, 1), 0.0)])
def test_how_far_the_log_is_behind_a_source_that_does_not_answer_is_unknown(
    now: ClusterTime | None, seconds: float | None
) -> None:
    assert behind(now, [ClusterTime(200, 1), ClusterTime(100, 1), None]) == seconds
    assert behind(now, [None]) == 0


def test_a_lag_is_unknown_while_a_side_does_not_answer(capsys: pytest.CaptureFixture[str]) -> None:
    away = status(lag=Lag(3, None, 4.0))
    assert away.lag.seconds is None
    assert samples(away, *LAGS) == ["towpath_apply_lag_seconds"]
    assert "3 records, unknown" in shown(capsys, lag=Lag(3, None, 0.0))
    other = status(lag=Lag(None, 400.0))
    assert samples(other, *LAGS) == ["towpath_capture_lag_seconds"]
    assert set(samples(status(lag=Lag(0, 1.0, 0.0)), *LAGS)) == set(LAGS)


def test_dead_letters_that_cannot_be_read_are_not_none(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fail(*_: object) -> None:
        raise TopicError("cannot read shop.dead-letters")

    errors: list[Exception] = []
    found = status(dead_letters=part(fail, None, errors))
    assert [str(error) for error in errors] == ["cannot read shop.dead-letters"]
    assert samples(found, "towpath_dead_letters") == []
    assert samples(status(), "towpath_dead_letters") == ["towpath_dead_letters"]
    (line,) = (line for line in shown(capsys, dead_letters=None).splitlines() if "dead letters" in line)
    assert line.split() == ["dead", "letters", "unknown"]
