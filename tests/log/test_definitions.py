"""Which connectors a pipeline has in each mode, and what its file decides in them."""

from __future__ import annotations

import re

import pytest

from tests.checks.test_check_judgements import PIPELINE
from towpath.checks.change import unchanged_mode
from towpath.checks.kafka import partition_count
from towpath.clients.kafka.topics import Topic
from towpath.config.logins import KafkaLogin
from towpath.config.pipeline import CopyMethod, Mode, Pipeline
from towpath.log.definitions import (
    DDL,
    DDL_DROP,
    SETTINGS,
    TOPIC_SETTINGS,
    TRANSACTION_TIMEOUT,
    change_settings,
    definitions,
    is_compacted,
    pipeline_topics,
    plain_settings,
    plugins,
    request_settings,
    timeout_settings,
    transaction_timeout,
)
from towpath.store.positions import Counts, task_state

SOURCE, SINK = "io.towpath.source.MongoSource", "io.towpath.sink.MongoSink"
DEBEZIUM, MONGO_KAFKA = "io.debezium.connector.mongodb.MongoDbConnector", "com.mongodb.kafka.connect.MongoSinkConnector"


WEEK = 7 * 24 * 3_600_000
MODES: tuple[Mode, ...] = ("exactly-once", "plain")
COMPACTED = {"compact": True, "compaction_lag": 5, "delete_retention": 70}


def pipeline(mode: Mode, way: CopyMethod) -> Pipeline:
    limits = {"documents_per_second": 100, "bytes_per_second": 5_000_000}
    capture = {"splice_cache": 0, "copy_method": way, "copy_threads": 8, "read_preference": "secondary", **limits}
    return PIPELINE.changed(mode=mode, capture=capture, connect={"bootstrap": "inside:9092"})


@pytest.mark.parametrize(
    ("mode", "way", "source", "sink", "copied"),
    [
        ("exactly-once", "towpath", SOURCE, SINK, ("ranges", "no_data")),
        ("exactly-once", "none", SOURCE, SINK, ("none", "no_data")),
        ("plain", "towpath", SOURCE, MONGO_KAFKA, ("ranges", "no_data")),
        ("plain", "debezium", DEBEZIUM, MONGO_KAFKA, (None, "initial")),
        ("plain", "none", DEBEZIUM, MONGO_KAFKA, (None, "no_data")),
    ],
)
def test_mode_and_copy_choose_the_connectors(
    mode: Mode, way: CopyMethod, source: str, sink: str, copied: tuple[str | None, str]
) -> None:
    found = definitions(pipeline(mode, way))
    capture = found["move-source"]
    assert (capture["connector.class"], found["move-sink"]["connector.class"]) == (source, sink)
    assert (capture.get("towpath.copy"), capture["snapshot.mode"]) == copied
    assert ("transforms" in capture) == (source == DEBEZIUM)
    assert set(plugins(pipeline(mode, way))) >= {source, sink}
    assert "%(" not in str(found)


def test_what_the_file_decides_reaches_the_connectors() -> None:
    found = definitions(pipeline("exactly-once", "towpath").changed(write={"concern": "2+journal", "wtimeout": 7000}))
    source, sink = found["move-source"], found["move-sink"]
    assert {key.removeprefix("towpath."): text for key, text in source.items() if key.startswith("towpath.")} == {
        "name": "move",
        "whole.documents": "false",
        "copy": "ranges",
        "copy.threads": "8",
        "copy.order": "auto",
        "copy.read.preference": "secondary",
        "copy.documents.per.second": "100",
        "copy.bytes.per.second": "5000000",
        "splice.cache.bytes": "0",
        "requests.topic": "move.requests",
        "dead.letters.topic": "move.dead-letters",
        "requests.bootstrap.servers": "inside:9092",
    }
    assert source["exactly.once.support"] == "required"
    assert (sink["towpath.pipeline"], sink["towpath.write.concern"], sink["towpath.wtimeout.ms"]) == (
        "move",
        "2+journal",
        "7000",
    )
    assert sink["towpath.fold"] == "true"
    assert sink["errors.deadletterqueue.topic.name"] == "move.dead-letters"
    assert sink["consumer.override.isolation.level"] == "read_committed"


def test_splices_are_for_updates_that_travel_as_updates() -> None:
    one = pipeline("exactly-once", "towpath").changed(
        capture={"splice_cache": 64 << 20, "whole_documents": ("shop.odd",)}
    )
    found = {name: config.get("towpath.splice.cache.bytes") for name, config in definitions(one).items()}
    assert found == {"move-source": "67108864", "move-source-whole": "0", "move-sink": None}


def test_tasks_share_the_copy_of_our_own_source_only() -> None:
    for way, tasks in (("towpath", "3"), ("debezium", "1")):
        whole = pipeline("plain", way)
        assert definitions(whole)["move-source"]["tasks.max"] == "1"
        shared = whole.changed(capture={"copy_tasks": 3})
        assert definitions(shared)["move-source"]["tasks.max"] == tasks


def test_the_sink_knows_whether_its_log_is_compacted_and_where_to_ask() -> None:
    whole = pipeline("exactly-once", "towpath")
    keys = (
        "towpath.until",
        "towpath.compaction.lag.ms",
        "towpath.delete.retention.ms",
        "towpath.log.bootstrap.servers",
    )
    before, after = (definitions(whole.changed(log=it)) for it in ({}, COMPACTED))
    assert [before["move-sink"][name] for name in keys] == ["", "-1", "-1", "inside:9092"]
    assert [after["move-sink"][name] for name in keys] == ["", "5", "70", "inside:9092"]
    assert not list(unchanged_mode(whole, after, before, {}))
    plain = definitions(pipeline("plain", "towpath").changed(log=COMPACTED))["move-sink"]
    assert not plain.keys() & {*keys}


@pytest.mark.parametrize(("mode", "way"), [("exactly-once", "towpath"), ("plain", "none"), ("plain", "towpath")])
def test_the_sink_knows_where_its_log_lacks_what_was_there_before(mode: Mode, way: CopyMethod) -> None:
    assert definitions(pipeline("exactly-once", "none"))["move-sink"]["towpath.copy"] == "none"
    assert "towpath.copy" not in definitions(pipeline(mode, way))["move-sink"]


def test_a_poll_brings_no_more_than_a_transaction_takes_nor_than_fits_into_memory() -> None:
    small = pipeline("exactly-once", "towpath").changed(write={"fold": False, "batch_records": 3, "batch_bytes": 700})
    sink = definitions(small)["move-sink"]
    assert (sink["towpath.fold"], sink["towpath.batch.records"], sink["towpath.batch.bytes"]) == ("false", "3", "700")
    assert sink["consumer.override.max.poll.records"] == "3"
    for records, poll in ((1, "1"), (7, "1"), (10, "2"), (50_001, "3")):
        found = definitions(small.changed(write={"batch_records": records}))["move-sink"]
        assert found["consumer.override.max.poll.records"] == poll, records
    large = definitions(small.changed(write={"batch_records": 50_000}))["move-sink"]
    assert large["consumer.override.max.poll.records"] == "4", "16 MB each, at worst"


def test_the_tasks_of_every_sink_share_all_partitions() -> None:
    strategy = "consumer.override.partition.assignment.strategy"
    modes: tuple[Mode, ...] = ("exactly-once", "plain")
    for mode in modes:
        first, second = definitions(pipeline(mode, "towpath"))["move-sink"][strategy].split(",")
        assert first.endswith(".StickyAssignor")
        assert second.endswith(".RangeAssignor"), "what a task of the version before understands"


def test_a_changed_mode_is_refused_with_the_way_out() -> None:
    before, after = pipeline("plain", "towpath"), pipeline("exactly-once", "towpath")
    refused, *_ = unchanged_mode(after, definitions(after), definitions(before), {})
    assert re.search(r'was deployed with mode = "plain".*remove --topics', f"{refused.finding}; {refused.advice}")
    assert not list(unchanged_mode(after, definitions(after), definitions(after), {}))
    assert not list(unchanged_mode(after, definitions(after), dict.fromkeys(definitions(after)), {}))


@pytest.mark.parametrize(("before", "after"), [("towpath", "none"), ("none", "towpath")])
def test_a_changed_way_of_copying_is_refused_and_its_speed_is_not(before: CopyMethod, after: CopyMethod) -> None:
    was, wanted = pipeline("exactly-once", before), pipeline("exactly-once", after)
    refused, *_ = unchanged_mode(wanted, definitions(wanted), definitions(was), {})
    assert re.search(f'the file now says "{after}"', f"{refused.finding}; {refused.advice}")
    faster = was.changed(capture={"copy_threads": 9, "bytes_per_second": 0, "read_preference": "primary"})
    assert not list(unchanged_mode(faster, definitions(faster), definitions(was), {}))


def test_a_changed_mode_is_seen_in_the_topics_when_the_connectors_are_gone() -> None:
    plain, exactly_once = pipeline("plain", "debezium"), pipeline("exactly-once", "towpath")
    log = {"move.shop.orders": Topic("move.shop.orders", 4)}
    marks = {name: Topic(name, 1) for name in ("move.requests", "move.dead-letters")}
    gone = dict.fromkeys(definitions(plain))
    assert not list(unchanged_mode(plain, definitions(plain), gone, log))
    assert not list(unchanged_mode(exactly_once, definitions(exactly_once), gone, log | marks))
    refused, *_ = unchanged_mode(exactly_once, definitions(exactly_once), gone, log)
    assert re.search("was deployed with mode", f"{refused.finding}; {refused.advice}")
    refused, *_ = unchanged_mode(plain, definitions(plain), gone, log | marks)
    assert re.search("was deployed with mode", f"{refused.finding}; {refused.advice}")
    copied = pipeline("plain", "towpath")
    refused, *_ = unchanged_mode(copied, definitions(copied), gone, log)
    assert re.search(r"another \[capture\] copy", f"{refused.finding}; {refused.advice}")


def test_requests_and_dead_letters_lie_on_one_partition() -> None:
    assert not list(partition_count(Topic("move.requests", 1), PIPELINE))
    (refused,) = partition_count(Topic("move.requests", 3), PIPELINE)
    assert re.search("has 3 partitions and must have one", refused.finding)


def test_a_task_s_numbers_are_zero_until_they_are_told() -> None:
    found = task_state({"_id": {"pipeline": "move", "task": 1}, "records": 5, "bytesOut": 7, "withoutDocument": 2})
    assert (found.task, found.counts, found.reason) == (1, Counts(records=5, bytes_out=7, without_document=2), "")
    told = task_state({"_id": {"pipeline": "move", "task": 1}, "retries": 2, "lastRetry": {"reason": "no primary"}})
    assert (told.counts.retries, told.reason, told.retried_at) == (2, "no primary", None)


def test_retries_are_counted_by_cause_and_times_add_up() -> None:
    found = task_state({"_id": {"pipeline": "move", "task": 1}, "retries": 5, "retriesBy": {"network": 2, "other": 1}})
    assert {cause: n for cause, n in found.retries_by_cause.items() if n} == {"network": 2, "other": 1}
    assert set(found.transaction_seconds.within.values()) == {0}
    times = {"10": 3, "500": 1, "longer": 1}
    stored = {"_id": {"pipeline": "move", "task": 1}, "transactionTimes": times, "transactionUs": 62_500_000}
    seconds = task_state(stored).transaction_seconds
    assert (seconds.sum, *seconds.within.items())[:3] == (62.5, ("0.01", 3), ("0.025", 3))
    assert [seconds.within[bound] for bound in ("0.25", "0.5", "60.0", "+Inf")] == [3, 4, 4, 5]


def test_what_travels_whole_has_a_connector_of_its_own_that_asks_the_source_for_whole_documents() -> None:
    one = pipeline("exactly-once", "towpath").changed(capture={"whole_documents": ("shop.odd",)})
    found = definitions(one)
    keys = ("topic.prefix", "capture.mode", "towpath.whole.documents")
    assert [found["move-source"][key] for key in keys] == ["move", "change_streams", "false"]
    assert [found["move-source-whole"][key] for key in keys] == ["move-whole", "change_streams_update_full", "true"]
    selected = {
        name: [re.fullmatch(found[name]["collection.include.list"], it) is not None for it in ("shop.a", "shop.odd")]
        for name in ("move-source", "move-source-whole")
    }
    assert selected == {"move-source": [True, False], "move-source-whole": [False, True]}


@pytest.mark.parametrize("mode", ["exactly-once", "plain"])
def test_what_is_secret_is_named_and_every_client_of_connect_logs_in(mode: Mode) -> None:
    tls = "mongodb://%s/?replicaSet=rs&tls=true&tlsCAFile=/ca.pem"
    login = KafkaLogin({"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"})
    one = pipeline(mode, "towpath").changed(source={"uri": tls % "a:1"}, destination={"uri": tls % "b:1"})
    one = one.model_copy(update={"kafka": one.kafka.model_copy(update={"login": login})})
    found, secrets = definitions(one), one.secrets_file
    for name, side in (("move-source", "source"), ("move-sink", "destination")):
        assert found[name]["towpath.tls.ca"] == f"${{file:{secrets}:{side}.tls.ca}}"
        logins = {key: text for key, text in found[name].items() if text.startswith(f"${{file:{secrets}:kafka.")}
        assert logins == {
            f"{client}.override.{key}": f"${{file:{secrets}:kafka.{key}}}"
            for client in ("producer", "consumer", "admin")
            for key in login.settings
        }


def test_dead_letters_are_those_of_the_mode_that_has_them() -> None:
    found = {mode: definitions(pipeline(mode, "towpath"))["move-source"] for mode in MODES}
    key = "towpath.dead.letters.topic"
    assert {mode: config[key] for mode, config in found.items()} == {"exactly-once": "move.dead-letters", "plain": ""}


def test_renames_and_schema_changes_reach_the_connectors_in_one_form() -> None:
    whole = pipeline("exactly-once", "towpath")
    renamed = whole.changed(collections={"include": ("shop.*",), "rename": {"shop.b": "a.b", "shop.a": "a.a"}})
    assert definitions(renamed)["move-sink"]["towpath.rename"] == '{"shop.a": "a.a", "shop.b": "a.b"}'
    found = definitions(whole.changed(ddl={"apply": True, "drop": "apply"}))
    assert (found["move-source"][DDL], found["move-sink"][DDL_DROP]) == ("true", "apply")
    off = definitions(whole.changed(ddl={"apply": False}))
    assert DDL not in off["move-source"] and DDL_DROP not in off["move-sink"]


def test_only_the_description_of_thousands_of_collections_takes_more_than_a_minute() -> None:
    """All readers wait so long for what a killed worker has begun, and the worker itself, when it starts again."""
    plain = pipeline("exactly-once", "towpath").changed(ddl={"apply": False})
    ddl = plain.changed(ddl={"apply": True})
    assert [transaction_timeout(ddl, count) for count in (1, 2_000, 2_001, 50_000)] == [60, 60, 300, 300]
    assert transaction_timeout(plain, 50_000) == 60, "Kafka Connect's"
    assert (timeout_settings(ddl, 5), timeout_settings(ddl, 5_000)) == ({}, {TRANSACTION_TIMEOUT: "300000"})


def test_the_plugins_are_the_connectors_and_the_transforms_of_stock_debezium() -> None:
    found = plugins(pipeline("plain", "debezium"))
    assert {DEBEZIUM, MONGO_KAFKA} < set(found) and len(found) == len(set(found)) > 2
    assert all("." in name for name in found)


def test_a_compacted_log_keeps_what_the_sink_needs_and_another_keeps_its_mark() -> None:
    lasting = {"compact": True, "compaction_lag": 5, "delete_retention": 70}
    plain = TOPIC_SETTINGS | {"max.message.bytes": str(17 << 20), "retention.ms": "-1"}
    one = pipeline("exactly-once", "towpath")
    assert change_settings(one) == plain_settings(one) == request_settings(one) == plain
    compacted = one.changed(log=lasting)
    assert change_settings(compacted).keys() == SETTINGS, "what is judged of existing topics"
    assert change_settings(compacted) == plain | {
        "cleanup.policy": "compact",
        "min.compaction.lag.ms": "5",
        "max.compaction.lag.ms": "10",
        "delete.retention.ms": "70",
        "segment.ms": "5",
        "min.cleanable.dirty.ratio": "0.5",
    }
    limited = change_settings(one.changed(log=lasting | {"retention": 9}))
    assert (limited["cleanup.policy"], limited["retention.ms"]) == ("compact,delete", "9")
    assert [is_compacted(it) for it in (plain, change_settings(compacted), limited, {})] == [False, True, True, False]


@pytest.mark.parametrize(
    ("retention", "kept"), [(-1, WEEK), (WEEK, WEEK), (WEEK + 1, WEEK), (WEEK - 1, WEEK - 1), (0, 0)]
)
def test_requests_of_a_compacted_log_are_kept_for_a_week_at_most(retention: int, kept: int) -> None:
    """Compaction writes requests on and on."""
    one = pipeline("exactly-once", "towpath").changed(log=COMPACTED | {"retention": retention})
    settings = request_settings(one)
    assert (settings["retention.ms"], settings["cleanup.policy"]) == (str(kept), "delete")
    assert request_settings(one.changed(log={"compact": False}))["retention.ms"] == str(retention)


def test_the_topics_of_a_pipeline_are_no_other_ones() -> None:
    one = pipeline("exactly-once", "towpath").changed(capture={"whole_documents": ("shop.odd",)})
    own = ["move.shop.a", "move.requests", "move.dead-letters"]
    own += ["__debezium-heartbeat.move", "__debezium-heartbeat.move-whole"]
    assert pipeline_topics(one, [*own, "move.other.a", "shop.a", "moves.shop.a", "__debezium-heartbeat.moved"]) == own
    assert pipeline_topics(pipeline("exactly-once", "towpath"), own) == own, "also of what travelled whole before"
