"""Kafka's own requests, which answer for many partitions at once what librdkafka's client answers one by one."""

from __future__ import annotations

import struct
import time
import uuid
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Producer
from kafka.errors import KafkaConnectionError

from tests.support.awaited import until
from tests.support.pipeline import Addresses
from towpath.clients.kafka import topics
from towpath.clients.kafka.protocol import _BATCH, Protocol, are_markers
from towpath.clients.kafka.topics import Topic, Topics
from towpath.errors import TopicError


def batch(first: int, last: int, *, marker: bool, records: int = 1, form: int = 2, size: int = 0) -> bytes:
    head = _BATCH.pack(first, 49 + size, 0, form, 0, 0x30 if marker else 0x10, last - first, 0, 0, 1, 0, -1, records)
    return head + bytes(size)


MARKER, RECORD = batch(7, 7, marker=True, size=17), batch(7, 7, marker=False, size=17)


@pytest.mark.parametrize(
    ("stored", "is_empty"),
    [
        (MARKER, True),
        (MARKER[: _BATCH.size], True),
        (MARKER[: _BATCH.size - 1], False),
        (b"", False),
        (RECORD, False),
        (batch(5, 9, marker=False, records=5), False),  # the fetch begins amid a batch
        (batch(7, 9, marker=False, records=0), True),  # the cleaner leaves it for its producer
        (batch(7, 7, marker=True, form=1), False),
        (batch(8, 8, marker=False), True),  # the cleaner has removed offset 7
    ],
)
def test_a_gap_is_empty_if_no_batch_in_it_has_records(stored: bytes, is_empty: bool) -> None:
    assert are_markers(stored, 7, 8) is is_empty


def test_a_gap_of_two_markers_is_empty_and_one_with_a_record_behind_a_marker_is_not() -> None:
    assert are_markers(MARKER + batch(8, 8, marker=True), 7, 9)
    assert not are_markers(MARKER + batch(8, 8, marker=False), 7, 9)
    assert not are_markers(MARKER, 7, 9), "nothing has said what is at 8"


def test_the_layout_is_that_of_kafka() -> None:
    assert _BATCH.size == struct.calcsize(">qiibIhiqqqhii") == 61  # RecordBatch, `RECORD_BATCH_OVERHEAD`


@pytest.fixture
def all_count_as_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topics, "_MANY", -1)


@pytest.fixture
def topic(addresses: Addresses) -> Iterator[tuple[Topics, str]]:
    """One of six partitions: with committed, aborted, large and plain records, three in a batch, and none."""
    brokers, name = Topics(addresses.bootstrap), f"t{uuid.uuid4().hex[:8]}"
    brokers.create([name], 6, 1, {"max.message.bytes": "2000000", "retention.ms": "-1"})
    settings = {"bootstrap.servers": addresses.bootstrap, "message.max.bytes": 2_000_000, "linger.ms": 100}
    producer = Producer(settings | {"transactional.id": name})
    producer.init_transactions()

    def transaction(end: Callable[[], object], *values: tuple[int, bytes]) -> None:
        producer.begin_transaction()
        for partition, value in values:
            producer.produce(name, value, partition=partition)
        producer.flush(10)
        end()

    try:
        large = bytes(1_000_000)
        transaction(producer.commit_transaction, (0, b"1"), (1, b"1"), (2, large), (4, b"1"), (4, b"2"), (4, b"3"))
        transaction(producer.abort_transaction, (1, b"1"))
        plain = Producer(settings)
        plain.produce(name, b"1", partition=3)
        plain.flush(10)
        ends = {(name, number): (0, end) for number, end in enumerate((2, 4, 2, 1, 4, 0))}
        until("the markers", lambda: brokers.ends([Topic(name, 6)]) == ends, 30)
        yield brokers, name
    finally:
        brokers.delete([name])


@pytest.mark.servers
@pytest.mark.usefixtures("all_count_as_many")
def test_a_broker_tells_where_only_ends_of_transactions_are(topic: tuple[Topics, str]) -> None:
    brokers, name = topic
    window = {0: (1, 2), 1: (1, 4), 2: (1, 2), 3: (0, 1), 4: (3, 4), 5: (0, 1)}
    found = brokers.without_records({(name, number): gap for number, gap in window.items()})
    assert found == {(name, 0), (name, 2), (name, 4)}
    window = {0: (0, 2), 1: (1, 2), 2: (0, 2), 4: (1, 4)}
    assert brokers.without_records({(name, number): gap for number, gap in window.items()}) == {(name, 1)}
    assert brokers.without_records({(f"{name}-gone", 0): (0, 1)}) == set()


@pytest.mark.servers
def test_both_clients_tell_the_same(topic: tuple[Topics, str], monkeypatch: pytest.MonkeyPatch) -> None:
    brokers, name = topic
    now = int(1_000 * time.time())
    open_one = Producer({"bootstrap.servers": brokers.bootstrap, "transactional.id": f"{name}-open"})
    open_one.init_transactions()
    open_one.begin_transaction()
    open_one.produce(name, b"1", partition=5)
    open_one.flush(10)

    def told() -> list[object]:
        six = [Topic(name, 6)]
        times = {(name, number): now + 60_000 * (number % 2) - 60_000 for number in range(6)}
        others = [name, "__consumer_offsets", f"{name}-gone"]
        return [
            *(brokers.ends(six), brokers.ends(six, stable=False), brokers.written(six)),
            *(brokers.offsets_at(times), brokers.ids(others), brokers.open_transactions([name])),
        ]

    expected = told()
    monkeypatch.setattr(topics, "_MANY", -1)
    with brokers:  # one connection for all
        assert told() == told() == expected
    open_one.abort_transaction()
    assert brokers.settings_of_all([name, "__consumer_offsets"], ("retention.ms", "cleanup.policy")) == {
        name: {"retention.ms": "-1", "cleanup.policy": "delete"},
        "__consumer_offsets": {"retention.ms": "604800000", "cleanup.policy": "compact"},
    }
    disks = brokers.disks()
    assert disks and {name.partition(":")[0] for name in disks} == {f"broker {number}" for number in brokers.brokers()}
    with pytest.raises(TopicError, match="cannot read the settings"):
        brokers.settings_of_all([f"{name}-gone"], ("retention.ms",))


@pytest.mark.servers
@pytest.mark.usefixtures("all_count_as_many")
def test_a_partition_whose_leader_has_changed_is_asked_for_as_before(topic: tuple[Topics, str]) -> None:
    brokers, name = topic
    expected = brokers.ends([Topic(name, 6)])
    with brokers, brokers.protocol() as protocol:
        protocol.ids([name])
        protocol._leaders[name, 1] = -1
        protocol._leaders[name, 2] = 7  # no such broker
        brokers._idle[""] = [protocol]
        assert brokers.ends([Topic(name, 6)]) == expected


@pytest.mark.usefixtures("all_count_as_many")
def test_nothing_is_certain_when_no_broker_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise KafkaConnectionError

    monkeypatch.setattr(Protocol, "of", refuse)
    assert Topics("127.0.0.1:1").without_records({("t", 0): (0, 1)}) == set()
