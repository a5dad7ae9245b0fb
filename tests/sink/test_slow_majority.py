"""A destination whose majority confirms slowly: the sink continues in large transactions and keeps its partitions."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest
from bson.raw_bson import RawBSONDocument
from pymongo import MongoClient

from tests.conftest import MakePipeline
from tests.support import mongod
from tests.support.awaited import until
from tests.support.batches import await_backlog, sink_paused
from tests.support.mongod import MongodSizes
from tests.support.pipeline import Settings

pytestmark = pytest.mark.servers

#: How long, in seconds, the secondaries apply nothing at a time, and how long in between they do.
HELD, OPEN = 16, 0.05
DOCUMENTS, BATCH = 6_000, 500
#: Of a document: however fast a machine is, few batches are replicated before the secondaries are held up again.
FILLING = "x" * 3_000


@contextmanager
def majority_held_up(addresses: list[tuple[str, int]]) -> Iterator[None]:
    """The secondaries apply nothing (fsyncLock) for `HELD` seconds over and over, and stay members."""
    over, held = Event(), Event()
    with ExitStack() as stack:
        clients = [
            stack.enter_context(MongoClient[dict[str, Any]](host, port, directConnection=True))
            for host, port in addresses
        ]

        def hold_up() -> None:
            while not over.is_set():
                for client in clients:
                    client.admin.command("fsync", lock=True)
                held.set()
                over.wait(HELD)
                for client in clients:
                    client.admin.command("fsyncUnlock")
                over.wait(OPEN)

        holding = Thread(target=hold_up)
        holding.start()
        try:
            assert held.wait(60)
            yield
        finally:
            over.set()
            holding.join(60)


@pytest.mark.nightly
def test_a_majority_that_takes_16_seconds_leaves_the_transactions_as_large_as_they_were(
    make_pipeline: MakePipeline, tmp_path: Path
) -> None:
    made = make_pipeline(Settings(write={"tasks": 1, "batch_records": BATCH}, partitions=1))
    with (
        mongod.start_replica_set(tmp_path, name="slow", nodes=3, sizes=MongodSizes(0.25, 200)) as servers,
        MongoClient(servers.uri, document_class=RawBSONDocument) as client,
    ):
        to_three = replace(made.addresses, destination=servers.uri)
        pipeline = replace(made, addresses=to_three, destination_client=client)
        pipeline.create("docs")
        pipeline.deploy()
        pipeline.wait()
        secondaries = until("two secondaries", lambda: client.secondaries if len(client.secondaries) == 2 else None)
        with ExitStack() as held_up:
            with sink_paused(pipeline):
                pipeline.source("docs").insert_many({"_id": n, "filling": FILLING} for n in range(DOCUMENTS))
                await_backlog(pipeline, DOCUMENTS)
                before = pipeline.status(expect=1)["sink"]["batches"]
                epochs = [position["epoch"] for position in client["towpath"]["offsets"].find()]
                held_up.enter_context(majority_held_up(sorted(secondaries)))
                begun = time.monotonic()
            pipeline.wait(400)
        assert time.monotonic() - begun > 2 * HELD, "several commits were held up"
        assert pipeline.status()["sink"]["batches"] - before <= 2 * DOCUMENTS / BATCH
        after = [position["epoch"] for position in client["towpath"]["offsets"].find()]
        assert after == epochs, "Kafka took no partition away"
        pipeline.assert_same("docs", at_least=DOCUMENTS)
        pipeline.remove()
