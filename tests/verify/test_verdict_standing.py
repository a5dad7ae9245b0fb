"""Which verdict counts: that of the same clusters and the same life, and which the destination has not forgotten."""

from __future__ import annotations

import fcntl
import math
import os
import re
import subprocess
import sys
import time
from dataclasses import asdict, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import bson
import pytest

from towpath.config.events import Difference, as_line
from towpath.config.pipeline import Log
from towpath.cutover import gate
from towpath.errors import Refused, TowpathError
from towpath.files import publish, replacing
from towpath.store import state_files, verdict_file
from towpath.store.verdict import Before
from towpath.store.verdict_file import FollowState
from towpath.verify import verdict as verdicts
from towpath.verify.result import VerificationResult, as_event
from towpath.verify.run import reason_to_restart, resumed
from towpath.verify.verdict import Origin, VerdictContext, Verification
from towpath_verifier import Journal, Options, Pair, Tally, Verdict, id_key

NOW = Origin(
    {"source": "a/h1:1,h2:1", "destination": "b/h3:1"},
    {"source": {"shop.a": "01"}, "destination": {"shop.a": "02"}},
    {"shop.requests": "T1", "shop.shop.a": "T2"},
    {"include": ["shop.*"], "exclude": [], "rename": {}},
    "",
)
GAP = "2026-11-22 10:30:00.000001 UTC, when a gap in the log was accepted"
LATER = replace(NOW, history=GAP)


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
        ({"topics": {"shop.requests": "T1"}}, "a part of the pipeline's log is gone: shop.shop.a"),
        ({"topics": {"shop.requests": "T1"}, "selection": {}}, "the pipeline file named other collections then"),
        ({"uuids": {**NOW.uuids, "destination": {"shop.a": "09"}}}, "at the destination shop.a was dropped since"),
        ({"uuids": {**NOW.uuids, "source": {}}}, "at the source shop.a was dropped since"),
        ({"selection": {**NOW.selection, "include": ["*.*"]}}, "the pipeline file named other collections then"),
        ({"history": GAP}, f"the destination has another history since {GAP}"),
    ],
)
def test_a_verdict_is_of_the_same_clusters_collections_and_life(changes: dict[str, Any], words: str) -> None:
    doubt = NOW.doubt(replace(NOW, **changes))
    assert words in doubt and bool(words) == bool(doubt)


def test_a_destination_that_was_restored_to_an_earlier_history_is_doubted() -> None:
    assert LATER.doubt(NOW) == "the destination has an older history"


@pytest.mark.parametrize(
    ("before", "now", "words"),
    [
        (None, NOW, ""),
        (NOW, NOW, ""),
        (replace(NOW, topics={}), replace(NOW, topics={}), ""),
        (NOW, replace(NOW, sets={**NOW.sets, "source": "a/h2:1"}), ""),
        (NOW, LATER, "a gap in the log was accepted; run `towpath verify` without --resume"),
        (NOW, replace(NOW, topics={"shop.requests": "T9"}), "deployed again"),
        (NOW, None, "cannot check what it belongs to: no answer"),
    ],
)
def test_a_run_goes_on_only_in_the_history_in_which_it_began(
    before: Origin | None, now: Origin | None, words: str, tmp_path: Path
) -> None:
    journal = Journal(tmp_path / "journal")
    stored, later = Before("one", {"two": "10:00"}), Before("three")
    lag = 5.0 if before is NOW else 0.0  # older runs stored none
    about = before and {"origin": before.as_json(), "before": asdict(stored)} | ({"lag": lag} if lag else {})
    journal.begin({"origin": about}, 1.0, [])
    if words:
        with pytest.raises(Refused, match=re.escape(words)):
            resumed(journal, now, "no answer", later, 7.0)
    else:
        found = resumed(journal, now, "no answer", later, 7.0)
        wanted = (before, stored, lag) if before else (None, Before(), 7.0)
        assert found == wanted, "the verdict belongs where its first range does"


def test_without_a_run_to_resume_the_origin_is_that_of_now(tmp_path: Path) -> None:
    assert resumed(Journal(tmp_path / "journal"), LATER, "", Before("one"), 7.0) == (LATER, Before("one"), 7.0)


def test_one_of_before_the_deployment_does_not_count() -> None:
    assert "not deployed" in replace(NOW, topics={}).doubt(NOW)


def test_single_collections_do_not_end_the_life() -> None:
    assert NOW.deployment_doubt(replace(NOW, uuids={"source": {}, "destination": {}}, selection={})) == ""


def verdict(id: str, at: str, **more: Any) -> dict[str, Any]:
    stamp = f"2026-11-22T{at}+00:00"
    return {"id": id, "at": stamp, "since": stamp, "origin": NOW.as_json(), **more}


STORED = verdict("one", "10:00:00")
#: Of a clock that was wrong.
FUTURE = {**verdict("two", "11:00:00", at_destination=True), "since": "2999-11-22T11:00:00+00:00"}


@pytest.mark.parametrize(
    ("stored", "here", "believed", "words"),
    [
        (None, None, None, ""),
        (STORED, None, "one", ""),
        (STORED, verdict("one", "10:00:00", at_destination=True), "one", ""),
        (STORED, verdict("before", "09:00:00", at_destination=True), "one", ""),
        (STORED, verdict("two", "11:00:00", at_destination=False), "two", ""),
        (STORED, verdict("two", "11:00:00", at_destination=True), None, "restored from a backup"),
        (STORED, FUTURE, "one", ""),
        (None, verdict("two", "11:00:00", at_destination=True), None, "restored from a backup"),
        ({**STORED, "origin": replace(NOW, topics={"shop.requests": "T9"}).as_json()}, None, None, "deployed again"),
        ({**STORED, "origin": None}, None, None, "it does not name its deployment"),
        ({**STORED, "origin": LATER.as_json()}, None, None, "an older history"),
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


HOUR = timedelta(hours=1)
COUNTS = dict.fromkeys(("missing", "extra", "different", "order", "metadata", "seconds"), 0)
GOOD: dict[str, Any] = {"of": "everything", "verdict": "same", "clean": True, "compared": 3, **COUNTS}


@pytest.mark.parametrize(
    ("since", "changes", "good", "words"),
    [
        (HOUR, {}, True, "60 min ago"),
        (HOUR * 3, {"at": datetime.now(UTC).isoformat()}, False, "3.0 h ago"),
        (-HOUR, {}, False, "dated 60 min in the future"),
        (HOUR, {"verdict": "same, field order ignored"}, False, "same, field order ignored: 3 documents"),
        (HOUR, {"verdict": "screened"}, False, "screened: 3 documents"),
        (HOUR, {"verdict": "not the same", "clean": False, "missing": 1}, False, "not the same (1 missing)"),
    ],
)
def test_a_cutover_needs_everything_the_same_by_all_bytes_and_lately(
    since: timedelta, changes: dict[str, Any], good: bool, words: str
) -> None:
    began = (datetime.now(UTC) - since).isoformat()
    full = verdicts.Verdict.read(verdict("one", "10:00:00") | GOOD | {"since": began} | changes)
    found = gate_of(Verification(full, full))
    assert (found[0], words in found[1]) == (good, True), found


@pytest.mark.parametrize(
    ("options", "headline"),
    [
        (Options(), "same"),
        (Options(ignore_field_order=True), "same, field order ignored"),
        (Options(screen=True, ignore_field_order=True), "screened"),
    ],
)
def test_a_verdict_says_what_was_not_compared(options: Options, headline: str) -> None:
    result = VerificationResult(Verdict([Tally(Pair("shop.a", "shop.a"), options.way)]))
    found = verdicts.Verdict.read(as_event(result, "everything").as_json())
    assert (found.verdict, found.clean) == (headline, True)
    assert 0 <= found.age < 60


def test_collections_that_no_verdict_compared_are_named(state: Path) -> None:
    full = verdict("one", "10:00:00") | GOOD | {"since": datetime.now(UTC).isoformat()}
    now = replace(NOW, uuids={"source": {"shop.a": "01"}, "destination": {"shop.a": "02", "shop.new": "09"}})
    verified = Verification.of("shop", VerdictContext(now, "", full, ""))
    assert gate_of(verified)[0] and "not compared, because created since: shop.new" in gate_of(verified)[1]
    assert ("created after the verdict on everything, and not compared: shop.new", False) in list(verified.lines())


def gate_of(verified: Verification) -> gate.Result:
    """What the gate says about a verdict, which may be two hours old."""
    readiness: Any = SimpleNamespace(
        session=SimpleNamespace(file="shop.toml"),
        options=SimpleNamespace(max_age=7_200.0),
        verdict=verified,
        complete_s=math.inf,
    )
    return gate.verified(readiness)


PIPELINE: Any = SimpleNamespace(name="shop", log=Log())
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
        (replace(LEFT, origin=LATER.as_json()), {}, "an older history"),
        (replace(LEFT, origin=replace(NOW, topics={"shop.requests": "T9"}).as_json()), {}, "deployed again"),
    ],
)
def test_one_that_follows_goes_on_only_where_nothing_is_missed(left: FollowState, firsts: Any, words: str) -> None:
    why = reason_to_restart(left, replace(LEFT, at=2_000.0), PIPELINE, firsts)
    assert words in why and bool(words) == bool(why)


def test_deletes_may_be_gone_from_a_compacted_log() -> None:
    compacted: Any = SimpleNamespace(name="shop", log=Log(compact=True).changed(delete_retention=1_000_000))
    assert reason_to_restart(LEFT, replace(LEFT, at=2_000.0), compacted, {}) == ""
    assert "longer ago" in reason_to_restart(LEFT, replace(LEFT, at=2_000.1), compacted, {})


EXTRA = Difference(namespace="shop.a", destination_namespace="shop.a", id=0, id_bson="00", kind="extra", paths=())


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return state_files.folder("shop")


def test_what_one_that_follows_leaves_is_read_back_and_is_a_verdict(state: Path) -> None:
    assert verdict_file.read_followed("shop") is None
    verdict_file.write_followed("shop", LEFT, [EXTRA], {"clean": False, "extra": 1})
    assert verdict_file.read_followed("shop") == LEFT
    assert [one.key for one in verdict_file.read(verdict_file.followed_path("shop"))] == [b"\0"]
    verdict_file.followed_path("shop").write_text('{"clean": true, "follow": {"places": 1}}\n')
    with pytest.raises(TowpathError, match="remove it"):
        verdict_file.read_followed("shop")


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
    publish(place, "first")
    with place.open() as reader:
        publish(place, "second \udcff")
        assert reader.read() == "first"
    assert place.read_text() == "second \\udcff"
    assert list(tmp_path.iterdir()) == [place]
    assert place.stat().st_mode & 0o777 == 0o600, "it shows documents"
    publish(Path(os.devnull), "no one reads this")


def test_no_one_can_place_a_link_where_a_file_is_about_to_be_written(tmp_path: Path) -> None:
    place, names = tmp_path / "page.html", set[str]()
    for _ in range(2):
        with replacing(place):
            names |= {one.name for one in tmp_path.glob(".page.html.*.new")}
    assert len(names) == 2 and f".page.html.{os.getpid()}.new" not in names, names


def test_files_are_utf_8_in_a_locale_without_it(tmp_path: Path) -> None:
    file, text = tmp_path / "shop.properties", "source.uri=mongodb://Zoë:müde@db\n"
    program = (
        "import sys; from pathlib import Path; from towpath.store import credentials; file, text = sys.argv[1:];"
        "text = bytes.fromhex(text).decode('utf-8'); credentials.write(Path(file), text);"
        "assert not credentials.differs(Path(file), text)"
    )
    ascii_only = os.environ | {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}
    words = [sys.executable, "-c", program, str(file), text.encode().hex()]
    subprocess.run(words, env=ascii_only, check=True)
    assert file.read_bytes() == text.encode()
