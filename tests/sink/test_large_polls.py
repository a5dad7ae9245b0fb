"""A backlog of the largest documents, many of which one fetch holds, fits into the worker's heap."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import psutil
import pytest

from tests.conftest import MakePipeline
from tests.support.batches import sink_paused
from tests.support.pipeline import Settings
from towpath import stack as embedded

pytestmark = [pytest.mark.servers, pytest.mark.nightly]

_LARGE = 16 * 1024 * 1024 - 1024
_COMPRESSIBLE, _RANDOM = 48, 24


def documents() -> Iterator[dict[str, Any]]:
    """As large as documents can be. Most of them are in the log as a few KB each, so that a fetch holds many."""
    some = random.Random(1)
    for number in range(_COMPRESSIBLE):
        yield {"_id": f"zeros {number}", "bytes": bytes(_LARGE)}
    for number in range(_RANDOM):
        yield {"_id": f"random {number}", "bytes": some.randbytes(_LARGE)}


def test_two_tasks_take_the_largest_documents_in_a_heap_of_a_gigabyte(
    make_pipeline: MakePipeline, stack: embedded.Stack
) -> None:
    worker = embedded.status(stack.directory).processes["connect-0"]
    assert "-Xmx1024m" in psutil.Process(worker.pid).cmdline()
    pipeline = make_pipeline(Settings(partitions=4))
    pipeline.create("large")
    pipeline.deploy()
    with sink_paused(pipeline):
        for document in documents():
            pipeline.source("large").insert_one(document)
    pipeline.wait(300)
    pipeline.assert_same("large", at_least=_COMPRESSIBLE + _RANDOM)
    assert psutil.Process(worker.pid).is_running()
