"""What an interrupted run leaves, and the ranges of a plan."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import bsonbytes as b
from towpath_verifier import Journal, Pair, VerifierError
from towpath_verifier.plan import batch_size
from towpath_verifier.progress import Compared, Range
from towpath_verifier.reads import Bounds, Size

ID = b.document(("_id", b.Value(b.Type.STRING, b"\x02\0\0\0\xff\0")))
RANGES = [Range(n, Pair("a.b", "c.d"), one, 7, ordered=n == 0) for n, one in enumerate(Bounds().split([ID]))]


def test_a_journal_gives_back_the_plan_and_what_was_done_though_its_last_line_is_torn(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal")
    assert journal.read({"way": 1}) is None
    assert journal.about() is None
    journal.begin({"way": 1}, 5.5, RANGES)
    assert journal.about() == {"way": 1}
    done = Compared(10, 400, [ID])
    journal.add(0, done)
    with journal.path.open("a") as file:
        file.write('{"range": 1, "cou')
    assert journal.read({"way": 1}) == (5.5, RANGES, {0: done})
    assert journal.path.stat().st_mode & 0o777 == 0o600
    with pytest.raises(VerifierError, match="compared something else"):
        journal.read({"way": 2})
    journal.end()
    journal.end()  # a run of which nothing was to be kept
    assert journal.read({"way": 1}) is None


def test_ranges_leave_nothing_between_them_and_nothing_beyond() -> None:
    assert Bounds().split([]) == [Bounds()]
    assert Bounds().split([b"1", b"2"]) == [Bounds(None, b"1"), Bounds(b"1", b"2"), Bounds(b"2", None)]
    assert Bounds(b"4", b"6").split([b"5"]) == [Bounds(b"4", b"5"), Bounds(b"5", b"6")]


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
