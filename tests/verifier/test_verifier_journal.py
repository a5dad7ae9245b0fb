"""What an interrupted run leaves, and the pauses between looks."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.support import bsonbytes as b
from towpath_verifier import Pair, Recheck, VerifierError
from towpath_verifier.journal import FinishedRange, Journal
from towpath_verifier.ranges import Bounds, Size, batch_size, between
from towpath_verifier.workers import Range

ID = b.document(("_id", b.Value(b.Type.STRING, b"\x02\0\0\0\xff\0")))
RANGES = [Range(n, Pair("a.b", "c.d"), one, 7, ordered=n == 0) for n, one in enumerate(between([ID]))]


def test_a_journal_gives_back_the_plan_and_what_was_done_though_its_last_line_is_torn(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal")
    assert journal.read({"way": 1}) is None
    assert journal.about() is None
    journal.begin({"way": 1}, 5.5, RANGES)
    assert journal.about() == {"way": 1}
    done = FinishedRange(0, 10, 200, 400, (ID,))
    journal.add(done)
    with journal.path.open("a") as file:
        file.write('{"range": 1, "cou')
    assert journal.read({"way": 1}) == (5.5, RANGES, {0: done})
    assert journal.path.stat().st_mode & 0o777 == 0o600
    with pytest.raises(VerifierError, match="compared something else"):
        journal.read({"way": 2})
    journal.end()
    assert journal.read({"way": 1}) is None


def test_ranges_leave_nothing_between_them_and_nothing_beyond() -> None:
    assert between([]) == [Bounds()]
    assert between([b"1", b"2"]) == [Bounds(None, b"1"), Bounds(b"1", b"2"), Bounds(b"2", None)]
    assert between([b"5"], Bounds(b"4", b"6")) == [Bounds(b"4", b"5"), Bounds(b"5", b"6")]


@pytest.mark.parametrize(
    ("sizes", "wanted"),
    [
        ((Size(0, 0), Size(0, 0)), 16_000),
        ((Size(1_000, 1_048_576), Size(10, 100)), 4_002),
        ((Size(3, 3 * 16_000_000), Size(3, 3)), 1),
    ],
)
def test_a_batch_weighs_a_few_megabytes(sizes: tuple[Size, ...], wanted: int) -> None:
    assert batch_size(*sizes) == wanted


def test_pauses_grow_up_to_the_last_and_leave_a_part_to_chance() -> None:
    recheck = Recheck(first=1, factor=2, jitter=0, tries=4)
    assert [recheck.pause(tried, random.Random(1)) for tried in range(6)] == [1, 2, 4, 8, 8, 8]
    lively = Recheck(first=1, factor=1, jitter=0.5)
    pauses = {lively.pause(0, random.Random(seed)) for seed in range(50)}
    assert len(pauses) == 50
    assert all(0.5 <= pause <= 1.5 for pause in pauses)


@pytest.mark.parametrize("wrong", [{"first": -1}, {"factor": 0.5}, {"jitter": 1}, {"tries": 0}, {"patience": -1}])
def test_pauses_that_cannot_be_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="is not valid"):
        Recheck(**wrong)  # type: ignore[arg-type]
