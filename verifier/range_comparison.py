"""One range of two collections, read in `_id` order on both sides; a server may be lost and come back."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from pymongo.collection import Collection
from pymongo.errors import PyMongoError

from verifier.merge import Merged, Side, merged
from verifier.order import id_key
from verifier.ranges import Bounds
from verifier.reads import in_id_order
from verifier.server_loss import brief, in_words, is_passing, patiently


@dataclass(slots=True)
class RangeRead:
    """Reads one range. A read that breaks off goes on behind the last `_id` that was decided."""

    source: Collection[Any]
    destination: Collection[Any]
    bounds: Bounds
    batch_size: int
    ordered: bool = True
    """Whether `verifier.order` knows the order of the `_id`s: without it a read cannot go on in the middle."""
    ignore_field_order: bool = False
    lost_for: float = 60.0
    """Seconds that a server may be lost."""
    say: Callable[[str], None] = field(default=lambda words: None)
    _sides: list[Side] = field(default_factory=list)
    _closed: int = 0

    @property
    def read(self) -> int:
        """Bytes of documents that both servers sent so far."""
        return self._closed + sum(side.read for side in self._sides)

    def __iter__(self) -> Iterator[Merged]:
        """What is equal and what is not, in `_id` order. Raises `ServerLost`, or `VerifierError` for a refusal."""
        done: bytes | None = None
        lost_since: float | None = None
        while True:
            self._sides = self._open(done)
            try:
                for one in merged(self._sides[0], self._sides[1], ignore_field_order=self.ignore_field_order):
                    yield one
                    lost_since = None
                return
            except PyMongoError as error:
                lost_since = lost_since or time.monotonic()
                self._await(error, lost_since)
                done = _later(done, *(side.position for side in self._sides))
            finally:
                self._closed, self._sides = self.read, []

    def _open(self, done: bytes | None) -> list[Side]:
        low = self.bounds.low if done is None else done
        known = None if done is None else id_key(done)
        batches = (in_id_order(it, low, self.bounds.high, self.batch_size) for it in (self.source, self.destination))
        return [Side(one, known) for one in batches]

    def _await(self, error: PyMongoError, since: float) -> None:
        what = f"compare {self.source.full_name} with {self.destination.full_name}"
        if not self.ordered or not is_passing(error) or time.monotonic() - since > self.lost_for:
            raise in_words(what, error) from error
        self.say(f"{what}: {brief(error)}; waiting up to {self.lost_for:g} s for the server")
        for documents in (self.source, self.destination):
            admin = documents.database.client.admin
            patiently(what, self.lost_for, lambda admin=admin: admin.command("hello"))  # type: ignore[misc]


def _later(*positions: bytes | None) -> bytes | None:
    """The one of these `_id`s that comes last."""
    known = [one for one in positions if one is not None]
    return max(known, key=lambda one: id_key(one), default=None)
