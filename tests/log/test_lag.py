"""How far a sink is behind: by the source's clock, and without reading what nothing needs."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import Consumer, Message

from tests.support.awaited import until
from tests.support.pipeline import Addresses, Pipeline
from tests.support.servers import replica_set
from towpath.clients.kafka import consume
from towpath.clients.kafka.topics import LARGEST_RECORD, Topics
from towpath.clients.mongo import client as clusters
from towpath.clients.mongo.client import Cluster
from towpath.errors import MongoUnreachable
from towpath.log import lag
from towpath.run.status import read_status
from towpath.session import opened

pytestmark = pytest.mark.servers

TOPIC = {"max.message.bytes": str(LARGEST_RECORD), "retention.ms": "-1"}


class Watched:
    """A consumer of the stack's Kafka that keeps count of what it is sent."""

    def __init__(self, consumer: Consumer) -> None:
        self.consumer, self.messages = consumer, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.consumer, name)

    def consume(self, at_once: int, timeout: float) -> list[Message]:
        found = self.consumer.consume(at_once, timeout=timeout)
        self.messages += len(found)
        return found

    def close(self) -> None:
        self.consumer.poll(0.1)  # the numbers of the last reads come with the next event
        self.consumer.close()


class Halting(Watched):
    """One that has nothing to hand over after every message, as over a slow line."""

    halts = False

    def consume(self, at_once: int, timeout: float) -> list[Message]:
        self.halts = not self.halts
        if self.halts:
            return []
        return until("message", lambda: super(Halting, self).consume(at_once, timeout), 60)


class Counting(Topics):
    """Topics whose consumers are watched, and tell how many bytes came over the line."""

    kind: type[Watched] = Watched
    bytes = 0

    def consumer(self, **settings: Any) -> Any:
        told = {"statistics.interval.ms": 20, "stats_cb": self._count}
        self.made = self.kind(super().consumer(**settings, **told))
        return self.made

    def _count(self, text: str) -> None:
        self.bytes = max(self.bytes, json.loads(text)["rx_bytes"])


@pytest.fixture
def topics(addresses: Addresses) -> Counting:
    return Counting(addresses.bootstrap)


@pytest.fixture
def topic(topics: Counting) -> Iterator[str]:
    name = f"lag-{os.urandom(4).hex()}"
    topics.create([name], 1, 1, TOPIC)
    yield name
    topics.delete([name])


def fill(topics: Topics, topic: str, records: int, size: int) -> None:
    producer = topics.producer()
    for number in range(records):
        producer.produce(
            topic, os.urandom(size), headers=[("v", f"1 u 1700000000:1 {1_700_000_000_000 + number}".encode())]
        )
        producer.flush(60)
    until("records", lambda: topics.ends(topics.all()[name] for name in [topic])[topic, 0][1] == records, 60)


def test_large_records_are_not_read_to_be_counted(topics: Counting, topic: str) -> None:
    fill(topics, topic, 150, 256 * 1024)
    found = lag.peek(topics, {(topic, 0): (0, 150)}, limit=lag.COUNTED)[topic, 0]
    assert (found.records, found.oldest_ms) == (150, 1_700_000_000_000)
    assert 0 < topics.bytes < 12 << 20, "of 37 MiB"


def test_a_gap_that_is_not_counted_takes_one_record(topics: Counting, topic: str) -> None:
    fill(topics, topic, 150, 256 * 1024)
    found = lag.peek(topics, {(topic, 0): (3, 150)}, limit=0)[topic, 0]
    assert (found.records, found.oldest_ms) == (147, 1_700_000_000_003)
    assert topics.made.messages == 1
    assert topics.bytes < 6 << 20, "of 37 MiB"


def test_small_records_are_counted_one_by_one(topics: Counting, topic: str) -> None:
    fill(topics, topic, 60, 100)
    assert lag.peek(topics, {(topic, 0): (10, 61)}, limit=100)[topic, 0].records == 50, "the end is no record"


def test_a_pause_after_a_long_time_of_reading_is_no_silence(
    topics: Counting, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(topics, topic, 60, 100)
    monkeypatch.setattr(topics, "kind", Halting)
    seconds = count()
    monkeypatch.setattr(consume, "time", SimpleNamespace(monotonic=lambda: next(seconds)))
    assert lag.peek(topics, {(topic, 0): (0, 60)}, limit=100)[topic, 0].records == 60
    assert next(seconds) > consume._PATIENCE


@pytest.mark.parametrize("off", [7200.0, pytest.param(-7200.0, marks=pytest.mark.nightly)])
def test_the_lag_is_told_by_the_sources_clock(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch, off: float) -> None:
    """This machine's clock is two hours off."""
    pipeline.source("docs").insert_one({"_id": 0})
    pipeline.deploy()
    pipeline.wait()
    with opened(pipeline.file) as it:
        connect, name = it.connect, it.pipeline.sink_connector
        connect.pause(name)
        until("paused sink", lambda: connect.status(name).state == "PAUSED")
        pipeline.source("docs").insert_one({"_id": 1})
        until("lag", lambda: read_status(it).lag.records == 1)
        began, right = time.monotonic(), time.time
        monkeypatch.setattr(time, "time", lambda: right() + off)
        first = read_status(it).lag.apply_seconds
        later = until("lag that grows", lambda: _above(read_status(it).lag.apply_seconds, first))
    assert first is not None
    assert 0 <= first < later < 600 + time.monotonic() - began


def _above(found: float | None, before: float | None) -> float | None:
    return found if found is not None and before is not None and found > before else None


def threads(pid: int) -> list[Path]:
    return list(Path(f"/proc/{pid}/task").iterdir())


def state(thread: Path) -> str:
    """As proc(5) has it: T is stopped by a signal."""
    return (thread / "stat").read_text().rpartition(")")[2].split()[0]


def test_a_server_that_sleeps_is_not_waited_for_without_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clusters, "ANSWER_S", 1.0)
    with replica_set(tmp_path) as address:
        uri = f"mongodb://{address}/"
        with pytest.raises(MongoUnreachable, match=address), Cluster(uri, "source").briefly() as client:
            pid = client.admin.command("serverStatus")["pid"]
            os.kill(pid, signal.SIGSTOP)
            until("every thread of it asleep", lambda: {state(thread) for thread in threads(pid)} == {"T"})
            began = time.monotonic()
            try:
                client["any"]["thing"].find_one()
            finally:
                seconds = time.monotonic() - began
                os.kill(pid, signal.SIGCONT)
        assert seconds < 9, "a driver notices it by its own looks after 20 s"
