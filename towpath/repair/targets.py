"""Which documents are to be repaired: those of a verdict, of a file, or of the dead letters."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

import bson
from bson.json_util import CANONICAL_JSON_OPTIONS, JSONOptions, loads
from bson.son import SON

from towpath.errors import TowpathError
from towpath.kafka.topics import Topics
from towpath.log.dead_letters import letters
from towpath.log.records import NOT_BSON, is_key
from towpath.namespaces import namespace_of
from towpath.pipeline import Pipeline
from towpath.verification import verdict_file
from verifier import Namespace
from verifier.raw import ARRAY, DOCUMENT, Element, Key, elements, id_key

_READ: JSONOptions = CANONICAL_JSON_OPTIONS.with_options(document_class=SON)
_TEXT = (0x02, 0x0D, 0x0E)  # string, code, symbol
_BINARY, _REGEX, _CODE_WITH_SCOPE = 0x05, 0x0B, 0x0F
_OLD = 0x02  # subtype of a binary
_INT32 = struct.Struct("<i")


@dataclass(frozen=True, slots=True)
class Wanted:
    """A document to be read again: the source's name of its namespace, and BSON `{_id: …}`."""

    namespace: Namespace
    id: bytes


def of_verdicts(places: Iterable[Path]) -> Iterator[Wanted]:
    """What these verdicts name, each document once. Raises `TowpathError` when one is not there, or not whole."""
    seen: set[tuple[Namespace, Key]] = set()
    for place in places:
        for named in verdict_file.read(place):
            if (mark := (named.namespace, id_key(named.key))) not in seen:
                seen.add(mark)
                yield Wanted(named.namespace, named.key)


def of_file(pipeline: Pipeline, name: str, file: TextIO) -> Iterator[Wanted]:
    """Lines of Extended JSON, each an `_id`, or an object that has one. `name` may be the destination's."""
    namespace = source_name(pipeline, name)
    for number, line in enumerate(file, 1):
        if line.strip():
            try:
                yield Wanted(namespace, _id(line))
            except (ValueError, TypeError, *NOT_BSON) as error:
                raise TowpathError(
                    f"{file.name}, line {number}: {line.strip()[:80]!r} is no Extended JSON of an _id ({error});"
                    ' write {"$oid": "…"} for an ObjectId, "…" for a string'
                ) from error


def _id(line: str) -> bytes:
    found = loads(line, json_options=_READ)
    whole = isinstance(found, SON) and "_id" in found
    return bson.encode(SON([("_id", found["_id"] if whole else found)]))


def source_name(pipeline: Pipeline, name: Namespace) -> Namespace:
    """The source's name of a namespace that may be given by its name at the destination.

    A pattern can match that as well; documents that are asked for by the wrong name would not be found at the source,
    and be deleted. So a renamed namespace's own names go first.
    """
    if name in pipeline.renames.by_source:
        return name
    return next((old for old, new in pipeline.renames.by_source.items() if new == name), name)


def of_dead_letters(pipeline: Pipeline, topics: Topics) -> Iterator[Wanted]:
    """What the destination refused, each document once."""
    seen: set[tuple[str, Key]] = set()
    for letter in letters(pipeline, topics, follow=False):
        wanted = refused(pipeline, letter.place[0], letter.key)
        if wanted is not None and (mark := (wanted.namespace, id_key(wanted.id))) not in seen:
            seen.add(mark)
            yield wanted


def refused(pipeline: Pipeline, topic: str, key: bytes | None) -> Wanted | None:
    """The document that a record with this key is about; None where the key is not one of ours."""
    return Wanted(namespace_of(pipeline.name, topic), key) if is_key(key) else None


def unreadable(id: bytes) -> str:
    """Why no driver can ask for a document by this BSON `{_id: …}`; empty when one can.

    What is not asked for exactly is not found, and would be taken for deleted.
    """
    why = next(_odd(list(elements(id))), "")
    return f"its _id holds {why}" if why else ""


def _odd(fields: list[Element]) -> Iterator[str]:
    """What a driver would mend on the way, in these fields and inside them."""
    if len({field.name for field in fields}) < len(fields):
        yield "a name twice"
    for kind, name, value in fields:
        if not _is_text(name) or not _is_text(_text(kind, value)):
            yield "text that is not UTF-8"
        elif kind == _REGEX and list(value.split(b"\0")[1]) != sorted(value.split(b"\0")[1]):
            yield "a regular expression with options out of order"
        elif kind == _BINARY and value[4] == _OLD and value[5:9] != _INT32.pack(len(value) - 9):
            yield "an old binary with a wrong length in it"
        elif kind == ARRAY and [one.name for one in elements(value)] != _places(value):
            yield "an array with odd names"
        elif kind in (DOCUMENT, ARRAY):
            yield from _odd(list(elements(value)))
        elif kind == _CODE_WITH_SCOPE:
            yield from _odd(list(elements(value[8 + _INT32.unpack_from(value, 4)[0] :])))


def _places(array: bytes) -> list[bytes]:
    return [str(place).encode() for place, _ in enumerate(elements(array))]


def _text(kind: int, value: bytes) -> bytes:
    if kind == _CODE_WITH_SCOPE:
        return value[8 : 8 + _INT32.unpack_from(value, 4)[0] - 1]
    return value[4:-1] if kind in _TEXT else value if kind == _REGEX else b""


def _is_text(raw: bytes) -> bool:
    try:
        raw.decode()
    except UnicodeDecodeError:
        return False
    return True
