"""Updates out of the log into the destination: MongoSink, against mongo-kafka's own sink with our handler."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pymongo import MongoClient

import stack as embedded
from connectors.barrier import wait
from connectors.clusters import operation_time
from connectors.lag import applied, pipeline_ends
from connectors.lifecycle import wait_running
from connectors.source_state import read_state
from tests.bench import load
from tests.bench.measured import BROKER, DESTINATION, WORKER, Run, await_fact, logged, processor, used_since
from tests.bench.sides import COLLECTION, DATABASE, NAMESPACE, is_state, pipeline, prepared
from tests.support import oracle
from towpath.opened import Opened

PROCESSES = (WORKER, DESTINATION, BROKER)
_TIMEOUT = 600.0


def updates(stack: embedded.Stack, name: str, side: str, seed: int, existing: int, count: int) -> Run:
    """Apply so many updates of existing documents, which are all in the log, nothing but the sink running.

    Time and processor time count from the moment when the sink is resumed.
    """
    with pipeline(stack, name, side, threads=4) as it, _emptied(stack):
        for maker in prepared(it).values():
            maker.apply()
        wait_running(it.connect, it.pipeline, _TIMEOUT)
        wait(it.pipeline, it.connect, it.topics, _TIMEOUT, lambda words: None)
        sink = it.pipeline.sink_connector
        it.connect.pause(sink)
        await_fact("the sink's pause", lambda: is_state(it.connect, sink, "PAUSED"))
        last = _fill_log(stack, it, seed, existing, count)

        before, start = processor(stack, *PROCESSES), time.monotonic()
        it.connect.resume(sink)
        with applied(it.pipeline, it.topics) as look:
            await_fact("the last update", lambda: all(look().get(place, 0) > offset for place, offset in last.items()))
        run = Run(side, count, time.monotonic() - start, used_since(stack, before))
        oracle.assert_same(stack.source, stack.destination, [NAMESPACE], at_least=existing)
        return run


def _fill_log(stack: embedded.Stack, it: Opened, seed: int, existing: int, count: int) -> dict[tuple[str, int], int]:
    """Update at the source, and stop the source connector once all is in the log; the last offsets."""
    source = it.pipeline.source_connector
    starts = {place: end for place, (_, end) in pipeline_ends(it.pipeline, it.topics).items()}
    with MongoClient[dict[str, Any]](stack.source) as client:
        load.update(client[DATABASE][COLLECTION], seed, it.pipeline.name, existing, count)
        moment = operation_time(client)

    def captured() -> bool:
        position = read_state(it.connect, source).position
        return position is not None and position.has_passed(moment)

    await_fact("the last update in the log", captured)
    it.connect.pause(source)
    await_fact("the source connector's pause", lambda: is_state(it.connect, source, "PAUSED"))
    found = logged(it.topics, starts)
    if found.records != count:
        raise ValueError(f"{found.records:,} records in the log for {count:,} updates")
    return dict(found.last)


@contextmanager
def _emptied(stack: embedded.Stack) -> Iterator[None]:
    """The destination without the documents of the run before."""
    with MongoClient[dict[str, Any]](stack.destination) as client:
        client.drop_database(DATABASE)
    yield
