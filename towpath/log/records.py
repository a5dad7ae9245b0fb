"""Records of a topic, as the record contract has them, read with any Kafka consumer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeGuard

import bson
from bson.codec_options import CodecOptions, DatetimeConversion
from bson.json_util import CANONICAL_JSON_OPTIONS, RELAXED_JSON_OPTIONS, JSONOptions, dumps
from bson.son import SON
from confluent_kafka import Message

from towpath.errors import TowpathError

Kind = Literal["document", "update", "delete"]

_OPTIONS: CodecOptions[SON[str, Any]] = CodecOptions(
    document_class=SON,
    tz_aware=True,
    datetime_conversion=DatetimeConversion.DATETIME_AUTO,
    unicode_decode_error_handler="replace",  # MongoDB stores text that is not UTF-8
)
#: What decoding says of bytes that are no BSON, and of BSON that is deeper than anyone stores.
NOT_BSON = (bson.errors.BSONError, RecursionError, OverflowError, IndexError)
_DEEPEST = 250  # levels in a document: the most that mongod's `maxBSONDepth` can be set to
_LEVEL = 8  # bytes that one takes at least
_LONGEST_MS = 2**63  # as far as clocks count


@dataclass(frozen=True, slots=True)
class Record:
    """One record. `time_ms` is the broker's, `at_ms` the source's wall clock, both since the epoch;
    `cluster_time` is `seconds:ordinal`."""

    topic: str
    partition: int
    offset: int
    time_ms: int
    kind: Kind
    op: str
    cluster_time: str
    at_ms: int
    key: bytes
    value: bytes | None

    def as_json(self, *, canonical: bool) -> dict[str, Any]:
        """Key and value as MongoDB Extended JSON; `canonical` keeps every number's type."""
        return {
            "topic": self.topic,
            "partition": self.partition,
            "offset": self.offset,
            "time_ms": self.time_ms,
            "at_ms": self.at_ms,
            "cluster_time": self.cluster_time,
            "op": self.op,
            "kind": self.kind,
            "key": readable(self.key, canonical=canonical),
            "value": readable(self.value, canonical=canonical),
        }


def is_key(raw: object) -> TypeGuard[bytes]:
    """Whether bytes are `{_id: …}`: what is not has been written by somebody else, and is about no document."""
    try:
        if not isinstance(raw, bytes) or raw[5:9] != b"_id\0":
            return False
        found = bson.decode(raw, _OPTIONS)
    except NOT_BSON:
        return False
    return list(found) == ["_id"] and (len(raw) < _DEEPEST * _LEVEL or not _is_too_deep(found))


def _is_too_deep(value: Any) -> bool:
    """Whether it is deeper than any server stores; what orders and shows an `_id` goes down level by level."""
    level = [value]
    for _ in range(_DEEPEST):
        parts = (one.values() if isinstance(one, dict) else one for one in level if isinstance(one, dict | list))
        level = [part for inside in parts for part in inside]
        if not level:
            return False
    return True


def readable(raw: bytes | None, *, canonical: bool) -> str | None:
    """Extended JSON, or the bytes in hexadecimal where it is not BSON."""
    if raw is None:
        return None
    try:
        return extended_json(raw, canonical=canonical)
    except NOT_BSON:
        return raw.hex()


def extended_json(raw: bytes, *, canonical: bool) -> str:
    options: JSONOptions = CANONICAL_JSON_OPTIONS if canonical else RELAXED_JSON_OPTIONS
    return dumps(bson.decode(raw, _OPTIONS), json_options=options, ensure_ascii=False)


def record(message: Message) -> Record:
    """The record in a Kafka message. Raises `TowpathError` for one that the contract does not know."""
    place = f"{message.topic()}, partition {message.partition()}, offset {message.offset()}"
    key, value = message.key(), message.value()
    headers = {name: text for name, text in headers_of(message) if isinstance(text, bytes)}
    if headers.get("v") != b"1":
        raise TowpathError(f"{place}: not a record of Towpath's (header v is {headers.get('v')!r})")
    if not is_key(key):
        raise TowpathError(f"{place}: not a record of Towpath's (its key is not {{_id: …}})")
    raw = value if isinstance(value, bytes) else None
    try:
        return Record(
            topic=str(message.topic()),
            partition=message.partition() or 0,
            offset=message.offset() or 0,
            time_ms=message.timestamp()[1],
            kind=_kind(raw),
            op=headers["op"].decode(),
            cluster_time=headers["t"].decode(),
            at_ms=_milliseconds(headers["at"]),
            key=key,
            value=raw,
        )
    except (KeyError, ValueError, *NOT_BSON) as error:
        raise TowpathError(f"{place}: a record that breaks the contract: {error!r}") from error


def _kind(value: bytes | None) -> Kind:
    """A document always has an `_id`, and an update never does."""
    if value is None:
        return "delete"
    return "document" if "_id" in bson.decode(value, _OPTIONS) else "update"


def headers_of(message: Message) -> list[tuple[str, Any]]:
    return list(message.headers() or [])  # type: ignore[arg-type]  # librdkafka always hands out pairs


def source_milliseconds(message: Message) -> int | None:
    """The source's wall clock in a message's header `at`, ms since the epoch; None when it has none."""
    found = dict(headers_of(message)).get("at")
    try:
        return _milliseconds(found) if isinstance(found, bytes) else None
    except ValueError:
        return None  # somebody else's record


def _milliseconds(text: bytes) -> int:
    """Raises `ValueError` for what is no time."""
    found = int(text) if len(text) <= 20 else _LONGEST_MS
    if not -_LONGEST_MS < found < _LONGEST_MS:
        raise ValueError(f"{text[:20]!r} is no time in milliseconds")
    return found
