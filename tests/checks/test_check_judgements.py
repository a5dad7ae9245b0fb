"""What settings, configurations and sizes that were read are judged to be."""

import ast
import inspect
from collections.abc import Iterable
from pathlib import Path
from typing import Any, cast

import pytest
from bson.timestamp import Timestamp

import towpath
from towpath.checks import capture, change, connect, destination, field_rules, kafka, source, target
from towpath.checks.capture import Captured
from towpath.checks.change import traps
from towpath.checks.rule import Finding, refusal
from towpath.clients.kafka.topics import LARGEST_RECORD, Topic
from towpath.clients.mongo.client import ClusterTime
from towpath.config.pipeline import CopyMethod, Pipeline
from towpath.deploy.deployment import SERVERS
from towpath.errors import ConnectError, ConnectUnreachable, Refused
from towpath.log.definitions import DESTINATION_SET, change_settings
from towpath.log.source_offsets import SourcePosition, SourceState

PIPELINE = Pipeline.model_validate(
    {
        "name": "move",
        "mode": "plain",
        "source": {"uri": "mongodb://a:1/"},
        "destination": {"uri": "mongodb://u:secret@b:1,b:2/?replicaSet=rs"},
        "collections": {"include": ["shop.*"]},
        "kafka": {"bootstrap": "k:9092"},
        "connect": {"url": "http://c:8083", "secrets": "/nowhere"},
    }
)
GOOD_BROKER = {
    "socket.request.max.bytes": "104857600",
    "replica.fetch.max.bytes": str(LARGEST_RECORD),
    "auto.create.topics.enable": "false",
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
}
SINK = {"connector.class": "com.mongodb.kafka.connect.MongoSinkConnector", "errors.tolerance": "none"}


def told(findings: Iterable[Finding]) -> list[tuple[str, str]]:
    """(level, finding) of all that is not as it should be; each has to say what to do."""
    found = [finding for finding in findings if finding.level != "ok"]
    assert all(finding.advice for finding in found)
    return [(finding.level, finding.finding) for finding in found]


def test_a_good_broker_is_good() -> None:
    assert told(kafka.broker(GOOD_BROKER, 3, PIPELINE)) == []


@pytest.mark.parametrize(
    ("change", "brokers", "level", "words"),
    [
        ({"socket.request.max.bytes": "1048576"}, 3, "error", "socket.request.max.bytes=1048576"),
        ({"replica.fetch.max.bytes": "1048576"}, 3, "warning", "replica.fetch.max.bytes=1048576"),
        ({"auto.create.topics.enable": "true"}, 3, "warning", "auto.create.topics.enable=true"),
        ({"default.replication.factor": "1", "min.insync.replicas": "1"}, 3, "warning", "one replica"),
        ({"default.replication.factor": "1", "min.insync.replicas": "1"}, 1, "warning", "one replica"),
    ],
)
def test_a_broker_setting_that_is_a_trap(change: dict[str, str], brokers: int, level: str, words: str) -> None:
    ((found_level, finding),) = told(kafka.broker(GOOD_BROKER | change, brokers, PIPELINE))
    assert found_level == level
    assert words in finding


def test_one_replica_on_one_broker_is_enough_for_a_trial_only() -> None:
    alone = GOOD_BROKER | {"default.replication.factor": "1", "min.insync.replicas": "1"}
    (found,) = (finding for finding in kafka.broker(alone, 1, PIPELINE) if finding.level == "warning")
    assert "on 1 broker: a broker that is lost takes its part of the log with it" in found.finding
    assert "KAFKA-20734" in found.finding
    assert "enough for a trial" in found.advice


def test_too_few_replicas_for_the_brokers_are_an_error() -> None:
    findings = told(kafka.broker(GOOD_BROKER | {"default.replication.factor": "1"}, 1, PIPELINE))
    assert [level for level, _ in findings] == ["warning", "error"]
    assert "min.insync.replicas=2" in findings[1][1]


def test_a_large_splice_cache_needs_a_larger_heap() -> None:
    sizes = ("heap=1073741824", "new=536870912")
    assert told(connect.heap(sizes, 0)) == told(connect.heap(sizes, 64 << 20)) == []
    ((level, finding),) = told(connect.heap(sizes, 1 << 30))
    assert level == "warning"
    assert "need a heap of 1,984 MB" in finding


@pytest.mark.parametrize(
    ("heap_mb", "new_mb", "words"),
    [
        (256, 128, "a heap of 256 MB, 128 MB of it for new objects: documents of up to 16 MB"),
        (1024, 341, "a heap of 1,024 MB, 341 MB of it for new objects: most of what"),  # the default
    ],
)
def test_a_worker_with_little_room_is_warned_of(heap_mb: int, new_mb: int, words: str) -> None:
    (found,) = connect.heap((f"heap={heap_mb << 20}", f"new={new_mb << 20}"), 64 << 20)
    assert (found.level, found.code) == ("warning", "TWP-WORKER-HEAP")
    assert words in found.finding and "-Xmx1024m -Xmn512m" in found.advice


def test_replicas_of_the_file_count_before_the_brokers() -> None:
    one = PIPELINE.changed(kafka={"replication_factor": 1})
    findings = told(kafka.broker(GOOD_BROKER, 3, one))
    assert [level for level, _ in findings] == ["warning", "error"]
    assert "[kafka] replication_factor" in findings[0][1]


@pytest.mark.parametrize(
    ("change", "partitions", "level", "words"),
    [
        ({}, 3, "error", "has 3 partitions"),
        ({"max.message.bytes": "1048588"}, 4, "warning", "max.message.bytes=1048588"),
        ({"message.timestamp.type": "CreateTime"}, 4, "warning", "message.timestamp.type=CreateTime"),
        ({"retention.ms": "604800000"}, 4, "warning", "retention.ms=604800000"),
    ],
)
def test_a_topic_that_is_not_as_the_file_says(change: dict[str, str], partitions: int, level: str, words: str) -> None:
    settings = change_settings(PIPELINE)
    name = "move.shop.orders"
    assert told(kafka.topic(settings, 0, PIPELINE)) == []
    assert told(kafka.partition_count(Topic(name, 4), PIPELINE)) == []
    findings = [
        *kafka.partition_count(Topic(name, partitions), PIPELINE),
        *kafka.topic(settings | change, 0, PIPELINE),
    ]
    ((found_level, finding),) = told(findings)
    assert found_level == level
    assert words in finding
    assert not any("set [kafka] partitions" in one.advice for one in findings), "it would divide a document's changes"


def test_advice_is_what_was_raised_as_such() -> None:
    """Not what comes after a semicolon of someone's sentence."""
    for error, found, advice in (
        (Refused("it; is; odd", "do; this"), "it; is; odd", "do; this"),
        (
            ConnectError("500: one; two", where="GET /", status=500),
            "GET /: 500: one; two",
            "",
        ),
        (ConnectUnreachable("nothing is there", advice="start it"), "nothing is there", "start it"),
    ):
        finding = refusal("x", error)
        assert (finding.finding, finding.advice) == (found, advice)
        assert str(error) == (f"{found}; {advice}" if error.advice else found)


@pytest.mark.parametrize(
    ("servers", "level", "found", "advice"),
    [
        ((5, 0, 4), "5.0", "ok", ""),
        ((5, 0, 4), "4.4", "error", 'finish the upgrade: db.adminCommand({setFeatureCompatibilityVersion: "5.0"})'),
        ((6, 0, 5), "5.0", "warning", 'setFeatureCompatibilityVersion: "6.0"}'),
        ((8, 0, 4), "7.0", "warning", 'setFeatureCompatibilityVersion: "8.0", confirm: true}'),
        ((8, 0, 4), "8.0", "ok", ""),
    ],
)
def test_the_compatibility_version_that_is_needed_is_advised(
    servers: tuple[int, ...], level: str, found: str, advice: str
) -> None:
    finding = source.compatibility(level, servers)
    assert finding.level == found
    assert advice in finding.advice


@pytest.mark.parametrize(
    ("version", "levels", "words"),
    [
        ((5, 0, 4), [], ""),
        ((6, 0, 27), [], ""),
        ((6, 3, 1), ["ok"], "MongoDB 6.3.1 is expected to work, and not tested"),
        ((8, 0, 4), ["ok"], "MongoDB 8.0.4 is expected to work, and not tested"),
        ((9, 0, 1), ["warning"], "which 9.0.2 disables"),
        ((9, 0, 2), ["ok"], "MongoDB 9.0.2 is expected to work, and not tested"),
        ((10, 0, 0), ["warning"], "is newer than all that is known"),
    ],
)
def test_what_is_said_of_a_version(version: tuple[int, ...], levels: list[str], words: str) -> None:
    found = list(source.untested(version))
    assert [one.level for one in found] == levels
    assert all(words in one.finding for one in found)


def test_a_compacted_topic_is_an_error() -> None:
    settings = change_settings(PIPELINE) | {"cleanup.policy": "compact,delete"}
    ((level, finding),) = told(kafka.topic(settings, 0, PIPELINE))
    assert (level, finding.partition(":")[0]) == ("error", "cleanup.policy=compact,delete")


def test_strangers_under_the_prefix() -> None:
    names = ("move.shop.orders", "move.bar.x", "move.dead-letters", "moved.shop.x", "__debezium-heartbeat.move")
    ((level, finding),) = told(kafka.foreign_topics(PIPELINE, {name: Topic(name, 4) for name in names}))
    assert level == "warning"
    assert finding.endswith(": move.bar.x")


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (SINK | {"topics": "x, move.shop.orders"}, "reads the pipeline's topics"),
        (SINK | {"topics.regex": r"move\..*"}, "reads the pipeline's topics"),
        (SINK | {"topics": "x", "connection.uri": "mongodb://v:w@b:2/db?w=1"}, "writes to the destination"),
        (SINK | {"topics": "x", "errors.tolerance": "all"}, "without a dead-letter topic"),
        (
            {"connector.class": "io.debezium.connector.mongodb.MongoDbConnector", "topic.prefix": "move"},
            "has the topic.prefix 'move'",
        ),
    ],
)
def test_a_foreign_connector_that_is_a_trap(config: dict[str, str], words: str) -> None:
    ((level, finding),) = told(connect.others(PIPELINE, {"other": config}))
    assert level == "warning"
    assert words in finding
    assert "secret" not in finding


@pytest.mark.parametrize(
    "config",
    [
        SINK | {"topics": "x", "connection.uri": "mongodb://c:1/"},
        SINK | {"topics.regex": r"other\..*", "connection.uri": "${file:/a:b}"},
        SINK | {"topics.regex": r"\Qjava\E"},
        SINK | {"topics.regex": r"move\..*", DESTINATION_SET: "rs/b:1"},
        {"connector.class": "io.debezium.connector.mongodb.MongoDbConnector", "topic.prefix": "moved"},
        {"connector.class": "org.example.Other", "topics": "move.shop.orders"},
    ],
)
def test_a_foreign_connector_that_is_none_of_our_business(config: dict[str, str]) -> None:
    assert told(connect.others(PIPELINE, {"other": config})) == []


@pytest.mark.parametrize(
    ("found", "level", "words"),
    [
        (None, "warning", "its window is unknown"),
        (capture.Oplog(span=3600 * 5, size=100, limit=100), "warning", "reaches back 5.0 hours"),
        (capture.Oplog(span=3600 * 2, size=50, limit=100), "warning", "reaches back 4.0 hours"),
        (capture.Oplog(span=3600 * 30, size=100, limit=100), "ok", "reaches back 30 hours"),
        (capture.Oplog(span=3600 * 5, size=100, limit=100, kept=48), "ok", "reaches back 48 hours"),
        (capture.Oplog(span=3600 * 2, size=1, limit=100), "ok", "reaches back 200 hours"),
        (capture.Oplog(span=60, size=1, limit=1000), "ok", "is too new to tell how far it reaches back"),
        (capture.Oplog(span=60, size=95, limit=100), "warning", "reaches back 0.0 hours"),
    ],
)
def test_how_far_the_oplog_reaches(found: capture.Oplog | None, level: str, words: str) -> None:
    (finding,) = capture.check_window(found)
    assert finding.level == level
    assert words in finding.finding


@pytest.mark.parametrize(
    ("found", "since", "lost", "level", "words"),
    [
        (capture.Oplog(4000, 95, 100, last=5000), 3000, False, "ok", "capture is 33 min behind"),
        (capture.Oplog(4000, 95, 100, last=5000), 2999, False, "warning", "reaches back 67 min, and capture is 33"),
        (capture.Oplog(4000, 40, 100, last=5000), 1000, False, "ok", "reaches back 2.8 h, and capture is"),
        (capture.Oplog(4000, 95, 100, kept=9, last=5000), 500, False, "ok", "reaches back 9.0 h, and capture is"),
        (capture.Oplog(600, 1, 100, last=5000), 4999, False, "ok", "is too new to tell how far it reaches back, and"),
        (capture.Oplog(600, 80, 100, last=5000), 4500, False, "warning", "will reach back 12 min at the write rate"),
        (capture.Oplog(4000, 95, 100, last=5000), 4999, True, "error", "no longer holds the changes since 4999:1"),
        (None, 4999, True, "error", "no longer holds the changes since 4999:1"),
    ],
)
def test_capture_has_to_stay_within_the_oplog(
    found: capture.Oplog | None, since: int, lost: bool, level: str, words: str
) -> None:
    captured = Captured("move-source", SourceState(None), ClusterTime(since, 1), lost, "", ".*")
    (finding,) = capture.check_capture(found, captured)
    assert (finding.level, words in finding.finding) == (level, True), finding.finding


_INITIATION = {"msg": "initiating set"}


@pytest.mark.parametrize(
    ("found", "other"),
    [
        ([(7, {})], False),  # the member that responds may be behind
        ([(9, {}), (1, _INITIATION)], False),
        ([(9, {}), (9, {})], False),
        ([(10, {}), (1, _INITIATION)], True),
        ([(10, {}), (8, {})], True),
        ([(10, {}), (10, {})], False),  # the oplog has dropped it
        ([(10, _INITIATION), (10, _INITIATION)], True),
    ],
)
def test_a_majoritys_entry_is_in_the_oplog_of_its_history(found: list[tuple[int, Any]], other: bool) -> None:
    entries = [{"ts": Timestamp(100, ordinal), "op": "n", "o": o} for ordinal, o in found]
    assert capture.has_other_history(entries, ClusterTime(100, 9)) == other


@pytest.mark.parametrize("ordinal", [6, 7, 8])
def test_a_stream_that_has_passed_no_entry_proves_no_history(ordinal: int) -> None:
    """It has begun at its start, or right after it. No server is asked."""
    state = SourceState(SourcePosition(ClusterTime(100, ordinal), False), start=ClusterTime(100, 7))
    assert not capture.is_restored(cast(Any, None), state)


def test_a_source_with_another_history_is_told_before_the_destination_loses_what_it_lacks() -> None:
    captured = Captured("move-source", SourceState(None), ClusterTime(4999, 1), True, "", ".*", restored=True)
    (finding,) = capture.check_capture(None, captured)
    assert (finding.level, finding.code) == ("error", "TWP-OTHER-HISTORY")
    assert "has no entry of 4999:1" in finding.finding
    assert finding.advice.index("verify PIPELINE --alone") < finding.advice.index("resnapshot PIPELINE")


def test_a_resnapshot_that_is_not_over_is_told() -> None:
    state = SourceState(None, gap=ClusterTime(4000, 1))
    captured = Captured("move-source", state, ClusterTime(4999, 1), False, "x", ".*")
    (finding,) = capture.check_capture(capture.Oplog(4000, 95, 100, last=5000), captured)
    assert (finding.level, "lacks the changes since 4000:1" in finding.finding) == ("warning", True)


@pytest.mark.parametrize(
    ("size", "level", "words"),
    [
        (2**30, "ok", "a copy of 1.0 GiB takes 0.1 hours at 5 MiB/s"),
        (200 * 2**30, "warning", "takes 11.4 hours at 5 MiB/s"),
    ],
)
def test_the_oplog_has_to_reach_back_over_debeziums_copy(size: int, level: str, words: str) -> None:
    window = capture.Oplog(span=3600 * 10, size=100, limit=100)
    (finding,) = capture.check_copy(window, size, PIPELINE.changed(capture={"copy_method": "debezium"}))
    assert finding.level == level
    assert words in finding.finding
    assert finding.advice or level == "ok"
    for method in ("towpath", "none"):
        assert list(capture.check_copy(window, size, PIPELINE.changed(capture={"copy_method": method}))) == []


@pytest.mark.parametrize(("way", "level"), [("debezium", "warning"), ("towpath", "error")])
def test_workers_without_exactly_once_support(way: CopyMethod, level: str) -> None:
    pipeline = PIPELINE.changed(capture={"copy_method": way})
    ((found, words),) = told(connect.validated({"exactly.once.support": ["is not"]}, pipeline))
    assert found == level
    assert "no exactly-once support" in words


def test_what_the_connector_rejects_of_its_clients_is_told_from_the_workers_policy() -> None:
    ours = "TWP-CONFIG: producer.override.acks is '1'; set it to all: a broker that fails would lose records"
    key = "producer.override.acks"
    assert told(connect.validated({key: [ours]}, PIPELINE)) == [("error", f"{key}: {ours}")]
    policy = told(connect.validated({key: ["The 'None' policy does not allow it."]}, PIPELINE))
    assert "the workers do not allow a connector to set producer.override.acks" in policy[0][1]


def test_an_unresolved_reference_is_told_from_a_cluster_out_of_reach() -> None:
    unresolved = told(connect.validated({"connection.uri": ["… strings must start with either …"]}, PIPELINE))
    assert "finds no URI through ${file:/nowhere/move.properties:…}" in unresolved[0][1]
    away = told(connect.validated({"connection.uri": ["Unable to connect to the server."]}, PIPELINE))
    assert away == [("error", "connection.uri: Unable to connect to the server.")]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"collections": {"rename": {"bar.x": "a.x"}}}, "bar.x"),
        ({"write": {"concern": "1+journal"}}, 'concern = "1+journal"'),
        ({"write": {"tasks": 5}}, "tasks = 5"),
        ({"capture": {"copy_tasks": 3}}, "copy_tasks = 3 has no effect"),
        ({"log": {"retention": 3_600_000}}, "1.0 hours"),
    ],
)
def test_a_trap_in_the_pipeline_file(change: dict[str, object], words: str) -> None:
    assert told(traps(PIPELINE, Path("move.toml"))) == []
    ((level, finding),) = told(traps(PIPELINE.changed(**change), Path("move.toml")))
    assert level == "warning"
    assert words in finding


def test_a_secrets_file_open_to_everybody(tmp_path: Path) -> None:
    secrets = tmp_path / "move.properties"
    secrets.write_text("source.uri=mongodb://u:secret@a/\n")
    for mode, count in ((0o644, 1), (0o640, 0), (0o600, 0)):
        secrets.chmod(mode)
        findings = told(traps(PIPELINE.changed(connect={"secrets": tmp_path}), Path("move.toml")))
        assert len(findings) == count
        assert "secret@" not in str(findings)


def test_every_rule_is_in_a_table_and_every_judgement_in_a_rule() -> None:
    """A rule is a function of facts alone. What judges plain values is called by a rule."""
    tables: list[Any] = [*SERVERS, *change.RULES, *target.OF_REMOVAL, *target.OF_SCHEMA, *target.OF_LOG]
    in_tables = {rule.check for rule in tables}
    code = [file.read_text(encoding="utf-8") for file in Path(towpath.__file__).parent.rglob("*.py")]
    nodes = [node for text in code if "Finding" in text for node in ast.walk(ast.parse(text))]
    used = {node.id if isinstance(node, ast.Name) else getattr(node, "attr", "") for node in nodes}
    left_out, rules = [], 0
    for module in (capture, change, connect, destination, field_rules, kafka, source, target):
        for name, check in inspect.getmembers(module, inspect.isfunction):
            if check.__module__ != module.__name__ or check.__annotations__.get("return") != "Iterator[Finding]":
                continue
            takes = [each for argument, each in check.__annotations__.items() if argument != "return"]
            is_rule = not name.startswith("_") and takes in (["Facts"], ["Target"])
            rules += is_rule
            if check not in in_tables if is_rule else name not in used:
                left_out.append(f"{module.__name__}.{name}")
    assert rules > 30 and left_out == []
