"""Requests to read documents again: what is written, and that every `_id` comes through as it is."""

from __future__ import annotations

import bson
import pytest
from bson import Decimal128, ObjectId

from tests.support import bsonbytes as b
from towpath.clients.kafka.topics import interruptible
from towpath.errors import TopicError
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


def test_a_request_is_bounded_in_ids_and_in_bytes() -> None:
    found = [bson.decode(value)["ids"] for value in values(NAMESPACE, ids(*range(2 * IDS + 1)))]
    assert [len(listed) for listed in found] == [IDS, IDS, 1]
    assert [one for listed in found for one in listed] == list(range(2 * IDS + 1))
    large = [f"{n}" + "x" * 100_000 for n in range(23)]
    encoded = list(values(NAMESPACE, ids(*large)))
    assert len(encoded) == 3
    assert max(map(len, encoded)) < ID_BYTES + 1000
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


@pytest.mark.parametrize("identity", [b"", bson.encode({"id": 1}), bson.encode({"_id": 1}) + b"\0"])
def test_what_is_no_id_is_said(identity: bytes) -> None:
    with pytest.raises(ValueError, match="only an _id"):
        list(values(NAMESPACE, [identity]))


def test_what_the_client_makes_of_an_interrupt_is_one() -> None:
    with pytest.raises(KeyboardInterrupt), interruptible():
        raise SystemError("<method 'flush' of 'cimpl.Producer' objects> returned NULL without setting an exception")
