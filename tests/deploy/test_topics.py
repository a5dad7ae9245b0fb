"""Topics that someone else creates, and brokers that take smaller records."""

from __future__ import annotations

import json
import os
import shlex
import time
from contextlib import nullcontext
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.conftest import MakePipeline
from tests.support import rest
from tests.support.awaited import until
from tests.support.memory_topics import MemoryTopics
from tests.support.pipeline import Pipeline, Settings, pipeline_text, towpath
from tests.support.sessions import session_of
from towpath.checks.facts import Facts
from towpath.cli import topics as printed
from towpath.clients.kafka.topics import Place, Topics
from towpath.config.pipeline import Pipeline as File
from towpath.errors import KafkaUnreachable
from towpath.history.unprotected import Part

MB = 1 << 20
FILE = File.model_validate(
    {
        "name": "move",
        "source": {"uri": "mongodb://a:1/"},
        "destination": {"uri": "mongodb://b:1/"},
        "collections": {"include": ["shop.*", "shop.soon", "other.gone"], "exclude": ["other.*"]},
        "kafka": {
            "bootstrap": "k:9092",
            "topics": "exist",
            "partitions": 3,
            "replication_factor": 2,
            "max_record": "8MiB",
            "client": "/etc/kafka client.properties",
        },
        "connect": {"url": "http://c:8083"},
    }
)
NEEDED = printed.needed(FILE, ["shop.orders"])


def test_every_topic_is_printed_with_the_settings_of_the_file() -> None:
    assert {topic.name: topic.partitions for topic in NEEDED} == {
        "move.requests": 1,
        "move.dead-letters": 1,
        "move.shop.orders": 3,
        "move.shop.soon": 3,
        "__debezium-heartbeat.move": 1,
    }
    assert all(topic.replication_factor == 2 for topic in NEEDED)
    log = next(topic for topic in NEEDED if topic.name == "move.shop.soon").settings
    assert (log["max.message.bytes"], log["message.timestamp.type"]) == (str(8 * MB), "LogAppendTime")


def test_the_commands_are_those_of_kafkas_tool() -> None:
    first = shlex.split(printed.commands(FILE, NEEDED).splitlines()[0])
    assert first[:3] == ["kafka-topics.sh", "--bootstrap-server", "k:9092"]
    options = dict(pairwise(first))
    assert options["--command-config"] == "/etc/kafka client.properties"
    assert (options["--topic"], options["--partitions"], options["--replication-factor"]) == ("move.requests", "1", "2")
    assert f"max.message.bytes={8 * MB}" in first


def test_resources_have_names_of_their_own() -> None:
    alike = printed.needed(FILE, ["shop.a_b", "shop.a-b", "shop.A_b"])
    found = list(yaml.safe_load_all(printed.strimzi(alike, "kafka")))
    names = {one["metadata"]["name"] for one in found}
    assert len(names) == len(alike) and all(name == name.lower() and "_" not in name for name in names)
    assert {one["spec"]["topicName"] for one in found} == {topic.name for topic in alike}
    assert all(one["metadata"]["labels"] == {"strimzi.io/cluster": "kafka"} for one in found)
    terraform = json.loads(printed.terraform(FILE, alike))["resource"]["confluent_kafka_topic"]
    assert [one["topic_name"] for one in terraform.values()] == [topic.name for topic in alike]


def test_those_of_the_reverse_pipeline_are_printed_before_it_has_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    more = '[collections.rename]\n"shop.orders" = "shop.archived"\n'
    file = tmp_path / "shop.toml"
    text = pipeline_text("mongodb://a/?replicaSet=r", "mongodb://b/?replicaSet=r", more=more)
    file.write_text(text.replace("[kafka]", '[kafka]\ntopics = "exist"'), encoding="utf-8")
    asked: list[Any] = []

    def collections(facts: Facts) -> tuple[str, ...]:
        asked.append((facts.pipeline.name, facts.session.source.side, facts.session.file))
        return ("shop.archived",)

    monkeypatch.setattr(Facts, "namespaces", property(collections))
    monkeypatch.setattr(Facts, "log", ())
    printed.topics.main([str(file), "--reverse", "--json"], standalone_mode=False)
    back = tmp_path / "shop-back.toml"
    assert {topic["name"] for topic in json.loads(capsys.readouterr().out)["topics"]} == {
        "shop-back.requests",
        "shop-back.dead-letters",
        "shop-back.shop.archived",
        "__debezium-heartbeat.shop-back",
    }
    assert asked == [("shop-back", "destination", back)] and not back.exists()


class Log(MemoryTopics):
    """The topics of `FILE`: most have records, and `towpath compact` has protected those of `shop.ready`."""

    def __init__(self) -> None:
        super().__init__()
        for name in ("orders", "ready", "gone", "empty", "compacted"):
            policy = "compact" if name == "compacted" else "delete"
            topic = self.make(f"move.shop.{name}", **{"cleanup.policy": policy})
            if name != "empty":
                self.write(topic, (b"key", b"value", 1))

    def committed_with_metadata(self, group: str) -> dict[Place, tuple[int, str]]:
        assert group == "move-compact"
        now, long_ago = (Part(read_ms=int(ms)).summary(int(ms)).written() for ms in (time.time() * 1000, 1))
        return {("move.shop.ready", 0): (2, now), ("move.shop.orders", 0): (2, long_ago)}


def print_topics(log: Log, monkeypatch: pytest.MonkeyPatch, *, compact: bool) -> None:
    session = session_of(FILE.changed(log={"compact": compact}), topics=log)
    monkeypatch.setattr(printed, "opened", lambda _: nullcontext(session))
    monkeypatch.setattr(Facts, "namespaces", ("shop.orders", "shop.ready", "shop.empty", "shop.compacted"))
    monkeypatch.setattr(Facts, "existing", property(lambda facts: facts.topics.all()))
    printed.topics.main(["shop.toml", "--json"], standalone_mode=False)


def policies(output: str) -> dict[str, str]:
    """Change topic → its policy."""
    topics = json.loads(output)["topics"]
    prefix = "move.shop."
    found = {one["name"]: one["settings"]["cleanup.policy"] for one in topics}
    return {name.removeprefix(prefix): policy for name, policy in found.items() if name.startswith(prefix)}


def test_topics_with_records_are_compacted_only_after_a_pass_has_protected_them(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    print_topics(Log(), monkeypatch, compact=True)
    out, err = capsys.readouterr()
    early = {"orders": "delete", "gone": "delete"}
    assert policies(out) == early | dict.fromkeys(("ready", "empty", "compacted", "soon"), "compact")
    assert "not protected yet: move.shop.gone, move.shop.orders; " in err
    assert "start `towpath compact shop.toml` (or `run`), leave it running" in err


def test_the_topic_of_a_collection_that_is_gone_is_printed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without its resource, Terraform would delete it."""
    print_topics(Log(), monkeypatch, compact=False)
    out, err = capsys.readouterr()
    assert policies(out) == dict.fromkeys(("orders", "ready", "gone", "empty", "compacted", "soon"), "delete")
    assert err == ""


@pytest.mark.parametrize("compact", [True, False])
def test_without_kafka_no_topic_is_compacted_and_what_may_be_missing_is_said(
    compact: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    log = Log()
    log.failure = KafkaUnreachable("cannot reach Kafka at k:9092")
    print_topics(log, monkeypatch, compact=compact)
    out, err = capsys.readouterr()
    assert policies(out) == dict.fromkeys(("orders", "ready", "empty", "compacted", "soon"), "delete")
    assert "cannot reach Kafka at k:9092: topics of collections that are gone are missing here" in err
    assert ("all change topics have cleanup.policy=delete" in err) == compact


def create(pipeline: Pipeline, *options: str) -> None:
    """Create what `towpath topics` prints and what does not exist."""
    line = json.loads(towpath("topics", pipeline.file, *options, "--json").stdout)
    topics = Topics(pipeline.addresses.bootstrap)
    existing = topics.all()
    for one in line["topics"]:
        if one["name"] not in existing:
            topics.create([one["name"]], one["partitions"], one["replication_factor"], one["settings"])


def there_and_back(pipeline: Pipeline) -> None:
    towpath("verify", pipeline.file)
    towpath("cutover", pipeline.file, "--stop-with", "true")
    pipeline.destination("docs").insert_one({"_id": "written at the destination"})
    towpath("cutover", pipeline.file, "--back", "--stop-with", "true")
    assert pipeline.source("docs").find_one({"_id": "written at the destination"})
    pipeline.source("later").insert_one({"_id": "written at the source"})
    pipeline.wait()
    pipeline.assert_same("docs", "later", at_least=6)


@pytest.mark.servers
@pytest.mark.nightly
def test_topics_exist_or_are_waited_for_and_a_document_above_the_limit_stops_nothing(
    make_pipeline: MakePipeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nightly: bool
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    pipeline = make_pipeline(Settings(kafka={"topics": "exist", "max_record": "1MiB"}))
    pipeline.source("docs").insert_one({"_id": 1})
    pipeline.write()
    assert "topics missing" in towpath("check", pipeline.file, expect=1).stdout
    assert "towpath topics PIPELINE" in towpath("deploy", pipeline.file, expect=2).stderr
    create(pipeline)
    pipeline.deploy()
    pipeline.wait()
    pipeline.source("docs").insert_many([{"_id": 2, "x": os.urandom(2 * MB)}, {"_id": 3, "x": "x" * 2 * MB}])
    pipeline.wait()
    assert pipeline.status()["dead_letters"] == 0
    pipeline.assert_same("docs", at_least=3)

    pipeline.source("later").insert_one({"_id": 1})
    state = f"{pipeline.addresses.connect}/connectors/{pipeline.name}-source/status"
    until("the failure", lambda: "FAILED" in rest.get(state).raise_for_status().text)
    said = towpath("status", pipeline.file, expect=1).stdout
    assert f"the topic {pipeline.topic('later')} does not exist" in said
    create(pipeline)
    towpath("restart", pipeline.file)
    pipeline.wait()
    pipeline.assert_same("later", at_least=1)

    gate = towpath("cutover", pipeline.file, "--dry-run", expect=1).stdout
    assert "kafka of" in gate and f"as `towpath topics {pipeline.file} --reverse` prints them" in gate
    create(pipeline, "--reverse")
    gate = towpath("cutover", pipeline.file, "--dry-run", expect=1).stdout
    assert f"can be created ({pipeline.file.stem}-back.toml)" in gate
    if nightly:
        there_and_back(pipeline)

    left = towpath("remove", pipeline.file, "--topics", "--yes").stderr
    assert f"left the topic {pipeline.topic('docs')}" in left
    topics = Topics(pipeline.addresses.bootstrap)
    topics.delete([name for name in topics.all() if pipeline.name in name])


def apply(pipeline: Pipeline) -> str:
    """Create and change the topics as `towpath topics` prints them; what it says about them."""
    create(pipeline)
    shown = towpath("topics", pipeline.file, "--json")
    for one in json.loads(shown.stdout)["topics"]:
        Topics(pipeline.addresses.bootstrap).alter([one["name"]], one["settings"])
    return shown.stderr


def policy(pipeline: Pipeline) -> str:
    topic = pipeline.topic("docs")
    found = Topics(pipeline.addresses.bootstrap).settings_of_all([topic], ("cleanup.policy",))
    return found[topic]["cleanup.policy"]


@pytest.mark.servers
@pytest.mark.nightly
def test_who_owns_the_topics_sets_compaction_once_a_pass_has_protected_them(make_pipeline: MakePipeline) -> None:
    log = '[log]\ncompact = false\ncompaction_lag = "600s"\ndelete_retention = "3600s"'
    pipeline = make_pipeline(Settings(kafka={"topics": "exist"}, extra=log))
    pipeline.source("docs").insert_many([{"_id": n} for n in range(100)])
    pipeline.write()
    apply(pipeline)
    pipeline.deploy()
    pipeline.wait()
    pipeline.source("docs").update_many({}, {"$set": {"v": 1}})
    pipeline.wait()
    pipeline.file.write_text(pipeline.file.read_text().replace("compact = false", "compact = true"))
    assert f"not protected yet: {pipeline.topic('docs')}; " in apply(pipeline)
    towpath("deploy", pipeline.file)
    assert f"not compacted yet: {pipeline.topic('docs')}; " in towpath("compact", pipeline.file, "--once").stderr
    assert policy(pipeline) == "delete"
    assert "not protected yet" not in apply(pipeline)
    assert policy(pipeline) == "compact"
    assert "cleanup.policy" not in towpath("check", pipeline.file).stdout
    pipeline.assert_same("docs", at_least=100)

    towpath("remove", pipeline.file, "--topics", "--yes")
    topics = Topics(pipeline.addresses.bootstrap)
    topics.delete([name for name in topics.all() if pipeline.name in name])
