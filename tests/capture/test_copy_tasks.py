"""Several tasks share the initial copy, on two workers: each row comes once, whatever dies or changes."""

from __future__ import annotations

import json
import signal
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from bson import Int64

from tests.conftest import MakePipeline
from tests.support import control, log, rest, workers
from tests.support.awaited import until
from tests.support.order import Order
from tests.support.pipeline import Pipeline, Settings, towpath
from tests.support.progress import copied, reach
from tests.support.workload import Workload
from tests.support.workload.versions import VERSION
from tests.support.writer import Writer
from towpath import stack as embedded

pytestmark = pytest.mark.servers

COUNT = 2000
SIZE = 20_000  # bytes: four ranges
CHANGED = ("one", "two")


@pytest.fixture(scope="module")
def second(stack: embedded.Stack) -> Iterator[str]:
    """A second worker of the stack."""
    with workers.one_more(stack.directory) as name:
        yield name


def source_tasks(pipeline: Pipeline) -> list[dict[str, Any]]:
    """The source connector's tasks; none while the workers share out their work."""
    answer = rest.get(f"{pipeline.addresses.connect}/connectors/{pipeline.name}-source/status", timeout=30)
    return list(answer.json()["tasks"]) if answer.is_success else []


def all_run(pipeline: Pipeline, count: int) -> bool:
    return [task["state"] for task in source_tasks(pipeline)] == ["RUNNING"] * count


def test_tasks_share_a_copy(make_pipeline: MakePipeline) -> None:
    pipeline = make_pipeline(Settings(capture={"copy_tasks": 3}))
    for name in CHANGED:
        pipeline.source(name).insert_many({"_id": n} for n in range(1_000))
    pipeline.deploy()
    pipeline.wait()
    assert all_run(pipeline, 3)
    pipeline.assert_same(*CHANGED, at_least=1_000)


@pytest.mark.nightly
def test_a_copy_that_tasks_share_survives_a_killed_worker_and_another_number_of_tasks(
    make_pipeline: MakePipeline, stack: embedded.Stack, second: str, seed: int
) -> None:
    capture = {"copy_tasks": 3, "bytes_per_second": 500_000}  # it must not be over before what happens to it
    pipeline = make_pipeline(Settings(capture=capture))
    documents = pipeline.source("docs")
    documents.insert_many({"_id": n, VERSION: Int64(1), "text": "x" * SIZE} for n in range(COUNT))
    changes = Workload(seed, [pipeline.source(name) for name in CHANGED], documents=600, versions=True)
    changes.fill()
    with Order(pipeline.destination_client, pipeline.name) as events:
        with Writer(changes, per_second=100) as writer:
            pipeline.deploy()
            until("three tasks", lambda: all_run(pipeline, 3), 60)
            hosts = Counter(task["worker_id"] for task in source_tasks(pipeline))
            assert len(hosts) == 2, f"one worker has all tasks: {hosts}"
            reach(pipeline, "copy")
            until("a twentieth of the copy", lambda: copied(pipeline) > COUNT / 20, 120, 0.1)
            control.restart(stack.directory, second, signal.SIGKILL)
            fewer = replace(pipeline, settings=Settings(capture={"copy_tasks": 2, "bytes_per_second": 6_000_000}))
            changed = json.loads(towpath("deploy", fewer.write(), "--json").stdout)["changes"]
            assert changed == [f"update connector {pipeline.name}-source (tasks.max, towpath.copy.bytes.per.second)"]
            assert copied(pipeline) < COUNT, "the copy was over before it had another number of tasks"
            until("two tasks", lambda: all_run(pipeline, 2), 120)
            reach(pipeline, "stream")
            writer.wait_for(writer.applied + 200)
        pipeline.wait()
    pipeline.assert_same("docs", *CHANGED, at_least=COUNT + 300)
    assert events.seen(at_least=600)
    assert len(log.records(pipeline.addresses.bootstrap, pipeline.topic("docs"))) == COUNT
    assert all_run(pipeline, 2), "the task that has copied its share idles"
