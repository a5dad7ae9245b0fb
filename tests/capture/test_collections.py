"""Which collections travel, where to, and how those with odd names in updates do."""

from __future__ import annotations

import pytest

from tests.conftest import MakePipeline
from tests.support.pipeline import Settings
from tests.support.workload import Workload
from tests.support.workload.pipelines import MOVES, ODD_NAMES

pytestmark = pytest.mark.servers

SETTINGS = Settings(
    include=("*",), exclude=("left_*",), rename={"first": "elsewhere"}, whole_documents=("odd",), partitions=3
)


def test_patterns_renames_and_late_collections(make_pipeline: MakePipeline, seed: int) -> None:
    """In one pipeline: a collection renamed, one left out, one that comes late, one captured as whole documents."""
    pipeline = make_pipeline(SETTINGS)
    first, odd = (
        Workload(seed, [pipeline.source(name)], documents=80, moves=name == "odd", odd_names=name == "odd")
        for name in ("first", "odd")
    )
    first.fill()
    odd.fill()
    pipeline.source("left_out").insert_one({"_id": 1})
    pipeline.deploy()
    pipeline.wait()
    late = Workload(seed + 1, [pipeline.source("late")], documents=80)
    late.fill()
    for workload in (first, late):
        workload.run(400)
    odd.run(800, until_changed={*MOVES, *ODD_NAMES})
    pipeline.wait()
    pipeline.assert_same("first", "late", at_least=80)
    pipeline.assert_same("odd", at_least=40)
    there = set(pipeline.destination_client[pipeline.name].list_collection_names())
    assert there == {"elsewhere", "odd", "late"}
