"""A sink that is behind writes each document once a batch, and its numbers are those of what it wrote."""

from __future__ import annotations

import pytest
from pymongo import UpdateOne

from tests.support.awaited import until
from tests.support.batches import await_backlog, sink_paused
from tests.support.pipeline import Pipeline, towpath

pytestmark = pytest.mark.servers

DOCUMENTS, PUSHES = 400, 25


def push(pipeline: Pipeline) -> None:
    """As many pushes to each document, in turns."""
    for turn in range(PUSHES):
        reading = {"at": turn, "value": turn * 1.25}
        pipeline.source("docs").bulk_write(
            [UpdateOne({"_id": n}, {"$push": {"readings": reading}}) for n in range(DOCUMENTS)], ordered=False
        )


def updates(pipeline: Pipeline) -> int:
    """How many updates the destination has ever been sent."""
    return int(pipeline.destination_client.admin.command("serverStatus")["opcounters"]["update"])


@pytest.mark.nightly
def test_a_backlog_of_pushes_is_a_few_writes_a_document_and_both_sides_are_equal(pipeline: Pipeline) -> None:
    pipeline.source("docs").insert_many({"_id": n, "readings": [{"at": -1, "value": 0.5}]} for n in range(DOCUMENTS))
    pipeline.deploy()
    pipeline.wait()
    with sink_paused(pipeline):
        push(pipeline)
        await_backlog(pipeline, DOCUMENTS * PUSHES)
        before = updates(pipeline)
    pipeline.wait()
    sent = updates(pipeline) - before
    pipeline.assert_same("docs", at_least=DOCUMENTS)
    sink = until("numbers of all records", lambda: _told(pipeline, DOCUMENTS * (PUSHES + 1)))
    print(f"{sent} updates at the destination; the sink tells {sink}")
    assert sent <= 3 * DOCUMENTS


@pytest.mark.nightly
def test_the_numbers_of_status_are_those_of_what_was_written(pipeline: Pipeline) -> None:
    documents, count = pipeline.source("docs"), 400
    pipeline.create("docs")
    pipeline.destination_client[pipeline.name].command({"create": "docs", "validator": {"bad": {"$ne": True}}})
    pipeline.deploy()
    pipeline.wait()
    with sink_paused(pipeline):
        documents.insert_many({"_id": n, "bad": n == 7, "text": "x" * 1000} for n in range(count))
        await_backlog(pipeline, count)
    pipeline.wait()
    with sink_paused(pipeline):
        for field in ("a", "b"):
            documents.update_many({}, {"$set": {field: 1}})
        documents.delete_many({"_id": {"$lt": 100}})
        await_backlog(pipeline, 2 * count + 100)
    pipeline.wait()
    stored = pipeline.destination("docs").count_documents({})
    assert stored == count - 100
    sink = until("numbers of all records", lambda: _told(pipeline, 3 * count + 100))
    assert (sink["refused"], sink["inserts"], sink["deletes"]) == (1, count - 1, 100)
    assert sink["updates"] >= count - 100, "one update a document that stays, at least"
    assert sink["writes"] == sink["inserts"] + sink["updates"] + sink["deletes"]
    assert sink["without_document"] >= 1, "the refused one was deleted"
    assert 400_000 < sink["bytes_out"] < sink["bytes"] < 600_000
    assert 2 <= sink["batches"] <= sink["waves"]
    assert 0 < sink["batch_ms"] < 120_000
    screen = towpath("status", pipeline.file).stdout
    assert f"{sink['records']:,} records in {sink['writes']:,} writes" in screen
    assert f"{sink['batches']:,} transactions of " in screen


def _told(pipeline: Pipeline, records: int) -> dict[str, int] | None:
    """What the sink tells, once it tells of that many records: it does so about once a second."""
    sink: dict[str, int] = pipeline.status()["sink"]
    return sink if sink["records"] >= records else None
