"""The last verdict of a full verification, and the history that it belongs to, stored at the destination.

Every machine can read both. The collection `towpath.verdicts` holds one document per pipeline: `{_id: pipeline,
history, id, at, …, origin}`. `origin` is JSON text, because it has namespaces as keys, which may not be valid field
names. `history` says since when and why all verdicts and unfinished verifications of before are void; it is missing
until that happens for the first time.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from pymongo.collection import Collection

from towpath.clients.mongo.client import Client
from towpath.config.pipeline import Pipeline
from towpath.store.positions import VERDICTS, collection_of


def read(client: Client, pipeline: Pipeline) -> dict[str, Any] | None:
    """The verdict as `write` stored it, or None."""
    document = _verdicts(client).find_one({"_id": pipeline.name, "id": {"$exists": True}}, {"_id": 0, "history": 0})
    return None if document is None else {**document, "origin": json.loads(document["origin"])}


def write(client: Client, pipeline: Pipeline, verdict: Mapping[str, Any]) -> None:
    document = {**verdict, "origin": json.dumps(verdict["origin"])}
    _verdicts(client).update_one({"_id": pipeline.name}, {"$set": document}, upsert=True)


def history(client: Client, pipeline: Pipeline) -> str:
    """The present history, as text that no other history has; empty for the first one."""
    document = _verdicts(client).find_one({"_id": pipeline.name}, {"history": 1}) or {}
    return str(document.get("history", ""))


def begin_history(client: Client, pipeline: Pipeline, why: str) -> None:
    """Forget the verdict, and void what was compared before: call it before the destination may come to differ.

    `why`: what happens, as a clause for people.
    """
    began = f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S.%f} UTC, when {why}"
    _verdicts(client).replace_one({"_id": pipeline.name}, {"history": began}, upsert=True)


def forget(client: Client, pipeline: Pipeline) -> None:
    """Remove verdict and history, of a pipeline that is removed with its log."""
    _verdicts(client).delete_one({"_id": pipeline.name})


def _verdicts(client: Client) -> Collection[dict[str, Any]]:
    return collection_of(client, VERDICTS, wtimeout_ms=10_000)
