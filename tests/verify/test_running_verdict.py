"""The running verdict: kept for its owner only, read back as it was, and told in one line."""

from __future__ import annotations

import stat
import time
from dataclasses import replace
from pathlib import Path

import pytest

from towpath.config.events import Following
from towpath.errors import TowpathError
from towpath.store import verdict_file


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))


def verdict() -> Following:
    now = time.time()
    return Following(
        since=now - 60,
        at=now,
        following=True,
        records=2000,
        compared=1500,
        waiting=0,
        unresolved=0,
        missing=0,
        extra=0,
        different=0,
        order=0,
        behind_records=3,
        behind_seconds=0.5,
    )


def test_it_is_read_back_as_it_was_written_and_by_no_other() -> None:
    assert verdict_file.read_running("shop") is None
    verdict_file.write_running("shop", verdict())
    found = verdict_file.read_running("shop")
    assert found is not None
    assert found.compared == 1500
    assert stat.S_IMODE(verdict_file.running_path("shop").stat().st_mode) == 0o600
    assert stat.S_IMODE(verdict_file.running_path("shop").parent.stat().st_mode) == 0o700


def test_a_broken_one_is_refused_with_words() -> None:
    verdict_file.write_running("shop", verdict())
    verdict_file.running_path("shop").write_text('{"since": 1}')
    with pytest.raises(TowpathError, match="remove it"):
        verdict_file.read_running("shop")


def test_it_tells_what_differs_and_how_old_it_is() -> None:
    found = verdict()
    assert found.description == "following: no differences; 1,500 compared, 3 records, 0.5 s behind, 0 s ago"
    worse = replace(found, missing=2, order=1, waiting=4, unresolved=5)
    assert worse.differences == 3
    assert "2 missing, 1 order, 4 to be compared again, 5 not judged;" in worse.description


def test_one_that_nothing_keeps_any_more_is_not_said_to_follow() -> None:
    left = replace(verdict(), at=time.time() - 60).as_of_now()
    assert not left.following
    assert left.description.startswith("stopped:")
    assert left.description.endswith("60 s ago")
