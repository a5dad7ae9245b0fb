"""Connectors that are posted by REST, without the command line: what would lose or repeat something is refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from tests.support import log, rest
from tests.support.awaited import until
from tests.support.pipeline import Pipeline, Settings
from tests.support.servers import standalone_connect
from towpath.clients.connect.rest import Connect
from towpath.config import loading as pipeline_file
from towpath.log.definitions import definitions
from towpath.stack import parts

pytestmark = pytest.mark.servers

Configs = dict[str, dict[str, str]]

BYTES = "set it to org.apache.kafka.connect.converters.ByteArrayConverter"
EXACTLY_ONCE = "a worker that is killed loses rows or repeats changes"
ROUND_ROBIN = "org.apache.kafka.clients.producer.RoundRobinPartitioner"
SOURCE = [
    ("exactly.once.support", None, EXACTLY_ONCE),
    ("exactly.once.support", "requested", "set it to required"),
    ("transaction.boundary", "interval", EXACTLY_ONCE),
    ("transaction.boundary", "connector", "set it to poll"),
    ("key.converter", None, BYTES),
    ("value.converter", "org.apache.kafka.connect.json.JsonConverter", BYTES),
    ("header.converter", None, BYTES),
    ("errors.tolerance", "all", "set it to none"),
    ("event.processing.failure.handling.mode", "skip", "set it to fail"),
    ("mongodb.authentication.class", None, "set it to io.towpath.debezium.RawDocuments"),
    ("cursor.pipeline", None, "let it begin with"),
    ("collection.include.list", "(shop", "Unclosed group"),
    ("producer.override.partitioner.class", None, "set it to io.towpath.connector.KeyPartitioner"),
    ("producer.override.partitioner.ignore.keys", "true", "set it to false"),
    ("transforms", "drop", "remove it: a transform can"),
    ("signal.data.collection", "shop.signals", "remove it: signals"),
    ("topic.naming.strategy", "io.debezium.schema.DefaultTopicNamingStrategy", "remove it: the topics"),
    ("offsets.storage.topic", "elsewhere", "remove it: what was captured"),
    ("towpath.name", "two.words", "must contain letters, digits, _ and - only"),
    ("towpath.requests.topic", "a topic", "at most 249 letters"),
    ("towpath.resnapshot.only", "(shop", "is no regular expression"),
]
SINK = [
    ("consumer.override.isolation.level", None, "set it to read_committed"),
    ("consumer.override.auto.offset.reset", "latest", "set it to earliest"),
    ("key.converter", None, BYTES),
    ("value.converter", "org.apache.kafka.connect.storage.StringConverter", BYTES),
    ("header.converter", None, BYTES),
    ("bulk.write.ordered", "false", "remove it: MongoSink decides"),
    ("topic.override.x.y.z.collection", "other", "remove it: the topic's name says"),
    ("towpath.rename", '{"shop.orders": 1}', "must be a JSON object of namespaces"),
    ("towpath.compaction.lag.ms", "5", "go together"),
]


@pytest.fixture
def configs(pipeline: Pipeline) -> Iterator[Configs]:
    """The connectors as the command line would deploy them, but for the URIs, which no secrets file holds yet."""
    pipeline.source("docs").insert_one({"_id": 1})
    spec = pipeline_file.read(pipeline.write())
    found = definitions(spec)
    found[spec.source_connector]["mongodb.connection.string"] = pipeline.addresses.source
    found[spec.sink_connector]["connection.uri"] = pipeline.addresses.destination
    yield found
    with Connect(pipeline.addresses.connect) as connect:
        for name in found.keys() & set(connect.names()):
            connect.delete(name)


def test_each_setting_that_would_lose_or_repeat_something_is_refused(pipeline: Pipeline, configs: Configs) -> None:
    source, sink = configs
    refused = [(source, *fault) for fault in SOURCE] + [(sink, *fault) for fault in SINK]
    for name, key, value, words in refused:
        config = {other: text for other, text in configs[name].items() if other != key}
        message = _put(pipeline.addresses.connect, name, config | ({} if value is None else {key: value}), 400)
        assert key in message, (key, value, message)
        assert words in message, (key, value, message)
    assert not {source, sink} & set(rest.get(f"{pipeline.addresses.connect}/connectors", timeout=30).json())


def test_what_the_command_line_deploys_runs_when_it_is_posted(pipeline: Pipeline, configs: Configs) -> None:
    with Connect(pipeline.addresses.connect) as connect:
        for name, config in configs.items():
            assert connect.errors(name, config) == {}
            connect.put(name, config)
    until("document", lambda: pipeline.destination("docs").find_one({"_id": 1}))


def test_an_expression_that_only_java_knows_is_refused_before_the_copy(pipeline: Pipeline, configs: Configs) -> None:
    source = next(iter(configs))
    only_java = r"\p{javaLetterOrDigit}+\.docs"
    _put(pipeline.addresses.connect, source, configs[source] | {"collection.include.list": only_java}, 201)
    trace = _failure(pipeline.addresses.connect, source)
    assert "TWP-CONFIG: collection.include.list is " in trace
    assert "the source cannot filter its changes by that" in trace


def test_a_namespace_that_no_topic_can_be_named_after_is_refused_before_the_copy(
    pipeline: Pipeline, configs: Configs
) -> None:
    pipeline.source("two words").insert_one({"_id": 1})
    source = next(iter(configs))
    _put(pipeline.addresses.connect, source, configs[source], 201)
    assert "no topic can be named" in _failure(pipeline.addresses.connect, source)


@pytest.mark.nightly
def test_a_workers_own_partitioner_does_not_separate_the_changes_of_a_document(
    make_pipeline: Callable[[Settings], Pipeline], tmp_path: Path
) -> None:
    pipeline = make_pipeline(Settings(mode="plain"))
    spec, docs = pipeline_file.read(pipeline.write()), pipeline.source("docs")
    config = definitions(spec)[spec.source_connector] | {"mongodb.connection.string": pipeline.addresses.source}
    worker = "".join(f"producer.partitioner.{line}\n" for line in (f"class={ROUND_ROBIN}", "ignore.keys=true"))
    documents, updates = 7, 5  # no multiple of the partitions, in which round robin would separate nothing
    docs.insert_many({"_id": number} for number in range(documents))
    with standalone_connect(tmp_path, pipeline.addresses.bootstrap, parts.plugins(print), settings=worker) as url:
        _put(url, spec.source_connector, config, 201)
        topic, used = f"{pipeline.name}.{docs.full_name}", f"{url}/connectors/{spec.source_connector}/topics"
        until("the topic", lambda: topic in rest.get(used, timeout=9).text)
        for _ in range(updates):
            docs.update_many({}, {"$inc": {"n": 1}})
        found = until("changes", lambda: _all(pipeline.addresses.bootstrap, topic, documents * (1 + updates)))
    partitions = {key: {one.partition for one in found if one.key == key} for key in {one.key for one in found}}
    assert len(partitions) == documents
    assert all(len(where) == 1 for where in partitions.values()), partitions
    assert len(set.union(*partitions.values())) > 1


def _all(bootstrap: str, topic: str, least: int) -> list[log.Logged] | None:
    found = log.records(bootstrap, topic)
    return found if len(found) >= least else None


@pytest.mark.nightly
def test_a_task_on_a_worker_without_transactions_says_so(pipeline: Pipeline, configs: Configs, tmp_path: Path) -> None:
    """A standalone worker has none, whatever the connector requires."""
    source = next(iter(configs))
    with standalone_connect(tmp_path, pipeline.addresses.bootstrap, parts.plugins(print)) as url:
        _put(url, source, configs[source], 201)
        trace = _failure(url, source)
    assert "TWP-NOT-EXACTLY-ONCE: " in trace
    assert "exactly.once.source.support=enabled" in trace


def _put(connect: str, name: str, config: dict[str, str], status: int) -> str:
    """Connect's message."""
    answer = httpx.put(f"{connect}/connectors/{name}/config", json=config, timeout=60)
    assert answer.status_code == status, answer.text
    return str(answer.json().get("message", ""))


def _failure(connect: str, name: str) -> str:
    """The trace of the connector's task, once it has failed."""

    def look() -> str | None:
        tasks = rest.get(f"{connect}/connectors/{name}/status", timeout=30).json().get("tasks", [])
        return next((str(task["trace"]) for task in tasks if task["state"] == "FAILED"), None)

    return until("failed task", look)
