"""Which points in time a replay refuses, without servers."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.checks.test_check_judgements import PIPELINE
from tests.support.memory_topics import MemoryTopics
from tests.support.sessions import session_of
from tests.verify.test_repair_targets import FILE
from towpath.clients.mongo.client import ClusterTime
from towpath.config import loading as pipeline_file
from towpath.errors import TopicError
from towpath.history import preconditions
from towpath.history.plan import Options
from towpath.history.preconditions import ReplayFacts, point_in_time
from towpath.log import lag
from towpath.log.source_offsets import SourcePosition, SourceState, source_state
from towpath.session import Session

WHOLE = FILE + '[capture]\nwhole_documents = ["shop.dotted"]\n'


@pytest.mark.parametrize(
    ("text", "names", "refused"),
    [
        (WHOLE, ("dotted", "orders"), ["shop.dotted"]),
        (WHOLE, ("orders",), []),  # with --only
        (FILE, ("dotted", "orders"), []),
    ],
)
def test_a_collection_whose_updates_are_looked_up_has_no_point_in_time(
    tmp_path: Path, text: str, names: tuple[str, ...], refused: list[str]
) -> None:
    file = tmp_path / "shop.toml"
    file.write_text(text)
    inventory: Any = SimpleNamespace(
        pipeline=pipeline_file.read(file),
        sources={"shop-source": SourceState(SourcePosition(ClusterTime(9, 1), False))},
        copied=ClusterTime(1, 1),
        options=SimpleNamespace(until=ClusterTime(5, 1), only=()),
        log={(f"shop.shop.{name}", 0): (0, 9) for name in names},
    )
    found = list(point_in_time(cast(ReplayFacts, inventory)))
    assert [name for finding in found for name in ("shop.dotted", "shop.orders") if name in str(finding)] == refused
    assert all("whole_documents" in str(finding) for finding in found)
    inventory.options.until = None
    assert list(point_in_time(cast(ReplayFacts, inventory))) == []


ORDERS = "move.shop.orders"


@pytest.fixture
def waiting(monkeypatch: pytest.MonkeyPatch) -> tuple[Session, MemoryTopics, list[str]]:
    """A log whose second transaction is open."""
    topics, said = MemoryTopics(**{ORDERS: 2}), list[str]()
    topics.write(ORDERS, (b"k", b"v", 1))
    topics.write(ORDERS, (b"k", b"v", 2), at_ms=int(time.time() * 1000), commit=None)
    monkeypatch.setattr(preconditions, "_PAUSE_S", 0)
    monkeypatch.setattr(preconditions, "_LATE_S", -1)
    monkeypatch.setattr(lag, "_RECHECK", 0)
    return session_of(PIPELINE, topics=topics, say=said.append), topics, said


def test_the_log_of_a_replay_does_not_end_before_an_open_transaction(
    waiting: tuple[Session, MemoryTopics, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    session, topics, said = waiting
    monkeypatch.setattr(preconditions.time, "sleep", lambda _: setattr(topics.stored[ORDERS, 0], "stable", None))
    facts = ReplayFacts(session, Options((), False, 1.0, only_log=True))
    facts.deployed.existing, facts.sources = topics.all(), {}
    assert facts.log == {(ORDERS, 0): (0, 3), (ORDERS, 1): (0, 0)}
    assert said == [f"waiting: a transaction on {ORDERS}, partition 0, has not ended"]


def test_a_transaction_that_has_lost_its_end_is_refused(
    waiting: tuple[Session, MemoryTopics, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    session, topics, _ = waiting
    begun = int(time.time() * 1000) - 600_000
    topics.stored[ORDERS, 0].offsets[2] = begun, topics.message(ORDERS, 0, 2, b"k", b"v", at_ms=begun)
    log_of = list(topics.all().values())
    with pytest.raises(TopicError, match=r"at offset 2, has not ended") as refused:
        lag.committed_ends(topics, log_of, preconditions._ended(session, log_of, 60))
    assert "towpath restart" in refused.value.advice
    monkeypatch.setattr(preconditions, "refuse_hanging_transactions", lambda *of: None)
    with pytest.raises(TopicError, match=r"partition 0, has not ended in 0 s"):
        lag.committed_ends(topics, log_of, preconditions._ended(session, log_of, 0.01))


REPORT = {"namespace": "shop.report", "id": "40:1/0/shop.report", "from": "20:1", "to": "41:1"}


@pytest.mark.parametrize(
    ("refills", "only", "until", "refused"),
    [
        ([REPORT], (), 20, "shop.report was renamed or replaced at 20:1"),
        ([REPORT | {"changes": 3}], (), 20, "shop.report: 3 renames or replacements between 20:1"),
        ([REPORT | {"changes": 3}], ("shop.report",), 40, "no longer known"),
        ([REPORT | {"changes": 3}], (), 19, ""),
        ([REPORT | {"changes": 3}], (), 41, ""),
        ([REPORT | {"changes": 3}], ("shop.orders",), 40, ""),
        # of several collections
        ([REPORT | {"namespace": "", "changes": 2}], ("shop.orders",), 40, "some collections: 2 renames"),
        ([REPORT | {"namespace": "", "changes": 2}], ("shop.orders",), 41, ""),
    ],
)
def test_a_point_in_time_is_refused_while_the_log_may_not_have_all_of_a_replaced_collection(
    tmp_path: Path, refills: list[dict[str, Any]], only: tuple[str, ...], until: int, refused: str
) -> None:
    file = tmp_path / "shop.toml"
    file.write_text(FILE)
    schema = {"partition": {"towpath": "shop", "schema": True}, "offset": {"refills": json.dumps(refills)}}
    root = {"phase": "stream", "selection": "x", "namespaces": "[]", "copied": "1:1"}
    state = source_state([{"partition": {"towpath": "shop"}, "offset": root}, schema])
    inventory: Any = SimpleNamespace(
        pipeline=pipeline_file.read(file),
        sources={"shop-source": replace(state, position=SourcePosition(ClusterTime(99, 1), False))},
        options=SimpleNamespace(until=ClusterTime(until, 1), only=only),
        log={("shop.shop.report", 0): (0, 9)},
    )
    found = list(point_in_time(cast(ReplayFacts, inventory)))
    assert [refused in str(finding) for finding in found] == ([True] if refused else [])
    assert all("20:1 (1970-01-01T00:00:20Z), or 41:1" in finding.advice for finding in found)
