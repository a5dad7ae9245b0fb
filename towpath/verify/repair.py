"""Repair: the source connector re-reads documents, they pass through the log in order, and are compared afterwards.

Only the pipeline itself writes to the destination. The documents are those of a verdict, of a file, or of the dead
letters.
"""

from __future__ import annotations

import re
import struct
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from json import JSONDecodeError
from pathlib import Path
from typing import TextIO

import bson
from bson.json_util import CANONICAL_JSON_OPTIONS, JSONOptions, loads
from bson.son import SON

from towpath.clients.kafka.topics import Topics
from towpath.config.events import Reread
from towpath.config.namespaces import namespace_of
from towpath.config.pipeline import Pipeline
from towpath.config.text import counted
from towpath.errors import Refused, TowpathError
from towpath.log import barrier, dead_letters, reread_requests
from towpath.log.field_rules import pair_of
from towpath.log.records import NOT_BSON, is_key
from towpath.session import Session
from towpath.store import verdict_file
from towpath.verify.verdict import Origin, try_origin
from towpath_verifier import (
    ARRAY,
    DOCUMENT,
    Element,
    Key,
    Namespace,
    Passed,
    Recheck,
    Rereads,
    Same,
    Unresolved,
    elements,
    id_key,
)

_READ: JSONOptions = CANONICAL_JSON_OPTIONS.with_options(document_class=SON)
_TEXT = (0x02, 0x0D, 0x0E)  # string, code, symbol
_BINARY, _REGEX, _CODE_WITH_SCOPE = 0x05, 0x0B, 0x0F
_OLD = 0x02  # subtype of a binary
_INT32 = struct.Struct("<i")


@dataclass(frozen=True, slots=True)
class DocumentRef:
    """A document to re-read: its source namespace, and BSON `{_id: …}`."""

    namespace: Namespace
    id: bytes

    @property
    def key(self) -> tuple[Namespace, Key]:
        """Equal for the same document."""
        return self.namespace, id_key(self.id)

    @property
    def event(self) -> Reread:
        return Reread(namespace=self.namespace, id=verdict_file.shown_id(self.id), id_bson=self.id.hex())


def of_verdicts(places: Iterable[Path]) -> dict[DocumentRef, str]:
    """The documents in these verdicts, each once, with its kind: `extra` if one of them says so.

    Repair deletes the `extra` ones, unless they are at the source by now. Raises `TowpathError` when a file is missing
    or incomplete.
    """
    found: dict[tuple[Namespace, Key], tuple[DocumentRef, str]] = {}
    for one in (one for place in places for one in verdict_file.read(place)):
        document = DocumentRef(one.namespace, one.key)
        if one.kind == "extra" or document.key not in found:
            found[document.key] = document, one.kind
    return dict(found.values())


def of_these_clusters(session: Session, places: Iterable[Path]) -> dict[Path, str | None]:
    """The verdicts in these files, by their ids, but for what `verify --follow` has found at other clusters.

    Raises `Refused` where the last verdict is of other clusters, as of another pipeline with the same name here.
    """
    last = {place: verdict_file.counts(place) for place in places}
    origins = {
        place: Origin.from_json(counts.get("origin") or counts.get("follow", {}).get("origin"))
        for place, counts in last.items()
    }
    now, _ = try_origin(session) if any(origins.values()) else (None, "")
    ids = dict[Path, str | None]()
    for place, before in origins.items():
        reason = before.clusters_doubt(now) if before and now else ""
        if not reason:
            ids[place] = last[place].get("id")
        elif place == verdict_file.path(session.pipeline.name):
            raise Refused(
                f"the last verdict on this machine is not of this pipeline: {reason}", "run `towpath verify` first"
            )
        else:
            session.say(f"what `verify --follow` has found on this machine is not of this pipeline: {reason}")
    return ids


def by_kind(found: Mapping[DocumentRef, str]) -> dict[Namespace, Counter[str]]:
    """How many documents of each source namespace `of_verdicts` has found, by kind."""
    counts: dict[Namespace, Counter[str]] = {}
    for document, kind in found.items():
        counts.setdefault(document.namespace, Counter())[kind] += 1
    return dict(sorted(counts.items()))


def of_dead_letters(pipeline: Pipeline, topics: Topics) -> Iterator[DocumentRef]:
    """The documents that the destination refused, each once."""
    refused = dead_letters.letters(pipeline, topics, follow=False)
    documents = (document_of(pipeline, letter.place[0], letter.key) for letter in refused)
    return _distinct(document for document in documents if document is not None)


def _distinct(documents: Iterable[DocumentRef]) -> Iterator[DocumentRef]:
    seen: set[tuple[Namespace, Key]] = set()
    for document in documents:
        if document.key not in seen:
            seen.add(document.key)
            yield document


def of_file(pipeline: Pipeline, name: str, file: TextIO) -> Iterator[DocumentRef]:
    """Lines of Extended JSON, each an `_id` or an object with one. `name` may be the namespace at the destination."""
    namespace = source_name(pipeline, name)
    for number, line in enumerate(file, 1):
        if line.strip():
            try:
                yield DocumentRef(namespace, _id(line))
            except (ValueError, TypeError, *NOT_BSON) as error:
                raise TowpathError(
                    f"{file.name}, line {number}: {line.strip()[:80]!r} is not the Extended JSON of an _id ({error});"
                    ' write {"$oid": "…"} for an ObjectId, "…" for a string'
                ) from error


def id_of(text: str) -> bytes:
    """`{_id: …}` of an `_id` as Extended JSON or, if it is no JSON, as a string.

    Raises `TowpathError`, also for what could be an ObjectId or a string.
    """
    if re.fullmatch("[0-9a-fA-F]{24}", text):
        raise TowpathError(
            f"{text} may be an ObjectId or a string", f"""write '{{"$oid": "{text}"}}' or '"{text}"', in quotes"""
        )
    try:
        return _id(text)
    except (ValueError, TypeError, *NOT_BSON) as error:
        if isinstance(error, JSONDecodeError) and not text.startswith(("{", "[", '"')):
            return bson.encode({"_id": text})
        raise TowpathError(f"{text[:80]!r} is not the Extended JSON of an _id ({error})") from error


def _id(line: str) -> bytes:
    value = loads(line, json_options=_READ)
    is_document = isinstance(value, SON) and "_id" in value
    return bson.encode(SON([("_id", value["_id"] if is_document else value)]))


def source_name(pipeline: Pipeline, name: Namespace) -> Namespace:
    """The source namespace for a name that may be the one at the destination.

    Renames go before patterns, which can also match the destination's name: documents requested under a wrong name
    would not be found at the source, and would be deleted.
    """
    if name in pipeline.collections.rename:
        return name
    return next((old for old, new in pipeline.collections.rename.items() if new == name), name)


def document_of(pipeline: Pipeline, topic: str, key: bytes | None) -> DocumentRef | None:
    """The document of a record with this key; None if the key is not one of Towpath's."""
    return DocumentRef(namespace_of(pipeline.name, topic), key) if is_key(key) else None


def extra_now(session: Session, documents: Iterable[DocumentRef]) -> Iterator[DocumentRef]:
    """Those of these documents that only the destination has now, whatever a verdict says: a repair deletes them.

    Documents that are not re-read are not looked up.
    """
    ids: dict[Namespace, list[bytes]] = {}
    for document in documents:
        if session.pipeline.selection.matches(document.namespace) and not unreadable(document.id):
            ids.setdefault(document.namespace, []).append(document.id)
    rereads = Rereads(session.source.client(), session.destination.client(), Recheck(), say=session.say)
    for namespace, chosen in ids.items():
        yield from (DocumentRef(namespace, id) for id in rereads.extra(pair_of(session.pipeline, namespace), chosen))


#: Limits of a batch, which is re-read, applied and compared before the next: memory stays bounded.
_DOCUMENTS, _BYTES = 20_000, 8 << 20


def repair(
    session: Session, documents: Iterable[DocumentRef], passed: Passed | None, timeout: float
) -> Iterator[Reread]:
    """Repair these documents in batches; yield the outcome of each.

    `timeout` is in seconds, for each batch to be re-read and applied. Raises `Refused` where no connector would answer
    the re-read requests, `NotYet` when a batch is not applied in time; requests that were sent are still applied.
    """
    session.require_deployed()
    clients = session.source.client(), session.destination.client()
    rereads = Rereads(*clients, Recheck(), passed, say=session.say)
    for batch in _batches(documents):
        count = counted(sum(map(len, batch.values())), "document")
        session.say(f"requesting {count} of {counted(len(batch), 'namespace')}")
        yield from _batch(session, batch, rereads, timeout)


def _batches(documents: Iterable[DocumentRef]) -> Iterator[dict[Namespace, list[bytes]]]:
    batch: dict[Namespace, dict[Key, bytes]] = {}
    count = size = 0
    for document in documents:
        batch.setdefault(document.namespace, {})[id_key(document.id)] = document.id
        count, size = count + 1, size + len(document.id)
        if count == _DOCUMENTS or size > _BYTES:
            yield {namespace: list(ids.values()) for namespace, ids in batch.items()}
            batch, count, size = {}, 0, 0
    if batch:
        yield {namespace: list(ids.values()) for namespace, ids in batch.items()}


def _batch(
    session: Session, batch: Mapping[Namespace, list[bytes]], rereads: Rereads, timeout: float
) -> Iterator[Reread]:
    pipeline, topics = session.pipeline, session.topics
    letters = dead_letters.end(pipeline, topics)
    requested: dict[Namespace, list[bytes]] = {}

    def event(document: DocumentRef, kind: str | None = None, reason: str | None = None) -> Reread:
        named = replace(document.event, destination_namespace=pipeline.renamed(document.namespace))
        return replace(named, result="left" if kind else "repaired", kind=kind, reason=reason)

    for namespace, id in ((namespace, id) for namespace, ids in batch.items() for id in ids):
        if reason := unreadable(id):
            yield event(DocumentRef(namespace, id), "unknown", f"{reason}, by which no driver can query it")
        else:
            requested.setdefault(namespace, []).append(id)
    for namespace in requested:
        reread_requests.refuse_unanswered(pipeline, topics, namespace)
    for namespace, ids in requested.items():
        reread_requests.write(pipeline, topics, namespace, ids)
    barrier.wait(session, timeout, session.say)
    refusals = cache(lambda: dict(_refusals(session, letters)))
    unequal = set[tuple[Namespace, Key]]()
    pairs = ((pair_of(pipeline, namespace), ids) for namespace, ids in requested.items())
    for outcome in rereads.outcomes(pairs):
        document = DocumentRef(outcome.namespace, outcome.id)
        if not isinstance(outcome, Same):
            unequal.add(document.key)
        if isinstance(outcome, Unresolved):
            yield event(document, "unknown", f"it could not be judged: {outcome.why}")
        elif not isinstance(outcome, Same):
            unknown = "it was re-read and applied; does something else write to the destination?"
            yield event(document, outcome.kind, refusals().get(document.key, unknown))
    repaired = (DocumentRef(namespace, id) for namespace, ids in requested.items() for id in ids)
    yield from (event(document) for document in repaired if document.key not in unequal)


def _refusals(session: Session, start: int) -> Iterator[tuple[tuple[Namespace, Key], str]]:
    """Why the destination refused documents: those of the dead letters since the offset `start`."""
    if session.pipeline.dead_letter_topic not in session.topics.all():
        return
    for letter in dead_letters.letters(session.pipeline, session.topics, follow=False, start=start):
        document = document_of(session.pipeline, letter.place[0], letter.key)
        if document is not None:
            code = f" ({letter.code})" if letter.code else ""
            yield document.key, f"the destination refuses it: {letter.reason}{code}"


def unreadable(id: bytes) -> str:
    """Why no driver can query a document by this BSON `{_id: …}`; empty if one can.

    A query that is not exact finds no document, which would then count as deleted.
    """
    oddity = next(_oddities(list(elements(id))), "")
    return f"its _id holds {oddity}" if oddity else ""


def _oddities(fields: list[Element]) -> Iterator[str]:
    """What a driver would change when it encodes these fields, at any depth."""
    if len({field.name for field in fields}) < len(fields):
        yield "a name twice"
    for kind, name, value in fields:
        if not _is_text(name) or not _is_text(_text(kind, value)):
            yield "text that is not UTF-8"
        elif kind == _REGEX and list(value.split(b"\0")[1]) != sorted(value.split(b"\0")[1]):
            yield "a regular expression with options out of order"
        elif kind == _BINARY and value[4] == _OLD and value[5:9] != _INT32.pack(len(value) - 9):
            yield "an old binary with a wrong length in it"
        elif kind == ARRAY and [element.name for element in elements(value)] != _indexes(value):
            yield "an array with odd names"
        elif kind in (DOCUMENT, ARRAY):
            yield from _oddities(list(elements(value)))
        elif kind == _CODE_WITH_SCOPE:
            yield from _oddities(list(elements(value[8 + _INT32.unpack_from(value, 4)[0] :])))


def _indexes(array: bytes) -> list[bytes]:
    return [str(index).encode() for index, _ in enumerate(elements(array))]


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
