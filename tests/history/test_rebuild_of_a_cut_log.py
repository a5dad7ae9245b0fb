"""A rebuild empties the destination only if the log still is the one that filled it."""

from __future__ import annotations

import dataclasses
import time
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import bson
import pytest
from click.testing import CliRunner

from tests.checks.test_check_judgements import PIPELINE
from tests.support.memory_topics import Made, MemoryTopics
from tests.support.sessions import session_of
from towpath.cli import control
from towpath.clients.kafka.topics import Place
from towpath.clients.mongo.client import ClusterTime
from towpath.errors import MongoUnreachable, NotWhole, Refused
from towpath.history import rebuild, replay
from towpath.history.plan import Log, Options, Plan
from towpath.history.preconditions import ReplayFacts
from towpath.history.sink_run import SinkRun
from towpath.log import bounds
from towpath.log.definitions import MARK
from towpath.log.integrity import LogCheck
from towpath.session import Session
from towpath.store.positions import Applied

OWN = PIPELINE.changed(mode="exactly-once")
ONE: Place = ("move.shop.one", 0)
LOG: Log = {ONE: (0, 4)}
OPTIONS = Options(only=(), force=False, timeout=1)


def report(phase: str, done: int, total: int) -> None:
    """Shows nothing."""


@pytest.fixture
def session() -> Session:
    """Its log begins at offset 0 and has two records."""
    topics = MemoryTopics(**{"move.shop.one": 1})
    for _ in range(2):
        topics.write("move.shop.one", (b"key", b"", 1))
    made = session_of(OWN, topics=topics)
    assert topics.ends(topics.all().values()) == LOG
    return made


def applied(monkeypatch: pytest.MonkeyPatch, position: Applied, accepted: dict[Place, str]) -> None:
    """What the destination has."""
    monkeypatch.setattr(bounds, "positions", lambda client, pipeline: {ONE: position})
    monkeypatch.setattr(bounds, "noted_breaks", lambda client, pipeline: accepted)


@pytest.mark.parametrize(
    ("position", "accepted", "code"),
    [
        (Applied(2, 1, topic_id="before"), {}, "TWP-LOG-TOPIC"),
        (Applied(9, 1, topic_id="id"), {}, "TWP-LOG-END"),
        (Applied(4, 2, topic_id="id"), {ONE: "TWP-LOG-TOPIC"}, "TWP-LOG-TOPIC"),
        (Applied(4, 2, topic_id="id"), {ONE: "TWP-LOG-END"}, "TWP-LOG-END"),
    ],
)
def test_a_recreated_or_shortened_topic_is_refused_before_and_after_it_is_accepted(
    session: Session, monkeypatch: pytest.MonkeyPatch, position: Applied, accepted: dict[Place, str], code: str
) -> None:
    applied(monkeypatch, position, accepted)
    with pytest.raises(NotWhole, match="nothing was changed"):
        replay.check_log(ReplayFacts(session, OPTIONS), LOG, report, force=False)
    forced = replay.check_log(ReplayFacts(session, OPTIONS), LOG, report, force=True)
    assert forced is not None and forced.cut_short[ONE].startswith(code)


def test_the_log_that_filled_the_destination_is_whole(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    applied(monkeypatch, Applied(4, 1, topic_id="id"), {})
    assert replay.check_log(ReplayFacts(session, OPTIONS), LOG, report, force=False) is None


def test_a_destination_that_cannot_tell_its_positions_is_not_emptied(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A replay to another cluster continues: the loss of the destination is a reason for one."""

    def unreachable(*_: Any) -> Any:
        raise MongoUnreachable("no primary")

    monkeypatch.setattr(bounds, "positions", unreachable)
    monkeypatch.setattr(bounds, "noted_breaks", unreachable)
    with pytest.raises(MongoUnreachable):
        replay.check_log(ReplayFacts(session, OPTIONS), LOG, report, force=True)
    elsewhere = ReplayFacts(session, Options(only=(), force=False, timeout=1, uri="mongodb://third"))
    assert replay.check_log(elsewhere, LOG, report, force=False) is None


def test_a_forced_rebuild_stores_that_the_log_was_cut_as_its_positions_no_longer_tell(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    noted: list[Any] = []
    monkeypatch.setattr(rebuild.positions, "note_breaks", lambda *of: noted.append(of[:3]))
    cut = LogCheck(4, (), (), None, cut_short={ONE: "TWP-LOG-TOPIC: the topic was deleted and recreated"})
    rebuild._note_breaks(session, cut)
    assert noted == [("destination", OWN, {ONE: "TWP-LOG-TOPIC"})]
    rebuild._note_breaks(session, LogCheck(4, (), (), None))
    rebuild._note_breaks(session, None)
    assert len(noted) == 1


def key(number: int) -> bytes:
    return bson.encode({"_id": number})


def records(*numbers: int, update: bool = False) -> list[Made]:
    values = [bson.encode({"$set": {"x": 1}} if update else {"_id": number}) for number in numbers]
    return [(key(number), value, 101) for number, value in zip(numbers, values, strict=True)]


@pytest.fixture
def compacted(monkeypatch: pytest.MonkeyPatch) -> Session:
    """Updates of 1, 2 and 3 follow their documents; the cleaner has removed that of 3."""
    topics = MemoryTopics()
    topics.make("move.shop.one", 1, **{"cleanup.policy": "compact", MARK: "3600000"})
    now = int(time.time() * 1000)
    topics.write("move.shop.one", *records(1, 2, 3), *records(1, 2, 3, update=True), at_ms=now)
    topics.clean("move.shop.one", 2)
    monkeypatch.setattr(bounds, "positions", lambda client, pipeline: {})
    monkeypatch.setattr(bounds, "noted_breaks", lambda client, pipeline: {})
    return session_of(OWN, topics=topics)


@pytest.mark.parametrize("forced", [True, False])
def test_what_the_cleaner_removes_while_the_log_is_applied_is_missing(compacted: Session, forced: bool) -> None:
    topics: Any = compacted.topics
    facts = ReplayFacts(compacted, OPTIONS)
    log: Log = topics.ends(topics.all().values())
    check = replay.check_log(facts, log, report, force=True) if forced else None
    run = SinkRun(facts, Plan(only=(), forced=forced, began=1.0, letters=0, log=log), check)
    if forced:
        replay.check_again(run, report, applied={})
        assert run.check is check, "nothing more is missing"
    topics.clean("move.shop.one", 1)
    replay.check_again(run, report, applied={})
    assert run.check is not None
    assert sorted(bson.decode(one.key)["_id"] for one in run.check.broken) == [2, 3]


@pytest.mark.parametrize(
    ("until", "follow", "applied"),
    [(None, False, {ONE: 9}), (None, True, {}), (ClusterTime(100, 1), False, None)],
)
def test_the_log_is_checked_again_before_the_verdict(
    compacted: Session, until: ClusterTime | None, follow: bool, applied: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A replay that has an end also as far as it has read on; for a point in time all of it."""
    asked, plan = (
        list[Any](),
        Plan(only=(), until=until, follow=follow, forced=False, began=1.0, letters=0, log={ONE: (0, 7)}),
    )

    def check_again(run: Any, report: Any, *, copied: Any = None, applied: Any) -> LogCheck:
        asked.append(applied)
        return LogCheck(4, (), (), ClusterTime(200, 1) if until else None)

    monkeypatch.setattr(replay, "check_again", check_again)
    monkeypatch.setattr(replay, "stop", lambda connect, name: None)
    monkeypatch.setattr(replay, "remove", lambda *of, **how: None)
    monkeypatch.setattr(replay.positions, "task_states", lambda client, pipeline: ())
    monkeypatch.setattr(replay.positions, "positions", lambda client, pipeline: {ONE: Applied(9, 1)})
    monkeypatch.setattr(ReplayFacts, "copied", ClusterTime(1, 1))
    verdicts = list[Any]()
    run: Any = SimpleNamespace(facts=ReplayFacts(compacted, OPTIONS), verdict=lambda **how: verdicts.append(how))
    of: Any = SimpleNamespace(plan=plan, name="replay", sink=OWN)
    replay._finish(run, of, report)
    assert (asked, verdicts) == ([applied], [{"records": 0, "earliest": ClusterTime(200, 1) if until else None}])


@pytest.mark.parametrize("phase", ["emptying", "applying"])
def test_a_sink_is_not_resumed_while_a_rebuild_empties_the_destination(
    session: Session, monkeypatch: pytest.MonkeyPatch, phase: Any
) -> None:
    """It would write documents that are deleted after it, and its position would be behind them."""
    plan = Plan(only=(), forced=False, began=1.0, letters=0, log=LOG, phase=phase)
    resumed: list[str] = []
    connect = SimpleNamespace(resume=resumed.append, config=lambda name: {})
    session = dataclasses.replace(session, connect=connect)  # type: ignore[arg-type]
    monkeypatch.setattr(control.deployment, "resume", lambda facts, name: resumed.append(name))
    monkeypatch.setattr(rebuild, "running", lambda client, pipeline: plan if client == "destination" else None)
    monkeypatch.setattr(control, "opened", lambda file: nullcontext(session))
    monkeypatch.setattr(Session, "require_deployed", lambda of: None)
    monkeypatch.setattr(control, "wait_running", lambda *of: None)
    monkeypatch.setattr(control, "refuse_loop_on_resuming", lambda of: None)
    monkeypatch.setattr(control.target, "require_same", lambda of: None)
    monkeypatch.setattr(control.cutover, "refuse", lambda of: None)
    monkeypatch.setattr(control.cutover, "is_cut_over", lambda of: False)
    monkeypatch.setattr(control.bounds, "accept", lambda of: ())
    is_refused = phase == "emptying"
    result = CliRunner().invoke(control.resume, [__file__])
    assert (result.exit_code != 0, isinstance(result.exception, Refused)) == (is_refused, is_refused), result.output
    with pytest.raises(Refused, match="replay PIPELINE --rebuild") if is_refused else nullcontext():
        control._accept_log_gap(session)
    assert bool(resumed) is not is_refused
