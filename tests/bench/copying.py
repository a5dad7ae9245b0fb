"""The first copy into the log: MongoSource in ranges of `_id`, against Debezium's own snapshot with our hook."""

from __future__ import annotations

import stack as embedded
from connectors.connect import Connect
from connectors.errors import NoSuchConnector
from connectors.lag import pipeline_ends
from connectors.source_state import read_state
from tests.bench.measured import BROKER, SOURCE, WORKER, Run, await_fact, logged, processor, used_since
from tests.bench.sides import pipeline, prepared

PROCESSES = (WORKER, SOURCE, BROKER)


def copy(stack: embedded.Stack, name: str, side: str, documents: int, threads: int) -> Run:
    """Copy all documents once, only the source connector running.

    The time is that from the first append to the last. Processor time counts from the connector's creation to the
    moment when it has committed that the copy is over.
    """
    with pipeline(stack, name, side, threads) as it:
        connector = it.pipeline.source_connector
        makers = prepared(it)
        before = processor(stack, *PROCESSES)
        makers[connector].apply()
        await_fact("the end of the copy", lambda: is_copied(it.connect, connector))
        cpu = used_since(stack, before)
        it.connect.stop(connector)
        found = logged(it.topics, {place: first for place, (first, _) in pipeline_ends(it.pipeline, it.topics).items()})
    if found.records != documents:
        raise ValueError(f"{side}: {found.records:,} records in the log for {documents:,} documents")
    return Run(side, documents, found.seconds, cpu)


def is_copied(connect: Connect, name: str) -> bool:
    """Whether the copy is over, and the stream has begun."""
    try:
        found = read_state(connect, name)
    except NoSuchConnector:
        return False
    streaming = found.position is not None and not found.position.snapshot_running
    return streaming and found.phase != "copy" and not found.copying
