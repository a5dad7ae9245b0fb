"""A counter in every document that each write raises, over deletes and inserts too, so that going back shows.

One number a write, whatever document it meets: what counts up for all counts up for each.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from bson import Int64

from tests.support.workload.changes import Change
from tests.support.workload.operations import Body, Delete, Insert, Operation, Replace, Update, Way, Write

#: The field that holds the counter.
VERSION = "version"
#: The order in which the driver sends the writes of an unordered bulk.
_UNORDERED = {Insert: 0, Update: 1, Replace: 1, Delete: 2}


def stamped(operation: Operation, numbers: Iterator[int]) -> Operation:
    """The operation with a number in each of its writes, ascending in the order in which the server does them."""
    writes = operation.writes
    if operation.way is Way.UNORDERED_BULK:
        writes = tuple(sorted(writes, key=lambda write: _UNORDERED[type(write.body)]))
    return replace(operation, writes=tuple(_stamped(write, Int64(next(numbers))) for write in writes))


def _stamped(write: Write, number: Int64) -> Write:
    return replace(write, body=_body(write.body, number))


def _body(body: Body, number: Int64) -> Body:
    match body:
        case Insert(document):
            return Insert(document_of(document, number))
        case Replace(filter, document):
            return Replace(filter, document_of(document, number))
        case Update(filter, change, many):
            return Update(filter, replace(change, update=_update(change, number)), many)
        case Delete():
            return body


def document_of(document: dict[str, Any], number: int) -> dict[str, Any]:
    """The document with the counter right behind its `_id`."""
    identity = {"_id": document["_id"]} if "_id" in document else {}
    return identity | {VERSION: Int64(number)} | document


def _update(change: Change, number: Int64) -> dict[str, Any] | list[dict[str, Any]]:
    update, here = change.update, {VERSION: number}
    if isinstance(update, dict):
        return update | {"$set": update.get("$set", {}) | here}
    # where the pipeline dropped the counter, it dropped all else that was there: only in front has it not moved
    behind, before = {"$mergeObjects": ["$$ROOT", here]}, {"$mergeObjects": [{"_id": "$_id"} | here, "$$ROOT"]}
    gone = {"$eq": [{"$type": f"${VERSION}"}, "missing"]}
    return [*update, {"$replaceWith": {"$cond": [gone, before, behind]}}]
