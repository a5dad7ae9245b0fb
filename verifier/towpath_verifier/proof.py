"""Whether a difference is proven, once the pipeline has passed the cluster time at which it was seen.

It is proven if the destination's document then is none of the states that the source's has had since. That holds for
documents that change all the time as well. Where the server cannot show past states (a standalone, no privilege for
change streams), a difference counts if neither document changed over all tries.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeAlias

from bson.timestamp import Timestamp
from pymongo.collection import Collection
from pymongo.database import Database
from pymongo.errors import ExecutionTimeout, OperationFailure

from towpath_verifier.differences import Difference, Namespace, Pair, differing, same_but_for_order
from towpath_verifier.raw import Key, id_document, id_element, key
from towpath_verifier.reads import RAW, Client, among, by_database, by_ids, cluster_time, collection, matching

_STRIKES = 3  # a sink may split a transaction of the source, and briefly show a state that the source never had
_FAR = 100  # at most so many differing paths are counted


@dataclass(frozen=True, slots=True)
class Unresolved:
    """A document that could not be judged in time; `why` is what it waited for."""

    namespace: Namespace
    id: bytes
    why: str


@dataclass(frozen=True, slots=True)
class Same:
    """A document that is the same on both sides."""

    namespace: Namespace
    id: bytes


Outcome: TypeAlias = Difference | Unresolved | Same
"""What re-reads of a document came to."""


@dataclass(slots=True)
class Suspect:
    """A document that differed; `seen_at` is the source's cluster time then, `owner` the range that it belongs to."""

    pair: Pair
    id: bytes
    key: Key
    owner: int
    since: float
    seen_at: Timestamp | None
    tried: int = 0
    seen: tuple[bytes, bytes] | None = None
    """Digests of both documents at the last read; empty for one that does not exist."""
    steady: bool = True
    """Whether neither document has changed since the first re-read."""
    strikes: int = 0
    """How often the destination's document was none of the source's states while the source's kept changing."""
    size: int = 0
    """Bytes of both documents."""
    soon: bool = False
    """Whether the next read needs no pause."""
    why: str = ""
    """What it waits for."""


@dataclass(frozen=True, slots=True)
class Judge:
    """Judges documents of one namespace; after `tries` reads a difference counts whose past states are unknown."""

    source: Client
    destination: Client
    tries: int
    ignore_field_order: bool

    def judge(self, group: Sequence[Suspect], start: Timestamp | None) -> list[tuple[Suspect, Outcome]]:
        """The outcomes of those of these documents that can be judged, given that the pipeline has passed `start`."""
        pair, ids = group[0].pair, [suspect.id for suspect in group]
        documents = collection(self.source, pair.source)
        theirs = dict(by_ids(collection(self.destination, pair.destination), ids))
        changed, unknown = dict[Key, list[Timestamp]](), ""
        try:
            if start is None:
                raise Unknown("the source is not a replica set")
            present = committed(documents, ids, start, pair.only)
            end = cluster_time(self.source) or start
            changed = {of: [start, *times] for of, times in changes(documents, ids, start, end).items()}
        except Unknown as error:
            unknown = f"it keeps changing, and its past states cannot be read: {error}"
            present = dict(by_ids(documents, ids, only=pair.only))
        except Replaced as error:
            for suspect in group:  # it is judged once the pipeline has passed that as well
                suspect.seen_at, suspect.why = end, str(error)
            return []
        ours = {of: pair.left(document) for of, document in present.items()}
        outcomes: list[tuple[Suspect, Outcome]] = []
        for suspect in group:
            different = self._difference(suspect, ours.get(suspect.key), theirs.get(suspect.key))
            outcome: Outcome | None = different or Same(pair.source, suspect.id)
            if different is not None and unknown:
                suspect.why = unknown
                outcome = different if suspect.steady and suspect.tried >= self.tries else None
            elif different is not None and suspect.key in changed:
                outcome = self._of_changing(suspect, different, changed[suspect.key])
            if outcome is not None:
                outcomes.append((suspect, outcome))
        return outcomes

    def _of_changing(self, suspect: Suspect, different: Difference, times: Sequence[Timestamp]) -> Outcome | None:
        """The outcome of a document that has changed since the pipeline passed it; None as long as there is none."""
        documents = collection(self.source, suspect.pair.source)
        try:
            past = states(documents, suspect.id, times, suspect.pair.only)
        except Unknown as error:
            suspect.why = f"it keeps changing, and its past states cannot be read: {error}"
            return None
        ours = [state and suspect.pair.left(state) for state in past]
        differences = [self._difference(suspect, state, different.destination) for state in ours]
        proven = [each for each in differences if each is not None]
        if len(proven) < len(differences):
            return Same(suspect.pair.source, suspect.id)
        suspect.strikes += 1
        suspect.why = "it keeps changing"
        # to the past state that the destination is nearest to: later changes are still on their way
        return min(proven, key=_distance) if suspect.strikes >= _STRIKES else None

    def _difference(self, suspect: Suspect, source: bytes | None, destination: bytes | None) -> Difference | None:
        document = source or destination
        if document is None or source == destination:
            return None
        if self.ignore_field_order and source and destination and same_but_for_order(source, destination):
            return None
        # not the suspect's id, which may be its canonical form, a record's key
        return Difference(suspect.pair.source, id_document(document), source, destination)


def _distance(of: Difference) -> int:
    """About how many paths differ."""
    if of.source is None or of.destination is None:
        return _FAR
    return 0 if of.kind == "order" else sum(1 for _ in islice(differing(of.source, of.destination), _FAR))


_MOST = 5_000  # a document that changed more often is judged at a later read
_AWAIT_MS = 20
_PATIENCE = 30.0  # seconds for a change stream to reach a time that is past
_TIME_IN_TOKEN = slice(2, 18)  # hex digits of a resume token: type byte, then eight bytes (MongoDB, key_string.h)


class Unknown(Exception):
    """The server cannot show past changes: it is a standalone, a privilege is missing, or the oplog is too short."""


class Replaced(Exception):
    """The collection was dropped, renamed or replaced, and with it every document, without an event of each."""


_REPLACING = ("drop", "rename", "dropDatabase")


def changes(
    documents: Collection[Any], ids: Sequence[bytes], after: Timestamp, to: Timestamp
) -> dict[Key, list[Timestamp]]:
    """The cluster times at which each of these documents changed, later than `after`, up to `to`.

    Raises `Replaced` and `Unknown`.
    """
    times: dict[Key, list[Timestamp]] = {}
    if to <= after:  # nothing can have changed
        return times
    database, name = documents.database.with_options(codec_options=RAW), documents.name
    match = {
        "$or": [
            matching({"ns.coll": name}, among(b"documentKey._id", ids)),
            {"operationType": {"$in": ["drop", "rename"]}, "ns.coll": name},
            {"operationType": "rename", "to.coll": name},  # as at the end of $out
            {"operationType": "dropDatabase"},
        ]
    }
    for event in _events(database, match, ("documentKey._id", "operationType"), after, to):
        if event["operationType"] in _REPLACING:
            raise Replaced(f"{documents.full_name} was dropped, renamed or replaced: {event['operationType']}")
        if (document := event.get("documentKey")) is not None:  # an _id of null also matches what has no key
            changed = key(id_element(bytes(document.raw)))
            times.setdefault(changed, []).append(event["clusterTime"])
    return times


def written(client: Client, namespaces: Iterable[Namespace], after: Timestamp, to: Timestamp) -> set[Namespace]:
    """Those of these namespaces with writes later than `after` and up to `to`. Raises `Unknown`."""
    return {
        f"{database}.{event['ns']['coll']}"
        for database, names in sorted(by_database(namespaces).items())
        for event in _events(client[database], {"ns.coll": {"$in": names}}, ("ns",), after, to)
    }


def _events(
    database: Database[Any], match: Mapping[str, Any], fields: Sequence[str], after: Timestamp, to: Timestamp
) -> Iterator[Any]:
    """These fields, and the time, of the events later than `after` and up to `to`, which is past. Raises `Unknown`."""
    pipeline: list[Mapping[str, Any]] = [{"$match": match}, {"$project": dict.fromkeys((*fields, "clusterTime"), 1)}]
    deadline = time.monotonic() + _PATIENCE
    try:
        with database.watch(pipeline, start_at_operation_time=after, max_await_time_ms=_AWAIT_MS) as stream:
            while time.monotonic() < deadline:
                event = stream.try_next()
                if event is None:
                    if token_time(stream.resume_token) >= to:
                        return
                elif event["clusterTime"] > to:
                    return
                elif event["clusterTime"] > after:
                    yield event
    except OperationFailure as error:
        raise Unknown(str(error)) from error
    raise Unknown(f"the change stream did not reach {to} within {_PATIENCE:g} s")


def committed(
    documents: Collection[Any], ids: Sequence[bytes], since: Timestamp, only: Mapping[str, Any] | None
) -> dict[Key, bytes]:
    """Documents as a majority of the members has them, no earlier than `since`: no election takes that back.

    Raises `Unknown` if no majority gets that far in time.
    """
    try:
        return dict(by_ids(documents, ids, only=only, since=since))
    except ExecutionTimeout as error:
        raise Unknown(str(error)) from error


def states(
    documents: Collection[Any], id: bytes, times: Sequence[Timestamp], only: Mapping[str, Any] | None = None
) -> set[bytes | None]:
    """A document as it was at each of these cluster times.

    None where it did not exist, or did not match the filter `only`. Raises `Unknown`.
    """
    if len(times) > _MOST:
        raise Unknown(f"a document of {documents.full_name} changed {len(times):,} times in between")
    try:
        return {next((state for _, state in by_ids(documents, [id], at, only)), None) for at in dict.fromkeys(times)}
    except OperationFailure as error:
        raise Unknown(str(error)) from error


def token_time(token: Any) -> Timestamp:
    """The cluster time that a change stream has reached, by its resume token."""
    digits = bytes.fromhex(token["_data"][_TIME_IN_TOKEN])
    return Timestamp(int.from_bytes(digits[:4], "big"), int.from_bytes(digits[4:], "big"))
