"""The last verdict of a full verification, stored at the destination, so that every machine can read it.

The collection `towpath.verdicts` holds one document per pipeline: `{_id: pipeline, id, at, …, origin}`. `origin` is
JSON text, because it has namespaces as keys, which may not be valid field names.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pymongo import ReadPreference, WriteConcern
from pymongo.collection import Collection

from towpath.bookkeeping.positions import DATABASE, VERDICTS
from towpath.mongo.client import Client
from towpath.pipeline import Pipeline

_WTIMEOUT_MS = 10_000


def read(client: Client, pipeline: Pipeline) -> dict[str, Any] | None:
    """The verdict as `write` stored it, or None."""
    document = _verdicts(client).find_one({"_id": pipeline.name}, {"_id": 0})
    return None if document is None else {**document, "origin": json.loads(document["origin"])}


def write(client: Client, pipeline: Pipeline, verdict: Mapping[str, Any]) -> None:
    document = {**verdict, "origin": json.dumps(verdict["origin"])}
    _verdicts(client).replace_one({"_id": pipeline.name}, document, upsert=True)


def forget(client: Client, pipeline: Pipeline) -> None:
    _verdicts(client).delete_one({"_id": pipeline.name})


def _verdicts(client: Client) -> Collection[dict[str, Any]]:
    concern = WriteConcern("majority", wtimeout=_WTIMEOUT_MS)
    return client.get_database(DATABASE, read_preference=ReadPreference.PRIMARY, write_concern=concern)[VERDICTS]
