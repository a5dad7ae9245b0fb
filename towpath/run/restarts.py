"""What to do about failed connectors and hanging transactions: when to restart or end them, or which commands help."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from towpath.clients.kafka.topics import Place
from towpath.errors import TopicError
from towpath.log import bounds
from towpath.log.definitions import pipeline_topics
from towpath.session import Session
from towpath.store.positions import LOG_GAP, MISSED_DELETES

#: Commands to run in this order, each with its options.
Commands = tuple[tuple[str, ...], ...]
_AFTER_MISSED_DELETES = (("restart", MISSED_DELETES), ("verify",), ("repair",))
_AFTER_LOG_GAP = (("restart", LOG_GAP), ("verify",), ("repair",))
_RESNAPSHOT = (("resnapshot",), ("verify",))
_CONFIG = (("check",), ("deploy",))
_REBUILD = (("remove",), ("deploy",), ("replay", "--rebuild"), ("prepare",), ("verify",))


@dataclass(frozen=True, slots=True)
class Lasting:
    """A failure that a restart does not cure: why it lasts, and what to run."""

    why: str
    commands: Commands

    def text(self, file: Path | str) -> str:
        """The commands for the pipeline of this file."""
        return "; ".join(" ".join(["towpath", command, str(file), *options]) for command, *options in self.commands)


_LASTING: Mapping[str, Lasting] = {
    **dict.fromkeys(bounds.CODES, Lasting("the log does not continue at the sink's position", _AFTER_LOG_GAP)),
    "TWP-DELETES-MISSED": Lasting("deletes may be gone from the log", _AFTER_MISSED_DELETES),
    "TWP-HISTORY-LOST": Lasting(
        "changes of the source since the last captured one are lost; if it was restored, first save what it lacks",
        _RESNAPSHOT,
    ),
    "TWP-OTHER-HISTORY": Lasting(
        "the source was restored, or has lost its latest changes: save what it lacks before the resnapshot",
        (("verify", "--alone"), ("resnapshot",)),
    ),
    "TWP-RULES-CHANGED": Lasting("its rules have changed since its documents were read", _RESNAPSHOT),
    "TWP-COPY-PENDING": Lasting("its worker's heap is too small for what changed during the copy", _CONFIG),
    **dict.fromkeys(("TWP-CONFIG", "TWP-COLLATION"), Lasting("its configuration cannot work", _CONFIG)),
    "TWP-SHARED-POSITION": Lasting("another connector applies the same log: remove one of the two", (("restart",),)),
    "TWP-POSITION-LOST": Lasting("the destination was emptied, or its positions were removed", _REBUILD),
    "TWP-SCHEMA-RECORD": Lasting("the log has a schema change of a later version: upgrade its plugin", (("restart",),)),
    "TWP-NOT-EXACTLY-ONCE": Lasting("its worker writes without transactions", (("check",),)),
}


def lasting(codes: Iterable[str]) -> Lasting | None:
    """The first of these failure codes that a restart does not cure; None when a restart may cure all of them."""
    return next((_LASTING[code] for code in codes if code in _LASTING), None)


@dataclass(slots=True)
class Backoff:
    """When to retry. Times are seconds of one clock.

    Each pause is `factor` times the one before, up to `longest`. `reset_after` healthy seconds make it `first` again.
    """

    first: float
    longest: float
    reset_after: float
    factor: float = 2.0
    tries: int = 0
    """Since the last reset."""
    due: float | None = None
    """When to retry; None while there is nothing to retry."""
    _healthy_since: float | None = None

    def failed(self, now: float) -> float | None:
        """Note a failure. Returns the pause until the retry; None if a retry is scheduled already."""
        self._healthy_since = None
        if self.due is not None:
            return None
        pause = min(self.longest, self.first * self.factor ** min(self.tries, 64))
        self.due = now + pause
        return pause

    def is_due(self, now: float) -> bool:
        return self.due is not None and now >= self.due

    def tried(self) -> None:
        self.tries, self.due = self.tries + 1, None

    def healthy(self, now: float) -> None:
        """Note that it works, and cancel a scheduled retry."""
        self.due = None
        if self._healthy_since is None:
            self._healthy_since = now
        if now - self._healthy_since >= self.reset_after:
            self.tries = 0


@dataclass(slots=True)
class Pulse:
    """Detects work that hangs by a sign of life that stops changing. Times are seconds of one clock.

    Nothing counts as hanging before the sign has changed once, since some work begins silently.
    """

    longest: float
    """Seconds for which the sign may stay unchanged."""
    _sign: object = None
    _changed: float | None = None

    def restart(self) -> None:
        """Other work begins."""
        self._sign = self._changed = None

    def hangs(self, sign: object, now: float) -> bool:
        if sign != self._sign:
            self._changed = None if self._sign is None else now
            self._sign = sign
        return self._changed is not None and now - self._changed > self.longest


_INTERVAL = 10.0  # seconds between two checks of the pipeline's topics
_WIDE_INTERVAL = 60.0  # seconds between two that cover all topics
_SHORT = 1.0  # seconds; few transactions take longer


@dataclass(slots=True)
class HangingTransactions:
    """Ends hanging transactions. Every `_INTERVAL` it lists open ones, and examines those that stay open for longer.

    The source connectors' transactions also write to the topic of Connect's offsets. Its name is not known, so all
    topics of the Kafka cluster are covered, and less often: there may be many.
    """

    session: Session
    _checked: float = float("-inf")
    _checked_all: float = float("-inf")

    def turn(self, now: float) -> Iterator[str]:
        """If a check is due, end hanging transactions; yields a message for each. Raises `TowpathError`."""
        if now - self._checked < _INTERVAL:
            return
        self._checked, topics = now, self.session.topics
        covers_all = now - self._checked_all >= _WIDE_INTERVAL
        names = None if covers_all else pipeline_topics(self.session.pipeline, topics.all())
        before = topics.open_transactions(names)
        if covers_all:
            self._checked_all = now
        if before:
            time.sleep(_SHORT)
            after = topics.open_transactions({topic for topic, _ in before})
            long = [place for place, offset in after.items() if before.get(place) == offset]
            yield from end_transactions(self.session, long)


def end_transactions(session: Session, places: list[Place]) -> Iterator[str]:
    """End those transactions at `places` that hang; yields a message for each.

    Raises `TowpathError`; `TopicError` names those that could not be ended, after the others have been.
    """
    if not places:
        return
    from towpath.clients.kafka import hanging_transactions  # here, because it costs 0.15 s of CPU

    failed = []
    for transaction in hanging_transactions.find(session.topics, session.pipeline.source_connectors, places):
        try:
            commits = hanging_transactions.end(session.topics, transaction)
        except TopicError as error:
            failed.append(str(error))
        else:
            outcome = "committed" if commits else "aborted"
            yield f"{transaction.about} was hanging: {outcome} it, as its coordinator had decided"
    if failed:
        raise TopicError("; ".join(failed))
