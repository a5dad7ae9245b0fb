"""What is deleted or overwritten is proven to be the pipeline's own: the rules, each red once, without a server."""

from __future__ import annotations

import errno
import re
from collections.abc import Iterable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import pytest
from bson import ObjectId

from tests.deploy.test_changes_in_log import LOGGED
from tests.support.memory_topics import MemoryTopics
from tests.support.sessions import session_of
from towpath.checks import change, target
from towpath.checks.facts import Facts, OwnTopics
from towpath.checks.rule import Rule, require, run
from towpath.checks.target import Target
from towpath.cli import control, deploy
from towpath.clients.kafka.topics import Topic
from towpath.clients.mongo.replica_set import ReplicaSet, collections
from towpath.config.namespaces import meet
from towpath.deploy import deployment
from towpath.deploy.schema import Plan, Step
from towpath.errors import (
    ConnectError,
    ConnectUnreachable,
    KafkaRefused,
    KafkaUnreachable,
    MongoError,
    MongoUnreachable,
    Refused,
    TowpathError,
)
from towpath.log.definitions import DESTINATION_SET, SOURCE_SET, definitions
from towpath.store import writers
from towpath.store.writers import Registration
from towpath_verifier import Command

SOURCE, DESTINATION, OTHER = (ReplicaSet(name, (f"{name}:1", f"{name}:2"), ObjectId()) for name in "abc")
PIPELINE = LOGGED.changed(collections={"include": ("shop.*",), "rename": {"shop.old": "shop.new"}})
OWN = Registration.of(PIPELINE, "k1", SOURCE)


def registration(name: str, *include: str, kafka: str = "k2", exclude: tuple[str, ...] = ()) -> Registration:
    theirs = PIPELINE.changed(name=name, collections={"include": include, "exclude": exclude, "rename": {}})
    return Registration.of(theirs, kafka, OTHER)


GOOD = Target(PIPELINE, DESTINATION, (SOURCE,), DESTINATION, ("shop.a", "shop.new"), {"move": OWN}, kafka="k1")
SINK = definitions(PIPELINE)["move-sink"]


def refusals(found: Target) -> list[str]:
    return [finding.finding for rule in target.OF_WRITING for finding in rule.check(found)]


def also(*others: Registration) -> Target:
    return replace(GOOD, registered=GOOD.registered | {other.name: other for other in others})


@pytest.mark.parametrize(
    "found",
    [
        GOOD,
        replace(GOOD, deployed=None, registered={}),  # `prepare` before the first deployment
        replace(GOOD, deployed=None, registered={}, kafka=""),  # `prepare --final` without Kafka
        replace(GOOD, deployed=replace(DESTINATION, hosts=("b:2", "b:3"), process=None)),  # another member
        also(registration("x", "crm.*")),
        also(replace(registration("x", "shop.*"), removed=True)),
        also(registration("x", "shop.*", exclude=("shop.*",))),
        also(registration("x", "shop.old")),  # the pipeline writes that to shop.new
        replace(GOOD, sink=SINK),
        replace(GOOD, sources=(DESTINATION,), names=("copy.a",)),  # renames in one replica set
        replace(GOOD, sources=(replace(SOURCE, hosts=("a:2", "a:3"), process=None), SOURCE), source=SOURCE),
        replace(GOOD, sources=(OTHER,)),  # the source does not answer, as before a takeover
    ],
)
def test_the_destination_of_the_pipeline_is_written(found: Target) -> None:
    assert refusals(found) == []
    assert require(target.OF_WRITING, found) == []


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (replace(GOOD, destination=OTHER), "that is not the destination of the deployed pipeline"),
        (replace(GOOD, registered={}), "does not know move as a writer"),
        (replace(GOOD, registered={"move": replace(OWN, removed=True)}), "does not know move as a writer"),
        (replace(GOOD, registered={"move": replace(OWN, kafka="k2")}), "as the pipeline of the Kafka cluster k2"),
        (
            replace(GOOD, sink=SINK | {"towpath.rename": '{"shop.a": "x.a"}'}),
            "other namespaces than the file has now ([coll",
        ),
        (replace(GOOD, sink=SINK | {"topics.regex": "^move"}), "than the file has now (include or exclude"),
        (
            replace(GOOD, sources=(SOURCE, SOURCE, OTHER), source=OTHER),
            "captures a/a:1,a:2, and [source] uri names c/c:1,c:2: that is another source; nothing was changed",
        ),
        (replace(GOOD, sources=()), "it cannot be proven that the destination is not the source"),
        (replace(GOOD, sources=(SOURCE, DESTINATION)), "is the source, and shop.a, shop.new would be written"),
        (
            replace(GOOD, sources=(replace(DESTINATION, name="z", hosts=("localhost:1",)),)),
            "is the source",
        ),  # by another name and address, and the same process
        (also(registration("x", "shop.*")), "x (from c/c:1,c:2, in the Kafka cluster k2) is registered"),
        (also(registration("x", "shop.a")), "a writer of shop.a, and two writers"),
        (also(registration("x", "*.a")), "a writer of shop.a"),
        (also(registration("x", "*.later")), "a writer of shop.later"),  # no collection has that name yet
        (also(registration("x", "shop.new")), "a writer of shop.new"),
        (replace(also(registration("x", "shop.*")), names=()), "a writer of shop.*"),
    ],
)
def test_everything_else_is_refused(found: Target, words: str) -> None:
    (finding,) = refusals(found)
    assert words in finding
    with pytest.raises(Refused):
        require(target.OF_WRITING, found)


def test_a_removal_asks_only_whose_positions_they_are() -> None:
    assert require(target.OF_REMOVAL, replace(GOOD, sources=(), registered={"move": OWN, "x": OWN})) == []
    for found in (replace(GOOD, destination=OTHER), replace(GOOD, registered={"move": replace(OWN, kafka="k2")})):
        with pytest.raises(Refused):
            require(target.OF_REMOVAL, found)


def test_the_way_out_is_named() -> None:
    (finding,) = target.no_other_writer(also(registration("x", "shop.*")))
    assert 'db.getSiblingDB("towpath").writers.deleteOne({_id: "x"})' in finding.advice


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (ReplicaSet("a", ("h:1",)), ReplicaSet("a", ("h:1", "h:2")), True),
        (ReplicaSet("a", ("h:1",)), ReplicaSet("a", ("h:2",)), False),
        (ReplicaSet("a", ("h:1",)), ReplicaSet("b", ("h:1",)), False),
        (ReplicaSet("a", ("h:1",), ObjectId("a" * 24)), ReplicaSet("a", ("x:1",), ObjectId("a" * 24)), True),
        (ReplicaSet("a", ("h:1",), ObjectId("a" * 24)), ReplicaSet("a", ("h:1",), ObjectId("b" * 24)), True),  # members
        (ReplicaSet("", ("h:1",), ObjectId("a" * 24)), ReplicaSet("", ("x:1",), ObjectId("a" * 24)), True),
        (ReplicaSet("", ("h:1",), ObjectId("a" * 24)), ReplicaSet("", ("h:1",), ObjectId("b" * 24)), False),
        (ReplicaSet("", ("h:1",)), ReplicaSet("", ("h:1",), ObjectId("b" * 24)), True),
        (ReplicaSet("a", ("h:1",), ObjectId("a" * 24)), ReplicaSet("", ("h:1",), ObjectId("a" * 24)), True),
    ],
)
def test_what_one_cluster_is(one: ReplicaSet, other: ReplicaSet, same: bool) -> None:
    assert one.is_same(other) is other.is_same(one) is same


@pytest.mark.parametrize(
    ("one", "other", "both"),
    [
        ("shop.*", "*.orders", "shop.orders"),
        ("shop.*", "shop.a*", "shop.a*"),
        ("*.*", "*.*", "*.*"),
        ("shop.a", "crm.a", ""),
        ("shop.a.b", "shop.*", "shop.a.b"),
        ("shop*.a", "shop.a", "shop.a"),
        ("shop.a*", "shop.*b", "shop.a*b"),
        ("shop.a*", "shop.b*", ""),
        ("shop.*a", "shop.*b", ""),
    ],
)
def test_what_two_patterns_share(one: str, other: str, both: str) -> None:
    assert meet(one, other) == meet(other, one) == both


def test_a_registration_is_read_as_it_was_written(monkeypatch: pytest.MonkeyPatch) -> None:
    stored: dict[str, Any] = {}

    class Collection:
        def update_one(self, key: dict[str, Any], change: dict[str, Any], *, upsert: bool) -> None:
            stored.update(key | change["$set"] | {"topics": []})
            stored["creating"] = change["$addToSet"]["creating"]["$each"]

    monkeypatch.setattr(writers, "_writers", lambda _: Collection())
    one = Registration.of(PIPELINE, "k1", SOURCE, ["shop.a*"])
    writers.register(None, one, ["move.shop.a"])  # type: ignore[arg-type]
    assert Registration.read(stored) == one
    assert Registration.read(stored).creating == {"move.shop.a"}


_LESS = {"include": ("shop.*",), "exclude": ("shop.b",), "rename": {"shop.old": "shop.new"}}


@pytest.mark.parametrize(
    ("copy", "before", "changed", "begins"),
    [
        ("none", OWN, {"collections": _LESS}, True),
        ("none", replace(OWN, removed=True), {"collections": _LESS}, True),
        ("none", OWN, {"collections": {"rename": {}}}, True),
        ("none", OWN, {}, False),
        ("none", replace(OWN, removed=True), {}, False),
        ("none", None, {"collections": _LESS}, False),
        ("towpath", OWN, {"collections": _LESS}, False),  # what is included again is copied
    ],
)
def test_no_verdict_counts_of_before_a_pipeline_that_copies_nothing_got_other_collections(
    monkeypatch: pytest.MonkeyPatch, copy: str, before: Registration | None, changed: dict[str, Any], begins: bool
) -> None:
    """What was excluded for a while is in no record, also if the file is the same again afterwards."""
    sent = list[str]()
    monkeypatch.setattr(writers, "register", lambda *_: sent.append("register"))
    monkeypatch.setattr(writers, "read_all", lambda _: {})
    monkeypatch.setattr(deployment.verdict, "begin_history", lambda client, pipeline, why: sent.append(pipeline.name))
    pipeline = PIPELINE.changed(capture={"copy_method": copy}, **changed)
    ours = Registration.of(pipeline, "k1", SOURCE)
    facts: Any = SimpleNamespace(session=session_of(pipeline), pipeline=pipeline, targets=())
    deployment._register(facts, ours, (), before)
    assert sent == ["move"] * begins + ["register"], "before anything of the pipeline changes"


THEIRS = {"connector.class": "org.example.Source"}
IDS = {"move.requests": "1", "move.shop.a": "2", "move.shop.b": "3", "move.shop.v1": "4", "move.crm.x": "5"}


def owned(
    monkeypatch: pytest.MonkeyPatch,
    registered: Iterable[str],
    written: Iterable[str],
    error: MongoError | None = None,
    creating: Iterable[str] = (),
    source: dict[str, str] | None = None,
    filled: Iterable[str] = (),
    pipeline: Any = PIPELINE,
) -> OwnTopics:
    """Without a `source` connector given, that of the pipeline is deployed; with an empty one, none."""

    def read_all(_: object) -> dict[str, Registration]:
        if error:
            raise error
        return {"move": replace(OWN, topics=frozenset(registered), creating=frozenset(creating))}

    monkeypatch.setattr(writers, "read_all", read_all)
    deployed = definitions(pipeline)["move-source"] if source is None else source
    topics: Any = SimpleNamespace(
        overview=lambda: ([1], "k1", {name: Topic(name, 1) for name in IDS}),
        ids=lambda names: {name: IDS[name] for name in names},
        written=lambda topics: {(topic.name, 0): 2 * (topic.name in filled) for topic in topics},
    )
    connect: Any = SimpleNamespace(
        topics=lambda name: list(written) if name == "move-source" and deployed else [],
        configs=lambda: {"move-source": deployed} if deployed else {},
    )
    return Facts(session_of(pipeline, connect, topics)).own_topics


def test_topics_with_a_name_of_the_pipeline_that_it_did_not_make_are_not_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = owned(monkeypatch, ["1", "2"], ["move.shop.b"])
    ids = {"move.requests": "1", "move.shop.a": "2", "move.shop.b": "3"}
    assert found == OwnTopics(ids, ("move.shop.v1",))
    found = owned(monkeypatch, ["2"], [], creating=["move.requests", "move.shop.b"])
    assert found == OwnTopics(ids, ("move.shop.v1",)), "of an interrupted deployment, whose ids are not stored"
    found = owned(monkeypatch, ["2"], ["move.shop.b"])
    assert found.others == ("move.requests", "move.shop.v1"), "an application has it, or someone has created it again"
    with pytest.raises(MongoError, match="no"):
        owned(monkeypatch, [], [], MongoError("no"))


def test_what_no_ids_are_stored_of_is_the_pipeline_s_while_it_is_deployed(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the destination knew is lost with it, and what someone else creates is not known there."""
    exist, gone = PIPELINE.changed(kafka={"topics": "exist"}), MongoUnreachable("gone")
    for pipeline, error in ((PIPELINE, gone), (exist, None)):
        found = owned(monkeypatch, [], ["move.shop.b"], error, pipeline=pipeline)
        assert tuple(found.ids) == ("move.requests", "move.shop.b")
        for source in (THEIRS, {}):
            assert owned(monkeypatch, [], ["move.shop.b"], error, pipeline=pipeline, source=source).ids == {}


def test_a_topic_that_someone_else_has_filled_was_not_created_by_a_deployment_that_was_killed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It creates connectors only when the ids are stored. A source that runs creates topics of new collections."""
    creating, filled = ["move.requests", "move.shop.a", "move.shop.b"], ["move.requests", "move.shop.b"]
    assert tuple(owned(monkeypatch, [], [], creating=creating, filled=filled, source={}).ids) == ("move.shop.a",)
    assert sorted(owned(monkeypatch, [], [], creating=creating, filled=filled).ids) == creating


def test_what_a_connector_of_someone_else_has_written_is_not_the_pipeline_s(monkeypatch: pytest.MonkeyPatch) -> None:
    found = owned(monkeypatch, ["1", "2"], ["move.shop.a", "move.shop.b"], source=THEIRS)
    assert found == OwnTopics({"move.requests": "1", "move.shop.a": "2"}, ("move.shop.b", "move.shop.v1"))


@pytest.mark.parametrize(("source", "left"), [(THEIRS, ["move-source"]), (definitions(PIPELINE)["move-source"], [])])
def test_a_dry_run_does_not_announce_the_removal_of_a_connector_of_someone_else(
    monkeypatch: pytest.MonkeyPatch, source: dict[str, str], left: list[str]
) -> None:
    said = list[str]()
    connect = SimpleNamespace(configs=lambda: {"move-sink": SINK, "move-source": source})
    topics = SimpleNamespace(brokers=lambda: [1], overview=lambda: ([1], "k1", {}))
    monkeypatch.setattr(control, "opened", lambda _: nullcontext(session_of(PIPELINE, connect, topics)))
    monkeypatch.setattr(control.deployment, "refuse_removal", lambda *_, **__: None)
    monkeypatch.setattr(control, "_refuse_removal", lambda *_, **__: None)
    monkeypatch.setattr(control, "say", said.append)
    control.remove.main([__file__, "--dry-run"], standalone_mode=False)
    assert said == [f"would remove {name}" for name in PIPELINE.connectors if name not in left]


def test_no_id_is_stored_of_a_topic_that_someone_else_created_while_a_deployment_was_interrupted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stored = list[str]()
    monkeypatch.setattr(deployment, "_store_ids", lambda facts, created: stored.extend(created))
    begun = replace(OWN, creating=frozenset(["move.requests", "move.shop.a"]))
    facts = changed(registered={"move": begun}, own_topics=OwnTopics({"move.requests": "1"}, ("move.shop.a",)))
    for one in deployment._id_changes(facts):
        one.apply()
    assert "move.requests" in stored and "move.shop.a" not in stored


def test_an_id_that_kafka_does_not_tell_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deployment, "_KNOWN_S", 0.0)
    topics: Any = SimpleNamespace(bootstrap="k:1", ids=lambda names: {"move.shop.a": "2"})
    assert deployment.created_ids(topics, ["move.shop.a"]) == {"move.shop.a": "2"}
    with pytest.raises(TowpathError, match=r"move\.shop\.b, .*`towpath deploy` again"):
        deployment.created_ids(topics, ["move.shop.a", "move.shop.b"])


@pytest.mark.parametrize(
    ("foreign", "end", "words"),
    [
        ((), 0, "`towpath remove --topics`"),
        (("move.shop.a",), 9, "give the pipeline another name, or exclude that namespace"),
        (("move.shop.a",), 0, None),  # another program's, or of a deployment that was interrupted: it shows no mode
    ],
)
def test_an_empty_topic_of_someone_else_shows_no_mode(foreign: tuple[str, ...], end: int, words: str | None) -> None:
    pipeline = PIPELINE.changed(mode="exactly-once")
    facts: Any = SimpleNamespace(
        pipeline=pipeline,
        deployed=dict.fromkeys(definitions(pipeline)),
        desired=definitions(pipeline),
        existing={"move.shop.a": Topic("move.shop.a", 1)},
        own_topics=OwnTopics({}, foreign),
        written=frozenset(["move.shop.a"] if end else []),
    )
    found = list(change.same_mode(facts))
    assert bool(found) is (words is not None)
    assert all(words in finding.advice for finding in found if words)
    assert not foreign or not any("was deployed" in finding.finding for finding in found)
    assert not end or "move.shop.a holds records" in found[0].finding


def test_records_of_someone_else_beside_the_pipeline_s_own_topics_are_named_with_the_mode_that_these_show() -> None:
    facts = changed(
        deployed=dict.fromkeys(_BASE.deployed),
        existing={name: Topic(name, 4) for name in ("move.shop.a", "move.shop.b")},
        own_topics=OwnTopics({"move.shop.b": "1"}, ("move.shop.a",)),
    )
    for finding in (found := list(change.same_mode(facts))):
        assert "was deployed with" in finding.finding
        assert "`towpath remove --topics` leaves move.shop.a, which nothing shows" in finding.advice
    assert len(found) == 2


@pytest.mark.parametrize("mode", ["plain", "exactly-once"])
def test_a_connector_of_someone_else_is_refused_as_such_and_one_that_was_posted_by_hand_is_not(mode: str) -> None:
    pipeline = _BASE.pipeline.changed(mode=mode, capture={})
    by_hand = definitions(pipeline)  # without what only `deploy` adds
    deployed = {**dict.fromkeys(_BASE.deployed), **by_hand}
    facts = {"pipeline": pipeline, "desired": by_hand, "deployed": deployed}
    assert list(change.same_mode(changed(**facts))) == []
    for name in ("move-source", "move-sink"):
        theirs = {"connector.class": by_hand[name]["connector.class"].replace("io.towpath", "org.example")}
        (finding,) = change.same_mode(changed(**facts | {"deployed": {**deployed, name: theirs}}))
        assert f"a connector {name} that is not Towpath's" in finding.finding
        assert f"curl -X DELETE CONNECT_URL/connectors/{name}" in finding.advice


class Worker:
    """Connect, which keeps the offsets of connectors that are removed."""

    def __init__(self, kept: Iterable[str], fails: str = "") -> None:
        self.kept, self.fails = set(kept), fails
        self.sent = list[str]()

    def __getattr__(self, request: str) -> Any:
        def send(name: str, *_: object) -> Any:
            if request in ("errors", "offsets"):
                return {} if request == "errors" else [{}] * (name in self.kept)
            self.sent.append(f"{request} {name}")
            if request == self.fails:
                raise ConnectError("no")
            return self.kept.discard(name) if request == "forget_offsets" else None

        return send


def created(
    monkeypatch: pytest.MonkeyPatch, worker: Worker, said: list[str], pipeline: Any = PIPELINE, **values: Any
) -> None:
    """The connectors of a pipeline that has none are created."""
    monkeypatch.setattr(deployment, "wait_stopped", lambda _, name: worker.sent.append(f"stopped {name}"))
    desired = definitions(pipeline)
    facts = changed(
        pipeline=pipeline,
        desired=desired,
        deployed=dict.fromkeys(desired),
        connect=worker,
        session=SimpleNamespace(connect=worker, say=said.append),
        **values,
    )
    for one in deployment._connector_changes(facts):
        assert one.description.startswith("create connector move-")
        one.apply()


WHOLE = PIPELINE.changed(capture={"whole_documents": ("shop.odd",)})


@pytest.mark.parametrize(
    ("pipeline", "written", "kept"),
    [
        (PIPELINE, (), []),
        (PIPELINE.changed(mode="plain", capture={}), (), []),
        (PIPELINE, ("move.shop.a",), ["move-source"]),
        (WHOLE, ("move.shop.odd",), ["move-source-whole"]),
        (PIPELINE.changed(mode="exactly-once", capture={"copy_method": "none"}), (), ["move-source"]),
    ],
)
def test_a_source_with_an_empty_log_copies_everything_whatever_an_earlier_one_of_its_name_has_captured(
    monkeypatch: pytest.MonkeyPatch, pipeline: Any, written: tuple[str, ...], kept: list[str]
) -> None:
    """As after `remove`, and then `remove --topics`, which finds no connector. Where the log was kept, it continues."""
    worker, said = Worker(pipeline.source_connectors), list[str]()
    created(monkeypatch, worker, said, pipeline, written=frozenset(written))
    for name in pipeline.source_connectors:
        steps = ["create_stopped", "stopped", "forget_offsets", "resume"] if name not in kept else ["put"]
        assert [sent for sent in worker.sent if sent.endswith(f" {name}")] == [f"{step} {name}" for step in steps]
    assert f"put {pipeline.sink_connector}" in worker.sent
    assert sorted(worker.kept) == kept
    assert len(said) == len(pipeline.source_connectors) - len(kept)


def test_the_first_connector_of_a_name_forgets_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    worker, said = Worker([]), list[str]()
    created(monkeypatch, worker, said, written=frozenset())
    assert worker.sent == [
        "create_stopped move-source",
        "stopped move-source",
        "resume move-source",
        "put move-sink",
    ]
    assert said == []


@pytest.mark.parametrize("written", [(), ("move.shop.a",)])
@pytest.mark.parametrize("by", ["deploy", "resume"])
def test_a_source_that_a_killed_deployment_has_left_stopped_begins_without_the_offsets_of_an_earlier_one(
    monkeypatch: pytest.MonkeyPatch, by: str, written: tuple[str, ...]
) -> None:
    """With records in its log, it was stopped later: by someone, who may resume it where it was."""
    worker = Worker(["move-source"], fails="forget_offsets")
    with pytest.raises(ConnectError, match="no"):
        created(monkeypatch, worker, [], written=frozenset())
    worker.fails, worker.sent = "", []
    state = {"move-source": "STOPPED"}.get
    session = SimpleNamespace(connect=worker, say=lambda words: None)
    facts = changed(connect=worker, session=session, written=frozenset(written), state=state)
    if by == "resume":
        deployment.resume(facts, "move-source")
    else:
        for one in deployment._connector_changes(facts):
            assert one.description == "start connector move-source"
            one.apply()
    if written:
        assert worker.sent == ["resume move-source"] * (by == "resume")
    else:
        assert worker.sent == ["stopped move-source", "forget_offsets move-source", "resume move-source"]
    assert sorted(worker.kept) == ["move-source"] * bool(written)


@pytest.mark.parametrize("owner", ["towpath", "strimzi"])
def test_a_removal_leaves_connectors_of_others_and_says_what_an_operator_has_to_create_again(
    monkeypatch: pytest.MonkeyPatch, owner: str
) -> None:
    worker, said = Worker([]), list[str]()
    monkeypatch.setattr(deployment, "_note", lambda *_, **__: None)
    monkeypatch.setattr(deployment, "_forget_verdict", lambda *_: None)
    monkeypatch.setattr(deployment, "_remove_secrets", lambda *_: None)
    pipeline = PIPELINE.changed(mode="plain", connect={"url": "http://c", "owner": owner})
    deployed = dict.fromkeys(_BASE.deployed) | {"move-sink": {"connector.class": "org.example.Sink"}}
    session: Any = SimpleNamespace(pipeline=pipeline, connect=worker, topics=SimpleNamespace(delete=lambda names: None))
    deployment.remove(session, log=True, say=said.append, facts=changed(pipeline=pipeline, deployed=deployed))
    assert worker.sent == []
    assert said[0] == "left the connector move-sink, which is not Towpath's"
    assert any("apply its resource again" in one for one in said) is (owner == "strimzi")


@pytest.mark.parametrize("option", ["--accept-log-gap", "--accept-missed-deletes"])
def test_positions_of_another_destination_are_not_moved(monkeypatch: pytest.MonkeyPatch, option: str) -> None:
    """`restart` writes positions and histories there."""

    def refused(_: object) -> None:
        raise Refused("not its own")

    session = SimpleNamespace(require_deployed=lambda: None)
    monkeypatch.setattr(control, "opened", lambda _: nullcontext(session))
    monkeypatch.setattr(control, "_end_transactions", lambda _: None)
    monkeypatch.setattr(control.target, "require_own", refused)
    for name in ("_accept_log_gap", "_accept_missed_deletes", "statuses"):
        monkeypatch.setattr(control, name, lambda *_: pytest.fail("before the target was proven"))
    with pytest.raises(Refused, match="not its own"):
        control.restart.main(["shop.toml", option], standalone_mode=False)


@pytest.mark.parametrize("destination", [OTHER, DESTINATION])
def test_resume_starts_nothing_whose_state_another_destination_stores(
    monkeypatch: pytest.MonkeyPatch, destination: ReplicaSet
) -> None:
    """An older file names a cluster that knows nothing of a takeover, or of a rebuild that empties the new one."""
    resumed = list[str]()
    session = session_of(PIPELINE)
    monkeypatch.setattr(deployment, "resume", lambda _, name: resumed.append(name))
    found = replace(GOOD, destination=destination)
    monkeypatch.setattr(control, "opened", lambda _: nullcontext(session))
    monkeypatch.setattr(type(session), "require_deployed", lambda _: None)
    monkeypatch.setattr(target, "gather", lambda facts, with_source: found)
    monkeypatch.setattr(control.cutover, "is_cut_over", lambda _: False)
    for module, name in ((control.cutover, "refuse"), (control.rebuild, "refuse_emptying")):
        monkeypatch.setattr(module, name, lambda _: None)
    monkeypatch.setattr(control, "refuse_loop_on_resuming", lambda _: None)
    monkeypatch.setattr(control, "wait_running", lambda *_: None)
    with pytest.raises(Refused, match="not the destination of the deployed") if destination is OTHER else nullcontext():
        control.resume.main([__file__], standalone_mode=False)
    assert resumed == ([] if destination is OTHER else list(PIPELINE.connectors))


def test_a_replay_of_the_same_name_from_another_kafka_is_another_writer() -> None:
    """Two pipelines of one name replay to one cluster: the label comes from the destination, and is the same."""
    ours, theirs = (registration("shop-replay-1", "shop.*", kafka=kafka) for kafka in ("k1", "k2"))
    assert list(target.others(ours, {ours.name: ours}, ("shop.a",))) == []
    (finding,) = target.others(ours, {theirs.name: theirs}, ("shop.a",))
    assert "knows shop-replay-1 as the pipeline of the Kafka cluster k2" in finding.finding


def known(**changed: Any) -> Any:
    """The facts of a pipeline that is deployed, with these changes."""
    facts = {
        "pipeline": PIPELINE,
        "connect": SimpleNamespace(url="http://c"),
        "deployed": {"move-sink": SINK, "move-source": {}},
        "topics": SimpleNamespace(members=lambda group: 0),
        "own_topics": OwnTopics({"move.shop.a": "2"}),
        "registration": OWN,
    }
    return SimpleNamespace(**facts | changed)


REMOVED: Any = {"move-sink": None, "move-source": None}


@pytest.mark.parametrize(
    "facts",
    [
        known(topics=SimpleNamespace(members=lambda group: 4)),  # its own sink runs
        known(deployed=REMOVED),
        known(deployed=REMOVED, own_topics=OwnTopics({}), registration=None),  # nothing is left to remove
        known(registration=None),  # the destination is lost, and Connect knows the pipeline
    ],
)
def test_the_log_of_the_pipeline_is_removed(facts: Any) -> None:
    assert require(target.OF_LOG, facts) == []


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        (
            known(deployed=REMOVED, topics=SimpleNamespace(members=lambda group: 4 * (group == "connect-move-sink"))),
            "the consumer group connect-move-sink has 4 members: another Connect cluster runs the pipeline",
        ),
        (known(deployed=REMOVED, registration=None), "nothing shows that move.shop.a are of this pipeline"),
        (
            known(deployed=REMOVED, registration=None, own_topics=OwnTopics({}, ("move.requests", "move.shop.a"))),
            "nothing shows that move.requests are of this pipeline",
        ),
        (known(deployed=REMOVED | {"move-source": THEIRS}, registration=None), "nothing shows that move.shop.a are of"),
    ],
)
def test_the_log_of_another_pipeline_is_not_removed(facts: Any, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a `remove`, with another [connect] or [destination] in the file."""
    monkeypatch.setattr(target, "_LEAVING_S", 0.0)
    with pytest.raises(Refused, match=words):
        require(target.OF_LOG, facts)


def without(error: TowpathError) -> Facts:
    """The facts where Kafka or Connect fails with this error."""

    def away() -> Any:
        raise error

    topics, connect = SimpleNamespace(overview=lambda: ([1], "k1", {})), SimpleNamespace(configs=away)
    if isinstance(error, KafkaUnreachable | KafkaRefused):
        topics = SimpleNamespace(overview=away)
    facts = Facts(session_of(PIPELINE, connect, topics))
    facts._answers |= {("source", facts.source._replica_set): SOURCE, ("source", collections): []}
    facts._answers |= {("destination", facts.destination._replica_set): DESTINATION}
    facts._answers |= {("destination", writers.read_all): {}}
    return facts


@pytest.mark.parametrize("error", [KafkaUnreachable("Kafka is away"), ConnectUnreachable("Connect is away")])
def test_only_after_the_end_of_a_replication_is_less_proven(error: TowpathError) -> None:
    """`prepare --overwrite` is refused then."""
    facts = without(error)
    with pytest.raises(type(error), match="is away"):
        target.gather(facts)
    found = target.gather(facts, ended=True)
    assert (found.kafka, found.source, found.sources) == ("", SOURCE, (SOURCE,))


@pytest.mark.parametrize(
    "error",
    [
        KafkaRefused("the brokers refuse the user or the password"),
        ConnectError("401", status=401),
        ConnectUnreachable("404, and not from Kafka Connect itself", status=404),
    ],
)
def test_no_less_is_proven_where_kafka_or_connect_refuses(error: TowpathError) -> None:
    with pytest.raises(type(error), match=re.escape(error.what)):
        target.gather(without(error), ended=True)


STEP = Step("shop.new", Command("shop", {"collMod": "new"}))


def prepare(patch: pytest.MonkeyPatch, *options: str, known: bool = True, plan: Plan | None = None) -> tuple[Any, Any]:
    """What `prepare` asks for of the destination, and what it has applied; an error where it asks a question."""
    asked, applied = list[tuple[str, bool]](), list[Plan]()
    patch.setattr(deploy, "opened", lambda _: nullcontext(session_of(PIPELINE.changed(ddl={"apply": False}))))
    for name in ("plan", "plan_in_place"):
        patch.setattr(deploy, name, lambda *_, **__: plan or Plan())
    for name in ("require_own", "require_schema"):
        patch.setattr(deploy.target, name, lambda _, *, ended, name=name: asked.append((name, ended)) or known)
    patch.setattr(deploy, "_is_deployed", lambda _: False)
    patch.setattr(deploy, "_apply", lambda _, schema, *__: applied.append(schema))
    patch.setattr(deploy.cutovers, "known", lambda _: None)
    deploy.prepare.main(["shop.toml", *options], standalone_mode=False)
    return asked, applied


@pytest.mark.parametrize(
    ("options", "proof", "ended"),
    [
        ([], "require_own", True),
        (["--overwrite"], "require_own", False),
        (["--final"], "require_schema", True),
        (["--in-place"], "require_schema", True),
        (["--final", "--overwrite"], "require_schema", False),
    ],
)
def test_prepare_overwrites_nothing_while_less_is_proven(
    monkeypatch: pytest.MonkeyPatch, options: list[str], proof: str, ended: bool
) -> None:
    assert prepare(monkeypatch, *options)[0] == [(proof, ended)]


@pytest.mark.parametrize("options", [["--final"], ["--in-place"]])
def test_the_schema_of_a_cluster_that_nothing_shows_to_be_the_destination_changes_only_after_a_question(
    monkeypatch: pytest.MonkeyPatch, options: list[str]
) -> None:
    plan, questions = Plan(collections=(STEP,)), list[str]()

    def no(question: str, **_: Any) -> None:
        questions.append(question)
        raise click.Abort

    monkeypatch.setattr(deploy.click, "confirm", no)
    with pytest.raises(click.Abort):
        prepare(monkeypatch, *options, known=False, plan=plan)
    assert len(questions) == 1 and questions[0].startswith("Change the schema of shop.new at mongodb://")
    assert prepare(monkeypatch, *options, "--yes", known=False, plan=plan)[1] == [plan]
    assert prepare(monkeypatch, *options, plan=plan)[1] == [plan]
    prepare(monkeypatch, *options, known=False)
    assert len(questions) == 1, "nothing would be changed"


REMOVED_OWN = replace(GOOD, deployed=None, source=SOURCE, kafka="", registered={"move": replace(OWN, removed=True)})


@pytest.mark.parametrize(
    ("found", "known"),
    [
        (GOOD, True),
        (REMOVED_OWN, True),  # after `remove`
        (replace(REMOVED_OWN, registered={}), False),  # after `remove --topics`
        (replace(REMOVED_OWN, source=OTHER), False),
        (replace(REMOVED_OWN, source=None), False),
    ],
)
def test_what_shows_that_the_pipeline_writes_to_the_destination(found: Target, known: bool) -> None:
    assert found.is_known is known


def test_a_file_whose_sides_are_exchanged_changes_no_schema(monkeypatch: pytest.MonkeyPatch) -> None:
    """The connectors are removed, and the source of the file has the registration."""
    facts = without(KafkaUnreachable("Kafka is away"))
    known: dict[str, Registration] = {}
    facts._answers[("source", target._known)] = known
    monkeypatch.setattr(target, "Facts", lambda session: facts)
    assert target.require_schema(facts.session, ended=True) is False
    known["move"] = replace(OWN, source=str(OTHER))  # from elsewhere to the source
    assert target.require_schema(facts.session, ended=True) is False
    known["move"] = replace(OWN, source=str(DESTINATION), removed=True)
    with pytest.raises(Refused, match=r"the source knows move as a writer there, from b/b:1,b:2, .* are exchanged"):
        target.require_schema(facts.session, ended=True)
    in_one_set = replace(REMOVED_OWN, source=DESTINATION, at_source=known["move"], registered={"move": known["move"]})
    assert in_one_set.is_known and not list(target.not_reversed(in_one_set)), "both sides may be one set"


_ROOT: dict[str, Any] = {"phase": "stream", "selection": "", "namespaces": "[]", "copied": "1:1"}
OFFSETS = [{"partition": {"towpath": "move"}, "offset": _ROOT}]
COPYING = [{"partition": {"towpath": "move"}, "offset": _ROOT | {"phase": "copy"}}]
LOST = [{"partition": {"towpath": "move"}, "offset": _ROOT | {"lost": True}}]


def changed(**values: Any) -> Any:
    """The facts of a pipeline that has copied one collection, whose file has changed."""
    pipeline = LOGGED.changed(capture={"copy_method": "towpath"}, collections={"include": ("shop.*",)})
    config = definitions(pipeline)
    sets = {"source": SimpleNamespace(side="source", replica_set=SOURCE, ask=lambda query: True)}
    facts = {
        "pipeline": pipeline,
        "source": sets["source"],
        "destination": SimpleNamespace(side="destination", replica_set=DESTINATION),
        "deployed": {**dict.fromkeys((pipeline.whole_source_connector,)), **config},
        "desired": config,
        "configurations": config,
        "registered": {},
        "kafka_cluster": "k1",
        "namespaces": ("shop.a",),
        "targets": ("shop.a",),
        "existing": {name: Topic(name, 4) for name in ("move.shop.a", "move.requests", "move.dead-letters")},
        "log": (Topic("move.shop.a", 4),),
        "written": frozenset(["move.shop.a"]),
        "captured": lambda topics: topics,
        "used": frozenset(),
        "registration": OWN,
        "own_topics": OwnTopics({}),
        "is_deployed": True,
        "create_stopped": (),
        "is_stopped": False,
        "offsets": lambda name: OFFSETS,
        "state": lambda name: "RUNNING",
        "session": None,
        "with_other_rules": {},
        "accept_rules": False,
    }
    return SimpleNamespace(**facts | values)


_BASE = changed()
_SOURCE = _BASE.deployed["move-source"]


REMOVED_FROM: Any = {"deployed": dict.fromkeys(_BASE.deployed)}


def deployed_as(name: str, **settings: str | None) -> dict[str, Any]:
    return {"deployed": {**_BASE.deployed, name: {**(_BASE.deployed[name] or _SOURCE), **settings}}}


def back() -> dict[str, Any]:
    """A pipeline of the other direction."""
    sink = {"topics.regex": r"back\.shop\..*", DESTINATION_SET: str(SOURCE), "towpath.rename": "{}"}
    source = {"collection.include.list": r"shop\..*", SOURCE_SET: str(DESTINATION)}
    return {"configurations": {**_BASE.configurations, "back-sink": sink, "back-source": source}}


def cut_over(_: object) -> None:
    raise Refused("move is cut over", "`towpath cutover --back`")


def taken_over(_: object) -> None:
    raise Refused("move has taken over", "docs/how-to/takeover.md")


#: Rule of a changed deployment → what makes it red, and a part of what it says.
RED: list[tuple[Any, dict[str, Any], str]] = [
    (change.no_cutover, {"is_deployed": False}, "move is cut over"),
    (change.no_cutover, {}, "move has taken over"),
    (change.one_writer, {"registered": {"x": registration("x", "shop.*")}}, "is registered at the destination"),
    (
        change.one_writer,
        {"configurations": {"x-sink": {"topics.regex": r"x\.shop\..*", DESTINATION_SET: str(DESTINATION)}}},
        "the connector x-sink already writes shop.a",
    ),
    (change.no_loop, back(), "each change would circulate forever"),
    (
        change.same_clusters,
        deployed_as("move-source", **{SOURCE_SET: str(OTHER)}),
        "was deployed with the source c/c:1",
    ),
    (
        change.same_source_of_log,
        {"registered": {"move": Registration.of(_BASE.pipeline, "k1", OTHER)}, **REMOVED_FROM},
        "the log of move is of the source c/c:1,c:2, and the file now names a/a:1,a:2",
    ),
    (change.same_mode, deployed_as("move-sink", **{"connector.class": "x"}), "was deployed with mode ="),
    (change.same_mode, deployed_as("move-source", **{"towpath.copy": "x"}), "another [capture] copy"),
    (
        change.no_records_of_others,
        {
            "deployed": dict.fromkeys(_BASE.deployed),
            "written": frozenset(),
            "used": frozenset(["move.requests"]),
            "own_topics": OwnTopics({}, ("move.requests",)),
        },
        "move.requests holds records, and nothing shows that it was made for move",
    ),
    (
        change.same_partitions,
        {"pipeline": _BASE.pipeline.changed(kafka={"partitions": 8})},
        "was deployed with [kafka] partitions = 4, and the file now says 8",
    ),
    (
        change.same_partitions,  # someone else creates the topics, or `remove` has removed the connectors
        {"registered": {"move": replace(OWN, partitions=3)}, "deployed": dict.fromkeys(_BASE.deployed)},
        "was deployed with [kafka] partitions = 3, and the file now says 4",
    ),
    (change.same_whole_documents, deployed_as("move-source-whole"), "looks up whole documents"),
    (
        change.same_capture,
        {
            "deployed": {
                **_BASE.deployed,
                "move-source": {**_SOURCE, "collection.include.list": "-"},
                "move-source-whole": {"collection.include.list": r"shop\.a"},
            }
        },
        "is captured by move-source-whole and would be by move-source",
    ),
    (
        change.copied,
        {
            "pipeline": _BASE.pipeline.changed(capture={"copy_method": "debezium"}),
            **deployed_as("move-source", **{"collection.include.list": "-"}),
        },
        "holds documents and was not captured by move-source",
    ),
    (
        change.not_taken_in_again,
        deployed_as("move-source", **{"collection.include.list": "-"}),
        "was included in this pipeline before, and then excluded",
    ),
    (
        change.same_pipeline,
        {"desired": {"move-source": {**_SOURCE, "collection.include.list": "-"}}},
        "the file has none of the collections that move replicates: shop.a",
    ),
    (change.kept_offsets, {"offsets": lambda name: []}, "Kafka Connect has no offsets of move-source"),
    (change.kept_offsets, {"offsets": lambda name: LOST}, "Kafka Connect has no offsets of move-source"),
    (
        change.kept_offsets,
        {"deployed": dict.fromkeys(_BASE.deployed), "offsets": lambda name: None},
        "Kafka Connect has no move-source, which `towpath remove` has not removed: if its offsets are also lost",
    ),
    (change.same_rules, {"with_other_rules": {"move-source": ["shop.a"]}}, "documents in the log and at the dest"),
    (
        change.same_rules,
        {"with_other_rules": {"move-source": ["shop.a"]}, "accept_rules": True, "offsets": lambda name: COPYING},
        "the initial copy is not finished",
    ),
]


def test_who_changes_the_destination_of_a_log_that_can_rebuild_one_is_told_to_keep_the_log() -> None:
    for side, connector, mode, told in (
        (DESTINATION_SET, "move-sink", "exactly-once", True),
        (DESTINATION_SET, "move-sink", "plain", False),
        (SOURCE_SET, "move-source", "exactly-once", False),
    ):
        facts = changed(pipeline=_BASE.pipeline.changed(mode=mode), **deployed_as(connector, **{side: str(OTHER)}))
        (finding,) = change.same_clusters(facts)
        assert ("keep the log" in finding.advice) is told, (side, mode)


def test_the_table_of_changes_has_every_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(change.cutover, "refuse_takeover", lambda session: None)
    assert {rule for rule, _, _ in RED} == {rule.check for rule in change.RULES}
    assert run(change.RULES, changed()) == []


@pytest.mark.parametrize(("rule", "what", "words"), RED, ids=[f"{rule.__name__}: {words}" for rule, _, words in RED])
def test_each_rule_of_a_change_is_red(
    monkeypatch: pytest.MonkeyPatch, rule: Any, what: dict[str, Any], words: str
) -> None:
    monkeypatch.setattr(change.cutover, "refuse", cut_over)
    monkeypatch.setattr(change.cutover, "refuse_takeover", taken_over)
    found = run([Rule("deploy", rule)], changed(**what))
    assert found and all(words in finding.finding for finding in found), found


@pytest.mark.parametrize(
    "facts",
    [
        {"offsets": lambda name: [], "captured": lambda topics: frozenset()},
        {"deployed": dict.fromkeys(_BASE.deployed), "registration": replace(OWN, removed=True)},
        {"captured": lambda topics: frozenset(), **deployed_as("move-source", **{"collection.include.list": "-"})},
    ],
    ids=["nothing was captured", "`remove` keeps the offsets", "nothing was captured while it was included"],
)
def test_no_history_is_lost(facts: dict[str, Any]) -> None:
    rules = [Rule("deploy", rule) for rule in (change.kept_offsets, change.not_taken_in_again)]
    assert run(rules, changed(**facts)) == []


@pytest.mark.parametrize(
    "facts",
    [
        {},
        {"written": frozenset()},  # it begins with a copy: `_begins_log`
        {"registered": {}},  # the destination is lost
        {"registered": {"move": replace(OWN, source="a/a:2,a:9")}},  # other members
        deployed_as("move-source", **{SOURCE_SET: str(OTHER)}),  # `same_clusters` judges it
    ],
)
def test_a_log_is_continued_from_its_own_source(facts: dict[str, Any]) -> None:
    registered = {"move": replace(OWN, source=str(SOURCE if not facts else OTHER))}
    assert (
        run([Rule("deploy", change.same_source_of_log)], changed(**{"registered": registered} | REMOVED_FROM | facts))
        == []
    )


_HEARTBEATS = "__debezium-heartbeat.move"


@pytest.mark.parametrize(
    ("facts", "refused"),
    [
        ({}, True),
        ({"deployed": _BASE.deployed}, False),
        ({"own_topics": OwnTopics({"move.dead-letters": "1"})}, False),  # of a deployment that was killed
        ({"used": frozenset()}, False),  # made for it by hand, or created by a client that asked for it
        ({"written": frozenset(["move.shop.a"])}, False),  # the destination is lost: docs/how-to/rebuild.md
        ({"pipeline": _BASE.pipeline.changed(kafka={"topics": "exist"})}, True),
        ({"used": frozenset([_HEARTBEATS]), "own_topics": OwnTopics({}, (_HEARTBEATS,))}, True),
        (
            {
                "used": frozenset([_HEARTBEATS]),
                "own_topics": OwnTopics({}, (_HEARTBEATS,)),
                "pipeline": _BASE.pipeline.changed(kafka={"topics": "exist"}),
            },
            False,  # of a reverse pipeline before
        ),
    ],
)
def test_dead_letters_of_an_application_are_not_taken_for_the_pipeline_s(facts: dict[str, Any], refused: bool) -> None:
    first = {
        "deployed": dict.fromkeys(_BASE.deployed),
        "written": frozenset(),
        "used": frozenset(["move.dead-letters"]),
        "own_topics": OwnTopics({}, ("move.dead-letters",)),
    }
    assert bool(run([Rule("deploy", change.no_records_of_others)], changed(**first | facts))) is refused


@pytest.mark.parametrize(
    ("mode", "capture", "wanted"), [("plain", "debezium", set()), ("exactly-once", "towpath", {"move.requests"})]
)
def test_only_topics_that_the_pipeline_would_have_are_looked_at(mode: str, capture: str, wanted: set[str]) -> None:
    facts = Facts(session_of(LOGGED.changed(mode=mode, capture={"copy_method": capture})))
    facts.existing, facts.log = {name: Topic(name, 1) for name in ("move.requests", "other")}, ()
    facts._written = lambda key, topics: frozenset(topic.name for topic in topics)  # type: ignore[method-assign]
    assert facts.used == wanted


def test_the_topics_of_a_pipeline_whose_destination_is_lost_still_show_its_mode() -> None:
    """`deploy` at a new destination, after `remove`: docs/how-to/rebuild.md."""
    facts = changed(
        deployed=dict.fromkeys(_BASE.deployed),
        own_topics=OwnTopics({}, ("move.dead-letters", "move.requests", "move.shop.a")),
        pipeline=_BASE.pipeline.changed(mode="exactly-once", capture={}),
        registration=None,
    )
    assert run([Rule("deploy", rule) for rule in (change.same_mode, change.no_records_of_others)], facts) == []


@pytest.mark.parametrize(
    "facts",
    [
        {"log": (), "pipeline": _BASE.pipeline.changed(kafka={"partitions": 8})},
        {"registered": {"move": replace(OWN, partitions=0)}},
        {"registered": {"move": replace(OWN, partitions=0)}, "deployed": dict.fromkeys(_BASE.deployed)},
    ],
    ids=["there is no log yet", "registered by an earlier version", "and `remove` has removed the connectors"],
)
def test_a_number_of_partitions_that_is_not_changed(facts: dict[str, Any]) -> None:
    assert run([Rule("deploy", change.same_partitions)], changed(**facts)) == []


def test_a_topic_without_a_committed_record_shows_no_capture() -> None:
    topics = MemoryTopics(**dict.fromkeys(("move.shop.a", "move.shop.cut", "move.shop.none", "move.shop.open"), 2))
    topics.write("move.shop.a", (b"k", b"v", 1), commit=False)
    topics.write("move.shop.open", (b"k", b"v", 1), commit=None)
    topics.write("move.shop.cut", (b"k", b"v", 1), partition=1)
    topics.cut("move.shop.cut", 2, partition=1)
    facts = Facts(session_of(PIPELINE, topics=topics))
    facts.existing = topics.all()
    assert facts.written == {"move.shop.a", "move.shop.cut", "move.shop.open"}
    assert facts.captured(facts.written) == {"move.shop.cut"}
    topics.write("move.shop.a", (b"k", b"v", 1), partition=1)
    facts = Facts(session_of(PIPELINE, topics=topics))
    facts.existing = topics.all()
    assert facts.captured(frozenset(["move.shop.a", "move.shop.none"])) == {"move.shop.a"}


def test_topics_are_awaited_while_the_broker_learns_of_more(monkeypatch: pytest.MonkeyPatch) -> None:
    now, known = 0.0, dict[str, str]()

    def learns(seconds: float) -> None:
        nonlocal now
        now += seconds
        if len(known) < 150 and now >= 8 * (len(known) + 1):
            known[f"shop.{len(known)}"] = str(len(known))

    monkeypatch.setattr(deployment, "time", SimpleNamespace(monotonic=lambda: now, sleep=learns))
    topics: Any = SimpleNamespace(
        bootstrap="k:1", ids=lambda names: {name: known[name] for name in names if name in known}
    )
    ids = deployment.created_ids(topics, [f"shop.{number}" for number in range(150)])
    assert len(ids) == 150 and ids == known, "it took 20 minutes, a topic each 8 s"


def test_a_removal_leaves_the_file_of_a_read_only_mount(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as a Secret of Kubernetes: else the undo of a cutover would fail there."""

    def refuse(*_: Any, **__: Any) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(Path, "unlink", refuse)
    file, said = tmp_path / "shop-back.properties", list[str]()
    deployment._remove_secrets(file, said.append)
    assert said == []
    file.touch()
    deployment._remove_secrets(file, said.append)
    assert said == [f"left the file {file}: Read-only file system"]
