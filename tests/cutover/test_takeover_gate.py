"""What the gate of a takeover says of the log, from the source connector's offsets."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pymongo.errors import ConnectionFailure

from tests.support.cutover_world import pipeline_of
from tests.support.sessions import FakeCluster, session_of
from towpath.checks.rule import Finding
from towpath.clients.connect.rest import Connector, Task
from towpath.clients.mongo.client import ClusterTime
from towpath.cutover import takeover
from towpath.cutover.steps import CutoverOptions
from towpath.cutover.takeover import Loss, point
from towpath.errors import MongoUnreachable, Refused
from towpath.log.source_offsets import CollectionCopy, Refill, SchemaCapture, SourcePosition, SourceState

BEFORE, AT, LATER = (ClusterTime(100, number) for number in range(3))
WHOLE = SourceState(SourcePosition(AT, False), phase="stream", copied=BEFORE)
SPLIT = {
    "lost": (replace(WHOLE, lost=True), "has lost a part of the source's changes"),
    "gap": (replace(WHOLE, gap=AT), "has lost a part of the source's changes"),
    "open": (replace(WHOLE, open=AT), "ends inside a transaction of 100:1"),
    "rows": (replace(WHOLE, copied=AT), "as of up to 100:1"),
    "changed": (replace(WHOLE, changed={"shop.users": 3}), "changes of 3 documents were not read"),
    "refill": (
        replace(WHOLE, schema=SchemaCapture(refills=(Refill("shop.users", AT, None),))),
        "is not read to its end",
    ),
}


def findings(tmp_path: Path, accepts: bool, *states: SourceState) -> list[Finding]:
    session = session_of(pipeline_of(tmp_path))
    loss = Loss(session, CutoverOptions(accepts=accepts))
    loss.__dict__["states"] = {f"source-{number}": state for number, state in enumerate(states)}
    return list(takeover._consistent(loss))


@pytest.mark.parametrize("case", SPLIT)
def test_what_is_not_one_state_of_the_source_is_told_until_it_is_accepted(tmp_path: Path, case: str) -> None:
    state, words = SPLIT[case]
    [found] = findings(tmp_path, False, state)
    assert (found.level, words in found.finding, "--accept" in found.advice) == ("error", True, True), found
    [found] = findings(tmp_path, True, state)
    assert (found.level, found.advice) == ("warning", "")


def test_one_state_is_green_and_two_connectors_at_two_times_are_not(tmp_path: Path) -> None:
    [found] = findings(tmp_path, False, WHOLE, WHOLE)
    assert (found.level, found.finding) == ("ok", "one state of the source")
    [found] = findings(tmp_path, False, WHOLE, replace(WHOLE, position=SourcePosition(LATER, False)))
    assert "100:1, 100:2" in found.finding


def test_the_point_is_that_of_the_slowest_and_there_is_none_before_the_copy_is_complete() -> None:
    later = replace(WHOLE, position=SourcePosition(LATER, False))
    assert point({"a": later, "b": WHOLE}) == AT
    for state in (
        replace(WHOLE, phase="copy"),
        replace(WHOLE, position=None),
        replace(WHOLE, position=SourcePosition(AT, True)),
        replace(WHOLE, copies=(CollectionCopy("shop.users", None, 0, 0, (), 0),)),
    ):
        with pytest.raises(Refused, match="has not completed its copy"):
            point({"a": state})


def capture(state: str, *tasks: str) -> Connector:
    trace = "java.lang.Exception: boom"
    each = (Task(number, task, "w", trace if task == "FAILED" else "") for number, task in enumerate(tasks))
    return Connector("shop-source", state, "w", tuple(each), trace if state == "FAILED" else "")


RUNNING = capture("RUNNING", "RUNNING", "RUNNING")
#: Nothing of these listens to the source, or not all.
DEAF = (
    *(capture(state) for state in ("PAUSED", "STOPPED", "UNASSIGNED", "MISSING", "FAILED", "RUNNING")),
    *(capture("RUNNING", "RUNNING", state) for state in ("FAILED", "UNASSIGNED", "RESTARTING", "PAUSED")),
    capture("UNASSIGNED", "RUNNING"),
)


class Listening:
    """The capture, and what it shows of itself, second by second."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.connector: Callable[[float], Connector] = lambda now: RUNNING
        self.state: Callable[[float], SourceState] = lambda now: WHOLE
        self.now = 0.0
        connect = SimpleNamespace(status=lambda name: self.connector(self.now))
        self.session = session_of(pipeline_of(folder), connect)
        patch.setattr(takeover, "source_states", lambda session: {"shop-source": self.state(self.now)})
        patch.setattr(takeover, "time", SimpleNamespace(monotonic=lambda: self.now, sleep=self._sleep))

    def _sleep(self, seconds: float) -> None:
        self.now += seconds

    def finding(self, **options: Any) -> Finding:
        [found] = takeover._capture(Loss(self.session, CutoverOptions(**options)))
        return found


@pytest.fixture
def listening(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Listening:
    return Listening(tmp_path, monkeypatch)


def test_the_silence_of_a_capture_counts_while_it_runs(listening: Listening) -> None:
    assert listening.finding().level == "ok" and listening.now >= 15


@pytest.mark.parametrize("connector", DEAF, ids=lambda one: f"{one.state} {[task.state for task in one.tasks]}")
@pytest.mark.parametrize("since", [0.0, 7.0, 14.5], ids=str)
def test_the_silence_of_a_capture_that_does_not_run_proves_nothing(
    listening: Listening, connector: Connector, since: float
) -> None:
    """From the beginning, or since some time in which it was watched: the source may live."""
    listening.connector = lambda now: connector if now >= since else RUNNING
    found = listening.finding()
    assert found.level == "error" and f"shop-source is {connector.state}" in found.finding, found
    assert "--source-is-lost" in found.advice and "not known whether the workers reach" in found.finding
    assert ("boom" in found.finding) is bool(connector.failures)
    listening.now = 0.0
    assert listening.finding(source_is_lost=True).level == "ok" and listening.now == 0.0


def test_a_capture_that_has_just_been_resumed_is_listened_to_once_it_runs(listening: Listening) -> None:
    listening.connector = lambda now: RUNNING if now >= 8 else capture("RUNNING", "UNASSIGNED")
    assert listening.finding().level == "ok" and listening.now >= 8 + 15
    listening.state = lambda now: replace(WHOLE, position=SourcePosition(LATER, False)) if now >= 20 else WHOLE
    listening.now = 0.0
    assert "whose position moves" in listening.finding().finding


class Answers(FakeCluster):
    """A source without a primary, and what the driver knows of its members."""

    def __init__(self, **members: str) -> None:
        known = {(host, 27017): SimpleNamespace(server_type_name=kind) for host, kind in members.items()}
        ping: Any = SimpleNamespace(command=self._ask)
        topology = SimpleNamespace(server_descriptions=lambda: known)
        super().__init__(SimpleNamespace(admin=ping, topology_description=topology))
        self.has_primary = "RSPrimary" in members.values()

    def _ask(self, command: str) -> None:
        if not self.has_primary:
            raise ConnectionFailure("No replica set members match selector")

    @contextmanager
    def connected(self, **_: float) -> Any:
        try:
            yield self._client
        except ConnectionFailure as failure:
            raise MongoUnreachable(str(failure)) from failure


@pytest.mark.parametrize(
    ("members", "level", "words"),
    [
        ({"a": "RSPrimary", "b": "RSSecondary"}, "error", "the source answers at"),
        ({"a": "Unknown", "b": "Unknown"}, "ok", "does not answer: No replica set members"),
        ({}, "ok", "does not answer"),
        (
            {"a": "Unknown", "b": "RSSecondary"},
            "error",
            "no primary of the source answers, but other members do (b:27017)",
        ),
        ({"a": "Unknown", "b": "RSOther"}, "error", "other members do (b:27017)"),
        ({"a": "Unknown", "b": "RSArbiter", "c": "RSSecondary"}, "error", "other members do (b:27017, c:27017)"),
    ],
)
def test_a_source_is_lost_only_if_no_member_answers(
    tmp_path: Path, members: dict[str, str], level: str, words: str
) -> None:
    """Members without a primary may be the smaller part of a source that lives."""
    session = session_of(pipeline_of(tmp_path), source=Answers(**members))
    for is_lost in (False, True):
        loss = Loss(session, CutoverOptions(source_is_lost=is_lost))
        loss.__dict__["asked"] = object()
        [found] = takeover._source(loss)
        assert words in found.finding, found
        assert found.level == ("warning" if is_lost and level == "error" else level)
        assert level == "ok" or is_lost or "--source-is-lost" in found.advice
