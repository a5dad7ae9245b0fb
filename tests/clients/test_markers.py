"""Which offsets hold ends of transactions only, by what a broker has stored there."""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable

import pytest
from confluent_kafka import Producer
from kafka.errors import KafkaConnectionError

from tests.support.awaited import until
from tests.support.pipeline import Addresses
from towpath.clients.kafka.protocol import _BATCH, Protocol, _are_markers
from towpath.clients.kafka.topics import Topic, Topics


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
    assert _are_markers(stored, 7, 8) is is_empty


def test_a_gap_of_two_markers_is_empty_and_one_with_a_record_behind_a_marker_is_not() -> None:
    assert _are_markers(MARKER + batch(8, 8, marker=True), 7, 9)
    assert not _are_markers(MARKER + batch(8, 8, marker=False), 7, 9)
    assert not _are_markers(MARKER, 7, 9), "nobody has said what is at 8"


def test_the_layout_is_that_of_kafka() -> None:
    assert _BATCH.size == struct.calcsize(">qiibIhiqqqhii") == 61  # RecordBatch, `RECORD_BATCH_OVERHEAD`


@pytest.mark.servers
def test_a_broker_tells_where_only_ends_of_transactions_are(addresses: Addresses) -> None:
    topics, name = Topics(addresses.bootstrap), f"t{uuid.uuid4().hex[:8]}"
    topics.create([name], 6, 1, {"max.message.bytes": "2000000"})
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
        written = [2, 4, 2, 1, 4, 0]
        until(
            "the markers", lambda: [end for _, (_, end) in sorted(topics.ends([Topic(name, 6)]).items())] == written, 30
        )
        window = {0: (1, 2), 1: (1, 4), 2: (1, 2), 3: (0, 1), 4: (3, 4), 5: (0, 1)}
        assert topics.without_records({(name, number): gap for number, gap in window.items()}) == {
            (name, 0),
            (name, 2),
            (name, 4),
        }
        window = {0: (0, 2), 1: (1, 2), 2: (0, 2), 4: (1, 4)}
        assert topics.without_records({(name, number): gap for number, gap in window.items()}) == {(name, 1)}
        assert topics.without_records({(f"{name}-gone", 0): (0, 1)}) == set()
    finally:
        topics.delete([name])


def test_nothing_is_certain_when_no_broker_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise KafkaConnectionError

    monkeypatch.setattr(Protocol, "of", refuse)
    assert Topics("127.0.0.1:1").without_records({("t", 0): (0, 1)}) == set()
