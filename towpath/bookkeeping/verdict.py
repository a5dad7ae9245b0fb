"""The last verdict on everything, kept at the destination, so that who asks for it does not depend on a machine.

The collection `towpath.verdicts` holds one document a pipeline: `{_id: pipeline, id, at, …, origin}`. `origin` is JSON
text, because the namespaces in it may not be names of fields.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pymongo import MongoClient, ReadPreference, WriteConcern
from pymongo.collection import Collection

from towpath.bookkeeping.positions import DATABASE, VERDICTS
from towpath.pipeline import Pipeline

Client = MongoClient[dict[str, Any]]
_PATIENCE_MS = 10_000


def read(client: Client, pipeline: Pipeline) -> dict[str, Any] | None:
    """None when none is kept there."""
    found = _verdicts(client).find_one({"_id": pipeline.name}, {"_id": 0})
    return None if found is None else {**found, "origin": json.loads(found["origin"])}


def write(client: Client, pipeline: Pipeline, verdict: Mapping[str, Any]) -> None:
    document = {**verdict, "origin": json.dumps(verdict["origin"])}
    _verdicts(client).replace_one({"_id": pipeline.name}, document, upsert=True)


def forget(client: Client, pipeline: Pipeline) -> None:
    _verdicts(client).delete_one({"_id": pipeline.name})


def _verdicts(client: Client) -> Collection[dict[str, Any]]:
    concern = WriteConcern("majority", wtimeout=_PATIENCE_MS)
    return client.get_database(DATABASE, read_preference=ReadPreference.PRIMARY, write_concern=concern)[VERDICTS]
