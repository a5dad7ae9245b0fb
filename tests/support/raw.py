"""Reads and writes of raw BSON: nothing is decoded on the way, so nothing can be repaired or refused by the driver."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from bson.codec_options import CodecOptions
from bson.raw_bson import RawBSONDocument
from pymongo import MongoClient
from pymongo.collection import Collection

from tests.support import bsonbytes as b
from tests.support.corpus import Specimen

_RAW = CodecOptions(document_class=RawBSONDocument)

Client = MongoClient[dict[str, Any]]
Documents = Collection[dict[str, Any]]


def collection(client: Client, namespace: str) -> Documents:
    """The collection of a namespace `db.collection`."""
    database, name = namespace.split(".", 1)
    return client[database][name]


def read(documents: Documents, only: Mapping[str, Any] | None = None) -> Iterator[bytes]:
    """Every document as it is stored, or those that match a filter, in no particular order."""
    for found in documents.with_options(codec_options=_RAW).find(only or {}, batch_size=500):
        yield bytes(found.raw)


def read_one(documents: Documents, specimen: Specimen) -> bytes | None:
    """The stored bytes of the document with the specimen's `_id`."""
    command = {"find": documents.name, "filter": RawBSONDocument(specimen.identity), "limit": 1}
    found = documents.database.command(command, codec_options=_RAW)["cursor"]["firstBatch"]
    return bytes(found[0].raw) if found else None


def insert(documents: Documents, specimen: Specimen) -> None:
    """Store a new document byte for byte."""
    if specimen.insertable:
        _run(documents, {"insert": documents.name, "documents": [RawBSONDocument(specimen.document)]})
    else:
        _update(documents, specimen, _literally(specimen), upsert=True)


def insert_many(documents: Documents, encoded: Sequence[bytes]) -> None:
    """Store new documents, byte for byte and with one command."""
    _run(documents, {"insert": documents.name, "documents": [RawBSONDocument(one) for one in encoded]})


def replace(documents: Documents, specimen: Specimen) -> None:
    """Replace the document that has the specimen's `_id`, byte for byte."""
    plain = RawBSONDocument(specimen.document)
    _update(documents, specimen, plain if specimen.replaceable else _literally(specimen))


def set_fields(documents: Documents, specimen: Specimen, fields: Mapping[str, b.Value]) -> None:
    """`$set` these paths of the document that has the specimen's `_id`."""
    _update(documents, specimen, RawBSONDocument(b.document(("$set", b.embedded(*fields.items())))))


def _literally(specimen: Specimen) -> list[dict[str, Any]]:
    return [{"$replaceWith": {"$literal": RawBSONDocument(specimen.document)}}]


def _update(documents: Documents, specimen: Specimen, change: Any, *, upsert: bool = False) -> None:
    update = {"q": RawBSONDocument(specimen.identity), "u": change, "upsert": upsert}
    reply = _run(documents, {"update": documents.name, "updates": [update]})
    assert reply["n"] == 1, f"{specimen.name}: no document has its _id"


def _run(documents: Documents, command: dict[str, Any]) -> dict[str, Any]:
    reply = documents.database.command(command)
    assert "writeErrors" not in reply, reply["writeErrors"]
    return reply
