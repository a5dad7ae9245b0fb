"""The running verdict: kept for its owner only, read back as it was, and told in one line."""

from __future__ import annotations

import stat
import time
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import click
import pytest

from tests.checks.test_check_judgements import PIPELINE
from tests.cutover.test_gate import verdict as summary
from tests.support.sessions import session_of
from tests.verify.test_verdict_standing import gate_of
from towpath.cli import verify as command
from towpath.config.events import Following
from towpath.errors import TowpathError
from towpath.store import verdict_file
from towpath.store.verdict_file import FollowState
from towpath.verify.result import VerificationResult
from towpath.verify.run import VerifyRequest
from towpath.verify.verdict import Verification
from towpath_verifier import Options, Verdict


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
    unknown = replace(found, behind_records=None, behind_seconds=None)
    assert unknown.description == "following: no differences; 1,500 compared, unknown how far behind, 0 s ago"


@pytest.mark.parametrize(
    ("found", "code"),
    [
        ({}, 0),
        ({"waiting": 1}, 2),
        ({"unresolved": 1}, 2),
        ({"behind_records": 1}, 2),
        ({"behind_records": None}, 2),
        ({"missing": 1}, 1),
        ({"missing": 1, "waiting": 1, "unresolved": 1, "behind_records": 3}, 1),
    ],
)
def test_documents_that_are_not_judged_are_no_good_end(
    found: dict[str, int | None], code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    end = {"following": False, "behind_records": 0} | found
    monkeypatch.setattr(command, "follow", lambda *_: replace(verdict(), **end))
    monkeypatch.setattr(command, "handle", lambda handler: None)
    start = FollowState("one", "everything", False, True, None, 0.0, {}, ())
    result, request = VerificationResult(Verdict([])), VerifyRequest(True)
    with click.Context(command.verify), pytest.raises(click.exceptions.Exit) as ended:
        session = session_of(PIPELINE)
        command.end(result.verdict, command._follow(session, start, result, request, Options(), as_json=False))
    assert ended.value.exit_code == code


def test_documents_that_are_not_judged_keep_the_gate_red_until_all_is_compared_again() -> None:
    began = time.time() - 1_000
    full = summary(since=datetime.fromtimestamp(began, UTC).isoformat())
    known = Verification(full, full, follow=replace(verdict(), unresolved=2))
    good, words, advice = gate_of(known)
    assert (good, "2 documents not judged since" in words, advice) == (False, True, "towpath status shop.toml")
    assert [bad for _, bad in known.lines()] == [False, True]
    for follow in (replace(verdict(), missing=2), replace(verdict(), unresolved=2)):
        ended = replace(follow, at=began - 1, following=False)
        assert gate_of(replace(known, follow=ended))[0], "all was compared since"
        weak = replace(full, clean=False)
        assert not gate_of(Verification(weak, weak, follow=ended))[0]
        assert Verification(weak, weak, follow=ended).left == ended.differences


def test_one_that_nothing_keeps_any_more_is_not_said_to_follow() -> None:
    left = replace(verdict(), at=time.time() - 60).as_of_now()
    assert not left.following
    assert left.description.startswith("stopped:")
    assert left.description.endswith("60 s ago")
