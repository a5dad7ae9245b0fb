"""The cache of fetched parts: whole, or not there."""

from __future__ import annotations

import threading
import zipfile
from pathlib import Path

import pytest

from towpath.errors import StackError
from towpath.stack import parts
from towpath.stack.parts import part


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TOWPATH_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


class Maker:
    """Makes a part of one file and counts how often it is asked to."""

    def __init__(self) -> None:
        self.times, self.said = 0, list[str]()

    def __call__(self, folder: Path) -> None:
        self.times += 1
        (folder / "jars").mkdir()
        (folder / "jars" / "a.jar").write_bytes(b"0123456789")

    def part(self) -> Path:
        return part("jars", "k1", "fetching a", self, self.said.append)


def test_a_part_is_made_once(place: Path) -> None:
    maker = Maker()
    assert maker.part() == maker.part() == place / "jars" / "k1"
    assert (maker.times, maker.said) == (1, ["fetching a"])


def test_a_part_cut_short_is_made_again_and_says_so() -> None:
    maker = Maker()
    jar = maker.part() / "jars" / "a.jar"
    jar.write_bytes(b"0123")
    assert maker.part() / "jars" / "a.jar" == jar
    assert jar.read_bytes() == b"0123456789"
    assert "k1 is damaged; again fetching a" in maker.said[-1]


def test_a_part_that_lost_a_file_is_made_again() -> None:
    maker = Maker()
    (maker.part() / "jars" / "a.jar").unlink()
    maker.part()
    assert maker.times == 2


def test_a_part_whose_making_failed_is_not_there(place: Path) -> None:
    def fail(folder: Path) -> None:
        (folder / "half").write_text("")
        raise StackError("no network")

    with pytest.raises(StackError):
        part("jars", "k1", "fetching", fail, print)
    assert [it.name for it in (place / "jars").iterdir()] == ["k1.lock"]


def test_what_a_dead_one_left_behind_is_removed(place: Path) -> None:
    (place / "jars" / ".k1.left" / "part").mkdir(parents=True)
    Maker().part()
    assert not (place / "jars" / ".k1.left").exists()


def test_two_that_want_the_same_part_at_once_make_it_once() -> None:
    maker = Maker()
    threads = [threading.Thread(target=maker.part) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert maker.times == 1


def test_a_cache_that_cannot_be_written_is_told(place: Path) -> None:
    place.write_text("a file", encoding="utf-8")
    with pytest.raises(StackError, match=rf"cannot write the cache {place}: .*name another with TOWPATH_CACHE"):
        Maker().part()


def test_jars_that_are_cut_short_or_missing_are_told(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "avro-1.jar", "w") as jar:
        jar.writestr("name", "text")
    (tmp_path / "kafka-1.jar").write_bytes(b"PK")
    with pytest.raises(StackError, match=r"not complete: kafka-1\.jar, bson; remove what is damaged"):
        parts._verify_jars(tmp_path, ["avro", "bson"])


def test_a_program_that_is_not_the_pinned_mongod_is_refused(tmp_path: Path) -> None:
    program = tmp_path / "mongod"
    program.write_text("#!/bin/sh\necho db version v4.0.0\n")
    program.chmod(0o755)
    with pytest.raises(StackError, match=r"--version should print 6\.0\.5, but: db version v4\.0\.0"):
        parts._verify_mongod(program)
