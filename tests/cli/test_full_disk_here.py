"""What this machine keeps when its disk is full: words that say so, and what was there before is whole."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.disk import Disk, small_disk
from tests.support.pipeline import TOWPATH
from towpath.config.events import as_line
from towpath.errors import TowpathError
from towpath.store import credentials, state_files, verdict_file
from towpath_verifier import Pair, VerifierError
from towpath_verifier.progress import Compared, Journal, Range
from towpath_verifier.reads import Bounds

NO_ROOM = "No space left on device"


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Disk]:
    with small_disk(tmp_path / "disk", 1) as disk:
        monkeypatch.setenv("XDG_STATE_HOME", str(disk.place / "state"))
        yield disk


def test_the_last_verdict_is_whole_when_there_is_no_room_for_the_next(disk: Disk) -> None:
    place = verdict_file.path("shop")
    with state_files.writing(place) as file:
        file.write(as_line({"clean": True}))
    disk.fill()
    with (
        pytest.raises(TowpathError, match=f"cannot keep .*verdict.jsonl: {NO_ROOM}"),
        state_files.writing(place) as file,
    ):
        for _ in range(10_000):
            file.write(as_line({"clean": False}))
    assert verdict_file.counts(place) == {"clean": True}
    assert [one.name for one in place.parent.iterdir()] == ["verdict.jsonl"]


def test_a_verdict_so_short_that_it_waits_for_the_end_of_the_file_is_not_taken_for_written(disk: Disk) -> None:
    place = verdict_file.path("shop")
    disk.fill()
    with pytest.raises(TowpathError, match=NO_ROOM), state_files.writing(place) as file:
        file.write(as_line({"clean": True}))
    assert not place.exists()
    (place.parent.parent / "file").touch()
    with pytest.raises(TowpathError, match=r"cannot keep .*: Not a directory; .* XDG_STATE_HOME"):
        state_files.folder("file/shop")


def test_a_journal_without_room_says_so_and_goes_on_with_what_it_holds(disk: Disk) -> None:
    journal = Journal(disk.place / "journal")
    ranges = [Range(0, Pair("a.b", "a.b"), Bounds(None, None), 7, ordered=True)]
    journal.begin({"way": 1}, 5.5, ranges)
    disk.fill()
    done = Compared(10, 400, [b"x" * 8000])
    with pytest.raises(VerifierError, match=f"cannot write .*journal.*: {NO_ROOM}"):
        journal.add(0, done)
    assert journal.read({"way": 1}) == (5.5, ranges, {})
    disk.empty()
    journal.add(0, done)
    found = journal.read({"way": 1})
    assert found is not None and found[1] == ranges


def test_secrets_are_those_of_before_when_there_is_no_room_for_others(disk: Disk) -> None:
    file = disk.place / "secrets" / "shop.properties"
    credentials.write(file, "source.uri=mongodb://old\n")
    disk.fill()
    with pytest.raises(TowpathError, match=f"cannot use {file}.*: {NO_ROOM}"):
        credentials.write(file, "source.uri=mongodb://new\n")
    assert file.read_text() == "source.uri=mongodb://old\n"
    assert list(file.parent.iterdir()) == [file]


def test_output_into_a_file_on_a_full_disk_ends_with_words(disk: Disk) -> None:
    with (disk.place / "out").open("w") as out:
        disk.fill()
        done = subprocess.run([TOWPATH, "--help"], stdout=out, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (2, f"towpath: cannot write the output: {NO_ROOM}; make room there\n")
