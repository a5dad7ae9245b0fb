"""A collection at the destination that is there already."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pymongo import MongoClient

from towpath.finding import Finding, error, ok, warning
from towpath.mongo.client import Collection
from towpath.pipeline import Pipeline
from towpath.text import counted


def target(
    client: MongoClient[dict[str, Any]], collection: Collection, pipeline: Pipeline, *, deployed: bool
) -> Iterator[Finding]:
    """What speaks against writing to it. `deployed` when its documents may be the pipeline's own."""
    yield from rules(collection, pipeline)
    if collection.kind != "collection":
        return
    subject = f"destination {collection.namespace}"
    database, name = collection.namespace.split(".", 1)
    yield from _contents(subject, client[database][name].estimated_document_count(), deployed=deployed)
    yield from _options(collection, pipeline)
    for index in client[database][name].list_indexes():
        yield from _index(subject, dict(index), _refused(pipeline))


def rules(collection: Collection, pipeline: Pipeline) -> Iterator[Finding]:
    """What must not be there."""
    subject = f"destination {collection.namespace}"
    if collection.kind != "collection":
        yield error(
            subject,
            f"is a {collection.kind}, which cannot hold copies of documents",
            "drop it, or write elsewhere with [collections.rename]",
        )
    elif "collation" in collection.options and pipeline.partitions > 1:
        yield error(
            subject,
            "has a default collation, by which two _ids that differ in bytes can be equal: one overwrites the other",
            "create the collection without one, or use [kafka] partitions = 1 where the source has the same collation",
        )


def _refused(pipeline: Pipeline) -> str:
    return "what it refuses becomes a dead letter" if pipeline.exactly_once else "the sink stops at what it refuses"


def _contents(subject: str, count: int, *, deployed: bool) -> Iterator[Finding]:
    if not count:
        yield ok(subject, "is there and empty")
    elif deployed:
        yield ok(subject, f"holds about {counted(count, 'document')}; the pipeline is deployed")
    else:
        yield warning(
            subject,
            f"holds about {counted(count, 'document')} already: those whose _id is at the source are overwritten, the"
            " others stay, so that the two sides are not the same",
            "empty the collection before the first deploy, unless the documents are meant to be there",
        )


def _options(collection: Collection, pipeline: Pipeline) -> Iterator[Finding]:
    subject, options = f"destination {collection.namespace}", collection.options
    database, name = collection.namespace.split(".", 1)
    if "validator" in options and options.get("validationAction", "error") == "error":
        yield warning(
            subject,
            f"has a validator, which may refuse what the source accepted, and {_refused(pipeline)}",
            f'in {database}: db.runCommand({{collMod: "{name}", validationLevel: "off"}}) while the pipeline runs',
        )
    if options.get("capped"):
        yield warning(
            subject,
            "is capped: it drops documents on its own, and the sides differ from then on",
            "mean it, as for a capped collection at the source; else drop it and let the sink create it",
        )


def _index(subject: str, index: dict[str, Any], refused: str) -> Iterator[Finding]:
    name = index["name"]
    if index.get("unique"):
        yield warning(
            subject,
            f"has the unique index {name!r}: across documents there is no order, so that a value that moves from one"
            f" document to another is there twice for a moment, and {refused}",
            "create unique indexes after the move, when nothing is written any more",
        )
    if "expireAfterSeconds" in index:
        yield warning(
            subject,
            f"has the TTL index {name!r}: it deletes by the destination's clock, besides the source's deletes",
            "leave deleting to the source, whose deletes are replicated; create TTL indexes after the move",
        )
