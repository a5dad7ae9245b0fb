"""Differences are read again, with growing pauses, until they are gone or proven; see `verifier.proof`."""

from __future__ import annotations

import hashlib
import heapq
import itertools
import math
import random
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from bson.timestamp import Timestamp

from verifier.differences import Namespace, Pair, in_one_order
from verifier.order import Key, id_key
from verifier.proof import Judge, Outcome, Same, Suspect, Unsettled
from verifier.reads import ID_BYTES, IDS, Client, by_ids, collection, now, patiently

_JUDGED_BYTES = 1 << 24  # documents that are held at once while they are judged
_GATHER = 0.1  # seconds in which documents gather, so that each look is worth its questions


@dataclass(slots=True)
class Settling:
    """Documents that differed, each with its next look. `owner` is handed out with what became of a document."""

    source: Client
    destination: Client
    recheck: Recheck
    passed: Passed | None = None
    ignore_field_order: bool = False
    lost_for: float = 60.0
    """Seconds that a server may be lost."""
    say: Callable[[str], None] = lambda words: None
    """Is told, once each time, that a server is lost and waited for."""
    chance: random.Random = field(default_factory=random.Random)
    _waiting: list[tuple[float, int, Suspect]] = field(default_factory=list)
    _count: Iterator[int] = field(default_factory=itertools.count)
    _passed_until: Timestamp | None = None
    _bytes: int = 0
    _not_before: float = 0.0

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def size(self) -> int:
        """What the waiting ids weigh."""
        return self._bytes

    def add(self, pair: Pair, ids: Iterable[bytes], owner: int = 0) -> None:
        """Take in documents that were found to differ just now."""
        moment = patiently("ask the source for its time", self.lost_for, lambda: now(self.source), self.say)
        for one in ids:
            self._bytes += len(one)
            self._push(Suspect(pair, one, id_key(one), owner, time.monotonic(), moment))

    def pause(self) -> float | None:
        """Seconds until a document is due; None when none waits."""
        return max(0.0, max(self._waiting[0][0], self._not_before) - time.monotonic()) if self._waiting else None

    def step(self) -> list[tuple[int, Outcome]]:
        """Look at documents that are due, of one namespace, and tell what became of them."""
        due = self._due() if time.monotonic() >= self._not_before else []
        if not due:
            return []
        self._not_before = time.monotonic() + (_GATHER if len(due) < IDS // 2 else 0)
        what = f"read documents of {due[0].pair.source} again"
        found = patiently(what, self.lost_for, lambda: self._look(due), self.say)
        self._bytes -= sum(len(suspect.id) for suspect, _ in found)
        settled = {id(suspect) for suspect, _ in found}
        for suspect in due:
            if id(suspect) not in settled:
                self._push(suspect)
        return [(suspect.owner, outcome) for suspect, outcome in found]

    def differing(self, pair: Pair, ids: Sequence[bytes]) -> list[bytes]:
        """Those of these ids whose documents differ at this moment."""
        ours = self._digests(self.source, pair.source, ids)
        theirs = self._digests(self.destination, pair.destination, ids)
        nothing = (b"", 0)
        return [one for one in ids if ours.get(id_key(one), nothing)[0] != theirs.get(id_key(one), nothing)[0]]

    def _push(self, suspect: Suspect) -> None:
        pause = 0.0 if suspect.soon else self.recheck.pause(suspect.tried, self.chance)
        suspect.soon = False
        due = time.monotonic() + pause
        heapq.heappush(self._waiting, (due, next(self._count), suspect))

    def _due(self) -> list[Suspect]:
        """Documents of one namespace that are due, as many as one command asks for."""
        taken: list[Suspect] = []
        others: list[tuple[float, int, Suspect]] = []
        size, limit = 0, time.monotonic()
        while self._waiting and self._waiting[0][0] <= limit and max(len(taken), len(others)) < IDS and size < ID_BYTES:
            first = heapq.heappop(self._waiting)
            if taken and first[2].pair != taken[0].pair:
                others.append(first)
            else:
                taken.append(first[2])
                size += len(first[2].id)
        for one in others:
            heapq.heappush(self._waiting, one)
        return taken

    def _look(self, due: Sequence[Suspect]) -> list[tuple[Suspect, Outcome]]:
        pair, ids = due[0].pair, [suspect.id for suspect in due]
        ours = self._digests(self.source, pair.source, ids)
        theirs = self._digests(self.destination, pair.destination, ids)
        found: list[tuple[Suspect, Outcome]] = []
        ripe: list[Suspect] = []
        for suspect in due:
            suspect.tried += 1
            one, other = ours.get(suspect.key), theirs.get(suspect.key)
            seen = (one[0] if one else None, other[0] if other else None)
            if seen[0] == seen[1]:
                found.append((suspect, Same(pair.source, suspect.id)))
                continue
            suspect.steady = suspect.steady and suspect.seen in (None, seen)
            suspect.seen, suspect.size = seen, (one[1] if one else 0) + (other[1] if other else 0)
            ripe.append(suspect)
        now_judged, later = _up_to(_JUDGED_BYTES, self._passed(ripe))
        if now_judged:
            judge = Judge(self.source, self.destination, self.recheck.tries, self.ignore_field_order)
            found += judge.judge(now_judged, self._start(now_judged))
        for suspect in later:
            suspect.soon = True
        settled = {id(suspect) for suspect, _ in found}
        late = [suspect for suspect in ripe if id(suspect) not in settled and self._is_late(suspect)]
        return found + [(suspect, Unsettled(pair.source, suspect.id, suspect.why)) for suspect in late]

    def _digests(self, client: Client, namespace: Namespace, ids: Sequence[bytes]) -> dict[Key, tuple[bytes, int]]:
        documents = by_ids(collection(client, namespace), ids)
        normal = in_one_order if self.ignore_field_order else bytes
        return {one: (hashlib.sha256(normal(raw)).digest(), len(raw)) for one, raw in documents}

    def _start(self, group: Sequence[Suspect]) -> Timestamp | None:
        """A moment that the pipeline has passed, as far as can be known."""
        moments = [suspect.moment for suspect in group if suspect.moment is not None]
        return self._passed_until if self.passed is not None else max(moments, default=None)

    def _is_late(self, suspect: Suspect) -> bool:
        waited = time.monotonic() - suspect.since
        return suspect.tried >= self.recheck.tries and waited > self.recheck.patience

    def _passed(self, suspects: list[Suspect]) -> list[Suspect]:
        """Those that the pipeline is past."""
        if self.passed is None or any(suspect.moment is None for suspect in suspects):
            return [suspect for suspect in suspects if suspect.tried >= self.recheck.tries]
        moments = sorted({suspect.moment for suspect in suspects if suspect.moment is not None})
        for moment in (moments[-1], moments[0]) if moments else ():  # the newest speaks for all
            if self._passed_until is None or moment > self._passed_until:
                if not self.passed(moment):
                    continue
                self._passed_until = moment
        until = self._passed_until
        for suspect in suspects:
            suspect.why = f"the pipeline has not passed {suspect.moment}"
        return [suspect for suspect in suspects if until and suspect.moment and suspect.moment <= until]


def _up_to(most: int, suspects: Sequence[Suspect]) -> tuple[list[Suspect], list[Suspect]]:
    """The first of them whose documents may be held together, one at least, and the others."""
    sizes = itertools.accumulate(suspect.size for suspect in suspects)
    taken = max(1, sum(size <= most for size in sizes))
    return list(suspects[:taken]), list(suspects[taken:])


#: Whether everything that the source had written up to this moment has been applied at the destination.
Passed: TypeAlias = Callable[[Timestamp], bool]


@dataclass(frozen=True, slots=True)
class Recheck:
    """Pauses in seconds between reads of a document that differed; the defaults suit a lag of about a second.

    `patience` is how long a difference may wait after its last try for the pipeline to pass it, or for a document
    that never stands still.
    """

    first: float = 0.5
    factor: float = 2.0
    jitter: float = 0.1
    tries: int = 6
    patience: float = 300.0

    def __post_init__(self) -> None:
        even = all(map(math.isfinite, (self.first, self.factor, self.patience)))
        fits = self.first >= 0 and self.factor >= 1 and 0 <= self.jitter < 1 and self.tries >= 1 and self.patience >= 0
        if not (even and fits):
            raise ValueError(
                f"{self} cannot be: first and patience are 0 or more, factor 1 or more, jitter 0 to 1, tries 1 or more"
            )

    def pause(self, tried: int, chance: random.Random) -> float:
        """Seconds until the next read, after so many."""
        even = self.first * self.factor ** min(tried, self.tries - 1)
        return even * (1 + self.jitter * (2 * chance.random() - 1))
