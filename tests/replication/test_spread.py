"""A sink's tasks share all partitions evenly, however few each topic has, also after an upgrade."""

from __future__ import annotations

import json
from collections.abc import Sequence

import httpx
import pytest
from confluent_kafka import ConsumerGroupState
from confluent_kafka.admin import AdminClient

from connectors.spec import Mode
from tests.conftest import MakePipeline
from tests.support.awaited import until
from tests.support.pipeline import Pipeline, Settings, towpath

COLLECTIONS = tuple(f"docs{n}" for n in range(6))
TASKS = 8
#: The setting of which the version before had nothing.
STRATEGY = "consumer.override.partition.assignment.strategy"


def shares(pipeline: Pipeline) -> Sequence[int] | None:
    """How many partitions each task of the sink has, fewest first, once all tasks are there and have all of them."""
    admin = AdminClient({"bootstrap.servers": pipeline.addresses.bootstrap, "log_level": 0})
    group = admin.describe_consumer_groups([pipeline.sink_group])[pipeline.sink_group].result(30)
    found = sorted(len(member.assignment.topic_partitions) for member in group.members)
    is_settled = group.state == ConsumerGroupState.STABLE and (len(found), sum(found)) == (TASKS, len(COLLECTIONS))
    return found if is_settled else None


def await_spread(pipeline: Pipeline) -> None:
    until("partition of its own for each of six tasks", lambda: shares(pipeline) == [0, 0, 1, 1, 1, 1, 1, 1], 120, 0.5)


@pytest.mark.parametrize("mode", ["exactly-once", pytest.param("plain", marks=pytest.mark.long)])
def test_six_topics_of_one_partition_are_six_tasks_work(make_pipeline: MakePipeline, mode: Mode) -> None:
    pipeline = make_pipeline(Settings(mode=mode, partitions=1, write={"tasks": TASKS}))
    for name in COLLECTIONS:
        pipeline.source(name).insert_one({"_id": 1})
    pipeline.deploy()
    as_before_the_upgrade(pipeline)
    until("task that has all partitions", lambda: shares(pipeline) == [0] * 7 + [6], 120, 0.5)
    for name in COLLECTIONS:
        pipeline.source(name).insert_one({"_id": 2})
    changes = json.loads(towpath("deploy", pipeline.write(), "--json").stdout)["changes"]
    assert changes == [f"update connector {pipeline.name}-sink ({STRATEGY})"]
    await_spread(pipeline)
    for name in COLLECTIONS:
        pipeline.source(name).insert_one({"_id": 3})
    pipeline.wait()
    pipeline.assert_same(*COLLECTIONS, at_least=3 * len(COLLECTIONS))


def as_before_the_upgrade(pipeline: Pipeline) -> None:
    """The sink has the setting no more, which is Kafka's default: what its tasks have is by topic."""
    sink = f"{pipeline.addresses.connect}/connectors/{pipeline.name}-sink"
    config = httpx.get(f"{sink}/config", timeout=30).raise_for_status().json()
    del config[STRATEGY]
    httpx.put(f"{sink}/config", json=config, timeout=60).raise_for_status()
