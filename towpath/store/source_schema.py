"""The source's schema as it was read last, for a takeover, which cannot ask the source.

`towpath.source_schema` at the destination holds `{_id: {pipeline, namespace}, description}` for each collection and
view, with the description as Extended JSON, because a validator's fields may have names that the server does not store;
and one document without a namespace, with the source's cluster time at the read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from bson.json_util import CANONICAL_JSON_OPTIONS, dumps, loads
from pymongo import DeleteMany, ReplaceOne

from towpath.clients.mongo.client import Client, ClusterTime, cluster_time
from towpath.config.pipeline import Pipeline
from towpath.store.positions import SOURCE_SCHEMA, collection_of, id_range
from towpath_verifier import Described

_HEAD = ""  # in the place of a namespace


@dataclass(frozen=True, slots=True)
class SourceSchema:
    """The collections and views of the source, by their names there, as of a cluster time."""

    time: ClusterTime
    collections: Mapping[str, Described]


def store(client: Client, pipeline: Pipeline, schema: SourceSchema) -> None:
    """Replace what is stored, unless that is as new; what has not changed is not written again."""
    texts = {name: _text(described) for name, described in schema.collections.items()}
    collection, before = collection_of(client, SOURCE_SCHEMA), _descriptions(client, pipeline)
    if _HEAD in before and cluster_time(before[_HEAD]) >= schema.time:
        return

    def of(namespace: str) -> dict[str, str]:
        return {"pipeline": pipeline.name, "namespace": namespace}

    changed = [name for name, text in texts.items() if before.get(name) != text]
    gone = [of(name) for name in before.keys() - texts.keys() - {_HEAD}]
    writes = [ReplaceOne({"_id": of(name)}, {"description": texts[name]}, upsert=True) for name in changed]
    head = ReplaceOne({"_id": of(_HEAD)}, {"description": str(schema.time)}, upsert=True)  # last
    collection.bulk_write([*writes, *([DeleteMany({"_id": {"$in": gone}})] if gone else []), head])


def read(client: Client, pipeline: Pipeline) -> SourceSchema | None:
    """What is stored; None if nothing is."""
    found = _descriptions(client, pipeline)
    time = found.pop(_HEAD, None)
    if time is None:
        return None
    return SourceSchema(cluster_time(time), {name: _described(text) for name, text in found.items()})


def _descriptions(client: Client, pipeline: Pipeline) -> dict[str, str]:
    documents = collection_of(client, SOURCE_SCHEMA).find(id_range(pipeline, "namespace"))
    return {document["_id"]["namespace"]: document["description"] for document in documents}


def _text(described: Described) -> str:
    fields = {"kind": described.kind, "options": described.options, "indexes": described.indexes}
    return dumps(fields, json_options=CANONICAL_JSON_OPTIONS)


def _described(text: str) -> Described:
    return Described(**loads(text, json_options=CANONICAL_JSON_OPTIONS))
