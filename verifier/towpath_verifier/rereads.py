"""Re-reads documents that differ, with growing pauses, until they are equal or proven to differ (`proof`)."""

from __future__ import annotations

import hashlib
import heapq
import itertools
import math
import random
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeAlias

from bson.timestamp import Timestamp
from pymongo.read_concern import ReadConcern

from towpath_verifier.differences import Pair, in_one_order
from towpath_verifier.proof import Judge, Outcome, Same, Suspect, Unresolved
from towpath_verifier.raw import Key, id_key
from towpath_verifier.reads import (
    ID_BYTES,
    IDS,
    Client,
    by_ids,
    chunks,
    cluster_time,
    collection,
    present,
    with_retries,
)

_MAJORITY = ReadConcern("majority")
_FACTOR, _JITTER = 2.0, 0.1  # each pause is so many times the one before, and varied by up to this share of it
_JUDGED_BYTES = 1 << 24  # of documents in memory at once while they are judged
_ABSENT = (b"", 0)  # digest and bytes of a document that does not exist
_GATHER = 0.1  # seconds in which due documents gather, so that one command reads many
#: Digest and bytes of each document.
_Digests: TypeAlias = dict[Key, tuple[bytes, int]]
_HELD = 50_000  # at most so many ids of `outcomes` wait for a re-read

Passed: TypeAlias = Callable[[Timestamp], bool]
"""Whether everything that the source had written up to and including this cluster time has been applied at the
destination. It is called between reads, so it must not block. Nothing is proven until it returns True."""


@dataclass(frozen=True, slots=True)
class Recheck:
    """Pauses between the reads of a document that differed, each about twice as long as the one before.

    The defaults suit a replication lag of about a second: six reads in 31.5 seconds. Raises `ValueError` for values out
    of range.
    """

    first: float = 0.5
    """Seconds before the first re-read; 0 or more."""
    tries: int = 6
    """Reads after which a difference counts if past states cannot be read; from then on pauses stay the same."""
    patience: float = 300.0
    """Seconds since the document first differed, after which one that has had all tries is given up, unresolved."""

    def __post_init__(self) -> None:
        if not (0 <= self.first < math.inf and self.tries >= 1 and 0 <= self.patience < math.inf):
            raise ValueError(f"{self} is not valid: first and patience are 0 or more and finite, tries 1 or more")

    def pause(self, tried: int) -> float:
        """Seconds until the next read, after `tried` re-reads."""
        return self.first * _FACTOR ** min(tried, self.tries - 1) * random.uniform(1 - _JITTER, 1 + _JITTER)


@dataclass(slots=True)
class Rereads:
    """Documents that differed, each with the time of its next re-read. An outcome comes with the document's `owner`."""

    source: Client
    destination: Client
    recheck: Recheck
    passed: Passed | None = None
    ignore_field_order: bool = False
    lost_for: float = 60.0
    """Seconds for which a server may be unreachable."""
    say: Callable[[str], None] = lambda words: None
    """Receives a message each time that a server becomes unreachable."""
    _waiting: list[tuple[float, int, Suspect]] = field(default_factory=list)
    _count: Iterator[int] = field(default_factory=itertools.count)
    _passed_until: Timestamp | None = None
    _bytes: int = 0
    _not_before: float = 0.0

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def size(self) -> int:
        """Bytes of the waiting ids."""
        return self._bytes

    def add(self, pair: Pair, ids: Iterable[bytes], owner: int = 0) -> None:
        """Take in documents that differed just now."""
        seen_at = with_retries(
            "read the source's cluster time", self.lost_for, lambda: cluster_time(self.source), self.say
        )
        for id in ids:
            self._bytes += len(id)
            self._push(Suspect(pair, id, id_key(id), owner, time.monotonic(), seen_at))

    def pause(self) -> float | None:
        """Seconds until a document is due; None if none waits."""
        return max(0.0, max(self._waiting[0][0], self._not_before) - time.monotonic()) if self._waiting else None

    def step(self) -> list[tuple[int, Outcome]]:
        """Re-read documents of one namespace that are due; the owner and the outcome of each that is done."""
        due = self._due() if time.monotonic() >= self._not_before else []
        if not due:
            return []
        self._not_before = time.monotonic() + (_GATHER if len(due) < IDS // 2 else 0)
        action = f"read documents of {due[0].pair.source} again"

        def reread() -> tuple[list[Suspect], list[tuple[Suspect, Outcome]]]:
            copies = [replace(suspect) for suspect in due]  # a read that fails is no try
            return copies, self._reread(copies)

        read, outcomes = with_retries(action, self.lost_for, reread, self.say)
        self._bytes -= sum(len(suspect.id) for suspect, _ in outcomes)
        resolved = {id(suspect) for suspect, _ in outcomes}
        for suspect in read:
            if id(suspect) not in resolved:
                self._push(suspect)
        return [(suspect.owner, outcome) for suspect, outcome in outcomes]

    def outcomes(self, documents: Iterable[tuple[Pair, Iterable[bytes]]]) -> Iterator[Outcome]:
        """The outcome for each of these documents that differs at the first read; no others may be waiting."""
        for pair, ids in documents:
            for chunk in chunks(ids):
                if differing := self.differing(pair, chunk):
                    self.add(pair, differing)
                yield from self._wait(_HELD)
        yield from self._wait(0)

    def _wait(self, most: int) -> Iterator[Outcome]:
        while len(self) > most:
            time.sleep(self.pause() or 0)
            yield from (outcome for _, outcome in self.step())

    def differing(self, pair: Pair, ids: Sequence[bytes]) -> list[bytes]:
        """Those of these ids whose documents differ now; tried again while a server is unreachable."""

        def read() -> list[bytes]:
            ours, theirs = self._digests(pair, ids)
            return [id for id in ids if ours.get(id_key(id), _ABSENT)[0] != theirs.get(id_key(id), _ABSENT)[0]]

        return with_retries(f"read documents of {pair.source}", self.lost_for, read, self.say)

    def extra(self, pair: Pair, ids: Iterable[bytes]) -> Iterator[bytes]:
        """Those of these ids that only the destination has now; tried again while a server is unreachable.

        The source is read first, so what it deletes during the lookup does not count.
        """

        def read(chunk: Sequence[bytes]) -> list[bytes]:
            source = collection(self.source, pair.source).with_options(read_concern=_MAJORITY)
            ours = present(source, chunk, pair.only)
            left = [id for id in chunk if id_key(id) not in ours]
            theirs = present(collection(self.destination, pair.destination), left) if left else set()
            return [id for id in left if id_key(id) in theirs]

        for chunk in chunks(ids):
            yield from with_retries(f"read documents of {pair.source}", self.lost_for, partial(read, chunk), self.say)

    def _push(self, suspect: Suspect) -> None:
        pause = 0.0 if suspect.soon else self.recheck.pause(suspect.tried)
        suspect.soon = False
        heapq.heappush(self._waiting, (time.monotonic() + pause, next(self._count), suspect))

    def _due(self) -> list[Suspect]:
        """Documents of one namespace that are due, as many as one command can read."""
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
        for waiting in others:
            heapq.heappush(self._waiting, waiting)
        return taken

    def _reread(self, due: Sequence[Suspect]) -> list[tuple[Suspect, Outcome]]:
        pair, ids = due[0].pair, [suspect.id for suspect in due]
        ours, theirs = self._digests(pair, ids)
        outcomes: list[tuple[Suspect, Outcome]] = []
        unequal: list[Suspect] = []
        for suspect in due:
            suspect.tried += 1
            source, destination = ours.get(suspect.key, _ABSENT), theirs.get(suspect.key, _ABSENT)
            seen = source[0], destination[0]
            if seen[0] == seen[1]:
                outcomes.append((suspect, Same(pair.source, suspect.id)))
                continue
            suspect.steady, suspect.seen = suspect.steady and suspect.seen in (None, seen), seen
            suspect.size = source[1] + destination[1]
            unequal.append(suspect)
        now_judged, later = _up_to(_JUDGED_BYTES, self._passed(unequal))
        if now_judged:
            judge = Judge(self.source, self.destination, self.recheck.tries, self.ignore_field_order)
            outcomes += judge.judge(now_judged, self._start(now_judged))
        for suspect in later:
            suspect.soon = True
        resolved = {id(suspect) for suspect, _ in outcomes}
        late = [suspect for suspect in unequal if id(suspect) not in resolved and self._is_late(suspect)]
        return outcomes + [(suspect, Unresolved(pair.source, suspect.id, suspect.why)) for suspect in late]

    def _digests(self, pair: Pair, ids: Sequence[bytes]) -> tuple[_Digests, _Digests]:
        """Those of what should be at the destination, and of what is there."""
        ours = by_ids(collection(self.source, pair.source), ids, only=pair.only)
        theirs = by_ids(collection(self.destination, pair.destination), ids)
        return self._digested((key, pair.left(raw)) for key, raw in ours), self._digested(theirs)

    def _digested(self, documents: Iterable[tuple[Key, bytes]]) -> _Digests:
        normal = in_one_order if self.ignore_field_order else bytes
        return {key: (hashlib.sha256(normal(raw)).digest(), len(raw)) for key, raw in documents}

    def _start(self, group: Sequence[Suspect]) -> Timestamp | None:
        """A cluster time that the pipeline has passed, as far as can be known."""
        times = [suspect.seen_at for suspect in group if suspect.seen_at is not None]
        return self._passed_until if self.passed is not None else max(times, default=None)

    def _is_late(self, suspect: Suspect) -> bool:
        waited = time.monotonic() - suspect.since
        return suspect.tried >= self.recheck.tries and waited > self.recheck.patience

    def _passed(self, suspects: list[Suspect]) -> list[Suspect]:
        """Those that the pipeline has passed since they were first seen to differ."""
        if self.passed is None or any(suspect.seen_at is None for suspect in suspects):
            return [suspect for suspect in suspects if suspect.tried >= self.recheck.tries]
        times = sorted({suspect.seen_at for suspect in suspects if suspect.seen_at is not None})
        for seen_at in (times[-1], times[0]) if times else ():  # the newest includes all others
            if (self._passed_until is None or seen_at > self._passed_until) and self.passed(seen_at):
                self._passed_until = seen_at
        for suspect in suspects:
            suspect.why = f"the pipeline has not passed {suspect.seen_at}"
        until = self._passed_until
        return [suspect for suspect in suspects if until and suspect.seen_at and suspect.seen_at <= until]


def _up_to(limit: int, suspects: Sequence[Suspect]) -> tuple[list[Suspect], list[Suspect]]:
    """The first suspects whose documents have up to `limit` bytes together (at least one suspect), and the others."""
    sizes = itertools.accumulate(suspect.size for suspect in suspects)
    taken = max(1, sum(size <= limit for size in sizes))
    return list(suspects[:taken]), list(suspects[taken:])
