"""A pipeline as small as can be, for tests of the verifier: a change stream applied with a lag, change by change.

Updates are applied as updates, so that damage at the destination stays where no change touches it.
"""

from __future__ import annotations

import threading
import time
from types import TracebackType
from typing import Any

from bson.timestamp import Timestamp

from tests.support import raw


class Replicator:
    """Applies one database of a client to another client's, from entry to exit of a `with`."""

    def __init__(self, source: raw.Client, destination: raw.Client, database: str, lag: float = 0.3) -> None:
        self._source, self._destination, self._database, self._lag = source, destination, database, lag
        self._position = Timestamp(0, 0)
        self._stop = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="replicator", daemon=True)

    def __enter__(self) -> Replicator:
        self._stream = self._source[self._database].watch(max_await_time_ms=100)
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stop.set()
        self._thread.join(30)
        if self._error is not None and error is None:
            raise self._error

    def passed(self, moment: Timestamp) -> bool:
        """Whether every change up to this moment has been applied."""
        if self._error is not None:
            raise self._error
        return self._position > moment

    def _run(self) -> None:
        try:
            with self._stream as stream:
                while not self._stop.is_set():
                    event = stream.try_next()
                    token = (stream.resume_token or {})["_data"]
                    if event is None:
                        self._position = Timestamp(int(token[2:10], 16), int(token[10:18], 16))
                        continue
                    late = event["wallTime"].timestamp() + self._lag - time.time()
                    if late > 0:
                        time.sleep(late)
                    self._apply(event)
                    self._position = Timestamp(event["clusterTime"].time, event["clusterTime"].inc)
        except BaseException as error:  # noqa: BLE001  # handed to the thread that waits
            self._error = error

    def _apply(self, event: dict[str, Any]) -> None:
        if "documentKey" not in event:
            return
        documents = self._destination[self._database][event["ns"]["coll"]]
        match event["operationType"]:
            case "insert" | "replace":
                documents.replace_one(event["documentKey"], event["fullDocument"], upsert=True)
            case "update":
                change = event["updateDescription"]
                update = {
                    "$set": change["updatedFields"],
                    "$unset": dict.fromkeys(change["removedFields"], ""),
                }
                documents.update_one(event["documentKey"], {name: part for name, part in update.items() if part})
            case "delete":
                documents.delete_one(event["documentKey"])
