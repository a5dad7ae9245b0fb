"""A source whose time advances, as that of one in use does: `wait` and positions are told by it.

An idle server writes an entry to its oplog once a second, no more often, and so each `wait` on it takes two to three.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Any

from pymongo import MongoClient
from pymongo.errors import PyMongoError

_EVERY_S = 0.2


class Clock:
    """Writes a note to the oplog, which no change stream shows, five times a second from entry to exit of a `with`."""

    def __init__(self, uri: str) -> None:
        self._uri = uri
        self._end, self._goes = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="clock", daemon=True)

    def __enter__(self) -> Clock:
        self._goes.set()
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._end.set()
        self._goes.set()
        self._thread.join(30)

    @contextmanager
    def stopped(self) -> Iterator[None]:
        self._goes.clear()
        try:
            yield
        finally:
            self._goes.set()

    def _run(self) -> None:
        with MongoClient[dict[str, Any]](self._uri) as client:
            while not self._end.wait(_EVERY_S):
                self._goes.wait()
                with suppress(PyMongoError):  # a server that a test has stopped; without the clock all is only slower
                    client.admin.command("appendOplogNote", data={"clock": 1})
