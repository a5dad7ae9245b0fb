"""What `towpath_verifier.raw_batches` relies on in PyMongo, which promises none of it. Needs no server."""

from __future__ import annotations

import importlib.metadata
import inspect
from typing import Any

import bson
from pymongo import MongoClient
from pymongo.cursor import RawBatchCursor

from tests.support import bsonbytes as b
from towpath_verifier.raw_batches import PYMONGO, _RawBatches

_ADVICE = (
    "compare verifier/towpath_verifier/raw_batches.py with pymongo's RawBatchCursor, run this file and"
    " tests/verifier/test_verifier.py, and then put the version into PYMONGO there"
)
ONE, TWO = (b.document(("_id", b.int32(number)), ("x", b.NULL)) for number in (1, 2))


class Reply:
    """A server's reply, as far as the cursor asks for it."""

    def __init__(self, *fields: tuple[str, b.Value]) -> None:
        self._body = b.document(*fields)

    def raw_command_response(self) -> bytes:
        return self._body


def unpacked(*fields: tuple[str, b.Value]) -> Any:
    with MongoClient[dict[str, Any]](connect=False) as client:
        (reply,) = _RawBatches(client.a.b, {})._unpack_response(Reply(*fields), 1, None, legacy_response=False)
    return reply


def cursor(batch: str, *documents: bytes) -> tuple[str, b.Value]:
    array = b.array(*(b.Value(b.Type.DOCUMENT, document) for document in documents))
    return "cursor", b.embedded(("id", b.int64(7)), ("ns", b.string("a.b")), (batch, array))


def test_it_was_compared_with_the_installed_pymongo() -> None:
    installed = importlib.metadata.version("pymongo")
    assert installed == PYMONGO, f"pymongo is {installed} now: {_ADVICE}"


def test_the_method_that_is_replaced_is_still_called_that() -> None:
    names = list(inspect.signature(RawBatchCursor._unpack_response).parameters)
    assert names[:3] == ["self", "response", "cursor_id"], _ADVICE
    assert bson.has_c(), "without its C extension, pymongo joins documents in Python, which is slow"


def test_a_batch_becomes_the_bytes_of_its_documents() -> None:
    for name in ("firstBatch", "nextBatch"):
        reply = unpacked(cursor(name, ONE, TWO), ("ok", b.double(1.0)))
        assert reply["cursor"][name] == [ONE + TWO], _ADVICE
        assert (reply["cursor"]["id"], reply["cursor"]["ns"], reply["ok"]) == (7, "a.b", 1.0), _ADVICE


def test_a_batch_without_documents_and_an_error_come_through() -> None:
    assert unpacked(cursor("firstBatch"), ("ok", b.double(1.0)))["cursor"]["firstBatch"] == [], _ADVICE
    assert unpacked(("ok", b.double(0.0)), ("code", b.int32(13)))["code"] == 13, _ADVICE
