"""The log as JSON: in Kafka's own console consumer, and in a sink of Kafka's that knows no BSON."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import MakePipeline
from tests.support import kafka_tools
from tests.support.awaited import patient, until
from tests.support.pipeline import Pipeline, Settings
from tests.support.servers import standalone_connect
from towpath.clients.connect.rest import Connect
from towpath.stack.parts import parts

pytestmark = pytest.mark.servers

#: The changes of the collection below, as operation, key and value.
PRINTED = [
    ("r", '{"_id": 0}', '{"_id": 0, "lines": [1]}'),
    ("r", '{"_id": 1}', '{"_id": 1, "lines": [1]}'),
    ("u", '{"_id": 1}', '{"$set": {"lines.1": 2}}'),
    ("d", '{"_id": 0}', "null"),
]
WRITTEN = [
    {"_id": 0, "lines": [1], "__deleted": False, "__op": "r"},
    {"_id": 1, "lines": [1], "__deleted": False, "__op": "r"},
    {"_id": 1, "$set": {"lines.1": 2}, "__deleted": False, "__op": "u"},
    {"_id": 0, "__deleted": True, "__op": "d"},
]


@pytest.fixture
def changed(make_pipeline: MakePipeline) -> Pipeline:
    """A pipeline with these changes in one partition."""
    pipeline = make_pipeline(Settings(partitions=1))
    orders = pipeline.source("orders")
    orders.insert_many([{"_id": n, "lines": [1]} for n in range(2)])
    pipeline.deploy()
    pipeline.wait()
    orders.update_one({"_id": 1}, {"$push": {"lines": 2}})
    orders.delete_one({"_id": 0})
    pipeline.wait()
    return pipeline


def console(pipeline: Pipeline) -> list[list[str]]:
    """The columns of what the console consumer prints, with our one jar before Kafka's on the class path."""
    found = parts(print)
    (ours,) = found.plugins.glob("towpath/towpath-transforms-*.jar")
    done = subprocess.run(
        [
            *(found.java, "-Xmx128m", "-cp", f"{ours}:{kafka_tools.jars()}/*:{found.libs}/*"),
            "org.apache.kafka.tools.consumer.ConsoleConsumer",
            *("--bootstrap-server", pipeline.addresses.bootstrap, "--topic", pipeline.topic("orders")),
            *("--isolation-level", "read_committed", "--from-beginning", "--max-messages", str(len(PRINTED))),
            *("--formatter", "io.towpath.json.JsonFormatter"),
        ],
        env=os.environ | {"LC_ALL": "C.UTF-8"},
        capture_output=True,
        text=True,
        timeout=patient(30),
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return [line.split("\t") for line in done.stdout.splitlines()]


def written(pipeline: Pipeline, folder: Path) -> list[dict[str, Any]]:
    """What a connector of Kafka's writes to a file, through ToJson, one JSON object a line."""
    found, plugins, file = parts(print), folder / "with-files", folder / "orders.json"
    plugins.mkdir()
    (connector,) = kafka_tools.jars().glob("connect-file-*.jar")
    for plugin in (found.plugins / "towpath", connector):
        (plugins / plugin.name).symlink_to(plugin)
    settings = {
        "connector.class": "org.apache.kafka.connect.file.FileStreamSinkConnector",
        "topics": pipeline.topic("orders"),
        "file": str(file),
        "consumer.override.isolation.level": "read_committed",
        "transforms": "json",
        "transforms.json.type": "io.towpath.json.ToJson",
        "transforms.json.deletes": "rewrite",
        "transforms.json.updates": "pass",
    }
    with (
        standalone_connect(folder, pipeline.addresses.bootstrap, plugins) as url,
        Connect(url) as connect,
    ):
        connect.put(f"{pipeline.name}-file", settings)
        lines = until("whole file", lambda: lines_of(file))
    return [json.loads(line) for line in lines]


def lines_of(file: Path) -> list[str] | None:
    """The lines of a file, once all are there."""
    lines = file.read_text(encoding="utf-8").splitlines(keepends=True) if file.exists() else []
    return lines if len(lines) >= len(WRITTEN) and lines[-1].endswith("\n") else None


@pytest.mark.nightly
def test_the_log_is_json_for_the_console_consumer_and_for_a_sink_of_files(changed: Pipeline, tmp_path: Path) -> None:
    lines = console(changed)
    assert [tuple(columns[3:]) for columns in lines] == PRINTED
    for place, at, time, *_ in lines:
        assert re.fullmatch(rf"{re.escape(changed.topic('orders'))}-0@\d+", place)
        assert re.fullmatch(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", at)
        assert re.fullmatch(r"\d{10}:\d+", time)
    documents = written(changed, tmp_path)
    assert all(document.pop("__ts_ms") > 1_700_000_000_000 for document in documents)
    assert documents == WRITTEN
