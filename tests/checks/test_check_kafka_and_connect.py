"""What `towpath check` finds at Kafka and at Kafka Connect."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from dataclasses import replace

import httpx
import pytest
import tenacity

from tests.checks.test_check import check, one
from tests.conftest import MakePipeline
from tests.support import rest
from tests.support.pipeline import Addresses, Pipeline, Settings, towpath
from tests.support.servers import free_port
from towpath.clients.connect.rest import Connect
from towpath.clients.kafka.topics import Topics
from towpath.config import loading as pipeline_file
from towpath.log.definitions import TOPIC_SETTINGS, definitions
from towpath.stack import Stack, parts

pytestmark = pytest.mark.servers


@pytest.fixture
def filled(pipeline: Pipeline) -> Pipeline:
    pipeline.source("docs").insert_one({"_id": 1})
    return pipeline


def test_topics_that_are_not_as_they_should_be(filled: Pipeline, addresses: Addresses) -> None:
    topics, good = Topics(addresses.bootstrap), TOPIC_SETTINGS | {"retention.ms": "-1"}
    for name in ("compacted", "narrow", "small"):
        filled.source(name).insert_one({"_id": 1})
    made = {
        filled.topic("compacted"): (4, good | {"cleanup.policy": "compact"}),
        filled.topic("narrow"): (2, good),
        filled.topic("small"): (4, {"max.message.bytes": "1000000", "retention.ms": "60000"}),
        f"{filled.name}.stranger.docs": (1, good),
    }
    try:
        for name, (partitions, settings) in made.items():
            topics.create([name], partitions, -1, settings)
        found = check(filled, expect=1)
    finally:
        topics.delete(made)
    one(found, "error", f"kafka {filled.topic('compacted')}", "cleanup.policy=compact: ")
    one(found, "error", f"kafka {filled.topic('narrow')}", "has 2 partitions")
    small = one(found, "warning", f"kafka {filled.topic('small')}", "max.message.bytes=1000000")
    assert "message.timestamp.type=CreateTime" in small["finding"]
    one(found, "warning", "kafka", f"{filled.name}.stranger.docs")


def test_replicas_that_cannot_be_had(make_pipeline: MakePipeline) -> None:
    pipeline = make_pipeline(Settings())
    pipeline.source("docs").insert_one({"_id": 1})
    text = pipeline.write().read_text().replace("[kafka]", "[kafka]\nreplication_factor = 3")
    pipeline.file.write_text(text)
    said = towpath("check", pipeline.file, expect=1).stdout
    assert "the brokers would not create the pipeline's topics" in said
    assert "[kafka] replication_factor" in said


def test_a_foreign_sink_on_the_pipelines_topics(filled: Pipeline, addresses: Addresses) -> None:
    name = f"{filled.name}-stranger"
    config = {
        "connector.class": "com.mongodb.kafka.connect.MongoSinkConnector",
        "topics": filled.topic("docs"),
        "connection.uri": addresses.destination,
        "database": filled.name,
        "errors.tolerance": "all",
    }
    with Connect(addresses.connect) as connect:
        connect.put(name, config)
        try:
            found = check(filled, expect=0)
        finally:
            connect.delete(name)
    one(found, "warning", f"connect {name}", "reads the pipeline's topics")
    one(found, "warning", f"connect {name}", "writes to the destination")
    one(found, "warning", f"connect {name}", "without a dead-letter topic")


@pytest.fixture(scope="module")
def bare_worker(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A worker with the plugins and without the settings that Towpath asks for; yields its URL."""
    found, url = parts.parts(print), f"http://127.0.0.1:{free_port()}"
    place = tmp_path_factory.mktemp("bare")
    names = {"config": "configs", "offset": "offsets", "status": "status"}
    values = {
        "bootstrap.servers": stack.bootstrap,
        "group.id": "bare",
        **{f"{kind}.storage.topic": f"bare-{name}" for kind, name in names.items()},
        **{f"{kind}.storage.replication.factor": "1" for kind in names},
        "offset.storage.partitions": "1",
        "status.storage.partitions": "1",
        "listeners": url,
        "plugin.path": str(found.plugins),
        "plugin.discovery": "service_load",
        "connector.client.config.override.policy": "None",
        "key.converter": "org.apache.kafka.connect.converters.ByteArrayConverter",
        "value.converter": "org.apache.kafka.connect.converters.ByteArrayConverter",
    }
    properties = place / "bare.properties"
    properties.write_text("".join(f"{key}={value}\n" for key, value in values.items()))
    main = "org.apache.kafka.connect.cli.ConnectDistributed"
    command = [str(found.java), "-Xmx384m", "-cp", f"{found.libs}/*", main, str(properties)]
    with (place / "bare.log").open("w") as log:
        running = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        _once_answering(url)
        yield url
    finally:
        running.kill()
        running.wait(30)
        topics = Topics(stack.bootstrap)
        topics.delete(name for name in topics.all() if name.startswith("bare-"))


@tenacity.retry(
    retry=tenacity.retry_if_exception_type(httpx.HTTPError),
    wait=tenacity.wait_fixed(0.3),
    stop=tenacity.stop_after_delay(90),
    reraise=True,
)
def _once_answering(url: str) -> None:
    rest.get(f"{url}/connectors", timeout=10).raise_for_status()


@pytest.mark.parametrize(
    ("mode", "level"), [pytest.param("exactly-once", "error", marks=pytest.mark.nightly), ("plain", "warning")]
)
def test_a_worker_without_the_settings_that_are_needed(
    filled: Pipeline, bare_worker: str, mode: str, level: str
) -> None:
    other = replace(filled, settings=Settings(mode=mode))
    found = check(other, expect=1, connect=bare_worker)
    source, sink = f"connect {filled.name}-source", f"connect {filled.name}-sink"
    one(found, level, source, "no exactly-once support")
    for subject in (source, sink):
        assert "config.providers=file" in one(found, "error", subject, "finds no URI through ${file:")["advice"]
        assert "override.policy=All" in one(found, "error", subject, "do not allow a connector to set ")["advice"]


def test_validation_says_what_deploy_puts(filled: Pipeline) -> None:
    """Had Connect anything against a definition as it is, `check` and `deploy` would both have to say so."""
    filled.deploy()
    pipeline = pipeline_file.read(filled.file)
    with Connect(pipeline.connect.url) as connect:
        faults = {name: connect.errors(name, config) for name, config in definitions(pipeline).items()}
    assert faults == {pipeline.source_connector: {}, pipeline.sink_connector: {}}


def test_the_stacks_worker_has_the_heap_that_it_needs_and_stock_capture_does_not_ask(filled: Pipeline) -> None:
    one(check(filled, expect=0), "ok", "connect", "a heap of 1,024 MB, 512 MB of it for new objects")
    plain = replace(filled, settings=Settings(mode="plain"))
    assert not [finding for finding in check(plain, expect=0) if "heap" in finding["finding"]]
