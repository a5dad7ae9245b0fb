"""How large the sink's batches are: what `[write]` bounds, and a backlog that fills them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from tests.support.awaited import until
from tests.support.pipeline import Pipeline
from towpath.clients.connect.rest import Connect

#: Bounds of `[write]`, by name: one record a transaction, odd ends of a transaction, and all that is there.
BATCHES: Mapping[str, Mapping[str, Any]] = {
    "tiny": {"batch_records": 1},
    "odd": {"batch_records": 7, "batch_bytes": 700},
    "huge": {"batch_records": 1_000_000, "batch_bytes": 64 * 1024 * 1024},
}


@contextmanager
def sink_paused(pipeline: Pipeline) -> Iterator[None]:
    """No task of the sink reads in the meantime: what happens comes to it in batches as large as they may be."""
    sink = f"{pipeline.name}-sink"
    with Connect(pipeline.addresses.connect) as connect:
        connect.pause(sink)
        # Connect answers before its tasks pause: until they have, they apply some of the backlog
        until("paused sink", lambda: {task.state for task in connect.status(sink).tasks} == {"PAUSED"})
        yield
        connect.resume(sink)


def await_backlog(pipeline: Pipeline, records: int) -> None:
    """Wait until that many records are in the log that the paused sink has not applied."""
    until(
        f"{records} records in the log", lambda: (pipeline.status(expect=1)["lag"]["records"] or 0) >= records, 120, 0.5
    )
