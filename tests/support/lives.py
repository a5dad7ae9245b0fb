"""Does the destination mix up what was dropped, renamed or replaced? Decided on its change stream.

Each write sets `MARK`: the life of the collection that it writes to, a number that a collection gets when it is made
and takes with it when it is renamed; and a version, which rises with each write. The writer knows which lives a name
has had, and in which order.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any

from pymongo.change_stream import ClusterChangeStream
from pymongo.errors import ConnectionFailure

from tests.support import raw

MARK = "mark"
_SHOWN = 5
_END = "lives-end"  # the collection whose first document tells the reader that it has seen everything
_LITTLE = [
    {"$match": {"ns.db": {"$nin": ["towpath", "config"]}}},
    {
        "$project": {
            "operationType": 1,
            "ns": 1,
            "documentKey": 1,
            f"fullDocument.{MARK}": 1,
            f"updateDescription.updatedFields.{MARK}": 1,
        }
    },
]


def mark(life: int, version: int) -> dict[str, Any]:
    """What a write of this life sets."""
    return {MARK: {"life": life, "version": version}}


class Lives:
    """What was seen at the destination; `faults` once it is held against the `order` of lives at the source."""

    def __init__(self) -> None:
        self.events: list[tuple[str, object, int | None, int]] = []
        """Namespace, `_id`, life (None for a delete) and version."""

    def add(self, event: Mapping[str, Any]) -> None:
        kind, namespace = event["operationType"], f"{event['ns']['db']}.{event['ns']['coll']}"
        if kind == "delete":
            self.events.append((namespace, event["documentKey"]["_id"], None, 0))
            return
        fields = event.get("updateDescription", {}).get("updatedFields") or event.get("fullDocument") or {}
        if MARK in fields:  # an update may come in several writes
            self.events.append((namespace, event["documentKey"]["_id"], fields[MARK]["life"], fields[MARK]["version"]))

    def faults(self, order: Mapping[str, Sequence[int]]) -> list[str]:
        found, at = list[str](), defaultdict[str, int](int)
        newest: dict[tuple[str, int], dict[object, int]] = defaultdict(dict)
        gone: set[tuple[str, int, object]] = set()
        current: dict[str, int] = {}
        for number, (namespace, identity, life, version) in enumerate(self.events):
            if life is None:
                if namespace in current:
                    gone.add((namespace, current[namespace], identity))
                continue
            lives = order.get(namespace, ())
            later = [index for index in range(at[namespace], len(lives)) if lives[index] == life]
            where = f"{namespace} {identity!r} (event {number})"
            if not later:
                found.append(f"{where}: of life {life} after {lives[: at[namespace] + 1][-3:]}")
                continue
            at[namespace], current[namespace] = later[0], life
            before = newest[namespace, life].get(identity, 0)
            was_deleted = (namespace, life, identity) in gone
            if version < before or (version == before and was_deleted):
                found.append(f"{where}: version {version} after {before}, life {life}")
            newest[namespace, life][identity] = max(before, version)
            gone.discard((namespace, life, identity))
        return found


class LivesWatch:
    """Reads the change stream of a whole destination, in a thread, from entry to exit of a `with`."""

    def __init__(self, client: raw.Client, database: str) -> None:
        self.lives = Lives()
        self._client, self._database = client, database
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="lives", daemon=True)

    def __enter__(self) -> LivesWatch:
        self._stream: ClusterChangeStream[dict[str, Any]] = self._client.watch(_LITTLE, max_await_time_ms=300)
        self._stop = threading.Event()
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if error is None:
            self._client[self._database][_END].insert_one({})
        else:
            self._stop.set()
        self._thread.join(60)
        assert error is not None or not self._thread.is_alive(), "the change stream did not come to its end within 60 s"
        self._client[self._database][_END].drop()
        if self._error is not None and error is None:
            raise self._error

    def seen(self, order: Mapping[str, Sequence[int]], *, at_least: int) -> int:
        """How many changes of documents there were; fail where one is of a life that was over, or went back."""
        faults, events = self.lives.faults(order), len(self.lives.events)
        listed = "\n".join(faults[:_SHOWN])
        assert not faults, (
            f"{len(faults)} of {events} changes at the destination are out of order; the first:\n{listed}"
        )
        assert events >= at_least, f"in order, but the destination saw {events} changes, not {at_least}"
        return events

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                try:
                    event = self._stream.try_next()
                except ConnectionFailure:
                    after = self._stream.resume_token
                    self._stream.close()
                    self._stream = self._client.watch(_LITTLE, max_await_time_ms=300, resume_after=after)
                    continue
                if event is None or "documentKey" not in event:
                    continue
                if event["ns"]["coll"] == _END:
                    return
                self.lives.add(event)
        except BaseException as error:  # noqa: BLE001  # handed to the thread that waits
            self._error = error
        finally:
            self._stream.close()
