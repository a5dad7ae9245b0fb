"""Whether a log can rebuild a destination, in topics that were written as the exactly-once source writes them, and as
Kafka's cleaner and retention leave them."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from types import SimpleNamespace
from typing import Any

import bson
import pytest
from bson import Int64
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.support import awaited, log
from tests.support.pipeline import Pipeline
from towpath.clients.kafka.topics import Topic, Topics
from towpath.clients.mongo.client import ClusterTime
from towpath.config import loading as pipeline_file
from towpath.config.pipeline import Pipeline as Spec
from towpath.log import integrity
from towpath.log.definitions import TOPIC_SETTINGS
from towpath.log.integrity import BrokenKey, LogCheck, check

pytestmark = pytest.mark.servers

COPIED = ClusterTime(100, 7)
HOUR = {"cleanup.policy": "compact", "min.compaction.lag.ms": "3600000"}
#: Key, value, second of the cluster time.
Made = tuple[bytes, bytes | None, int]


def key(number: int) -> bytes:
    return bson.encode({"_id": Int64(number)})


def document(number: int, second: int) -> Made:
    return key(number), bson.encode({"_id": number, "x": second}), second


def update(number: int, second: int) -> Made:
    return key(number), bson.encode({"$set": {"x": second}}), second


def gone(number: int, second: int) -> Made:
    return key(number), None, second


class Log:
    """The topics of a pipeline that is not deployed; `two` has two partitions."""

    def __init__(self, pipeline: Pipeline) -> None:
        self.spec: Spec = pipeline_file.read(pipeline.write())
        self.topics = Topics(self.spec.kafka.bootstrap)
        self.pipeline = pipeline
        self.said: list[tuple[int, int]] = []
        self._ends: dict[tuple[str, int], int] = {}
        self._producer = Producer(
            {"bootstrap.servers": self.spec.kafka.bootstrap, "transactional.id": pipeline.name, "linger.ms": 1}
        )
        self._producer.init_transactions()

    def make(self, name: str, settings: Mapping[str, str] = {}, partitions: int = 1) -> str:
        topic = self.pipeline.topic(name)
        self.topics.create([topic], partitions, 1, TOPIC_SETTINGS | settings)
        return topic

    def write(self, topic: str, *records: Made, partition: int = 0, commit: bool = True) -> None:
        """One transaction: its end has an offset as well."""
        self._producer.begin_transaction()
        for found, value, second in records:
            headers: list[tuple[str, str | bytes | None]] = [("v", f"1 u {second}:1 0".encode())]
            self._producer.produce(topic, value, found, partition=partition, headers=headers)
        self._producer.flush()
        if commit:
            self._producer.commit_transaction()
        else:
            self._producer.abort_transaction()
        self._ends[topic, partition] = self._ends.get((topic, partition), 0) + len(records) + 1
        awaited.until("end of a transaction", lambda: self._end(topic, partition) == self._ends[topic, partition])

    def _end(self, topic: str, partition: int) -> int:
        return self.topics.ends([Topic(topic, partition + 1)])[topic, partition][1]

    def cut(self, topic: str, offset: int) -> None:
        """Have the broker delete what is before an offset, as retention does."""
        admin = AdminClient({"bootstrap.servers": self.spec.kafka.bootstrap})
        for future in admin.delete_records([TopicPartition(topic, 0, offset)]).values():
            future.result(10)

    def check(self, *collections: str, copied: ClusterTime | None = COPIED) -> LogCheck:
        names = {self.pipeline.namespace(name) for name in collections} if collections else None
        return check(self.spec, self.topics, names, copied, lambda *said: self.said.append(said))

    def broken(self, name: str, number: int, offset: int, partition: int = 0) -> BrokenKey:
        return BrokenKey(self.pipeline.namespace(name), key(number), partition, offset)


@pytest.fixture
def made(pipeline: Pipeline) -> Iterator[Log]:
    found = Log(pipeline)
    yield found
    found.topics.delete([name for name in found.topics.all() if name.startswith(f"{pipeline.name}.")])
    pipeline.file.unlink()  # there is nothing else to remove


def test_a_log_that_was_never_compacted_is_whole_and_not_read(made: Log) -> None:
    one = made.make("one")
    made.make("empty")
    made.write(one, document(1, 101), update(1, 102), update(2, 103))
    found = made.check()
    assert found == LogCheck(4, (), (), COPIED)
    assert found.is_whole
    assert made.said == []
    assert made.check(copied=None).earliest is None
    assert made.check("none") == LogCheck(0, (), (), COPIED)


def test_a_log_without_its_beginning_tells_which_documents_cannot_be_rebuilt(made: Log) -> None:
    one = made.make("one")
    made.write(one, document(1, 101), document(2, 101), document(3, 101))
    time.sleep(0.02)
    made.write(one, update(1, 102), update(2, 103), update(1, 104), document(2, 105), update(3, 106), gone(3, 107))
    made.write(one, document(4, 108), update(4, 109))
    made.cut(one, 4)
    found = made.check()
    [headless] = found.headless
    assert (headless.namespace, headless.topic) == (made.pipeline.namespace("one"), one)
    assert (headless.partition, headless.first_offset) == (0, 4)
    assert headless.first_time_ms == log.records(made.spec.kafka.bootstrap, one)[0].time_ms
    assert found.broken == (made.broken("one", 1, 4),)
    assert (found.records, found.earliest) == (8, ClusterTime(107, 1))
    assert not found.is_whole
    assert made.said[-1] == (20, 20)


def test_of_a_partition_that_lost_all_nothing_is_left_to_tell(made: Log) -> None:
    one = made.make("one", partitions=2)
    made.write(one, document(1, 101))
    made.write(one, update(2, 102), partition=1)
    made.cut(one, 2)
    found = made.check()
    assert [(lost.partition, lost.first_offset, lost.first_time_ms) for lost in found.headless] == [(0, 2, None)]
    assert (found.broken, found.earliest) == ((), COPIED)


def test_a_compacted_log_is_broken_where_a_key_has_updates_alone(made: Log) -> None:
    one, two = made.make("one", HOUR), made.make("two", HOUR, partitions=2)
    made.write(one, document(1, 101), update(1, 102), update(2, 103), update(3, 103), document(2, 105), update(2, 106))
    made.write(one, document(5, 200), commit=False)
    made.write(one, update(5, 107), update(5, 108), gone(3, 109), document(6, 110))
    made.write(two, update(1, 101), partition=1)
    made.write(two, document(1, 101))
    found = made.check()
    assert found.broken == (made.broken("one", 5, 9), made.broken("two", 1, 0, partition=1))
    assert (found.headless, found.records) == ((), 12)
    assert found.earliest == ClusterTime(109, 1), "until then an update stands for document 3"
    assert made.check("one").broken == found.broken[:1]
    assert made.check("two", copied=ClusterTime(300, 1)).earliest == ClusterTime(300, 1)


def test_what_comes_while_it_is_checked_does_not_count(made: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    one = made.make("one", HOUR)
    made.write(one, update(1, 101), document(2, 102))

    def add(done: int, of: int) -> None:
        made.write(one, document(1, 103))

    found = check(made.spec, made.topics, None, COPIED, add)
    assert (found.broken, found.records) == ((made.broken("one", 1, 0),), 2)
    assert made.check().is_whole


@pytest.mark.nightly
def test_no_moment_is_given_that_the_cleaner_may_have_passed(made: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    one, two, once = made.make("one", HOUR), made.make("two", HOUR), made.make("once", HOUR | TOPIC_SETTINGS)
    never = made.make("never")
    made.write(one, document(1, 105), document(2, 106))
    made.write(two, document(1, 103))
    made.write(two, gone(1, 104), gone(2, 104), commit=False)  # as offsets are left by deletes that are cleaned
    made.write(once, document(1, 105))
    made.write(never, document(1, 300))
    time.sleep(0.05)
    between = time.time()
    time.sleep(0.05)
    for topic in (one, two, once):
        made.write(topic, document(3, 120), document(4, 130))
    assert made.check().earliest == COPIED, "younger than the lag"
    monkeypatch.setattr(integrity, "time", SimpleNamespace(time=lambda: between + 3600))
    assert made.check("one", "never").earliest == ClusterTime(106, 1)
    assert made.check("once").earliest == ClusterTime(105, 1), "it was compacted before"
    assert made.check("two").earliest == ClusterTime(120, 1), "deletes may have been there until the next record"
    assert made.check().earliest == ClusterTime(120, 1)
    monkeypatch.setattr(integrity, "time", SimpleNamespace(time=lambda: between + 7200))
    assert made.check("one").earliest == ClusterTime(130, 1)


def test_what_is_no_record_of_ours_is_passed_over_as_the_sink_does(made: Log) -> None:
    """Under a document's key it says nothing of the document, which is told as one that cannot be rebuilt."""
    bad: list[tuple[Any, list[bytes]]] = [
        ((key(1), b"\1\2", 101), [key(5), key(1)]),
        ((None, bson.encode({"$set": {"x": 1}}), 101), [key(5)]),
        ((None, bson.encode({"_id": 1}), 101), [key(5)]),
    ]
    for number, (record, broken) in enumerate(bad):
        made.write(made.make(str(number), {"min.compaction.lag.ms": "3600000"}), update(5, 101), record, partition=0)
        found = made.check(str(number))
        assert (found.records, [one.key for one in found.broken]) == (2, broken)
