"""The way back of a pipeline: writes at the destination come back, nothing goes in circles, and one can return."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from tests.conftest import MakePipeline
from tests.support import log, raw
from tests.support.order import Order
from tests.support.pipeline import Pipeline, Settings, towpath
from tests.support.workload import REINSERT, Workload
from towpath.cli.options import say
from towpath.clients.connect import control
from towpath.clients.mongo.client import ClusterTime
from towpath.cutover import reverse_pipeline
from towpath.cutover.reverse_pipeline import write_reverse_file
from towpath.deploy import deployment
from towpath.errors import Refused
from towpath.log import barrier
from towpath.log.lag import pipeline_ends
from towpath.session import Session, opened
from towpath.store.positions import positions

pytestmark = pytest.mark.servers

COLLECTIONS = {"orders": "archived", "lines": "lines"}
ECHOES = [f"echo {n}" for n in range(40)]  # in all partitions
TIMEOUT = 120.0


@contextmanager
def way_back_of(pipeline: Pipeline) -> Iterator[Session]:
    """The pipeline that leads back, not deployed yet; whatever is left of it goes at the end."""
    with opened(write_reverse_file(pipeline.file)) as back:
        try:
            yield back
        finally:
            deployment.remove(back, log=True, say=say)


def wait(it: Session) -> None:
    barrier.wait(it, TIMEOUT, say)


def make_ready(back: Session) -> list[str]:
    said: list[str] = []
    reverse_pipeline.make_ready(replace(back, say=said.append))
    return said


def begin(back: Session, there: Session) -> None:
    start = time.monotonic()
    before = reverse_pipeline.begin(back, there.pipeline)
    assert reverse_pipeline.wait_begun(back, before, TIMEOUT) >= before
    print(f"the way back began after {time.monotonic() - start:.2f} s")


def written(collections: list[raw.Documents], seed: int) -> None:
    Workload(seed, collections, documents=200).run(500, until_changed=["replace", REINSERT, "transaction"])


def stood_still(pipeline: Pipeline) -> None:
    """As if the sink had been stopped for longer than a compacted log keeps deletes."""
    long_ago = datetime.now(UTC) - timedelta(days=60)
    found = pipeline.destination_client["towpath"]["offsets"].update_many(
        {"_id.pipeline": pipeline.name}, {"$set": {"at": long_ago, "began": long_ago}}
    )
    assert found.matched_count >= 2 * pipeline.settings.partitions


@pytest.mark.nightly
def test_what_is_written_after_the_move_comes_back_and_nothing_goes_round(
    make_pipeline: MakePipeline, seed: int
) -> None:
    pipeline = make_pipeline(Settings(rename={"orders": "archived"}, extra="[log]\ncompact = true"))
    source = [pipeline.source(name) for name in COLLECTIONS]
    destination = [pipeline.destination(name) for name in COLLECTIONS]
    Workload(seed, source, documents=200).fill()
    pipeline.deploy()
    with opened(pipeline.file) as there, way_back_of(pipeline) as back:
        wait(there)  # the collections are there, and the way back makes their topics
        assert "circulate forever" in towpath("deploy", back.file, expect=2).stderr
        assert f"create connector {pipeline.name}-back-source, stopped" in make_ready(back)
        with pytest.raises(Refused, match="there is a reverse pipeline already"):
            make_ready(back)
        assert "circulate forever" in towpath("resume", back.file, expect=2).stderr
        with pytest.raises(Refused, match=f"{pipeline.name}-sink is RUNNING with 2 tasks, not STOPPED"):
            reverse_pipeline.begin(back, there.pipeline)
        written(source, seed + 1)
        wait(there)
        control.stop(there.connect, there.pipeline.sink_connector)
        begin(back, there)
        with pytest.raises(Refused, match="has captured before"):
            reverse_pipeline.wait_begun(back, ClusterTime(2**32 - 1, 0), TIMEOUT)
        assert "circulate forever" in towpath("resume", pipeline.file, expect=2).stderr

        with Order(pipeline.destination_client, pipeline.name) as changes:
            written(destination, seed + 2)
            for documents in destination:
                documents.insert_many({"_id": name, "n": 1} for name in ECHOES)
        wait(back)
        pipeline.assert_same(*COLLECTIONS, at_least=200)
        topics = [f"{pipeline.name}-back.{pipeline.namespace(name)}" for name in COLLECTIONS.values()]
        records = [len(log.records(pipeline.addresses.bootstrap, topic)) for topic in topics]
        assert sum(records) == changes.history.events > 500, "and nothing that the way there wrote"

        deployment.remove(back, log=False, say=say)
        with pytest.raises(Refused, match="hold records of an earlier reverse pipeline"):
            make_ready(back)
        deployment.remove(back, log=True, say=say)
        barrier.wait_captured(there, TIMEOUT, say)
        stood_still(pipeline)
        ends = reverse_pipeline.written_ends(there, TIMEOUT)
        assert reverse_pipeline.skip_to_end(there, ends) >= 2 * pipeline.settings.partitions
        assert_at_ends(pipeline, there)
        for documents in destination:  # an echo would be the whole document, without the mark
            documents.update_many({"_id": {"$in": ECHOES}}, {"$set": {"mark": 1}})
        there.connect.resume(there.pipeline.sink_connector)
        control.wait_running(there.connect, [there.pipeline.sink_connector], TIMEOUT)
        with pytest.raises(Refused, match="not STOPPED"):
            reverse_pipeline.skip_to_end(there, ends)
        written(source, seed + 3)
        assert f"forgot the position of an earlier {pipeline.name}-back-source" in make_ready(back)
        wait(there)
        for documents in destination:
            assert documents.update_many({"mark": 1}, {"$unset": {"mark": ""}}).modified_count == len(ECHOES)
        pipeline.assert_same(*COLLECTIONS, at_least=200)


def assert_at_ends(pipeline: Pipeline, there: Session) -> None:
    found = positions(pipeline.destination_client, there.pipeline)
    ends = pipeline_ends(there.pipeline, there.topics)
    assert {place: found[place].offset for place in ends} == {place: end for place, (_, end) in ends.items()}
