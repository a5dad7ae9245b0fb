"""Random changes of every kind leave both sides equal."""

from __future__ import annotations

import pytest

from tests.conftest import MakePipeline
from tests.support.awaited import until
from tests.support.batches import BATCHES, await_backlog, sink_paused
from tests.support.pipeline import Pipeline, Settings
from tests.support.workload import KINDS, Workload
from tests.support.writer import Writer

pytestmark = pytest.mark.servers

COLLECTIONS = ("one", "two")


def workload(pipeline: Pipeline, seed: int, *, documents: int = 300) -> Workload:
    return Workload(seed, [pipeline.source(name) for name in COLLECTIONS], documents=documents)


@pytest.mark.nightly
def test_changes_in_tiny_batches_leave_both_sides_equal_byte_for_byte(make_pipeline: MakePipeline, seed: int) -> None:
    pipeline = make_pipeline(Settings(write=BATCHES["tiny"]))
    changes = workload(pipeline, seed)
    changes.fill()
    pipeline.deploy()
    changes.run(1000)
    pipeline.wait()
    sink = until("numbers of batches", lambda: (found := pipeline.status()["sink"])["batches"] and found)
    assert sink["records"] / sink["batches"] <= BATCHES["tiny"]["batch_records"]
    pipeline.assert_same(*COLLECTIONS, at_least=300)


@pytest.mark.nightly
def test_changes_that_pile_up_into_huge_batches_leave_both_sides_equal_byte_for_byte(
    make_pipeline: MakePipeline, seed: int
) -> None:
    pipeline = make_pipeline(Settings(write=BATCHES["huge"]))
    changes = workload(pipeline, seed)
    changes.fill()
    pipeline.deploy()
    pipeline.wait()
    with sink_paused(pipeline):
        changes.run(3000)
        await_backlog(pipeline, changes.statistics.effective.total())
    pipeline.wait()
    print(changes.statistics, pipeline.status()["sink"])
    pipeline.assert_same(*COLLECTIONS, at_least=300)


def test_changes_in_the_stream_leave_both_sides_equal_byte_for_byte(
    pipeline: Pipeline, seed: int, nightly: bool
) -> None:
    changes = workload(pipeline, seed)
    changes.fill()
    pipeline.deploy()
    pipeline.wait()
    changes.run(6000 if nightly else 1000, until_changed=KINDS)
    pipeline.wait()
    print(changes.statistics)
    pipeline.assert_same(*COLLECTIONS, at_least=300)


@pytest.mark.nightly  # by day, a worker is killed during such a copy: tests/sink/test_exactly_once.py
@pytest.mark.parametrize("mode", ["exactly-once", "plain"])
def test_changes_under_way_during_the_first_copy_leave_both_sides_equal(
    make_pipeline: MakePipeline, seed: int, mode: str
) -> None:
    """In plain mode, where the copy overlaps the stream, in content only: fields may stand in another order."""
    pipeline = make_pipeline(Settings(mode=mode))
    changes = workload(pipeline, seed, documents=1500)
    changes.fill()
    with Writer(changes, per_second=300) as writer:
        writer.wait_for(100)
        pipeline.deploy()
        before = writer.applied
        while not pipeline.status()["copy"]["done"]:
            writer.wait_for(writer.applied + 100)
        writer.wait_for(before + 500)
    pipeline.wait()
    print(changes.statistics)
    pipeline.assert_same(*COLLECTIONS, at_least=1500, ignore_field_order=mode == "plain")
