"""Whether a difference is proven, once the pipeline has passed the moment at which it was seen.

It is when the destination then shows a document that the source's has not been at any time since. That holds for
documents that never stand still as well. Where the server cannot tell what a document has been (a standalone, no
privilege for change streams), a difference counts when both documents have stayed as they are over all tries.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeAlias

from bson.timestamp import Timestamp
from pymongo.change_stream import ChangeStream
from pymongo.collection import Collection
from pymongo.errors import OperationFailure

from verifier.differences import Difference, Different, Namespace, Pair, difference, differing, same_but_for_order
from verifier.order import Key, key
from verifier.raw import id_document, id_element
from verifier.reads import RAW, Client, among, by_ids, collection, now

_STRIKES = 3  # a sink may split a transaction of the source, and show for a moment what the source never was
_FAR = 100  # differing paths that are counted


@dataclass(frozen=True, slots=True)
class Unsettled:
    """A document that could not be judged in time; `why` tells what it waited for."""

    namespace: Namespace
    id: bytes
    why: str


@dataclass(frozen=True, slots=True)
class Same:
    """A document that was found to be the same on both sides."""

    namespace: Namespace
    id: bytes


Outcome: TypeAlias = Difference | Unsettled | Same


@dataclass(slots=True)
class Suspect:
    """A document that differed; `moment` was the source's time then, `owner` whoever asked."""

    pair: Pair
    id: bytes
    key: Key
    owner: int
    since: float
    moment: Timestamp | None
    tried: int = 0
    seen: tuple[bytes | None, bytes | None] | None = None
    """Digests of both documents at the last look."""
    steady: bool = True
    strikes: int = 0
    size: int = 0
    soon: bool = False
    why: str = ""


@dataclass(frozen=True, slots=True)
class Judge:
    """Judges documents of one namespace; `tries` is after how many looks one that stays as it is counts."""

    source: Client
    destination: Client
    tries: int
    ignore_field_order: bool

    def judge(self, group: Sequence[Suspect], start: Timestamp | None) -> list[tuple[Suspect, Outcome]]:
        """What can be said of these documents, of which the pipeline has passed `start`; the others need more time."""
        pair, ids = group[0].pair, [suspect.id for suspect in group]
        documents = collection(self.source, pair.source)
        theirs = dict(by_ids(collection(self.destination, pair.destination), ids))
        ours = dict(by_ids(documents, ids))
        end = now(self.source)
        found: list[tuple[Suspect, Outcome]] = []
        try:
            if start is None or end is None:
                raise Unknown("the source is no replica set")
            changed = changes(documents, ids, start, end)
        except Unknown as error:
            return self._stayed(group, ours, theirs, str(error))
        for suspect in group:
            one = suspect.key
            different = self._difference(suspect, ours.get(one), theirs.get(one))
            outcome: Outcome | None = different or Same(pair.source, suspect.id)
            if different is not None and one in changed:
                outcome = self._of_busy(suspect, different, [start, *changed[one]])
            if outcome is not None:
                found.append((suspect, outcome))
        return found

    def _of_busy(self, suspect: Suspect, different: Difference, moments: Sequence[Timestamp]) -> Outcome | None:
        """What to say of a document that has changed since the pipeline passed it; None: not yet."""
        documents = collection(self.source, suspect.pair.source)
        try:
            been = states(documents, suspect.id, moments)
        except Unknown as error:
            suspect.why = f"it keeps changing, and what it was cannot be read: {error}"
            return None
        found = [self._difference(suspect, state, different.destination) for state in been]
        if any(one is None for one in found):
            return Same(suspect.pair.source, suspect.id)
        suspect.strikes += 1
        suspect.why = "it keeps changing"
        # of what it has been, what the destination is nearest to: the rest is on its way
        return min((one for one in found if one), key=_distance) if suspect.strikes >= _STRIKES else None

    def _stayed(
        self,
        group: Sequence[Suspect],
        ours: dict[Key, bytes],
        theirs: dict[Key, bytes],
        why: str,
    ) -> list[tuple[Suspect, Outcome]]:
        found: list[tuple[Suspect, Outcome]] = []
        for suspect in group:
            suspect.why = f"it keeps changing, and what it was cannot be read: {why}"
            one = suspect.key
            outcome = self._difference(suspect, ours.get(one), theirs.get(one))
            if outcome is None:
                found.append((suspect, Same(suspect.pair.source, suspect.id)))
            elif suspect.steady and suspect.tried >= self.tries:
                found.append((suspect, outcome))
        return found

    def _difference(self, suspect: Suspect, source: bytes | None, destination: bytes | None) -> Difference | None:
        both = source is not None and destination is not None
        if both and self.ignore_field_order and same_but_for_order(source or b"", destination or b""):
            return None
        found = source or destination
        id = id_document(found) if found else suspect.id  # which may be its canonical form, a record's key
        return difference(suspect.pair.source, id, source, destination)


def _distance(found: Difference) -> int:
    if not isinstance(found, Different):
        return _FAR
    return 0 if found.kind == "order" else sum(1 for _ in islice(differing(found.source, found.destination), _FAR))


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
