"""What a dry run of a replay decides from what was gathered, and what it prints."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import bson
import pytest

from tests.checks.test_check_judgements import PIPELINE
from tests.support.memory_topics import MemoryTopics
from tests.support.sessions import FakeCluster, session_of
from towpath.checks.rule import error, warning
from towpath.cli.replay import _exit_code, rehearsed
from towpath.clients.mongo.client import ClusterTime
from towpath.errors import MongoUnreachable
from towpath.history import dry_run as module
from towpath.history.dry_run import Gathered, judged
from towpath.history.plan import END_OF_SECOND, Options, Plan
from towpath.history.preconditions import OF_BEGINNING, UNTIL, ReplayFacts
from towpath.log.integrity import BrokenKey, LogCheck
from towpath.log.source_offsets import SELECTION, SourcePosition, SourceState
from towpath.session import Session

EARLIEST = ClusterTime(1_795_284_000, 7)
WHOLE = LogCheck(records=4_000, headless=(), broken=(), earliest=EARLIEST)
LACKING = replace(WHOLE, broken=(BrokenKey("shop.orders", b"\x0e\0\0\0\x10_id\0\x07\0\0\0\0", 0, 3),))
PLAN = Plan(only=(), forced=False, began=1.0, letters=0, log={})
ACCEPTED = ClusterTime(1_795_284_000, END_OF_SECOND)
EMPTY = "the destination holds documents already, and a replay needs empty namespaces: shop.orders (5)"


def gathered(until: ClusterTime | None = ACCEPTED, *, force: bool = False, **found: Any) -> Gathered:
    options = Options((), force, 1.0, "mongodb://c", until=until)
    return Gathered("replay copy", options, **{"findings": [], "records": 4_711, "check": WHOLE} | found)


def test_an_accepted_point_in_time() -> None:
    found = judged(gathered())
    assert (found.accepted, found.until_accepted, found.whole, _exit_code(found)) == (True, True, True, 0)
    assert list(rehearsed(found)) == [
        "--until 2026-11-21T18:00:00Z is accepted",
        "the earliest point in time that can be rebuilt now: 1795284000:7 (2026-11-21T18:00:00Z)",
        "replay copy: would read about 4,711 records",
    ]


def test_one_that_is_too_early_is_rejected_with_the_earliest() -> None:
    found = judged(gathered(ClusterTime(1_795_283_999, END_OF_SECOND)))
    assert (found.accepted, found.until_accepted, found.earliest, _exit_code(found)) == (
        False,
        False,
        "1795284000:7",
        2,
    )
    lines = list(rehearsed(found))
    assert lines[0].startswith("error    --until 2026-11-21T17:59:59Z is before the earliest point in time")
    assert lines[1:] == [
        "--until 2026-11-21T17:59:59Z is rejected",
        "the earliest point in time that can be rebuilt now: 1795284000:7 (2026-11-21T18:00:00Z)",
        "replay copy: would not begin",
    ]


def test_another_error_leaves_the_point_in_time_accepted() -> None:
    finding = replace(error(EMPTY, "pass --empty"), subject="replay")
    found = judged(gathered(findings=[finding, warning("slow", "")]))
    assert (found.accepted, found.until_accepted, _exit_code(found)) == (False, True, 2)
    assert [finding["level"] for finding in found.findings] == ["error", "warning"]
    assert f"error    {EMPTY}; pass --empty" in list(rehearsed(found))


def test_what_is_found_about_the_point_in_time_rejects_it() -> None:
    assert UNTIL in {rule.name for rule in OF_BEGINNING}
    finding = replace(error("--until 9:9 is beyond what has been captured", "wait"), subject=UNTIL)
    assert judged(gathered(findings=[finding])).until_accepted is False


@pytest.mark.parametrize(
    ("force", "accepted", "ending"), [(False, False, "would not begin; --force"), (True, True, "")]
)
def test_a_log_that_lacks_something_is_told(force: bool, accepted: bool, ending: str) -> None:
    found = judged(gathered(None, force=force, check=LACKING))
    assert (found.accepted, found.whole, found.until_accepted, _exit_code(found)) == (accepted, False, None, 1)
    lines = list(rehearsed(found))
    assert lines[0] == 'missing  shop.orders {"_id": 7}: updates without their document, from 0:3 on'
    assert ending in lines[-1]
    assert accepted == lines[-1].endswith("; not whole")


def test_a_log_that_was_never_copied_is_not_whole() -> None:
    found = judged(gathered(force=True, uncopied=True))
    assert (found.accepted, found.whole, _exit_code(found)) == (True, False, 1)
    assert next(iter(rehearsed(found))).startswith("missing  what the source held")


def test_without_a_log_nothing_is_accepted() -> None:
    nothing = [replace(error("there is no log to replay", ""), subject="replay")]
    found = judged(gathered(findings=nothing, check=None, records=0))
    assert (found.accepted, found.until_accepted, found.earliest, _exit_code(found)) == (False, False, None, 2)


def test_what_is_deleted_first_is_told_when_it_is() -> None:
    counts = {"shop.orders": 1_200}
    assert judged(gathered(counts=counts)).deletes == {}
    found = gathered(counts=counts)
    for options in (replace(found.options, empty=True), replace(found.options, uri=None)):
        deleting = judged(replace(found, options=options))
        assert deleting.deletes == counts
        assert "would first delete about 1,200 documents of shop.orders" in list(rehearsed(deleting))


def test_a_replay_that_exists_would_continue_and_is_not_judged_again() -> None:
    found = judged(gathered(ClusterTime(1, 1), existing=PLAN))
    assert (found.accepted, found.continues, _exit_code(found)) == (True, True, 0)
    assert list(rehearsed(found))[-1] == "replay copy: would continue with about 4,711 records"


ORDERS = "move.shop.orders"


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> Session:
    """Of a pipeline that was copied at second 100 and has captured up to second 900; its destination is lost."""
    topics = MemoryTopics(**{ORDERS: 1})
    monkeypatch.setattr(topics, "brokers", tuple)
    topics.write(ORDERS, *((bson.encode({"_id": n}), bson.encode({"_id": n}), 100 + n) for n in range(8)))
    state = SourceState(SourcePosition(ClusterTime(900, 1), False), "stream", selection="s", copied=ClusterTime(100, 1))

    def facts(session: Session, options: Options) -> ReplayFacts:
        found = ReplayFacts(session, options)
        found.deployed.existing = topics.all()
        found.deployed.configurations = {"move-source": {SELECTION: "s"}}
        found.sources = {"move-source": state}
        return found

    monkeypatch.setattr(module, "ReplayFacts", facts)
    pipeline = PIPELINE.changed(mode="exactly-once")
    return session_of(pipeline, topics=topics, destination=FakeCluster(error=MongoUnreachable("it is lost")))


@pytest.mark.parametrize(
    ("until", "only", "accepted", "words"),
    [
        (None, (), None, ""),
        (ClusterTime(500, 1), ("shop.orders",), True, ""),
        (ClusterTime(99, 1), (), False, "before the earliest point in time"),
        (ClusterTime(901, 1), (), False, "is beyond what has been captured"),
        (ClusterTime(500, 1), ("shop.gone",), False, "the log holds no such namespace"),
    ],
)
def test_without_a_destination_the_log_is_checked(
    session: Session, until: ClusterTime | None, only: tuple[str, ...], accepted: bool | None, words: str
) -> None:
    found = module.dry_run(session, Options(only, False, 1.0, until=until, only_log=True), lambda *_: None)
    assert (found.would, found.until_accepted, found.accepted) == ("replay", accepted, not words)
    assert [words in finding["finding"] for finding in found.findings] == ([True] if words else [])
    if "namespace" not in words:
        assert (found.earliest, found.records) == ("100:1", 9)
