"""Transactions whose end Kafka has lost: found and ended while the pipeline is watched."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

from towpath.errors import TopicError
from towpath.kafka.topics import Place
from towpath.session import Session

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
