"""The checks of the source: its servers, the user's privileges, the oplog window, and what the collections hold."""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

from bson.codec_options import CodecOptions
from bson.raw_bson import RawBSONDocument
from pymongo.errors import ExecutionTimeout

from towpath.checks import cluster, connect, log
from towpath.clients.mongo.client import Client
from towpath.clients.mongo.privileges import COPY_ACTIONS, DDL_SOURCE_ACTIONS, SOURCE_ACTIONS
from towpath.clients.mongo.versions import EXPANDED_EVENTS, short
from towpath.config.finding import Finding, Precondition, error, ok, warning
from towpath.config.pipeline import Pipeline
from towpath.config.text import counted, first_few
from towpath.deploy import preconditions
from towpath.deploy.inventory import Inventory

SIDE = "source"
_SHOWN = 10  # with more collections, only their number is listed


def servers(inventory: Inventory) -> Iterator[Finding]:
    yield from cluster.servers(inventory.source)


def _actions(inventory: Inventory) -> tuple[str, ...]:
    """The actions that capture needs."""
    pipeline = inventory.pipeline
    of_copy = COPY_ACTIONS if pipeline.copy_method == "towpath" else ()
    return SOURCE_ACTIONS + of_copy + (DDL_SOURCE_ACTIONS if pipeline.ddl.apply else ())


def _missing(inventory: Inventory) -> list[str]:
    """The `_actions` that are not granted to the user on all databases."""
    granted = inventory.source.privileges
    return granted.missing(_actions(inventory), "") if granted else []


def privileged(inventory: Inventory) -> Iterator[Finding]:
    """The user has the required privileges."""
    granted, missing = inventory.source.privileges, _missing(inventory)
    if granted is None:
        yield ok(SIDE, "no user is authenticated, so the server must be without access control")
    elif missing:
        yield error(
            SIDE,
            f"the user {granted.user} may not {', '.join(missing)} in every database, but Debezium watches all"
            " databases with one change stream",
            granted.grant([("readAnyDatabase", "admin")]),
        )
    else:
        yield ok(SIDE, f"the user {granted.user} may {', '.join(_actions(inventory))} in every database")


def namespaces(inventory: Inventory) -> tuple[str, ...]:
    """The replicated namespaces; empty if the source is unreachable or its user may not list them."""
    return () if SIDE in inventory.unreachable or _missing(inventory) else inventory.namespaces


def oplog(inventory: Inventory) -> Iterator[Finding]:
    yield from log.check_window(inventory.source.ask(log.read))


def copy_time(inventory: Inventory) -> Iterator[Finding]:
    """The oplog window is longer than the initial copy takes."""
    if not _missing(inventory) and (connect.SUBJECT in inventory.unreachable or not inventory.is_deployed):
        documents, size = _total(inventory)
        yield from log.check_copy(inventory.source.ask(log.read), documents, size, inventory.pipeline)


def _total(inventory: Inventory) -> tuple[int, int]:
    """(documents, bytes) of all collections; 0 bytes where the user may not read `$collStats`."""
    extents = inventory.extents.values()
    return sum(extent.documents for extent in extents), sum(extent.bytes or 0 for extent in extents)


def collections(inventory: Inventory) -> Iterator[Finding]:
    """The collections that match are supported, and samples of them show no traps."""
    if _missing(inventory):
        return
    for check in (preconditions.included, preconditions.filterable, preconditions.kinds):
        yield from check(inventory)
    if "kafka" not in inventory.unreachable:
        yield from preconditions.names(inventory)  # which topics exist
    for collection in inventory.collections:
        subject = f"{SIDE} {collection.namespace}"
        if collection.kind == "view":
            yield ok(subject, "is a view and is not replicated: only collections have a change stream")
        elif collection.options.get("capped") and not any(preconditions.kind(collection, inventory.pipeline)):
            yield warning(
                subject,
                "is capped: documents that it drops cause no change event and stay at the destination forever",
                "make the collection at the destination capped too, or leave it out with [collections] exclude",
            )
        if collection.kind == "collection":
            count = inventory.extents[collection.namespace].documents
            yield from inventory.source.ask(partial(_sample, collection.namespace, count, inventory.pipeline))
    documents, size = _total(inventory)
    listed = ", ".join(inventory.namespaces) if len(inventory.namespaces) <= _SHOWN else ""
    total = f"{counted(documents, 'document')}, {size / 2**20:,.1f} MiB"
    yield ok(SIDE, f"matching collections: {listed or len(inventory.namespaces)}; {total}")


def schema_changes(inventory: Inventory) -> Iterator[Finding]:
    """The source reports schema changes, at least if [ddl] needs them."""
    if (level := inventory.source.level) >= EXPANDED_EVENTS:
        return
    found = f"MongoDB {short(level)} does not report schema changes"
    upgrade = f"upgrade the source to MongoDB {short(EXPANDED_EVENTS)} (and its featureCompatibilityVersion)"
    if inventory.pipeline.ddl.apply:
        yield error(SIDE, f"{found}, which [ddl] needs", f"{upgrade}, or remove [ddl]")
    else:
        yield warning(
            SIDE,
            f"{found}: `status` will not show drops, renames, indexes and options that change at the source",
            f"{upgrade}; until then, `towpath prepare` and `towpath verify` find them when they run",
        )


PRECONDITIONS = (
    Precondition(servers),
    Precondition(schema_changes),
    Precondition(privileged),
    Precondition(oplog, required=False),
    Precondition(collections, required=False),
    Precondition(copy_time),
)


_DOCUMENTS = 300
_SECONDS = 3.0
_BYTES = 32 * 1024 * 1024
#: The change event of a larger document, which wraps it, may exceed the server's limit of 16 MiB.
LARGE = int(15.9 * 1024 * 1024)
_NAMED = 3
_RAW: CodecOptions[RawBSONDocument] = CodecOptions(document_class=RawBSONDocument)


def documents(client: Client, namespace: str, count: int) -> Iterator[RawBSONDocument]:
    """A sample of some hundred documents, limited in bytes and time too.

    `$sample` picks from a large collection without reading all of it. A small one it would sort, so that is scanned.
    """
    database, name = namespace.split(".", 1)
    collection: Any = client[database].get_collection(name, codec_options=_RAW)
    stage: dict[str, Any] = {"$match": {"$sampleRate": min(1.0, _DOCUMENTS / max(count, 1))}}
    if count > 20 * _DOCUMENTS:  # the server's random cursor works below 5 % of the collection
        stage = {"$sample": {"size": _DOCUMENTS}}
    end, size = time.monotonic() + _SECONDS, 0
    try:
        for document in collection.aggregate([stage], batchSize=50, maxTimeMS=int(_SECONDS * 1000)):
            yield document
            size += len(document.raw)
            if size > _BYTES or time.monotonic() > end:
                return
    except ExecutionTimeout:
        return


def _sample(namespace: str, count: int, pipeline: Pipeline, client: Client) -> list[Finding]:
    """What a sample of a collection with `count` documents shows."""
    subject, sampled, largest = f"source {namespace}", 0, 0
    odd: dict[str, None] = {}
    findings = []
    for document in documents(client, namespace, count):
        sampled += 1
        largest = max(largest, len(document.raw))
        odd.update(dict.fromkeys(map(_readable, odd_names(bytes(document.raw)))))
    if odd:
        findings.append(_odd_finding(subject, namespace, list(odd), pipeline))
    if largest > LARGE:
        what = (
            f"holds a document of {largest / 2**20:.2f} MiB: a change event, which wraps the document, must fit into"
            " 16 MiB; an update of such a document may stop capture (BSONObjectTooLarge)"
        )
        advice = "make such documents smaller, or leave the collection out with [collections] exclude"
        findings.append(warning(subject, what, advice))
    size = f", the largest {largest:,} bytes" if largest else ""
    return [*findings, ok(subject, f"sampled {sampled:,} of {counted(count, 'document')}{size}")]


def _odd_finding(subject: str, namespace: str, odd: list[str], pipeline: Pipeline) -> Finding:
    fields = f"has fields whose names contain a dot, begin with $ or are empty: {first_few(odd, _NAMED)}"
    if pipeline.captured_whole and pipeline.captured_whole.matches(namespace):
        return ok(subject, f"{fields}; [capture] whole_documents looks up its whole documents")
    return warning(
        subject,
        f"{fields}; in an update, a change stream does not distinguish the field a.b from b inside a",
        f'if updates touch them, add "{namespace}" to [capture] whole_documents before the first deploy',
    )


def _readable(path: tuple[str, ...]) -> str:
    return " → ".join(repr(name) if name != "[]" else name for name in path)


_DOCUMENT, _ARRAY = 0x03, 0x04
#: BSON types whose values have a fixed length → that length in bytes.
_FIXED = {0x01: 8, 0x06: 0, 0x07: 12, 0x08: 1, 0x09: 8, 0x0A: 0, 0x10: 4, 0x11: 8, 0x12: 8, 0x13: 16, 0x7F: 0, 0xFF: 0}
#: BSON types whose values begin with a length → bytes that this length does not count.
_COUNTED = {0x02: 4, 0x0D: 4, 0x0E: 4, 0x05: 5, 0x0C: 16, 0x0F: 0, _DOCUMENT: 0, _ARRAY: 0}
_REGULAR_EXPRESSION = 0x0B

Path = tuple[str, ...]


def odd_names(raw: bytes) -> Iterator[Path]:
    """Paths of the fields, at any depth, whose names contain a dot, begin with `$` or are empty.

    `[]` in a path stands for an array element.
    """
    yield from _odd(raw, 0, (), in_array=False)


def _odd(raw: bytes, start: int, above: Path, *, in_array: bool) -> Iterator[Path]:
    place = start + 4
    while (kind := raw[place]) != 0:
        end = raw.index(0, place + 1)
        path = (*above, "[]" if in_array else raw[place + 1 : end].decode(errors="replace"))
        if not in_array and _is_odd(path[-1]):
            yield path
        if kind in (_DOCUMENT, _ARRAY):
            yield from _odd(raw, end + 1, path, in_array=kind == _ARRAY)
        place = _after(raw, kind, end + 1)


def _is_odd(name: str) -> bool:
    return not name or "." in name or name.startswith("$")


def _after(raw: bytes, kind: int, place: int) -> int:
    """The offset after the value that begins at `place` and is of the BSON type `kind`."""
    if kind in _FIXED:
        return place + _FIXED[kind]
    if kind == _REGULAR_EXPRESSION:
        return raw.index(0, raw.index(0, place) + 1) + 1
    length: int = struct.unpack_from("<i", raw, place)[0]
    return place + length + _COUNTED[kind]
