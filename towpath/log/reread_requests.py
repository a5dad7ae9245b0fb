"""Re-read requests: written to a topic, answered by MongoSource in the log itself.

A request names documents by `_id`. The source connector reads them as of the stream's position and writes them to the
log at that point: the whole document, or a delete where it does not exist. The answer is in order with all changes, and
the log stays a complete history.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator

import bson
from bson.raw_bson import RawBSONDocument

from towpath.clients.kafka.consume import messages
from towpath.clients.kafka.topics import LARGEST_RECORD, Topic, Topics
from towpath.config.namespaces import topic_of
from towpath.config.pipeline import Pipeline
from towpath.errors import Refused, TopicError
from towpath_verifier import chunks

_IDS_BYTES = 512 << 10  # of a request, which brokers with the default limit of 1 MB take
_ARRAY = b"\x04"


def write(pipeline: Pipeline, topics: Topics, namespace: str, ids: Iterable[bytes]) -> int | None:
    """Request documents of a namespace (the source's name); return the offset of the last request, None for no ids.

    Each id is the BSON of `{_id: …}`, as in a record's key. Raises `Refused` when no connector would answer, and
    `TopicError` when the brokers do not accept the requests; those already accepted are answered.
    """
    refuse_unanswered(pipeline, topics, namespace)
    return send(pipeline, topics, values(namespace, ids, pipeline.kafka.max_record))


def send(pipeline: Pipeline, topics: Topics, requests: Iterable[bytes]) -> int | None:
    """Write requests; return the offset of the last one. Raises `TopicError` when the brokers do not accept them."""
    return topics.send(pipeline.request_topic, ({"value": value} for value in requests))


def refuse_unable(pipeline: Pipeline) -> None:
    """Raise `Refused` for a pipeline whose source connector does not support re-reads."""
    if not pipeline.has_own_source:
        raise Refused(
            f"{pipeline.name} captures with Debezium's own connector, which does not support re-reads;"
            ' use mode = "exactly-once", or copy = "towpath"'
        )


def refuse_unanswered(pipeline: Pipeline, topics: Topics, namespace: str) -> None:
    """Raise `Refused` when no connector would answer a request for this namespace."""
    refuse_unable(pipeline)
    if not pipeline.selection.matches(namespace):
        raise Refused(f"{namespace} is not in the pipeline {pipeline.name}; see [collections]")
    existing = topics.all()
    if pipeline.request_topic not in existing:
        raise Refused(f"there is no topic {pipeline.request_topic} at {topics.bootstrap}; `towpath deploy` creates it")
    topic = topic_of(pipeline.name, namespace)
    if topic not in existing:
        raise Refused(
            f"nothing of {namespace} was ever captured: there is no topic {topic} at {topics.bootstrap}; is that its"
            " name at the source? (`towpath deploy` creates the topics of existing collections)"
        )


def values(namespace: str, ids: Iterable[bytes], limit: int = LARGEST_RECORD) -> Iterator[bytes]:
    """The requests for these ids: BSON `{namespace, ids: […]}`, each for what the connector reads with one command.

    They are built from bytes, so that an `_id` that no driver can encode stays as it is. Raises `TopicError` for an
    `_id` of more than `limit` bytes.
    """
    name = bson.encode({"namespace": namespace})
    for chunk in chunks(ids, _IDS_BYTES):
        array = _document(b"".join(_element(number, identity) for number, identity in enumerate(chunk)))
        value = _document(name[4:-1] + _ARRAY + b"ids\0" + array)
        if len(value) > limit:
            raise TopicError(f"an _id of {namespace} is {len(value):,} bytes: too large for a request")
        yield value


def _element(number: int, identity: bytes) -> bytes:
    """The value of `{_id: …}` as an element of an array."""
    if identity[5:9] != b"_id\0" or len(identity) != struct.unpack_from("<i", identity)[0]:
        raise ValueError(f"not the BSON of a document that has only an _id: {identity[:40]!r}")
    return identity[4:5] + str(number).encode() + b"\0" + identity[9:-1]


def _document(elements: bytes) -> bytes:
    return struct.pack("<i", len(elements) + 5) + elements + b"\0"


def end(pipeline: Pipeline, topics: Topics) -> int:
    """The offset after the last request; 0 without a request topic."""
    return _bounds(pipeline, topics)[1] if topics.ids([pipeline.request_topic]) else 0


def _bounds(pipeline: Pipeline, topics: Topics) -> tuple[int, int]:
    return topics.ends([Topic(pipeline.request_topic, 1)])[pipeline.request_topic, 0]


def waiting(pipeline: Pipeline, topics: Topics, connector: str, answered: int, upto: int) -> int | None:
    """The offset of the first request for this connector in [answered, upto); None when all are answered.

    Several source connectors share the topic; each answers requests for its own collections.
    """
    if answered >= upto:
        return None
    start = max(answered, _bounds(pipeline, topics)[0])  # retention may have deleted requests
    with topics.reader() as consumer:
        for _, message in messages(consumer, {(pipeline.request_topic, 0): (start, upto)}):
            namespace = namespace_in(message.value())
            if pipeline.selection.matches(namespace) and pipeline.source_connector_of(namespace) == connector:
                return message.offset()
    return None


def namespace_in(value: bytes | None) -> str:
    """The namespace of a request; empty for a record that is not a request, which connectors ignore."""
    try:
        request = RawBSONDocument(value or b"")
        return str(request.get("namespace", "")) if request.get("ids") else ""
    except bson.errors.InvalidBSON:
        return ""
