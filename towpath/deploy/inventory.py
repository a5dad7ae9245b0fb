"""What both clusters hold of a pipeline, asked once before it is deployed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from pymongo import MongoClient

from towpath.errors import Refused
from towpath.mongo.client import Collection, ReplicaSet, collections, connected, destination_set, source_set
from towpath.namespaces import Selection, refuse_bad_names
from towpath.pipeline import Pipeline


@dataclass(frozen=True, slots=True)
class Servers:
    """Both replica sets, and the source's collections that belong to the pipeline."""

    source: ReplicaSet
    destination: ReplicaSet
    namespaces: tuple[str, ...]
    filled: frozenset[str]
    """Those of `namespaces` that hold documents."""


def look(pipeline: Pipeline, *, allow_missing: bool = False) -> Servers:
    """Ask both clusters. Raises `MongoUnreachable`, or `Refused` for what cannot be replicated.

    `allow_missing` accepts patterns that match no collection yet.
    """
    with connected(pipeline.source_uri, "source") as client:
        source = source_set(client)
        found = [c for c in collections(client) if pipeline.selection.matches(c.namespace)]
        names = tuple(sorted(c.namespace for c in found if c.kind != "view"))
        refuse_bad_names(pipeline.name, names)
        for collection in found:
            refuse_collection(collection, pipeline)
        for pattern in () if allow_missing else pipeline.include:
            refuse_missing(pattern, names)
        filled = frozenset(name for name in names if _holds_documents(client, name))
    with connected(pipeline.destination_uri, "destination") as client:
        destination = destination_set(client, transactions=pipeline.exactly_once)
    refuse_targets(pipeline, names, same_set=source.is_same(destination))
    return Servers(source, destination, names, filled)


def _holds_documents(client: MongoClient[dict[str, Any]], namespace: str) -> bool:
    database, collection = namespace.split(".", 1)
    return client[database][collection].find_one({}, {"_id": 1}) is not None


def refuse_collection(collection: Collection, pipeline: Pipeline) -> None:
    """Raise `Refused` for a kind of collection that cannot be replicated."""
    if collection.kind == "timeseries":
        raise Refused(
            f"{collection.namespace} is a time-series collection, which has no change stream",
            "leave it out with [collections] exclude",
        )
    if collection.options.get("capped") and pipeline.copy.way == "towpath":
        raise Refused(
            f"{collection.namespace} is a capped collection, which no server reads at a known time (readConcern"
            ' "snapshot"), so that it cannot be copied to the byte',
            "leave it out with [collections] exclude and give it"
            ' a pipeline of its own with mode = "plain", or with [capture] copy = "none"',
        )
    if "collation" in collection.options and pipeline.copy.way == "towpath":
        raise Refused(
            f"{collection.namespace} has a default collation, by which the server orders its _ids, so that it cannot be"
            " copied in ranges of them",
            "leave it out with [collections] exclude and give it a pipeline of its own with"
            ' mode = "plain" and [kafka] partitions = 1',
        )
    if "collation" in collection.options and pipeline.partitions > 1:
        raise Refused(
            f"{collection.namespace} has a default collation, by which two _ids that differ in bytes can be equal:"
            " with several partitions their order could be lost",
            "leave it out with [collections] exclude and give it a pipeline of its own with [kafka] partitions = 1",
        )


def refuse_missing(pattern: str, names: Iterable[str]) -> None:
    """Raise `Refused` for a pattern of [collections] include that takes in none of `names`."""
    if not any(Selection((pattern,)).matches(name) for name in names):
        raise Refused(
            f"[collections] include {pattern!r} matches no collection that the user in [source] uri can see, after"
            " exclude",
            "correct it, grant what `towpath check` finds missing, or pass --allow-missing if the collection"
            " will be created later",
        )


def refuse_targets(pipeline: Pipeline, names: Iterable[str], *, same_set: bool) -> None:
    """Raise `Refused` where two namespaces would be written to one, or what is written would be captured again."""
    sources: dict[str, str] = {}
    for name in names:
        target = pipeline.renames.destination(name)
        if target in sources:
            raise Refused(f"{sources[target]} and {name} would both be written to {target}", "see [collections.rename]")
        sources[target] = name
        if same_set and pipeline.selection.matches(target):
            raise Refused(
                f"source and destination are the same replica set, and {name} would be written to {target}, which the"
                " pipeline captures again, without end",
                "name another destination, or rename into a database that [collections] include does not take in",
            )
