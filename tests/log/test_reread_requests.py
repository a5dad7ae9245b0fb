"""Requests to read documents again: what is written, and that every `_id` comes through as it is."""

from __future__ import annotations

from typing import Any

import bson
import pytest
from bson import Decimal128, ObjectId
from confluent_kafka import KafkaError

from tests.checks.test_check_judgements import PIPELINE
from tests.support import bsonbytes as b
from tests.support.memory_topics import MemoryTopics
from towpath.clients.kafka.topics import interruptible
from towpath.errors import Refused, TopicError
from towpath.log import reread_requests
from towpath.log.reread_requests import namespace_in, values
from towpath_verifier.reads import ID_BYTES, IDS

NAMESPACE = "shop.orders"


def ids(*found: object) -> list[bytes]:
    return [bson.encode({"_id": one}) for one in found]


def test_a_request_names_documents_of_any_type_of_id() -> None:
    wanted = [5, 5.0, "a", ObjectId(), Decimal128("5.00"), {"a": {"b": [1]}}, None, b"\1\2"]
    (value,) = values(NAMESPACE, ids(*wanted))
    assert bson.decode(value) == {"namespace": NAMESPACE, "ids": wanted}


def test_an_id_that_no_driver_writes_comes_through_as_its_bytes() -> None:
    odd = b.document(("_id", b.embedded(("a", b.int32(1)), ("a", b.int32(2)))))
    (value,) = values(NAMESPACE, [odd])
    listed = b.field(value, "ids").value.payload
    assert next(iter(b.elements(listed))).value == b.field(odd, "_id").value
    assert next(iter(b.elements(listed))).name == b"0"


def test_a_request_is_bounded_in_ids_and_in_bytes() -> None:
    found = [bson.decode(value)["ids"] for value in values(NAMESPACE, ids(*range(2 * IDS + 1)))]
    assert [len(listed) for listed in found] == [IDS, IDS, 1]
    assert [one for listed in found for one in listed] == list(range(2 * IDS + 1))
    large = [f"{n}" + "x" * 100_000 for n in range(23)]
    encoded = list(values(NAMESPACE, ids(*large)))
    assert len(encoded) == 5
    assert max(map(len, encoded)) < 2**19 + 1000  # of a broker's default limit of 1 MB
    assert list(values(NAMESPACE, [])) == []


def test_an_id_larger_than_a_request_goes_alone_and_one_larger_than_a_record_is_refused() -> None:
    found = list(values(NAMESPACE, ids(1, "x" * ID_BYTES, 2)))
    assert [len(bson.decode(value)["ids"]) for value in found] == [1, 1, 1]
    with pytest.raises(TopicError, match="too large for a request"):
        list(values(NAMESPACE, ids("x" * 18 * 2**20)))


def test_the_namespace_of_a_request_is_told_whatever_its_ids_are() -> None:
    odd = b.document(("_id", b.embedded(("a", b.Value(b.Type.STRING, b"\2\0\0\0\xff\0")))))
    assert [namespace_in(value) for value in values(NAMESPACE, [odd, *ids(1)])] == [NAMESPACE]
    assert namespace_in(None) == namespace_in(b"\1") == namespace_in(bson.encode({"namespace": "a.b", "ids": []})) == ""
    assert namespace_in(bson.encode({"ids": [1]})) == ""


@pytest.mark.parametrize("identity", [b"", bson.encode({"id": 1}), bson.encode({"_id": 1}) + b"\0"])
def test_what_is_no_id_is_said(identity: bytes) -> None:
    with pytest.raises(ValueError, match="only an _id"):
        list(values(NAMESPACE, [identity]))


def test_what_the_client_makes_of_an_interrupt_is_one() -> None:
    with pytest.raises(KeyboardInterrupt), interruptible():
        raise SystemError("<method 'flush' of 'cimpl.Producer' objects> returned NULL without setting an exception")


OWN = PIPELINE.changed(mode="exactly-once", capture={"whole_documents": ("shop.odd",)})
SOURCE, WHOLE = "move-source", "move-source-whole"


@pytest.fixture
def topics() -> MemoryTopics:
    return MemoryTopics(**{"move.requests": 1, "move.shop.orders": 1})


def test_a_request_waits_until_the_connector_that_captures_its_namespace_has_answered_it(topics: MemoryTopics) -> None:
    for namespace in ("shop.orders", "shop.odd", "other.orders", "shop.orders"):
        topics.write("move.requests", (None, *values(namespace, ids(1)), 1))
    topics.write("move.requests", (None, b"no request", 1))
    assert reread_requests.end(OWN, topics) == 10

    def first(connector: str, answered: int, upto: int = 10) -> int | None:
        return reread_requests.waiting(OWN, topics, connector, answered, upto)

    assert [first(SOURCE, answered) for answered in (0, 1, 6, 7, 10)] == [0, 6, 6, None, None]
    assert [first(WHOLE, answered) for answered in (0, 2, 3)] == [2, 2, None]
    assert first(SOURCE, 1, upto=6) is None, "later requests are not waited for"
    topics.cut("move.requests", 1)  # as retention does
    assert first(SOURCE, 0) == 6
    assert reread_requests.end(OWN, MemoryTopics()) == 0


class Broker:
    """A producer whose requests get these offsets; None for one that is not accepted."""

    def __init__(self, *offsets: int | None, unacknowledged: int = 0) -> None:
        self._offsets, self._unacknowledged = iter(offsets), unacknowledged
        self.written: list[tuple[str, bytes]] = []

    def __len__(self) -> int:
        return 0

    def produce(self, topic: str, value: bytes, on_delivery: Any) -> None:
        self.written.append((topic, value))
        offset = next(self._offsets)
        if offset is None:
            on_delivery(KafkaError(KafkaError.MSG_SIZE_TOO_LARGE), None)
        else:
            on_delivery(None, MemoryTopics.message(topic, 0, offset, None, value))

    def flush(self, timeout: float) -> int:
        return self._unacknowledged


def written(topics: MemoryTopics, broker: Broker, namespace: str = NAMESPACE, count: int = IDS + 1) -> int | None:
    topics.producer = lambda: broker  # type: ignore[assignment, method-assign, return-value]
    return reread_requests.write(OWN, topics, namespace, ids(*range(count)))


def test_what_was_requested_is_known_by_the_offset_of_the_last_request(topics: MemoryTopics) -> None:
    broker = Broker(7, 5)
    assert written(topics, broker) == 7
    assert broker.written == [("move.requests", value) for value in values(NAMESPACE, ids(*range(IDS + 1)))]
    assert written(topics, Broker(0), count=1) == 0
    assert written(topics, Broker(), count=0) is None


@pytest.mark.parametrize(("offsets", "unacknowledged"), [((5, None), 0), ((None, 5), 0), ((5, 6), 1)])
def test_requests_of_which_one_is_not_accepted_count_as_failed(
    topics: MemoryTopics, offsets: tuple[int | None, ...], unacknowledged: int
) -> None:
    with pytest.raises(TopicError, match=r"cannot write to move\.requests at memory"):
        written(topics, Broker(*offsets, unacknowledged=unacknowledged))


@pytest.mark.parametrize(
    ("missing", "namespace", "words"),
    [
        ("", "other.orders", "is not in the pipeline"),
        ("move.requests", NAMESPACE, "there is no topic move.requests"),
        ("move.shop.orders", NAMESPACE, "nothing of shop.orders was ever captured"),
    ],
)
def test_what_no_connector_would_answer_is_refused(
    topics: MemoryTopics, missing: str, namespace: str, words: str
) -> None:
    there = topics.all()
    there.pop(missing, None)
    topics.all = lambda: there  # type: ignore[method-assign]
    broker = Broker(0)
    with pytest.raises(Refused, match=words):
        written(topics, broker, namespace, 1)
    with pytest.raises(Refused, match="does not support re-reads"):
        reread_requests.write(PIPELINE, topics, NAMESPACE, ids(1))
    assert broker.written == []
