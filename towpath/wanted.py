"""Which documents are to be repaired: those of a verdict, of a file, or of the dead letters."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TextIO

import bson
from bson.json_util import CANONICAL_JSON_OPTIONS, JSONOptions, loads
from bson.son import SON

from connectors.dead_letters import letters
from connectors.namespaces import namespace_of
from connectors.spec import Pipeline
from connectors.topics import Topics
from towpath import verdicts
from towpath.errors import TowpathError
from verifier import Namespace
from verifier.order import Key, id_key
from verifier.raw import ARRAY, DOCUMENT, elements

_READ: JSONOptions = CANONICAL_JSON_OPTIONS.with_options(document_class=SON)
_TEXT = (0x02, 0x0D, 0x0E)  # string, code, symbol
_REGEX = 0x0B


@dataclass(frozen=True, slots=True)
class Wanted:
    """A document to be read again: the source's name of its namespace, and BSON `{_id: …}`."""

    namespace: Namespace
    id: bytes


def of_verdict(pipeline: Pipeline) -> Iterator[Wanted]:
    """What the last verdict names. Raises `TowpathError` when there is none."""
    for named in verdicts.read(verdicts.path(pipeline.name)):
        yield Wanted(named.namespace, named.id)


def of_file(pipeline: Pipeline, name: str, file: TextIO) -> Iterator[Wanted]:
    """Lines of Extended JSON, each an `_id`, or an object that has one. `name` may be the destination's."""
    namespace = source_name(pipeline, name)
    for number, line in enumerate(file, 1):
        if line.strip():
            try:
                yield Wanted(namespace, _id(line))
            except (ValueError, TypeError, bson.errors.BSONError) as error:
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
    try:
        id_key(key or b"")
    except (ValueError, IndexError, KeyError, struct.error):
        return None
    return Wanted(namespace_of(pipeline.name, topic), key or b"")


def unreadable(id: bytes) -> str:
    """Why no driver can ask for a document by this `_id`; empty when one can.

    What is not asked for exactly is not found, and would be taken for deleted.
    """
    names: set[bytes] = set()
    for kind, name, value in elements(id):
        if name in names:
            return f"its _id holds the name {json.dumps(name.decode(errors='replace'))} twice"
        names.add(name)
        if not _is_text(name) or (kind in _TEXT and not _is_text(value[4:-1])):
            return "its _id holds text that is not UTF-8"
        if kind == _REGEX and list(value.split(b"\0")[1]) != sorted(value.split(b"\0")[1]):
            return "its _id holds a regular expression with options out of order"
        if kind in (DOCUMENT, ARRAY) and (why := unreadable(value)):
            return why
    return ""


def _is_text(raw: bytes) -> bool:
    try:
        raw.decode()
    except UnicodeDecodeError:
        return False
    return True
