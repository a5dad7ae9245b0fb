"""A Connect worker that dies while a plain pipeline streams loses nothing."""

from __future__ import annotations

import pytest

from tests.conftest import MakePipeline
from tests.support import control, log
from tests.support.pipeline import Settings
from tests.support.workload import Workload
from tests.support.writer import Writer
from towpath import stack as embedded

pytestmark = pytest.mark.servers

COLLECTIONS = ("one", "two")
WORKER = "connect-0"


@pytest.mark.nightly
def test_content_is_equal_in_plain_mode_after_a_worker_was_killed_while_streaming(
    make_pipeline: MakePipeline, stack: embedded.Stack, seed: int
) -> None:
    """Fields that were removed and added again may stand in another order."""
    pipeline = make_pipeline(Settings(mode="plain"))
    changes = Workload(seed, [pipeline.source(name) for name in COLLECTIONS])
    changes.fill()
    pipeline.deploy()
    pipeline.wait()
    sink = log.Progress(pipeline.addresses.bootstrap, pipeline.sink_group)
    with Writer(changes, per_second=100) as writer:
        sink.wait_for(more=500)
        control.kill(stack.directory, WORKER)
        try:
            writer.wait_for(writer.applied + 500)
        finally:
            control.start(stack.directory, WORKER)
        sink.wait_for(more=500)
    pipeline.wait()
    print(changes.statistics)
    pipeline.assert_same(*COLLECTIONS, at_least=300, ignore_field_order=True)
