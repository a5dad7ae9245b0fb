"""What documents of the source have been between two moments: the states that a destination in step may show."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from bson.timestamp import Timestamp
from pymongo.change_stream import ChangeStream
from pymongo.collection import Collection
from pymongo.errors import OperationFailure

from verifier.differences import Namespace
from verifier.order import Key, key
from verifier.raw import id_element
from verifier.reads import RAW, Client, among, by_ids

#: A document of more changes than this between two moments is looked at another time.
_MOST = 5_000
_AWAIT_MS = 20
_PATIENCE = 30.0  # seconds for a change stream to reach a moment that is over
_TIME_IN_TOKEN = slice(2, 18)  # hex digits of a resume token: type byte, then eight bytes (MongoDB, key_string.h)


class Unknown(Exception):
    """The server cannot tell (any more): no replica set, no privilege, or the moment is too long ago."""


def changes(
    documents: Collection[Any], ids: Sequence[bytes], after: Timestamp, to: Timestamp
) -> dict[Key, list[Timestamp]]:
    """When each of these documents changed, later than `after` and up to `to`. Raises `Unknown`."""
    pipeline: list[Mapping[str, Any]] = [
        {"$match": {"ns.coll": documents.name}},
        {"$match": among(b"documentKey._id", ids)},
        {"$project": {"documentKey._id": 1, "clusterTime": 1}},
    ]
    found: dict[Key, list[Timestamp]] = {}
    if to <= after:  # nothing has happened at all
        return found
    database = documents.database.with_options(codec_options=RAW)
    try:
        with database.watch(pipeline, start_at_operation_time=after, max_await_time_ms=_AWAIT_MS) as stream:
            for event in _events(stream, after, to):
                one = key(id_element(bytes(event["documentKey"].raw)))
                found.setdefault(one, []).append(event["clusterTime"])
    except OperationFailure as error:
        raise Unknown(str(error)) from error
    return found


def _events(stream: ChangeStream[Any], after: Timestamp, to: Timestamp) -> Iterator[Any]:
    """The events later than `after` and up to `to`, which is over."""
    deadline = time.monotonic() + _PATIENCE
    while time.monotonic() < deadline:
        event = stream.try_next()
        if event is None:
            if token_time(stream.resume_token) >= to:
                return
        elif event["clusterTime"] > to:
            return
        elif event["clusterTime"] > after:
            yield event
    raise Unknown(f"the change stream did not reach {to} within {_PATIENCE:g} s")


def written(client: Client, namespaces: Iterable[Namespace], after: Timestamp, to: Timestamp) -> set[Namespace]:
    """Those of these namespaces that something was written to, later than `after` and up to `to`. Raises `Unknown`."""
    wanted = set(namespaces)
    found: set[Namespace] = set()
    for database in sorted({namespace.split(".", 1)[0] for namespace in wanted}):
        names = [name for one in wanted for place, name in (one.split(".", 1),) if place == database]
        pipeline: list[Mapping[str, Any]] = [
            {"$match": {"ns.coll": {"$in": names}}},
            {"$project": {"ns": 1, "clusterTime": 1}},
        ]
        try:
            with client[database].watch(pipeline, start_at_operation_time=after, max_await_time_ms=_AWAIT_MS) as stream:
                found |= {f"{database}.{event['ns']['coll']}" for event in _events(stream, after, to)}
        except OperationFailure as error:
            raise Unknown(str(error)) from error
    return found


def states(documents: Collection[Any], id: bytes, moments: Sequence[Timestamp]) -> set[bytes | None]:
    """What a document was at each of these moments; None where it was not. Raises `Unknown`."""
    if len(moments) > _MOST:
        raise Unknown(f"a document of {documents.full_name} changed {len(moments):,} times in between")
    try:
        return {next((found for _, found in by_ids(documents, [id], at)), None) for at in dict.fromkeys(moments)}
    except OperationFailure as error:
        raise Unknown(str(error)) from error


def token_time(token: Any) -> Timestamp:
    """Up to when a change stream has looked, by its resume token."""
    digits = bytes.fromhex(token["_data"][_TIME_IN_TOKEN])
    return Timestamp(int.from_bytes(digits[:4], "big"), int.from_bytes(digits[4:], "big"))
