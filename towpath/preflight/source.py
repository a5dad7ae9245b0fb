"""The source: who it is, what the user may do, how far its oplog reaches, what its collections hold."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from typing import Any

from pymongo import MongoClient

from towpath.deploy.inventory import refuse_collection, refuse_missing
from towpath.errors import Refused, TowpathError
from towpath.finding import Finding, error, ok, refusal, warning
from towpath.mongo.client import Collection, collections, connected, source_set
from towpath.mongo.privileges import COPY_ACTIONS, SOURCE_ACTIONS, privileges
from towpath.namespaces import refuse_bad_names, topic_of
from towpath.pipeline import Pipeline
from towpath.preflight import oplog
from towpath.preflight.cluster import Known, Seen, compatibility, if_allowed, seen, topology
from towpath.preflight.sample import sample
from towpath.text import counted

SIDE = "source"
_SHOWN = 10  # more than so many collections are told as a number


def check(pipeline: Pipeline, known: Known, *, deployed: bool) -> Iterator[Finding]:
    """All findings about the source; `known` is filled on the way. `deployed` when it may be copied already."""
    try:
        with connected(pipeline.source_uri, SIDE) as client:
            known.source = seen(client, source_set(client))
            yield from rules(client, pipeline, known.source)
            lacking = list(privileged(client, pipeline))
            yield from lacking
            window = oplog.read(client)
            yield from oplog.judge(window)
            if not any(finding.level == "error" for finding in lacking):
                extent = yield from _collections(client, pipeline, known)
                if not deployed:
                    yield from oplog.judge_copy(window, *extent, pipeline.copy)
    except TowpathError as failure:
        yield refusal(SIDE, failure)


def rules(client: MongoClient[dict[str, Any]], pipeline: Pipeline, found: Seen) -> Iterator[Finding]:
    """What has to hold of the servers."""
    yield from topology(found, SIDE, pipeline.source_uri)
    yield from compatibility(client, SIDE, found)


def limits(client: MongoClient[dict[str, Any]], pipeline: Pipeline, namespaces: Iterable[str]) -> Iterator[Finding]:
    """Whether the oplog reaches back over a copy at the limits of [capture]; nothing is asked where there are none."""
    if pipeline.copy.documents_per_second or pipeline.copy.bytes_per_second:
        extents = [_extent(client, name) for name in namespaces]
        documents, size = (sum(part) for part in zip(*extents, strict=True)) if extents else (0, 0)
        yield from oplog.judge_copy(oplog.read(client), documents, size, pipeline.copy)


def privileged(client: MongoClient[dict[str, Any]], pipeline: Pipeline) -> Iterator[Finding]:
    actions = SOURCE_ACTIONS + (COPY_ACTIONS if pipeline.copy.way == "towpath" else ())
    mine = privileges(client)
    if mine is None:
        yield ok(SIDE, "no user is logged in, so the server must be without access control")
        return
    missing = mine.missing_everywhere(actions)
    if missing:
        yield error(
            SIDE,
            f"the user {mine.user} may not {', '.join(missing)} in every database, and Debezium watches all of them"
            " in one change stream",
            f'db.getSiblingDB("{mine.user.partition("@")[2]}").grantRolesToUser("{mine.user.partition("@")[0]}",'
            ' [{role: "readAnyDatabase", db: "admin"}])',
        )
    else:
        yield ok(SIDE, f"the user {mine.user} may {', '.join(actions)} in every database")


def _collections(
    client: MongoClient[dict[str, Any]], pipeline: Pipeline, known: Known
) -> Generator[Finding, None, tuple[int, int]]:
    """Findings about each; returns how many documents and bytes there are."""
    matched = [c for c in collections(client) if pipeline.selection.matches(c.namespace)]
    known.namespaces = sorted(c.namespace for c in matched if c.kind != "view")
    for pattern in pipeline.include:
        try:
            refuse_missing(pattern, known.namespaces)
        except Refused as refused:
            yield refusal(SIDE, refused)
    documents = size = 0
    for collection in sorted(matched, key=lambda c: c.namespace):
        yield from _kind(collection, pipeline)
        if collection.kind != "collection":
            continue
        count, weight = _extent(client, collection.namespace)
        documents, size = documents + count, size + weight
        yield from sample(client, collection.namespace, count, pipeline)
    yield from _names(pipeline, known.namespaces)
    shown = ", ".join(known.namespaces) if len(known.namespaces) <= _SHOWN else ""
    total = f"{counted(documents, 'document')}, {size / 2**20:,.1f} MiB"
    yield ok(SIDE, f"collections that match: {shown or len(known.namespaces)}; {total}")
    return documents, size


def _kind(collection: Collection, pipeline: Pipeline) -> Iterator[Finding]:
    """What speaks against a collection by what it is."""
    subject = f"{SIDE} {collection.namespace}"
    if collection.kind == "view":
        yield ok(subject, "is a view, and is not replicated: only collections have a change stream")
    try:
        refuse_collection(collection, pipeline)
    except Refused as refused:
        yield refusal(subject, refused)
        return
    if collection.options.get("capped"):
        yield warning(
            subject,
            "is capped: what falls out of it causes no change event, and stays at the destination for ever",
            "make the collection at the destination capped as well, or leave it out with [collections] exclude",
        )


def _names(pipeline: Pipeline, namespaces: Iterable[str]) -> Iterator[Finding]:
    """Names that cannot be topics, or that Kafka would not tell from an earlier one."""
    earlier: list[str] = []
    for namespace in namespaces:
        try:
            refuse_bad_names(pipeline.name, [namespace], earlier)
        except Refused as refused:
            yield refusal(f"{SIDE} {namespace}", refused)
        earlier.append(topic_of(pipeline.name, namespace))


def _extent(client: MongoClient[dict[str, Any]], namespace: str) -> tuple[int, int]:
    """Documents and bytes of a collection; the bytes are 0 where the user may not see them."""
    database, name = namespace.split(".", 1)
    collection = client[database][name]
    stats = if_allowed(lambda: list(collection.aggregate([{"$collStats": {"storageStats": {}}}])))
    if stats:
        return int(stats[0]["storageStats"]["count"]), int(stats[0]["storageStats"]["size"])
    return int(collection.estimated_document_count()), 0
