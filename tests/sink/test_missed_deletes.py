"""A sink that may have missed deletes stops, and continues when that is accepted."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tests.conftest import MakePipeline
from tests.support import awaited, log
from tests.support.pipeline import Pipeline, Settings, towpath
from towpath.clients.connect.rest import Connect
from towpath.clients.mongo.client import ClusterTime, cluster_time
from towpath.log.source_offsets import read_state

pytestmark = pytest.mark.servers

COMPACTED = '[log]\ncompact = true\ncompaction_lag = "1s"\ndelete_retention = "8s"'


def positions(pipeline: Pipeline) -> list[dict[str, Any]]:
    found = pipeline.destination_client["towpath"]["offsets"]
    return [one for one in found.find() if one["_id"]["pipeline"] == pipeline.name]


def applied_up_to(pipeline: Pipeline) -> float:
    """By the partition of which least is known; seconds since the epoch."""
    return min(one["at"].timestamp() for one in positions(pipeline))


@pytest.mark.nightly
def test_a_sink_that_stood_still_for_too_long_stops_until_missed_deletes_are_accepted(
    make_pipeline: MakePipeline,
) -> None:
    pipeline = make_pipeline(Settings(partitions=2, extra=COMPACTED))
    pipeline.source("docs").insert_many([{"_id": n} for n in range(20)])
    pipeline.deploy()
    pipeline.wait()
    assert copied(pipeline) == latest(pipeline), "all that is in the log is the copy"
    applied = time.time()
    awaited.until("look at idle partitions", lambda: applied_up_to(pipeline) > applied)

    with Connect(pipeline.addresses.connect) as connect:
        connect.pause(f"{pipeline.name}-sink")
        pipeline.source("docs").delete_many({"_id": {"$gte": 10}})
        reasons = awaited.until("end of a sink that stands still", lambda: failures(connect, pipeline))
        assert reasons[0].startswith("TWP-DELETES-MISSED: deletes of ")
        connect.resume(f"{pipeline.name}-sink")
        done = towpath("restart", pipeline.file, "--accept-missed-deletes")
    assert "towpath verify" in done.stderr and "towpath repair" in done.stderr
    assert "2 positions" in done.stderr
    pipeline.wait()
    pipeline.assert_same("docs", at_least=10)
    refused = towpath("restart", pipeline.file, "--accept-missed-deletes", expect=2)
    assert "nothing to accept" in refused.stderr


def failures(connect: Connect, pipeline: Pipeline) -> tuple[str, ...]:
    return connect.status(f"{pipeline.name}-sink").reasons


def copied(pipeline: Pipeline) -> ClusterTime | None:
    with Connect(pipeline.addresses.connect) as connect:
        return read_state(connect, f"{pipeline.name}-source").copied


def latest(pipeline: Pipeline) -> ClusterTime:
    found = log.records(pipeline.addresses.bootstrap, pipeline.topic("docs"))
    assert len(found) == 20
    return max(cluster_time(one.contract["t"].decode()) for one in found)
