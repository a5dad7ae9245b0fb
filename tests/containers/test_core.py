"""The core on containers of given images: `scripts/test --containers --mongo mongo:8.0 --kafka apache/kafka:4.1.0`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import MakePipeline
from tests.containers.stack import Containers
from tests.support import core
from tests.support.pipeline import Pipeline
from towpath.clients.mongo.versions import EXPANDED_EVENTS

pytestmark = [
    pytest.mark.containers,
    pytest.mark.servers,
    pytest.mark.timeout(2400),
]  # the images may have to be pulled and built


def test_the_core(pipeline: Pipeline, containers: Containers, tmp_path: Path, seed: int) -> None:
    versions = (client.server_info()["version"] for client in (pipeline.source_client, pipeline.destination_client))
    print(" to ".join(versions), "on", containers.images)
    core.run(pipeline, seed, tmp_path, containers.kill_the_worker, containers.third)


def test_the_core_with_ddl(make_pipeline: MakePipeline, containers: Containers, seed: int) -> None:
    pipeline = make_pipeline(core.WITH_DDL)
    if core.level(pipeline.source_client) >= EXPANDED_EVENTS:
        core.schema_changes_are_made(pipeline, seed)
    else:
        core.fill(pipeline, seed)
        core.schema_changes_are_refused(pipeline)
