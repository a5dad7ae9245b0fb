"""The commands of docs/how-to/connectors-only.md, at a worker that Towpath has not configured."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path

import httpx
import pytest

from tests.conftest import MakePipeline
from tests.docs.reference import EXAMPLES, ROOT, examples
from tests.support import kafka_tools, rest
from tests.support.awaited import patient, until
from tests.support.pipeline import Pipeline, Settings, towpath
from tests.support.servers import distributed_connect
from towpath.clients.connect.rest import Connect
from towpath.stack import parts

PAGE = (ROOT / "docs" / "how-to" / "connectors-only.md").read_text()


def test_the_examples_are_what_a_deployment_writes() -> None:
    assert {file.name: file.read_text() for file in EXAMPLES.iterdir()} == examples(), "run scripts/docs"


def replaced(text: str, pipeline: Pipeline) -> str:
    """A text of the page or the examples, with names and addresses replaced as the page asks for."""
    addresses = pipeline.addresses
    for before, after in (
        ("mongodb://source.example:27017/?replicaSet=rs0", addresses.source),
        ("mongodb://destination.example:27017/?replicaSet=rs1", addresses.destination),
        ("kafka.example:9092", addresses.bootstrap),
        ("shop", pipeline.name),
    ):
        text = text.replace(before, after)
    return text


def run(command: str, pipeline: Pipeline, url: str) -> None:
    """Run a command of the page, without Kafka's script and without curl."""
    tool, *words = shlex.split(replaced(command, pipeline).replace("http://connect.example:8083", url))
    if tool == "kafka-topics.sh":
        found = parts.parts(print)
        java = [str(found.java), "-Xmx128m", "-cp", f"{kafka_tools.jars()}/*:{found.libs}/*"]
        subprocess.run([*java, "org.apache.kafka.tools.TopicCommand", *words], check=True, timeout=patient(60))
    elif "PUT" in words:
        body = replaced((ROOT / words[words.index("--data") + 1].removeprefix("@")).read_text(), pipeline)
        httpx.put(words[-1], content=body, headers={"Content-Type": "application/json"}, timeout=90).raise_for_status()
    else:
        assert rest.get(words[-1], timeout=30).raise_for_status().json()["connector"]["state"] == "RUNNING"


@pytest.mark.servers
@pytest.mark.nightly
def test_the_page_replicates_at_a_worker_of_others_and_the_tool_takes_over(
    make_pipeline: MakePipeline, tmp_path: Path
) -> None:
    pipeline = make_pipeline(Settings())
    pipeline.source("docs").insert_many([{"_id": n, "a": [n]} for n in range(100)])
    (worker,) = re.findall(r"```properties\n(.*?)```", PAGE, re.DOTALL)
    worker = worker.replace("/opt/kafka/plugins", str(parts.parts(print).plugins))
    with distributed_connect(tmp_path, pipeline.addresses.bootstrap, worker) as url:
        for command in re.findall(r"^\$ (.*)$", PAGE, re.MULTILINE):
            run(command, pipeline, url)
        until("the copy", lambda: pipeline.destination("docs").count_documents({}) == 100)
        pipeline.source("docs").update_many({}, {"$push": {"a": 1}})
        until("the changes", lambda: pipeline.destination("docs").count_documents({"a": {"$size": 2}}) == 100)
        text = pipeline.write().read_text().replace(pipeline.addresses.connect, url)
        pipeline.file.write_text(text)
        towpath("deploy", pipeline.file)
        pipeline.source("docs").update_many({}, {"$push": {"a": 2}})
        towpath("wait", pipeline.file)
        assert "same" in towpath("verify", pipeline.file).stdout
        towpath("remove", pipeline.file, "--topics", "--yes")
        with Connect(url) as connect:
            assert connect.config(f"{pipeline.name}-sink") is None
