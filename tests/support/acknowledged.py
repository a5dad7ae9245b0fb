"""A writer that remembers what was acknowledged, and can be sent from one cluster to another."""

from __future__ import annotations

import threading
import time
from collections import Counter
from types import TracebackType

from bson import Int64
from pymongo.errors import OperationFailure

from tests.support.awaited import until
from tests.support.raw import Client, Documents

_COUNTERS = 50  # documents that are counted up, and whose arrays grow
_BLOCKED = 371  # UserWritesBlocked in MongoDB's error_codes.yml


class AcknowledgedWriter:
    """Inserts, counts and pushes in one collection, each write once; `gaps` are the times without one, in seconds.

    While the server refuses writes, and after `pause`, it waits until `send` says where the next ones go.
    """

    def __init__(self, client: Client, database: str, collection: str, *, per_second: int) -> None:
        self.written = 0
        self.gaps: list[float] = []
        self._database, self._collection, self._pause_s = database, collection, 1 / per_second
        self._counted: Counter[int] = Counter()
        self._pushed: dict[int, list[int]] = {n: [] for n in range(_COUNTERS)}
        self._inserted: list[int] = []
        self._stop, self._goes_on = threading.Event(), threading.Event()
        self._idle = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="acknowledged writer", daemon=True)
        self.send(client)

    def fill(self) -> None:
        self._documents.insert_many([{"_id": -1 - n, "count": Int64(0), "pushed": []} for n in range(_COUNTERS)])

    def send(self, client: Client) -> None:
        """From now on it writes there."""
        self._documents: Documents = client[self._database][self._collection]
        self._goes_on.set()

    def pause(self) -> None:
        """Return when the last write was acknowledged."""
        self._goes_on.clear()
        until("the last write", self._idle.is_set, 30, 0.01)

    def __enter__(self) -> AcknowledgedWriter:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stop.set()
        self._goes_on.set()
        self._thread.join(60)
        if self._error is not None and error is None:
            raise self._error

    def wait_for_more(self, writes: int) -> None:
        wanted = self.written + writes
        until(f"{writes} more writes", lambda: self.written >= wanted or self._error is not None, 120, 0.02)
        assert self._error is None, repr(self._error)

    def assert_all_at(self, client: Client) -> None:
        """Every acknowledged write is there, once. Nothing else is."""
        documents = client[self._database][self._collection]
        found = {one["_id"]: one for one in documents.find()}
        assert sorted(n for n in found if n >= 0) == self._inserted
        for n in range(_COUNTERS):
            one = found[-1 - n]
            assert (one["count"], one["pushed"]) == (self._counted[n], self._pushed[n]), one["_id"]

    def _run(self) -> None:
        due = last = time.monotonic()
        try:
            while not self._stop.is_set():
                if not self._goes_on.is_set():
                    self._idle.set()
                    self._goes_on.wait()
                    self._idle.clear()
                    due = time.monotonic()
                    continue
                if self._wrote(self.written):
                    self.written += 1
                    if (gap := time.monotonic() - last) > 0.5:
                        self.gaps.append(gap)
                    last = time.monotonic()
                due = max(due + self._pause_s, time.monotonic() - 1)
                time.sleep(max(0.0, due - time.monotonic()))
        except BaseException as error:  # noqa: BLE001  # handed to the thread that waits
            self._error = error

    def _wrote(self, number: int) -> bool:
        which = number % _COUNTERS
        try:
            if number % 3 == 0:
                self._documents.insert_one({"_id": number, "text": "x" * 200})
                self._inserted.append(number)
            elif number % 3 == 1:
                self._documents.update_one({"_id": -1 - which}, {"$inc": {"count": Int64(1)}})
                self._counted[which] += 1
            else:
                change = {"$push": {"pushed": {"$each": [number], "$slice": -100}}}
                self._documents.update_one({"_id": -1 - which}, change)
                self._pushed[which] = [*self._pushed[which], number][-100:]
        except OperationFailure as error:
            if error.code != _BLOCKED:
                raise
            self._goes_on.clear()
            return False
        return True
