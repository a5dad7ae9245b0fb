"""Which documents the newest records are about, in topics that were written as the exactly-once source writes them."""

from __future__ import annotations

import time
from collections.abc import Sequence

import bson
import pytest
from bson import Int64
from confluent_kafka import Producer

from tests.support import log
from tests.support.pipeline import Pipeline
from towpath.clients.kafka.topics import Topics
from towpath.config import loading as pipeline_file
from towpath.config.pipeline import Pipeline as Spec
from towpath.log.changed_keys import ids
from towpath.log.definitions import TOPIC_SETTINGS
from towpath.log.lag import pipeline_ends

pytestmark = pytest.mark.servers

PARTITIONS = 3


def key(number: int) -> bytes:
    return bson.encode({"_id": Int64(number)})


class Log:
    """The topics of a pipeline that is not deployed: each call writes one transaction."""

    def __init__(self, pipeline: Pipeline) -> None:
        self.spec: Spec = pipeline_file.read(pipeline.write())
        self.topics = Topics(self.spec.kafka.bootstrap)
        self.names = [pipeline.topic(name) for name in ("one", "two")]
        self.topics.create(self.names, PARTITIONS, 1, TOPIC_SETTINGS)
        self._producer = Producer(
            {"bootstrap.servers": self.spec.kafka.bootstrap, "transactional.id": pipeline.name, "linger.ms": 1}
        )
        self._producer.init_transactions()

    def write(self, numbers: Sequence[int], *, commit: bool = True) -> None:
        """Records about these documents, the even ones in the first collection."""
        self._producer.begin_transaction()
        for number in numbers:
            self._producer.produce(
                self.names[number % 2], b"value", key(number), partition=number // 2 % PARTITIONS, headers={"v": b"1"}
            )
        self._producer.flush()
        if commit:
            self._producer.commit_transaction()
        else:
            self._producer.abort_transaction()
        time.sleep(0.01)  # for the next to have a later time

    def times(self) -> list[tuple[int, int]]:
        """Of every record its time at the broker and its document, the newest last."""
        found = [one for name in self.names for one in log.records(self.spec.kafka.bootstrap, name)]
        return sorted((one.time_ms, bson.decode(one.key or b"")["_id"]) for one in found)

    def newest(self, *, last: int | None = None, since: float | None = None) -> list[int]:
        """The numbers of the documents, which have to be in the collections that they were written to."""
        ends = pipeline_ends(self.spec, self.topics)
        found = [(name, bson.decode(raw)["_id"]) for name, raw in ids(self.spec, self.topics, last, since, ends)]
        assert all(f"{self.spec.name}.{name}" == self.names[number % 2] for name, number in found)
        return [number for _, number in found]


@pytest.fixture
def written(pipeline: Pipeline) -> Log:
    return Log(pipeline)


@pytest.mark.nightly
def test_the_last_records_are_found_over_all_partitions_by_time(written: Log) -> None:
    for first in range(0, 1000, 10):
        written.write(range(first, first + 10))
    times = written.times()
    assert len(times) == 1000
    for wanted in (1, 10, 95, 500):
        found, oldest = written.newest(last=wanted), times[-wanted][0]
        assert sorted(found) == sorted(number for time_ms, number in times if time_ms >= oldest)
    assert set(written.newest(last=5000)) == set(range(1000))


def test_each_document_comes_once_and_newest_first_in_its_partition(written: Log) -> None:
    for _ in range(3):
        written.write(range(60))
    written.write(range(59, -1, -1))
    found = written.newest(last=240)
    assert sorted(found) == list(range(60))
    one = [number for number in found if number % 2 == 0 and number // 2 % PARTITIONS == 0]
    assert one == sorted(one)


def test_what_was_aborted_does_not_count(written: Log) -> None:
    written.write(range(10))
    written.write(range(100, 400), commit=False)
    assert sorted(written.newest(last=10)) == list(range(10))
    assert sorted(written.newest(since=time.time() - 3600)) == list(range(10))


def test_records_since_a_moment_are_found(written: Log) -> None:
    written.write(range(100))
    time.sleep(1)
    began = time.time()
    written.write(range(50, 150))
    assert sorted(written.newest(since=began)) == list(range(50, 150))
    time.sleep(0.5)
    assert written.newest(since=time.time() - 0.2) == []
    assert sorted(written.newest(since=time.time() - 3600)) == list(range(150))


def test_a_log_without_records_has_touched_nothing(written: Log) -> None:
    assert written.newest(last=10) == []
    assert written.newest(since=time.time() - 3600) == []
