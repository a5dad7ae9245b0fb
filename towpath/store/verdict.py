"""The last verdict of a full verification, its history, and what was found since, stored at the destination.

Every machine can read them. The collection `towpath.verdicts` holds one document per pipeline: `{_id: pipeline,
history, found, id, at, …, origin, lag, written}`. `origin` is JSON text, because it has namespaces as keys, which may
not be valid field names. `lag`: by how many seconds the destination lagged when it began. `written` is the time of `at`
by the server's clock. `history` says since when and why all
verdicts and unfinished verifications of before are void; it is missing until that happens for the first time. `found`
holds verdict's id → when that verification, or the `verify --follow` that continues it, proved a difference last. Only
two things remove an entry: all that this verification has found is the same again, or a verdict on everything, which
began later, is clean. Clocks of machines differ, and may be wrong: so what was stored when a verification began is
older than it, whatever its date says.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from pymongo.collection import Collection
from pymongo.errors import DuplicateKeyError

from towpath.clients.mongo.client import Client
from towpath.config.pipeline import Pipeline
from towpath.store.positions import VERDICTS, collection_of


def read(client: Client, pipeline: Pipeline) -> tuple[dict[str, Any] | None, str]:
    """The verdict as `write` stored it, or None; and when a difference was found last that may be left, or empty."""
    document = _verdicts(client).find_one({"_id": pipeline.name}, {"_id": 0, "history": 0}) or {}
    found = max(document.pop("found", {}).values(), default="")
    return ({**document, "origin": json.loads(document["origin"])} if "id" in document else None), found


@dataclass(frozen=True, slots=True)
class Before:
    """What was stored when a verification began: the id of the last verdict, and `found`."""

    id: str | None = None
    found: Mapping[str, str] = field(default_factory=dict)


def before(client: Client, pipeline: Pipeline) -> Before:
    """As it is stored now."""
    document = _verdicts(client).find_one({"_id": pipeline.name}) or {}
    return Before(document.get("id"), document.get("found") or {})


def write(client: Client, pipeline: Pipeline, verdict: Mapping[str, Any], before: Before) -> None:
    """Store a verdict on everything, unless one that began later is stored. `before`: when its verification began."""
    document = {**verdict, "origin": json.dumps(verdict["origin"])}
    verdicts, of = _verdicts(client), {"_id": pipeline.name}
    earlier = [{"since": {"$not": {"$gt": verdict["since"]}}}, *([{"id": before.id}] if before.id else [])]
    with suppress(DuplicateKeyError):  # of one that began later
        stored = {"$set": document, "$currentDate": {"written": True}}
        verdicts.update_one({**of, "$or": earlier}, stored, upsert=True)
    if verdict["verdict"] == "same" and verdict["clean"]:
        for id, at in before.found.items():  # one that was found again since has another time
            verdicts.update_one({**of, f"found.{id}": at}, {"$unset": {f"found.{id}": ""}})


def note_found(client: Client, pipeline: Pipeline, id: str) -> None:
    """Store that the verification with this id has proven a difference by now.

    The time differs from the one before also if the clock was set back: `write` goes by that.
    """
    now = datetime.now(UTC).isoformat(timespec="milliseconds")
    _verdicts(client).update_one({"_id": pipeline.name}, {"$set": {f"found.{id}": now}}, upsert=True)


def forget_found(client: Client, pipeline: Pipeline, ids: Iterable[str]) -> None:
    """Remove what the verifications with these ids have found, as all of it is the same again."""
    if gone := {f"found.{id}": "" for id in ids}:
        _verdicts(client).update_one({"_id": pipeline.name}, {"$unset": gone})


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
