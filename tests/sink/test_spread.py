"""A sink's tasks share all partitions evenly, however few each topic has, also after an upgrade."""

from __future__ import annotations

import json

import httpx
import pytest

from tests.conftest import MakePipeline
from tests.support import rest
from tests.support.group import await_shares
from tests.support.pipeline import Pipeline, Settings, towpath
from towpath.config.pipeline import Mode

pytestmark = pytest.mark.servers

COLLECTIONS = tuple(f"docs{n}" for n in range(6))
TASKS = 8
#: The setting of which the version before had nothing.
STRATEGY = "consumer.override.partition.assignment.strategy"


@pytest.mark.nightly
@pytest.mark.parametrize("mode", ["exactly-once", "plain"])
def test_six_topics_of_one_partition_are_six_tasks_work(make_pipeline: MakePipeline, mode: Mode) -> None:
    pipeline = make_pipeline(Settings(mode=mode, partitions=1, write={"tasks": TASKS}))
    for name in COLLECTIONS:
        pipeline.source(name).insert_one({"_id": 1})
    pipeline.deploy()
    as_before_the_upgrade(pipeline)
    await_shares(pipeline, [0] * 7 + [6])
    for name in COLLECTIONS:
        pipeline.source(name).insert_one({"_id": 2})
    changes = json.loads(towpath("deploy", pipeline.write(), "--json").stdout)["changes"]
    assert changes == [f"update connector {pipeline.name}-sink ({STRATEGY})"]
    await_shares(pipeline, [0, 0, 1, 1, 1, 1, 1, 1])
    for name in COLLECTIONS:
        pipeline.source(name).insert_one({"_id": 3})
    pipeline.wait()
    pipeline.assert_same(*COLLECTIONS, at_least=3 * len(COLLECTIONS))


def as_before_the_upgrade(pipeline: Pipeline) -> None:
    """The sink has the setting no more, which is Kafka's default: what its tasks have is by topic."""
    sink = f"{pipeline.addresses.connect}/connectors/{pipeline.name}-sink"
    config = rest.get(f"{sink}/config", timeout=30).raise_for_status().json()
    del config[STRATEGY]
    httpx.put(f"{sink}/config", json=config, timeout=60).raise_for_status()
