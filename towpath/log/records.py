"""Records of the change topics, decoded from Kafka messages according to the record contract."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any, Literal, TypeGuard

import bson
from bson.codec_options import CodecOptions, DatetimeConversion
from bson.json_util import CANONICAL_JSON_OPTIONS, RELAXED_JSON_OPTIONS, JSONOptions, dumps
from bson.raw_bson import RawBSONDocument
from bson.son import SON
from confluent_kafka import Message

from towpath.errors import TowpathError

Kind = Literal["document", "update", "delete", "ddl"]
_CHUNKS = "$chunks"
_CONTRACT = "1"  # the version of the record contract; what a record of another one means is unknown

_OPTIONS: CodecOptions[SON[str, Any]] = CodecOptions(
    document_class=SON,
    tz_aware=True,
    datetime_conversion=DatetimeConversion.DATETIME_AUTO,
    unicode_decode_error_handler="replace",  # MongoDB stores text that is not UTF-8
)
#: What decoding raises for bytes that are not BSON, and for BSON that is nested too deeply.
NOT_BSON = (bson.errors.BSONError, RecursionError, OverflowError, IndexError)
_DEEPEST = 250  # levels of nesting: the maximum of mongod's `maxBSONDepth`
_LEVEL = 8  # the least bytes of a level
_PARTS = ("v", "op", "t", "at")
_SPLICE = "$splice"
_CHUNK_KEY = b"\x10chunk\0"  # behind the length: an int32
_ID_BYTES = 16
_LONGEST_MS = 2**63  # the limit of a 64-bit clock


@dataclass(frozen=True, slots=True)
class Record:
    """One record. `time_ms` is the broker's, `at_ms` the source's wall clock, both since the epoch;
    `cluster_time` is `seconds:ordinal`."""

    topic: str
    partition: int
    offset: int
    time_ms: int
    at_ms: int
    cluster_time: str
    op: str
    kind: Kind
    key: bytes
    value: bytes | None

    def as_json(self, *, canonical: bool) -> dict[str, Any]:
        """Key and value as MongoDB Extended JSON; `canonical` keeps every number's type."""
        key, value = (readable(raw, canonical=canonical) for raw in (self.key, self.value))
        return asdict(self) | {"key": key, "value": value}


@dataclass(frozen=True, slots=True)
class Chunks:
    """A value that is in `count` records before the one of its document, as it is larger than a record may be."""

    id: bytes
    """16 random bytes: no two values have the same."""
    count: int
    size: int
    """Of the value, in bytes."""
    is_document: bool
    """Else it is an update."""

    @classmethod
    def named_in(cls, value: object) -> Chunks | None:
        """The chunks that a record's value names; None for any other value."""
        if not isinstance(value, bytes) or value[4:13] != b"\x03$chunks\0":
            return None
        try:
            fields = bson.decode(value, _OPTIONS)[_CHUNKS]
            found = cls(fields["of"], fields["count"], fields["size"], fields["document"])
        except (KeyError, TypeError, *NOT_BSON):
            return None
        types = [type(each) for each in (found.id, found.count, found.size, found.is_document)]
        is_valid = types == [bytes, int, int, bool] and len(found.id) == _ID_BYTES and 1 <= found.count <= found.size
        return found if is_valid else None

    @staticmethod
    def id_in(chunk_key: bytes) -> bytes:
        """The id of the value that a chunk belongs to, from its key `{chunk: number, of: id, _id: …}`.

        Empty if Towpath did not write it.
        """
        try:
            found = bson.decode(chunk_key, _OPTIONS).get("of")
        except NOT_BSON:
            return b""
        return found if isinstance(found, bytes) and len(found) == _ID_BYTES else b""


def is_chunk(key: object) -> TypeGuard[bytes]:
    """Whether these bytes are the key of a chunk, which is no change itself."""
    return isinstance(key, bytes) and key[4:11] == _CHUNK_KEY


def is_key(raw: object) -> TypeGuard[bytes]:
    """Whether these bytes are `{_id: …}`; Towpath did not write a record with any other key."""
    try:
        if not isinstance(raw, bytes) or raw[5:9] != b"_id\0":
            return False
        key = bson.decode(raw, _OPTIONS)
    except NOT_BSON:
        return False
    return list(key) == ["_id"] and (len(raw) < _DEEPEST * _LEVEL or not _is_too_deep(key))


def is_schema_change(key: object) -> TypeGuard[bytes]:
    """Whether these bytes are `{ddl: <id>}`, the key of a schema change, which is about no document."""
    return isinstance(key, bytes) and key[4:9] == b"\x02ddl\0"


def ends_documents(key: object, value: object) -> bool:
    """Whether a record is a schema change with which all documents before it in its topic are gone."""
    if not is_schema_change(key) or not isinstance(value, bytes):
        return False
    try:
        return bson.decode(value, _OPTIONS).get("ddl") in ("drop", "rename", "replace")
    except NOT_BSON:
        return False


def is_update(value: bytes | None) -> bool:
    """Whether a record's value is neither a delete nor a document. A document has an `_id`, usually first.

    A value that is not BSON counts as an update: in a compacted log it too replaces the document.
    """
    if value is None or value[5:9] == b"_id\0":
        return False
    if chunks := Chunks.named_in(value):
        return not chunks.is_document
    try:
        return "_id" not in RawBSONDocument(value)
    except NOT_BSON:
        return True


def _is_too_deep(value: Any) -> bool:
    """Whether it is nested deeper than any server stores: code that orders or prints an `_id` is recursive."""
    level = [value]
    for _ in range(_DEEPEST):
        containers = (value for value in level if isinstance(value, dict | list))
        level = [item for value in containers for item in (value.values() if isinstance(value, dict) else value)]
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
    return _json(bson.decode(raw, _OPTIONS), canonical=canonical)


def _json(value: Any, *, canonical: bool) -> str:
    options: JSONOptions = CANONICAL_JSON_OPTIONS if canonical else RELAXED_JSON_OPTIONS
    return dumps(value, json_options=options, ensure_ascii=False)


def in_short(raw: bytes, *, canonical: bool) -> str | None:
    """An update with splices for people, such as `readings: -1 at 0, +1 at 1000 [{"n": 1}]; {"$set": {"m": 2}}`.

    A value in chunks is only named: `16,777,216 bytes in 17 chunks`. None for any other value, and where the splices
    break the contract.
    """
    if chunks := Chunks.named_in(raw):
        return f"{chunks.size:,} bytes in {chunks.count:,} chunks"
    try:
        parts = bson.decode(raw, _OPTIONS)
        splices = parts.pop(_SPLICE).items()
        texts = [f"{path}: {', '.join(_edits(splice[1:], canonical=canonical))}" for path, splice in splices]
        return "; ".join([*texts, _json(parts, canonical=canonical)] if parts else texts)
    except (KeyError, TypeError, ValueError, AttributeError, *NOT_BSON):
        return None


def schema_change_in_short(raw: bytes, *, canonical: bool) -> str | None:
    """A schema change for people, such as `rename a.b to a.c {"indexes": […]}`; None if it breaks the contract."""
    try:
        parts = bson.decode(raw, _OPTIONS)
        change = f"{parts.pop('ddl')} {parts.pop('ns')}"
        to, _ = parts.pop("to", ""), parts.pop("topics", None)
        rest = _json(parts, canonical=canonical) if parts else ""
        return " ".join(filter(None, (change, f"to {to}" if to else "", rest)))
    except (KeyError, TypeError, ValueError, *NOT_BSON):
        return None


def _edits(edits: Iterable[Any], *, canonical: bool) -> Iterator[str]:
    for at, deleted, inserted in edits:
        removal = f"-{deleted} " if deleted else ""
        addition = f"+{len(inserted)} at {at} {_json(inserted, canonical=canonical)}" if inserted else f"at {at}"
        yield removal + addition


def record(message: Message) -> Record:
    """The record in a Kafka message. Raises `TowpathError` for one that breaks the record contract."""
    place = f"{message.topic()}, partition {message.partition()}, offset {message.offset()}"
    key, value = message.key(), message.value()
    headers = contract_headers(message)
    if headers["v"] != _CONTRACT:
        raise TowpathError(
            f"{place}: not a record that this version of Towpath can read (header v is {headers['v'][:20]!r}, and it"
            f" knows version {_CONTRACT} of the record contract)"
        )
    if not (is_schema_change(key) or is_key(key)):
        raise TowpathError(f"{place}: not a record of Towpath's (its key is not {{_id: …}})")
    if missing := [name for name, text in headers.items() if not text]:
        raise TowpathError(f"{place}: a record that breaks the contract: its header has no {missing[0]}")
    raw = value if isinstance(value, bytes) else None
    try:
        return Record(
            topic=str(message.topic()),
            partition=message.partition() or 0,
            offset=message.offset() or 0,
            time_ms=message.timestamp()[1],
            kind="ddl" if is_schema_change(key) else _kind(raw),
            op=headers["op"],
            cluster_time=headers["t"],
            at_ms=_milliseconds(headers["at"]),
            key=key,
            value=raw,
        )
    except (ValueError, *NOT_BSON) as error:
        raise TowpathError(f"{place}: a record that breaks the contract: {error!r}") from error


def _kind(value: bytes | None) -> Kind:
    """A document always has an `_id`, and an update never does."""
    if value is None:
        return "delete"
    if chunks := Chunks.named_in(value):
        return "document" if chunks.is_document else "update"
    return "document" if "_id" in bson.decode(value, _OPTIONS) else "update"


def contract_headers(message: Message) -> dict[str, str]:
    """The parts of the header `v`: version `v`, operation `op`, cluster time `t`, the source's wall clock `at`.

    Empty texts for what is not there. An update may have a fifth part, `row-follows`, for those who apply it.
    """
    header = dict(headers_of(message)).get("v")
    parts = header.decode(errors="replace").split(" ") if isinstance(header, bytes) else []
    return dict.fromkeys(_PARTS, "") | dict(zip(_PARTS, parts, strict=False))


def headers_of(message: Message) -> list[tuple[str, Any]]:
    return list(message.headers() or [])  # type: ignore[arg-type]  # librdkafka always hands out pairs


def source_milliseconds(message: Message) -> int | None:
    """The source's wall clock in a message's header, ms since the epoch; None without one."""
    try:
        return _milliseconds(contract_headers(message)["at"])
    except ValueError:
        return None  # not written by Towpath


def _milliseconds(text: str) -> int:
    """Raises `ValueError` for anything but a number of milliseconds."""
    time_ms = int(text) if len(text) <= 20 else _LONGEST_MS
    if not -_LONGEST_MS < time_ms < _LONGEST_MS:
        raise ValueError(f"{text[:20]!r} is not a time in milliseconds")
    return time_ms
