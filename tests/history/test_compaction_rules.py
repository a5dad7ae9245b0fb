"""What compaction knows of a partition, what topics are set to, what the settings of topics can lose."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import bson
import pytest

from tests.checks.test_check_judgements import PIPELINE, told
from tests.support.memory_topics import MemoryTopics
from tests.support.sessions import session_of
from towpath.checks import kafka
from towpath.checks.change import traps
from towpath.checks.facts import Facts
from towpath.checks.rule import run
from towpath.cli.compact import _print_pass
from towpath.clients.connect.rest import Connect
from towpath.clients.kafka.topics import Place, Topic, Topics
from towpath.clients.mongo.client import ClusterTime
from towpath.config.pipeline import Log, Pipeline
from towpath.deploy import deployment
from towpath.history import compaction
from towpath.history.compaction import interval
from towpath.history.unprotected import First, Part, Summary, summary
from towpath.log.definitions import COMPACTED_ONCE, MARK, change_settings, definitions, plain_settings, request_settings
from towpath.log.integrity import check
from towpath.log.records import is_update
from towpath.run.report import TopicLog
from towpath.run.status import unprotected

HOUR = 3_600_000
COMPACTION = Log(compact=True)
COMPACTED = PIPELINE.changed(log=COMPACTION)
A, B, C = (bson.encode({"_id": name}) for name in "abc")
DOCUMENT, UPDATE = bson.encode({"_id": 1, "v": 1}), bson.encode({"$set": {"v": 2}})


def part(*records: tuple[bytes, bytes | None]) -> Part:
    """A partition of which these were read: offsets from 0, a record a second."""
    found = Part()
    for offset, (key, value) in enumerate(records):
        found.take(offset, 1000 * offset, key, value)
    return found


def test_an_update_is_told_from_a_document_wherever_its_id_is() -> None:
    assert is_update(UPDATE)
    assert is_update(bson.encode({"$truncate": {"_id": 1}}))
    assert not is_update(DOCUMENT)
    assert not is_update(bson.encode({"$set": 1, "_id": 1}))
    assert not is_update(None)


def test_a_document_or_a_delete_protects_the_updates_before_it_and_none_after_it() -> None:
    found = part((A, UPDATE), (B, UPDATE), (A, UPDATE), (B, DOCUMENT), (C, DOCUMENT))
    assert found.dirty == {A: First(0, 0)}
    assert found.safe == 0
    found.take(5, 5000, B, UPDATE)
    found.take(6, 6000, A, None)
    assert found.dirty == {B: First(5, 5000)}
    assert (found.safe, found.oldest) == (5, First(5, 5000))
    found.take(7, 7000, B, DOCUMENT)
    assert (found.safe, found.oldest) == (8, None)
    found.reached(9, 9000)
    assert found.safe == 9


def test_nothing_is_committed_of_a_partition_of_which_nothing_is_known() -> None:
    assert Part().safe is None
    assert part().summary(5) == Summary(5, 0, None, None, False)


def test_summary_is_read_as_it_was_written_and_other_metadata_is_not_one() -> None:
    found = part((A, UPDATE)).summary(77)
    assert summary(found.written()) == found == Summary(77, 1, 0, 0, False)
    assert [summary(text) for text in ("", "x", "{}", "[]", '{"at": 1}')] == [None] * 5


def test_a_quiet_partition_is_asked_for_a_record_once_and_again_when_deletes_may_go() -> None:
    lag, long = COMPACTION.compaction_lag, COMPACTION.delete_retention
    found = part((A, DOCUMENT))
    assert not compaction.is_due(found, COMPACTION, lag)
    assert compaction.is_due(found, COMPACTION, lag + 1)
    found.nudge = A
    found.take(1, lag + 1, A, DOCUMENT)
    assert not compaction.is_due(found, COMPACTION, lag + 1 + long)
    assert compaction.is_due(found, COMPACTION, lag + 2 + long)
    found.take(2, lag + 3, B, None)
    assert compaction.is_due(found, COMPACTION, 2 * lag + 4)
    found.take(3, lag + 4, A, UPDATE)
    assert not compaction.is_due(found, COMPACTION, 10 * long)  # its document will close the segment


@pytest.mark.parametrize("answers", [False, True])
def test_what_the_source_does_not_answer_is_not_requested_in_each_pass(
    answers: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The collection was renamed, and a view has its name."""
    lag, place, requested = COMPACTION.compaction_lag, ("move.shop.a", 0), list[compaction.Document]()
    found = part((A, DOCUMENT))
    now_ms = lag + 1
    reader: Any = SimpleNamespace(parts={place: found}, records=0, dirty=0, oldest_seconds=None)
    reader.pause = reader.refresh = reader.end_wait = lambda **_: None
    session: Any = SimpleNamespace(pipeline=COMPACTED, topics=None)
    compactor = compaction.Compactor(session, reader)

    def reread(documents: list[compaction.Document]) -> tuple[int, int]:
        requested.extend(documents)
        if documents and answers:
            found.take((found.next or 0) + 1, now_ms, A, DOCUMENT)
        return len(documents), 0 if answers else len(documents)

    monkeypatch.setattr(compaction.time, "time", lambda: now_ms / 1000)
    monkeypatch.setattr(compaction, "key_in", lambda topics, place: A)
    monkeypatch.setattr(compactor, "_reread", reread)
    for step in ("_join", "_catch_up", "_commit"):
        monkeypatch.setattr(compactor, step, lambda: None)
    monkeypatch.setattr(compactor, "_enable_cleaner", lambda: ())
    for _ in range(3):
        compactor.run_pass()
        now_ms += lag + 1
    assert requested == [(place, A)]
    found.take(9, now_ms, B, DOCUMENT)
    now_ms += lag + 1
    compactor.run_pass()
    assert requested == [(place, A)] * 2  # the name may be a collection's again


@pytest.mark.parametrize(
    ("owner", "fields", "words"),
    [
        ("deploy", (["move.shop.a"], ()), "move.shop.a is protected: cleanup.policy now lets"),
        ("exist", ((), ["move.shop.a"]), "not compacted yet: move.shop.a; apply what `towpath topics` prints now"),
    ],
)
def test_a_pass_reports_what_it_has_enabled_and_what_is_left_to_the_owner_of_the_topics(
    owner: str,
    fields: tuple[Any, Any],
    words: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    session: Any = SimpleNamespace(pipeline=COMPACTED.changed(kafka={"topics": owner}), topics=None)
    reader: Any = SimpleNamespace(parts={}, records=0, dirty=0, oldest_seconds=None)
    reader.pause = reader.refresh = reader.end_wait = lambda **_: None
    compactor = compaction.Compactor(session, reader)
    for step in ("_join", "_catch_up", "_commit"):
        monkeypatch.setattr(compactor, step, lambda: None)
    monkeypatch.setattr(compactor, "_enable_cleaner", lambda: ["move.shop.a"])
    done = compactor.run_pass()
    assert (done.switched_on, done.ready) == fields
    _print_pass(done)
    assert words in capsys.readouterr().err


@pytest.mark.parametrize(
    ("owner", "words"),
    [("deploy", "run `towpath deploy`, which applies"), ("exist", "`towpath topics PIPELINE` prints")],
)
def test_another_lag_is_set_by_who_owns_the_topics(owner: str, words: str) -> None:
    facts: Any = SimpleNamespace(
        session=SimpleNamespace(require_deployed=lambda: None),
        pipeline=COMPACTED.changed(kafka={"topics": owner}),
        topics=SimpleNamespace(bootstrap="k:9092"),
        existing={COMPACTED.request_topic: None},
        log=(Topic("move.shop.a", 1),),
        topic_settings={"move.shop.a": {MARK: "1"}},
    )
    (found,) = compaction.deployed(facts)
    assert f"has {MARK}=1" in found.finding and words in found.advice


def test_change_topics_are_compacted_and_the_others_never() -> None:
    found = change_settings(COMPACTED)
    assert (found["cleanup.policy"], found["min.compaction.lag.ms"]) == ("compact", str(24 * HOUR))
    assert int(found["max.compaction.lag.ms"]) == 2 * int(found["segment.ms"]) == 48 * HOUR
    assert change_settings(COMPACTED.changed(log={"retention": HOUR}))["cleanup.policy"] == "compact,delete"
    assert plain_settings(COMPACTED) == request_settings(PIPELINE) == change_settings(PIPELINE)
    assert request_settings(COMPACTED) == plain_settings(COMPACTED) | {"retention.ms": str(7 * 24 * HOUR)}
    assert request_settings(COMPACTED.changed(log={"retention": HOUR}))["retention.ms"] == str(HOUR)
    assert "min.compaction.lag.ms" not in change_settings(PIPELINE)
    source = definitions(COMPACTED)["move-source"]
    assert {key: source[f"topic.creation.default.{key}"] for key in found} == found


def test_a_short_lag_has_a_short_interval() -> None:
    assert interval(COMPACTION) == HOUR
    assert interval(Log(compaction_lag="60s")) == 15_000


def violations(pipeline: Pipeline, every_ms: int = HOUR) -> list[str]:
    """What the preconditions find in the file."""
    with Connect("http://127.0.0.1:1") as connect, Topics("127.0.0.1:1") as topics:
        rules = compaction.preconditions(every_ms)[:-1]  # the last one asks servers
        found = run(rules, Facts(session_of(pipeline, connect, topics)))
        return [finding.finding + finding.advice for finding in found]


def test_what_cannot_be_compacted_is_refused() -> None:
    (reason,) = violations(COMPACTED)  # of mode plain, with Debezium's copy
    assert "does not support re-reads" in reason
    once = PIPELINE.changed(mode="exactly-once")
    (reason,) = violations(once)
    assert "compact = true" in reason
    assert violations(once.changed(log=COMPACTION), 12 * HOUR) == []
    (reason,) = violations(once.changed(log=COMPACTION), 12 * HOUR + 1)
    assert "more than half" in reason


@pytest.mark.parametrize(
    ("change", "begins", "level", "words"),
    [
        ({"cleanup.policy": "delete"}, 0, "warning", "not compacted yet"),
        ({"min.compaction.lag.ms": "0"}, 0, "error", "less than [log] compaction_lag"),
        ({"retention.ms": "604800000"}, 0, "warning", "retention.ms=604800000: "),
        ({"retention.bytes": "1000000"}, 0, "warning", "retention.bytes=1000000: "),
        ({}, 17, "warning", "begins at offset 17"),
    ],
)
def test_settings_that_can_lose_what_a_rebuild_needs(
    change: dict[str, str], begins: int, level: str, words: str
) -> None:
    good = change_settings(COMPACTED)
    assert told(kafka.guard(good, 0, COMPACTED)) == []
    ((found_level, finding),) = told(kafka.guard(good | change, begins, COMPACTED))
    assert found_level == level
    assert words in finding


@pytest.mark.parametrize(
    ("policy", "age", "committed", "unread"),
    [
        ("compact", 2.0, False, True),
        ("compact", None, False, False),
        ("compact", 0.5, False, False),  # compacted from the beginning: the cleaner does not come before the lag
        ("compact", 2.0, True, False),
        ("delete", 2.0, False, False),
    ],
)
def test_a_topic_that_is_compacted_before_the_service_has_read_it_is_an_error(
    policy: str, age: float | None, committed: bool, unread: bool
) -> None:
    """`age`: of its first record, in lags; None without records. The other partition is read."""
    log, lag = MemoryTopics(), COMPACTION.compaction_lag
    name = log.make("move.shop.a", 2, **{"cleanup.policy": policy})
    for n in range(2 if age is not None else 0):
        log.write(name, (A, DOCUMENT, 1), partition=n, at_ms=int(time.time() * 1000 - (age or 0) * lag))
        log.write(name, (A, UPDATE, 2), partition=n, at_ms=int(time.time() * 1000))
    log.positions = {(name, n): 2 for n in ((0, 1) if committed else (0,))}
    facts = Facts(session_of(COMPACTED, topics=log))
    facts.__dict__["existing"] = log.all()
    found = [*kafka.read_by_compaction(facts)]
    assert [(one.level, one.where) for one in found] == [("error", "cleanup.policy")] * unread
    assert all(name in one.finding and "compact --once --from-beginning" in one.advice for one in found)


def test_a_file_that_gives_the_service_no_time_is_a_trap() -> None:
    assert told(traps(COMPACTED, Path("move.toml"))) == []
    short = COMPACTED.changed(log={"compaction_lag": 60_000, "delete_retention": 60_000, "retention": 60_000})
    found = told(traps(short, Path("move.toml")))
    assert [level for level, words in found if "compact" in words] == ["warning", "warning"]


def test_status_warns_from_half_of_the_lag_on() -> None:
    def topic(dirty: int | None, oldest: float | None, told: float | None, behind: int) -> list[str]:
        one = TopicLog("shop.a", "move.shop.a", 10, None, 0, True, dirty, oldest, told, behind)
        return [*unprotected(COMPACTION, (one,))]

    half = COMPACTION.compaction_lag / 2000
    assert topic(3, half - 1, half - 1, 9) == []
    assert topic(0, None, half * 9, 0) == []  # there is nothing that it was not told of
    assert "is it running?" in topic(0, None, half + 1, 9)[0]
    assert "no whole document follows" in topic(3, half + 1, 1, 9)[0]
    assert "start it" in topic(None, None, None, 9)[0]


NOW_MS = 1_000 * HOUR
HALF = COMPACTION.compaction_lag // 2
PROTECTED = Summary(NOW_MS, 0, None, NOW_MS, False, read=NOW_MS)


@pytest.mark.parametrize(
    ("committed", "protected"),
    [
        (PROTECTED, True),
        (replace(PROTECTED, read=NOW_MS - HALF + 1), True),
        (replace(PROTECTED, dirty=1, oldest=NOW_MS - HALF + 1), True),
        (replace(PROTECTED, read=NOW_MS - HALF), False),
        (replace(PROTECTED, dirty=1, oldest=NOW_MS - HALF), False),
        (replace(PROTECTED, read=NOW_MS - HALF, dirty=1, oldest=NOW_MS), False),
        (replace(PROTECTED, read=None), False),  # it reads the log for the first time, and has come to no update yet
        (None, False),
    ],
)
def test_the_cleaner_is_let_at_a_topic_only_where_every_partition_was_seen_protected_lately(
    committed: Summary | None, protected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other partition is protected, and is committed by another instance of the service."""
    monkeypatch.setattr(compaction.time, "time", lambda: NOW_MS / 1000)
    topics = Compactable({0: PROTECTED.written(), 1: committed.written() if committed else "of another client"})
    assert topics.enabled() == (["move.shop.a"] if protected else [])
    assert topics.altered == ({"move.shop.a": {"cleanup.policy": "compact"}} if protected else {})


def test_a_summary_that_does_not_say_when_the_end_was_reached_is_known_and_protects_nothing() -> None:
    """Of an instance of an earlier version, which runs beside this one."""
    fields = json.loads(PROTECTED.written())
    del fields["read"]
    assert summary(json.dumps(fields)) == replace(PROTECTED, read=None)
    assert Compactable(dict.fromkeys((0, 1), json.dumps(fields))).enabled() == []


def test_a_partition_is_read_once_its_end_was_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    """An instance also commits before, so that others and `status` see that it runs."""
    place, ends = ("move.shop.a", 0), {("move.shop.a", 0): 2, ("move.shop.b", 0): 9}
    found = part((A, DOCUMENT))
    reader: Any = SimpleNamespace(parts={place: found}, ends=lambda: ends, records=0, dirty=0, oldest_seconds=None)
    reader.has_read = lambda of: (found.next or 0) >= of[place]
    session: Any = SimpleNamespace(pipeline=COMPACTED, topics=None)
    compactor, during = compaction.Compactor(session, reader), list[Summary]()

    def read_on(_: str) -> None:
        during.append(found.summary(NOW_MS + 1))
        found.take(found.next or 0, NOW_MS, B, DOCUMENT)

    monkeypatch.setattr(compactor, "_read_on", read_on)
    monkeypatch.setattr(compaction.time, "time", lambda: NOW_MS / 1000)
    compactor._catch_up()
    assert [(one.at, one.read) for one in during] == [(NOW_MS + 1, None)]
    assert found.summary(NOW_MS + 2).read == NOW_MS, "when the ends were read"


def test_topics_of_someone_else_are_named_in_each_pass_and_not_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction.time, "time", lambda: NOW_MS / 1000)
    topics = Compactable(dict.fromkeys((0, 1), PROTECTED.written()))
    compactor = topics.compactor(COMPACTED.changed(kafka={"topics": "exist"}))
    assert [compactor._enable_cleaner() for _ in range(2)] == [("move.shop.a",)] * 2 and topics.altered == {}


def test_a_partition_without_a_commit_keeps_the_cleaner_from_its_topic(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction.time, "time", lambda: NOW_MS / 1000)
    topics = Compactable({0: PROTECTED.written()})
    assert topics.enabled() == [] and topics.altered == {}


class Compactable:
    """The topics of a log of one topic with two partitions, which is not compacted yet; `commits`: of its group."""

    def __init__(self, commits: dict[int, str]) -> None:
        self._commits, self.altered = commits, dict[str, Any]()

    def all(self) -> dict[str, Topic]:
        return {"move.shop.a": Topic("move.shop.a", 2)}

    def committed_with_metadata(self, group: str) -> dict[Place, tuple[int, str]]:
        return {("move.shop.a", number): (9, text) for number, text in self._commits.items()}

    def settings_of_all(self, names: set[str], keys: object) -> dict[str, dict[str, str]]:
        return {name: {"cleanup.policy": "delete"} for name in names}

    def alter(self, names: list[str], settings: dict[str, str]) -> None:
        self.altered |= dict.fromkeys(names, settings)

    def compactor(self, pipeline: Pipeline) -> compaction.Compactor:
        """An instance that has one of the partitions."""
        session: Any = SimpleNamespace(pipeline=pipeline, topics=self)
        reader: Any = SimpleNamespace(parts={("move.shop.a", 0): Part()})
        return compaction.Compactor(session, reader)

    def enabled(self) -> list[str]:
        """The topics in which it enables compaction."""
        return list(self.compactor(COMPACTED)._enable_cleaner())


@pytest.mark.parametrize(
    ("lags", "new", "raised"),
    [
        ([HOUR], 2 * HOUR, HOUR),
        ([3 * HOUR, HOUR, 2 * HOUR], 3 * HOUR, HOUR),
        ([2 * HOUR], 2 * HOUR, None),
        ([2 * HOUR], HOUR, None),
        ([], HOUR, None),
    ],
)
def test_a_lag_that_is_raised_is_known_by_the_one_before(lags: list[int], new: int, raised: int | None) -> None:
    compacted = [{"cleanup.policy": "compact", MARK: str(lag)} for lag in lags]
    once = [{"cleanup.policy": "delete", MARK: str(lag)} for lag in lags]
    never = [{"cleanup.policy": "delete", MARK: "0"}]
    for now in (compacted, once, compacted + never):
        assert deployment._raised_from(now, {MARK: str(new)}) == raised
        assert deployment._raised_from(now, {}) is None
    assert deployment._raised_from(never, {MARK: str(new)}) is None
    assert deployment._raised_from([{"cleanup.policy": "compact", MARK: "0"}], {MARK: str(new)}) == 0


@pytest.mark.parametrize(
    ("name", "now", "set_now"),
    [
        ("move.shop.a", {"cleanup.policy": "compact"}, COMPACTED_ONCE),
        ("move.shop.a", {"cleanup.policy": "compact,delete", MARK: "0"}, COMPACTED_ONCE),
        ("move.shop.a", {"cleanup.policy": "compact", MARK: str(HOUR)}, {}),  # which stays, and shows it
        ("move.shop.a", {"cleanup.policy": "delete", MARK: "0"}, None),
        ("move.dead-letters", {"cleanup.policy": "compact", MARK: "0"}, {}),
    ],
)
def test_what_someone_has_compacted_shows_it_once_that_ends(
    name: str, now: dict[str, str], set_now: dict[str, str] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings, noted, altered = change_settings(PIPELINE), list[Any](), list[Any]()
    facts: Any = SimpleNamespace(pipeline=PIPELINE, topic_settings={name: settings | now}, uncompacted=())
    facts.topics = SimpleNamespace(alter=lambda names, to: altered.append((names, to)))
    facts.session = session_of(PIPELINE)
    monkeypatch.setattr(deployment.writers, "note_cleaned", lambda client, of, until: noted.append(until.timestamp()))
    changes = [*deployment._settings_changes(facts, [name], settings)]
    for change in changes:
        assert altered == [], "it is noted first"
        change.apply()
    assert altered == ([] if set_now is None else [([name], {"cleanup.policy": "delete", **set_now})])
    assert len(noted) == bool(set_now)
    assert all(time.time() < until < time.time() + 600 for until in noted)


def test_a_topic_that_was_compacted_once_has_no_earlier_point_in_time() -> None:
    topics, now = MemoryTopics(), int(time.time() * 1000)
    topics.make("move.shop.a", 1, **{"cleanup.policy": "delete", **COMPACTED_ONCE})
    topics.write("move.shop.a", (A, UPDATE, 200), at_ms=now - 10 * HOUR)
    topics.write("move.shop.a", (B, DOCUMENT, 300), at_ms=now)
    found = check(PIPELINE, topics, None, ClusterTime(100, 1), lambda *_: None, now - 5 * HOUR)
    assert [one.key for one in found.broken] == [A]
    assert found.earliest == ClusterTime(200, 1), "not later, as nothing compacts it any more"


def compacting(documents: int, patch: pytest.MonkeyPatch, gone: set[str], said: list[str]) -> tuple[Any, Any]:
    """A compactor and its reader, of a partition with so many unprotected updates; `gone`: what the source dropped."""
    keys = [bson.encode({"_id": n}) for n in range(documents)]
    parts = {("move.shop.a", 0): part(*((key, UPDATE) for key in keys)), ("move.shop.b", 0): part((A, UPDATE))}
    reader = SimpleNamespace(parts=parts, reads=0)
    session: Any = SimpleNamespace(pipeline=COMPACTED, topics=None, say=said.append, file="move.toml")
    patch.setattr(compaction.unreplicated, "gone", lambda session, names: gone & set(names))
    return compaction.Compactor(session, cast(Any, reader)), reader


def test_documents_of_a_collection_that_is_dropped_while_others_are_re_read_are_not_requested(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The answers may take hours, and those of dropped documents are deletes."""
    gone, said, requested = set[str](), list[str](), list[Place]()
    compactor, _ = compacting(5, monkeypatch, gone, said)
    monkeypatch.setattr(compaction, "_AT_ONCE", 2)

    def reread(batch: list[compaction.Document]) -> int:
        requested.extend(place for place, _ in batch)
        gone.add("shop.a")
        return 0

    monkeypatch.setattr(compactor, "_reread_batch", reread)
    assert compactor._reread(compactor._dirty()) == (2, 0)
    assert sorted(requested) == [("move.shop.a", 0), ("move.shop.b", 0)]


def test_many_documents_of_a_dropped_collection_do_not_end_the_pause_between_two_passes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They stay, so that each pass would follow the one before at once, for as long as no one decides."""
    gone, said, reads = {"shop.a"}, list[str](), list[float]()
    compactor, reader = compacting(5, monkeypatch, gone, said)
    monkeypatch.setattr(compaction, "MOST_DIRTY", 3)
    monkeypatch.setattr(compactor, "_reread_batch", lambda batch: 0)
    monkeypatch.setattr(compactor, "_commit", lambda: None)
    reader.dirty, reader.read = 6, reads.append

    def paused() -> bool:
        compactor._sweeping = iter([None] * 9)
        reads.clear()
        compactor.pause(0.01)
        return bool(reads)

    assert not paused(), "as far as is known, they can be requested"
    assert compactor._reread(compactor._dirty()) == (1, 0) and paused()
    gone.clear()  # the application has made it again, and someone has decided
    assert compactor._reread(compactor._dirty()) == (6, 0) and not paused()
