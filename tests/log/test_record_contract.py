"""What lies on the topics: the record contract, and small records for small changes."""

from __future__ import annotations

import time
from typing import Any

import pytest
from bson import Int64, Timestamp

from tests.support import bsonbytes as b
from tests.support import log
from tests.support.log import Logged
from tests.support.pipeline import Pipeline

pytestmark = pytest.mark.servers


def shape(record: Logged) -> str:
    """Document, update or delete, told by the value alone."""
    if record.value is None:
        return "delete"
    names = {element.name for element in b.elements(record.value)}
    if b"_id" in names:
        return "document"
    parts = {b"$set", b"$unset", b"$truncate", b"$splice"}
    assert names and names <= parts, f"neither a document nor an update: {names}"
    return "update"


def number(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(":"))


def test_records_keep_the_contract(pipeline: Pipeline) -> None:
    documents = pipeline.source("docs")
    documents.insert_one({"_id": 5, "a": [1, 2, 3], "gone": 1})
    began = time.time()
    pipeline.deploy()
    pipeline.wait()
    documents.update_one({"_id": 5}, {"$set": {"b": Int64(7)}, "$unset": {"gone": ""}})
    documents.update_one({"_id": 5}, [{"$set": {"a": {"$slice": ["$a", 1]}}}])
    documents.replace_one({"_id": 5}, {"c": 1})
    documents.delete_one({"_id": 5})
    documents.insert_one({"_id": 5.0, "c": 2})
    pipeline.wait()
    found = log.records(pipeline.addresses.bootstrap, pipeline.topic("docs"))
    assert [record.contract["op"] for record in found] == [b"r", b"u", b"u", b"u", b"d", b"c"]
    assert [shape(record) for record in found][0::3] == ["document", "document"]
    assert [shape(record) for record in found][-2:] == ["delete", "document"]
    assert len({(record.key, record.partition) for record in found}) == 1
    assert_update(found[1], {"$set": b.document(("b", b.int64(7))), "$unset": b.document(("gone", b.string("")))})
    assert_headers(found, began)


def assert_update(record: Logged, parts: dict[str, bytes]) -> None:
    value = record.value or b""
    expected = b.document(*((name, b.Value(b.Type.DOCUMENT, part)) for name, part in parts.items()))
    assert value == expected, f"{value.hex()} is not {expected.hex()}"


def assert_headers(found: list[Logged], began: float) -> None:
    times = [number(record.contract["t"].decode()) for record in found]
    assert times == sorted(times)
    now = time.time() * 1000
    for record in found:
        assert set(record.headers) == {"v"}
        assert record.contract["v"] == b"1"
        assert record.appended, "the timestamp is not the broker's (LogAppendTime)"
        assert began * 1000 - 60_000 < record.time_ms < now + 1000
        assert began * 1000 - 60_000 < int(record.contract["at"]) < now + 1000


def test_a_push_into_a_long_array_travels_as_a_push(pipeline: Pipeline) -> None:
    documents = pipeline.source("hours")
    documents.insert_one({"_id": "device", "readings": [reading(n) for n in range(1800)]})
    pipeline.deploy()
    pipeline.wait()
    for n in range(1800, 1851):
        documents.update_one({"_id": "device"}, {"$push": {"readings": reading(n)}})
    pipeline.wait()
    pipeline.assert_same("hours", at_least=1)
    copied, *pushes = log.records(pipeline.addresses.bootstrap, pipeline.topic("hours"))
    assert len(copied.value or b"") > 1800 * 40
    assert len(pushes) == 51
    assert max(len(record.value or b"") for record in pushes) < 300
    first = b.document(("$set", b.embedded(("readings.1800", b.Value(b.Type.DOCUMENT, encoded(reading(1800)))))))
    assert pushes[0].value == first


def reading(n: int) -> dict[str, Any]:
    return {"at": Timestamp(1_700_000_000 + n, 1), "celsius": n / 10, "n": n}


def encoded(fields: dict[str, Any]) -> bytes:
    return b.document(
        ("at", b.timestamp(fields["at"].time, fields["at"].inc)),
        ("celsius", b.double(fields["celsius"])),
        ("n", b.int32(fields["n"])),
    )
