"""What to do about connectors that fail and transactions that hang: restart or end them, in time, or say what helps."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from towpath.bookkeeping.positions import LOG_GAP, MISSED_DELETES
from towpath.errors import TopicError
from towpath.kafka.topics import Place
from towpath.log import bounds
from towpath.session import Session

#: Verbs of the command line that are to be run, in this order, each with its options.
Verbs = tuple[tuple[str, ...], ...]
_MISSED = (("restart", MISSED_DELETES), ("verify",), ("repair",))
_GAP = (("restart", LOG_GAP), ("verify",), ("repair",))
_AGAIN = (("resnapshot",), ("verify",))
_CONFIG = (("check",), ("deploy",))
_NO_HISTORY = "the source's history since the pipeline's position is gone"
_UNUSABLE = "its configuration cannot work"
#: The code of a failure that comes back however often the task is restarted → why, and what to run then.
_LASTING: Mapping[str, tuple[str, Verbs]] = {
    **dict.fromkeys(bounds.CODES, ("the log does not go on where the sink is", _GAP)),
    "TWP-DELETES-MISSED": ("deletes may be gone from the log", _MISSED),
    "TWP-HISTORY-LOST": (_NO_HISTORY, _AGAIN),
    "TWP-COPY-TOO-SLOW": ("the copy would outlive the oplog: raise its limit in the file", (("deploy",),)),
    "TWP-CONFIG": (_UNUSABLE, _CONFIG),
    "TWP-COLLATION": (_UNUSABLE, _CONFIG),
    "TWP-SHARED-POSITION": ("another connector applies the same log: remove one of the two", (("restart",),)),
    "TWP-NOT-EXACTLY-ONCE": ("its worker writes without transactions", (("check",),)),
}


@dataclass(frozen=True, slots=True)
class Lasting:
    """A failure that no restart mends."""

    why: str
    verbs: Verbs


def lasting(codes: Iterable[str]) -> Lasting | None:
    """What is known of the first of these codes of failures that lasts; None when a restart may mend them all."""
    return next((Lasting(*_LASTING[code]) for code in codes if code in _LASTING), None)


@dataclass(slots=True)
class Backoff:
    """When to try again. Times are seconds of one clock.

    Each pause is `factor` times the last, up to `longest`; what was well for `well` seconds begins anew.
    """

    first: float
    longest: float
    well: float
    factor: float = 2.0
    tries: int = 0
    """Since it was last well for long enough."""
    due: float | None = None
    """When to try next; None while there is nothing to be tried."""
    _well_since: float | None = None

    def failed(self, now: float) -> float | None:
        """It is not well. The pause until it is to be tried, when that has just been decided."""
        self._well_since = None
        if self.due is not None:
            return None
        pause = min(self.longest, self.first * self.factor ** min(self.tries, 64))
        self.due = now + pause
        return pause

    def is_due(self, now: float) -> bool:
        return self.due is not None and now >= self.due

    def tried(self) -> None:
        self.tries, self.due = self.tries + 1, None

    def is_well(self, now: float) -> None:
        """It is well; what was to be tried is not."""
        self.due = None
        if self._well_since is None:
            self._well_since = now
        if now - self._well_since >= self.well:
            self.tries = 0


@dataclass(slots=True)
class Pulse:
    """Whether something hangs that changes a sign of life while it works. Times are seconds of one clock.

    It is judged once the sign has changed, since some work begins in silence.
    """

    longest: float
    """For so long the sign may stay as it is."""
    _sign: object = None
    _changed: float | None = None

    def hangs(self, sign: object, now: float) -> bool:
        if sign != self._sign:
            self._changed = None if self._sign is None else now
            self._sign = sign
        return self._changed is not None and now - self._changed > self.longest


_EVERY = 10.0  # seconds between two looks
_MOMENT = 1.0  # second, which few transactions take


@dataclass(slots=True)
class Ends:
    """Looks from time to time, and closer at a transaction that takes longer than most."""

    it: Session
    _looked: float = float("-inf")

    def turn(self, now: float) -> Iterator[str]:
        """End what has lost its end; says of each what was done. Raises `TowpathError` where that cannot be."""
        if now - self._looked < _EVERY:
            return
        self._looked = now
        before = self.it.topics.open_transactions()
        if before:
            time.sleep(_MOMENT)
            after = self.it.topics.open_transactions()
            yield from end(self.it, [place for place, offset in after.items() if before.get(place) == offset])


def end(it: Session, places: list[Place]) -> Iterator[str]:
    """End those at `places` that have lost their ends; says of each what was done.

    Raises `TowpathError`; `TopicError` for those that could not be ended, once the others are.
    """
    if not places:
        return
    from towpath.kafka import hanging_transactions  # 0.15 s of processor, which only those shall pay who need it

    failed = []
    for lost in hanging_transactions.find(it.topics, it.pipeline.source_connectors, places):
        try:
            hanging_transactions.end(it.topics, lost)
        except TopicError as error:
            failed.append(str(error))
        else:
            yield f"{lost.about} had lost its end: {'committed' if lost.commits else 'aborted'} it, as had been decided"
    if failed:
        raise TopicError("; ".join(failed))
