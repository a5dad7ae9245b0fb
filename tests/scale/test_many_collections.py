"""With many collections, what is done grows with their number and not with its square: counted, not timed."""

from __future__ import annotations

import re
import threading
import time
import weakref
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import bson
import pytest
from pymongo.errors import OperationFailure

from tests.checks.test_check_judgements import PIPELINE
from tests.support import verdicts
from tests.support.sessions import session_of
from towpath.checks.facts import Facts
from towpath.checks.source import bad_names
from towpath.clients.kafka.topics import Place, Topic, Topics
from towpath.config import namespaces
from towpath.config.events import Difference
from towpath.config.namespaces import Selection, unmatched
from towpath.config.pipeline import Pipeline
from towpath.deploy import deployment, schema
from towpath.deploy.schema import Step
from towpath.log import integrity
from towpath.log.changed_keys import Unread
from towpath.log.definitions import change_settings
from towpath.log.lag import change_topics
from towpath.run.report import Raw
from towpath.run.restarts import HangingTransactions
from towpath.run.status import read_log
from towpath.store import verdict_file
from towpath.verify import follower, recent
from towpath_verifier import Difference as DocumentDifference
from towpath_verifier import Pair, Verdict, descriptions
from towpath_verifier.descriptions import concurrently
from towpath_verifier.metadata import MetadataDifference
from towpath_verifier.repair_commands import Command

HOURLY = {"compact": True, "compaction_lag": 3_600_000, "delete_retention": 3_600_000}
NAMES = [f"shop.orders_{number}" for number in range(2_000)]


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))


def listing(count: int) -> Pipeline:
    return PIPELINE.changed(name="shop", collections={"include": tuple(NAMES[:count])})


def counted(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str) -> Counter[str]:
    """How often this is called from now on."""
    calls, original = Counter[str](), getattr(owner, name)

    def call(*arguments: Any, **options: Any) -> Any:
        calls[name] += 1
        return original(*arguments, **options)

    monkeypatch.setattr(owner, name, call)
    return calls


def test_a_thousand_listed_names_are_made_a_pattern_once(monkeypatch: pytest.MonkeyPatch) -> None:
    escaped = counted(monkeypatch, namespaces, "_escaped")
    pipeline, topics = listing(1_000), {f"shop.{name}": Topic(f"shop.{name}", 1) for name in NAMES}
    assert len(change_topics(pipeline, topics)) == 1_000
    assert sum(map(pipeline.selection.matches, NAMES)) == 1_000
    assert {pipeline.source_connector_of(name) for name in NAMES} == {"shop-source"}
    assert escaped["_escaped"] == 0  # a listed name is looked up
    assert sum(map(Selection(("shop.*",), exclude=tuple(NAMES[:1_000])).matches, NAMES)) == 1_000
    assert escaped["_escaped"] <= 2 * 2 * 1_001  # database and collection of each pattern, in two patterns


@pytest.mark.parametrize("lasting", [False, True])
@pytest.mark.parametrize(
    "include",
    [("shop.*",), ("*.*",), ("shop.orders", "crm.*"), ("shop.orders", "shop.tmp_1", "admin.x"), ("crm.a.b", "*.x")],
)
def test_the_topics_of_a_pipeline_are_those_that_its_sink_reads(include: tuple[str, ...], lasting: bool) -> None:
    pipeline = PIPELINE.changed(name="shop", collections={"include": include, "exclude": ("shop.tmp_*",)})
    selection = Selection(include, ("shop.tmp_*",), lasting=lasting)
    object.__setattr__(pipeline, "selection", selection)
    rest = (
        "shop.orders",
        "shop.tmp_1",
        "shop.system.x",
        "admin.x",
        "crm.a.b",
        "dead-letters",
        "requests",
        "shop.",
        ".x",
    )
    odd = (
        "crm.tmp.agg_out.0a1b2c3d-0000-0000-0000-000000000000",
        "config.x",
        "shopping.a",
        "crm.tmpabcde.renameCollection",
    )
    for name in (*(f"shop.{each}" for each in (*rest, *odd)), "shop", "shop2.crm.a", "xshop.crm.a"):
        assert pipeline.is_change_topic(name) is bool(re.fullmatch(selection.topic_regex("shop"), name)), name


def test_listed_names_are_not_each_compared_with_every_collection(monkeypatch: pytest.MonkeyPatch) -> None:
    matched = counted(monkeypatch, Selection, "matches")
    patterns = [*NAMES[:1_000], "shop.gone", "crm.*", "shop.orders_1*"]
    assert [*unmatched(patterns, NAMES)] == ["shop.gone", "crm.*"]
    assert matched["matches"] <= 2 * len(NAMES)  # those with a *


def test_the_names_of_other_topics_are_read_once() -> None:
    class Once(list[str]):
        reads = 0

        def __iter__(self) -> Iterator[str]:
            Once.reads += 1
            return super().__iter__()

    found = [one.subject for one in bad_names("shop", [*NAMES, "shop.orders.1"], Once(["shop_x"] * 100))]
    assert found == ["source shop.orders.1"]
    assert Once.reads == 1


def differing(count: int) -> list[MetadataDifference]:
    """Of each collection an option and an index, which one command corrects, and an index that only this side has."""
    found = []
    for name in NAMES[:count]:
        pair, database, collection = Pair(name, name), *name.split(".")
        one = (Command(database, {"create": collection}),)
        found += [
            MetadataDifference(pair, "option", "validator", "differs", 1, None, one),
            MetadataDifference(pair, "index", "a_1", "differs", 1, None, one),
            MetadataDifference(pair, "index", "b_1", "only here", None, 1, (Command(database, {"dropIndexes": "x"}),)),
        ]
    return found


def test_a_plan_compares_the_steps_of_one_collection_only(monkeypatch: pytest.MonkeyPatch) -> None:
    compared = counted(monkeypatch, Step, "__eq__")
    steps = schema._steps(differing(2_000))
    assert [step.namespace for step in steps] == [name for name in NAMES for _ in range(2)]
    assert compared["__eq__"] <= 3 * 2_000


def test_a_plan_searches_no_list_for_what_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    found = differing(500)
    schemas: Any = SimpleNamespace(pairs=(), differences=lambda form: found, source={})
    compared = counted(monkeypatch, MetadataDifference, "__eq__")
    made = schema.planned(schemas)
    assert [difference.name for difference in made.different] == ["b_1"] * 500
    assert len(made.steps) == 500
    assert compared["__eq__"] == 0


class Brokers:
    """Kafka with empty change topics; counts requests."""

    bootstrap = "nowhere"

    def __init__(self, settings: Mapping[str, str], filled: str = "") -> None:
        self.asked, self.of, self.filled = Counter[str](), settings, filled

    def settings_of_all(self, names: Any, keys: object) -> dict[str, Any]:
        self.asked["settings"] += 1
        return dict.fromkeys(names, self.of)

    def ends(self, topics: Any) -> dict[Place, tuple[int, int]]:
        self.asked["ends"] += 1
        return {(topic.name, 0): (0, int(topic.name == self.filled)) for topic in topics}

    def offsets_at(self, times_ms: Mapping[Place, int]) -> dict[Place, int]:
        self.asked["offsets"] += 1
        return dict.fromkeys(times_ms, -1)

    def bytes_on_disk(self) -> None:
        return None

    def alter(self, names: list[str], settings: Mapping[str, str]) -> None:
        self.asked[f"{len(names)} altered"] += 1

    def create(self, names: list[str], partitions: int, replication_factor: int, settings: Mapping[str, str]) -> None:
        self.asked[f"{len(names)} created"] += 1


def test_a_deployment_creates_its_topics_at_once() -> None:
    brokers = Brokers({})
    facts = Facts(session_of(listing(0).changed(collections={"include": ("shop.*",)}), topics=brokers))
    facts.__dict__.update(existing={}, namespaces=NAMES, log=())
    for change in deployment._topic_changes(facts):
        change.apply()
    assert brokers.asked[f"{len(NAMES)} created"] == 1
    assert brokers.asked.total() <= 4  # with the topics of requests, dead letters and heartbeats


def test_a_deployment_asks_for_the_settings_of_all_topics_at_once() -> None:
    topics = {f"shop.{name}": Topic(f"shop.{name}", 1) for name in NAMES}
    compacted = listing(0).changed(collections={"include": ("shop.*",)}, log=HOURLY)
    brokers = Brokers({"cleanup.policy": "delete"}, filled="shop.shop.orders_7")
    facts = Facts(session_of(compacted, topics=brokers))
    facts.__dict__.update(existing=topics, namespaces=NAMES, log=tuple(topics.values()))
    changes = [*deployment._topic_changes(facts)]
    assert brokers.asked == {"settings": 1, "ends": 1}
    set_ones = [change.description for change in changes if change.description.startswith("set ")]
    assert len(set_ones) == 2
    for change in changes:
        change.apply()
    assert brokers.asked[f"{len(NAMES) - 1} altered"] == brokers.asked["1 altered"] == 1
    later = [words for words in set_ones if "cleanup.policy=compact" not in words]
    assert [words.partition(" on topic ")[2] for words in later] == [
        "shop.shop.orders_7; `towpath compact` sets cleanup.policy later"
    ]


def test_a_check_of_the_log_asks_once_for_all_topics() -> None:
    pipeline = listing(0).changed(log=HOURLY)
    brokers = Brokers(change_settings(pipeline))
    ends = {(f"shop.{name}", partition): (0, 5) for name in NAMES for partition in (1, 0)}
    scans = integrity._scans(cast(Topics, brokers), ends)
    assert brokers.asked == {"settings": 1, "offsets": 1}
    assert [scan.place for scan in scans] == sorted(ends)


def test_the_report_of_the_log_goes_through_all_partitions_once() -> None:
    class Ends(dict[Place, tuple[int, int]]):
        walks = 0

        def items(self) -> Any:
            Ends.walks += 1
            return super().items()

        def __iter__(self) -> Iterator[Place]:
            Ends.walks += 1
            return super().__iter__()

    pipeline = listing(0)
    ends = Ends({(f"shop.{name}", partition): (partition, 5) for name in NAMES for partition in (0, 1)})
    brokers = Brokers(change_settings(pipeline))
    captured_by_debezium = pipeline.changed(capture={"copy_method": "none"})
    session = session_of(captured_by_debezium, topics=brokers)
    found = read_log(session, Raw(ends=ends))
    assert [(log.topic, log.offsets, log.begins) for log in found.topics] == [
        (topic, 9, 1) for topic in sorted({topic for topic, _ in dict(ends)})
    ]
    assert Ends.walks <= 4


def test_commands_for_many_collections_are_sent_by_a_few_threads() -> None:
    busy, most, lock = 0, 0, threading.Lock()

    def ask(name: str) -> str:
        nonlocal busy, most
        with lock:
            busy += 1
            most = max(most, busy)
        time.sleep(0.001)
        with lock:
            busy -= 1
        return name.upper()

    answers = concurrently(ask, NAMES[:400])
    assert list(answers.items()) == [(name, name.upper()) for name in NAMES[:400]]
    assert 1 < most <= descriptions._THREADS


def test_commands_for_a_few_collections_open_no_connection_more() -> None:
    threads = set[int]()
    concurrently(lambda name: threads.add(threading.get_ident()), NAMES[:40])
    assert threads == {threading.get_ident()}


def test_the_first_refusal_ends_the_commands_for_many_collections() -> None:
    asked = Counter[str]()

    def ask(name: str) -> None:
        asked[name] += 1
        time.sleep(0.001)
        if name == NAMES[3]:
            raise OperationFailure("not authorised")

    with pytest.raises(OperationFailure, match="not authorised"):
        concurrently(ask, NAMES)
    assert sum(asked.values()) < len(NAMES)


def of(number: int) -> Difference:
    id = bson.encode({"_id": number}).hex()
    return Difference(
        namespace="shop.a", destination_namespace="shop.a", id=number, id_bson=id, kind="missing", paths=()
    )


def test_following_stores_many_differences_less_often_than_it_finds_them(monkeypatch: pytest.MonkeyPatch) -> None:
    now, stored, running = [0.0], list[int](), list[int]()

    def write(name: str, state: Any, differing: Any, counts: Any) -> None:
        stored.append(len([*differing]))
        now[0] += 3.0  # as long as it takes to write this many

    monkeypatch.setattr(follower.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(verdict_file, "write_followed", write)
    monkeypatch.setattr(verdict_file, "write_running", lambda name, verdict: running.append(verdict.missing))
    repaired = list[int]()
    monkeypatch.setattr(verdict_file, "remove_repaired", lambda place, equal, began: repaired.append(len(equal)))
    log = SimpleNamespace(records=0, places={}, unread=lambda: Unread(0, 0.0))
    state = verdict_file.FollowState("id", "everything", False, True, None, 0.0, {}, ())
    session = session_of(listing(1), destination=verdicts.destination(monkeypatch))
    it = follower._Follower(session, cast(Any, log), cast(Any, ()), print, state)
    for turn in range(100):
        it._know(("shop.a", turn), of(turn))  # type: ignore[arg-type]
        it._save(following=True)
        now[0] += 1.0
    assert len(running) == 100
    assert len(stored) <= 1 + (now[0] // (follower._SAVE_SHARE * 3.0))
    it._forget(("shop.a", 5))  # type: ignore[arg-type]
    it._save(following=False)
    assert stored[-1] == 99
    assert repaired == [1]


def test_following_stores_a_difference_at_once_while_there_are_few(monkeypatch: pytest.MonkeyPatch) -> None:
    now, stored = [0.0], list[int]()
    monkeypatch.setattr(follower.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(
        verdict_file, "write_followed", lambda name, state, differing, counts: stored.append(len([*differing]))
    )
    log = SimpleNamespace(records=0, places={}, unread=lambda: Unread(0, 0.0))
    state = verdict_file.FollowState("id", "everything", False, True, None, 0.0, {}, ())
    session = session_of(listing(1), destination=verdicts.destination(monkeypatch))
    it = follower._Follower(session, cast(Any, log), cast(Any, ()), print, state)
    it._save(following=True)
    for turn in range(3):
        now[0] += 1.0
        it._know(("shop.a", turn), of(turn))  # type: ignore[arg-type]
        it._save(following=True)
        it._save(following=True)
    assert stored == [0, 1, 2, 3]


def test_hanging_transactions_are_looked_for_in_all_topics_once_a_minute() -> None:
    asked = list[Any]()

    class Kafka:
        def all(self) -> dict[str, Topic]:
            return {
                name: Topic(name, 1) for name in ("shop.shop.orders_1", "shop.requests", "other.x", "connect-offsets")
            }

        def open_transactions(self, names: Any = None) -> dict[Place, int]:
            asked.append(None if names is None else sorted(names))
            return {}

    it = HangingTransactions(session_of(listing(2), topics=Kafka()))
    for now in range(0, 121, 5):
        assert [*it.turn(float(now))] == []
    own = ["shop.requests", "shop.shop.orders_1"]
    assert asked == [None, *[own] * 5, None, *[own] * 5, None]


def test_differences_of_a_pause_go_to_the_file_as_they_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    class Document(bytes):
        """Can be watched."""

    alive, most = weakref.WeakSet[Any](), 0

    class Held:
        pass

    class Verification:
        verdict = Verdict([])

        def __iter__(self) -> Iterator[Any]:
            nonlocal most
            for number in range(500):
                document = Document(bson.encode({"_id": number}))
                document.held = Held()  # type: ignore[attr-defined]
                alive.add(document.held)  # type: ignore[attr-defined]
                yield DocumentDifference("shop.a", bson.encode({"_id": number}), document, None)
                del document
                most = max(most, len(alive))

    monkeypatch.setattr(recent, "try_origin", lambda session: (None, ""))
    monkeypatch.setattr(Verdict, "differences", property(lambda self: 500))
    session = session_of(listing(1), destination=verdicts.destination(monkeypatch))
    with pytest.raises(recent.DocumentsDiffer, match=r"^500 documents differ, such as shop\.a .*; run towpath repair"):
        recent.require_same(session, cast(Any, Verification()), "the newest records")
    assert most <= 3
    assert len([*verdict_file.read(verdict_file.path("shop"))]) == 500
