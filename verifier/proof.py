"""Whether a difference is proven, once the pipeline has passed the moment at which it was seen.

It is when the destination then shows a document that the source's has not been at any time since. That holds for
documents that never stand still as well. Where the server cannot tell what a document has been (a standalone, no
privilege for change streams), a difference counts when both documents have stayed as they are over all tries.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TypeAlias

from bson.timestamp import Timestamp

from verifier import history
from verifier.differences import Difference, Different, Namespace, Pair, difference
from verifier.fields import differing, same_but_for_order
from verifier.order import Key
from verifier.raw import id_document
from verifier.reads import Client, by_ids, collection, now

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
                raise history.Unknown("the source is no replica set")
            changed = history.changes(documents, ids, start, end)
        except history.Unknown as error:
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
            states = history.states(documents, suspect.id, moments)
        except history.Unknown as error:
            suspect.why = f"it keeps changing, and what it was cannot be read: {error}"
            return None
        found = [self._difference(suspect, state, different.destination) for state in states]
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
