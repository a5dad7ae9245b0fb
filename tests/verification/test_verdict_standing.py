"""Which verdict counts: that of the same clusters and the same life, and which the destination has not forgotten."""

from __future__ import annotations

import fcntl
import os
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import bson
import pytest

from towpath import state_files
from towpath.errors import TowpathError
from towpath.events import Difference, as_line
from towpath.pipeline import Compaction
from towpath.verification import follow_state, verdict_file
from towpath.verification.follow_state import FollowState
from towpath.verification.full_verdict import VerdictContext
from towpath.verification.scope import Origin
from verifier.raw import id_key

NOW = Origin(
    {"source": "a/h1:1,h2:1", "destination": "b/h3:1"},
    {"source": {"shop.a": "01"}, "destination": {"shop.a": "02"}},
    {"shop.requests": "T1", "shop.shop.a": "T2"},
    {"include": ["shop.*"], "exclude": [], "rename": {}},
)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, ""),
        ({"sets": {**NOW.sets, "source": "a/h2:1,h9:1"}}, ""),
        ({"topics": {**NOW.topics, "shop.shop.new": "T9"}}, ""),
        ({"uuids": {**NOW.uuids, "source": {"shop.a": "01", "shop.new": "09"}}}, ""),
        ({"sets": {**NOW.sets, "destination": "b/h9:1"}}, "the destination was b/h3:1, and is b/h9:1"),
        ({"topics": {**NOW.topics, "shop.shop.a": "T9"}}, "the topic shop.shop.a is another one"),
        ({"topics": {}}, "the pipeline's log is gone"),
        ({"uuids": {**NOW.uuids, "destination": {"shop.a": "09"}}}, "at the destination shop.a was dropped since"),
        ({"uuids": {**NOW.uuids, "source": {}}}, "at the source shop.a was dropped since"),
        ({"selection": {**NOW.selection, "include": ["*.*"]}}, "the pipeline file named other collections then"),
    ],
)
def test_a_verdict_is_of_the_same_clusters_collections_and_life(changes: dict[str, Any], words: str) -> None:
    doubt = NOW.doubt(replace(NOW, **changes))
    assert words in doubt and bool(words) == bool(doubt)


def test_one_of_before_the_deployment_does_not_count() -> None:
    assert "not deployed" in replace(NOW, topics={}).doubt(NOW)


def test_single_collections_do_not_end_the_life() -> None:
    assert NOW.deployment_doubt(replace(NOW, uuids={"source": {}, "destination": {}}, selection={})) == ""


def verdict(id: str, at: str, **more: Any) -> dict[str, Any]:
    return {"id": id, "at": f"2026-11-22T{at}+00:00", "origin": NOW.as_json(), **more}


STORED = verdict("one", "10:00:00")


@pytest.mark.parametrize(
    ("stored", "here", "believed", "words"),
    [
        (None, None, None, ""),
        (STORED, None, "one", ""),
        (STORED, verdict("one", "10:00:00", at_destination=True), "one", ""),
        (STORED, verdict("before", "09:00:00", at_destination=True), "one", ""),
        (STORED, verdict("two", "11:00:00", at_destination=False), "two", ""),
        (STORED, verdict("two", "11:00:00", at_destination=True), None, "restored from a backup"),
        (None, verdict("two", "11:00:00", at_destination=True), None, "restored from a backup"),
        ({**STORED, "origin": replace(NOW, topics={"shop.requests": "T9"}).as_json()}, None, None, "deployed again"),
        ({**STORED, "origin": None}, None, None, "an older version made it"),
    ],
)
def test_the_destination_has_the_last_word(stored: Any, here: Any, believed: str | None, words: str) -> None:
    found, doubt = VerdictContext(NOW, "", stored, "").newest_full(here)
    assert (found and found["id"]) == believed
    assert words in doubt and bool(words) == bool(doubt)


def test_without_an_answer_nothing_counts() -> None:
    assert VerdictContext(None, "no answer", STORED, "").newest_full(None)[1].endswith("of this deployment: no answer")
    here = verdict("one", "10:00:00", at_destination=True)
    assert VerdictContext(NOW, "", None, "not authorised").newest_full(here)[1].endswith("not authorised")


PIPELINE: Any = SimpleNamespace(name="shop", compaction=None)
LEFT = FollowState(
    "one", "everything", False, True, NOW.as_json(), 1_000.0, {("shop.shop.a", 0): 50}, [("shop.a", b"x")]
)


@pytest.mark.parametrize(
    ("left", "firsts", "words"),
    [
        (LEFT, {("shop.shop.a", 0): 50, ("shop.shop.new", 0): 7}, ""),
        (LEFT, {("shop.shop.a", 0): 51}, "begins at 51, and 50 is next"),
        (replace(LEFT, of="everything of shop.b"), {}, "compared other namespaces"),
        (replace(LEFT, ignore_field_order=True), {}, "or in another way"),
        (replace(LEFT, whole=False), {}, "no verdict on some"),
        (replace(LEFT, origin=None), {}, "not known"),
        (replace(LEFT, origin=replace(NOW, topics={"shop.requests": "T9"}).as_json()), {}, "deployed again"),
    ],
)
def test_one_that_follows_goes_on_only_where_nothing_is_missed(left: FollowState, firsts: Any, words: str) -> None:
    why = left.reason_to_restart(replace(LEFT, at=2_000.0), PIPELINE, firsts)
    assert words in why and bool(words) == bool(why)


def test_deletes_may_be_gone_from_a_compacted_log() -> None:
    compacted: Any = SimpleNamespace(name="shop", compaction=Compaction(1, 1_000_000))
    assert LEFT.reason_to_restart(replace(LEFT, at=2_000.0), compacted, {}) == ""
    assert "longer ago" in LEFT.reason_to_restart(replace(LEFT, at=2_000.1), compacted, {})


EXTRA = Difference(namespace="shop.a", destination_namespace="shop.a", id=0, id_bson="00", kind="extra", paths=())


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return state_files.folder("shop")


def test_what_one_that_follows_leaves_is_read_back_and_is_a_verdict(state: Path) -> None:
    assert follow_state.read("shop") is None
    follow_state.write("shop", LEFT, [EXTRA], {"clean": False, "extra": 1})
    assert follow_state.read("shop") == LEFT
    assert [one.key for one in verdict_file.read(follow_state.path("shop"))] == [b"\0"]
    follow_state.path("shop").write_text('{"clean": true, "follow": {"places": 1}}\n')
    with pytest.raises(TowpathError, match="remove it"):
        follow_state.read("shop")


def test_several_write_one_file_and_the_last_to_end_counts(state: Path) -> None:
    place = state / "file"
    with state_files.writing(place) as one, state_files.writing(place) as other:
        one.write("one")
        other.write("other")
    assert place.read_text() == "one"
    assert [left.name for left in state.iterdir()] == ["file"]


def test_what_a_killed_writer_left_is_removed_and_what_another_writes_is_not(state: Path) -> None:
    place, old = state / "file", time.time() - 3600
    left, written = state / ".file.killed.new", state / ".file.written.new"
    for one in (left, written):
        one.write_text("half")
        os.utime(one, (old, old))
    with written.open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with state_files.writing(place) as file:
            file.write("whole")
    assert sorted(one.name for one in state.iterdir()) == [".file.written.new", "file"]


def test_a_lock_names_its_holder_until_it_is_free(state: Path) -> None:
    place = state / "lock"
    assert state_files.holder(place) == ""
    with state_files.locked(place) as mine, state_files.locked(place) as other:
        assert (mine, other) == ("", state_files.holder(place))
        assert other.startswith(f"pid {os.getpid()}, since 2")
    assert state_files.holder(place) == ""


def test_a_verdict_that_was_replaced_is_not_struck(state: Path) -> None:
    place = verdict_file.path("shop")
    counts = {"clean": False, "missing": 0, "extra": 1, "different": 0, "order": 0, "id": "two"}
    extra = replace(EXTRA, id_bson=bson.encode({"_id": 0}).hex())
    place.write_text(extra.line + as_line(counts))
    repaired = {(extra.namespace, id_key(extra.key))}
    verdict_file.remove_repaired(place, repaired, "one")
    assert verdict_file.counts(place) == counts
    verdict_file.remove_repaired(place, repaired, "two")
    assert (verdict_file.counts(place)["extra"], verdict_file.counts(place)["clean"]) == (0, True)


def test_a_page_is_whole_for_whoever_reads_it_meanwhile(tmp_path: Path) -> None:
    place = tmp_path / "page.html"
    state_files.publish(place, "first")
    with place.open() as reader:
        state_files.publish(place, "second \udcff")
        assert reader.read() == "first"
    assert place.read_text() == "second \\udcff"
    assert list(tmp_path.iterdir()) == [place]
    state_files.publish(Path(os.devnull), "nobody reads this")
