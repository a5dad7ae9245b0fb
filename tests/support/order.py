"""Does the destination ever go back? Decided on its change stream, by the counter that `Workload(versions=True)` keeps.

with Order(client, database) as order:
    ...
assert order.seen(at_least=500)
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from types import TracebackType
from typing import Any, Self

from bson import Decimal128
from bson.codec_options import CodecOptions, DatetimeConversion
from bson.raw_bson import RawBSONDocument
from pymongo.change_stream import DatabaseChangeStream
from pymongo.errors import ConnectionFailure

from tests.support import raw
from tests.support.workload.versions import VERSION

_SHOWN = 5
END = "order-end"  # the collection whose first document tells the reader that it has seen everything
_RAW: CodecOptions[Any] = CodecOptions(
    document_class=RawBSONDocument, datetime_conversion=DatetimeConversion.DATETIME_MS
)
_LITTLE = [
    {
        "$project": {
            "operationType": 1,
            "ns": 1,
            "documentKey": 1,
            f"fullDocument.{VERSION}": 1,
            f"updateDescription.updatedFields.{VERSION}": 1,
        }
    }
]


class History:
    """The newest version of each document, over its deletes. Values of `_id` that a server holds equal are one."""

    def __init__(self) -> None:
        self.events = 0
        self.faults: list[str] = []
        self._newest: dict[object, int] = {}
        self._gone: set[object] = set()

    def add(self, event: Mapping[str, Any]) -> None:
        """Take in a change event; note what it undoes."""
        self.events += 1
        kind, identity = event["operationType"], event["documentKey"]["_id"]
        place = (event["ns"]["coll"], comparable(identity))
        if kind == "delete":
            self._gone.add(place)
            return
        version = _version(event)
        if version is None:
            if kind != "update":
                self.faults.append(f"{kind} of {event['ns']['coll']} {identity!r} without a version")
            return
        newest = self._newest.get(place, 0)
        # an update may come in several writes, all of its version; what was deleted comes back newer or not at all
        if version < newest or (version == newest and place in self._gone):
            what = "the delete was undone by" if place in self._gone else "went back through"
            where = f"{event['ns']['coll']} {identity!r}"
            self.faults.append(f"{where}: {what} a {kind} of version {version} after {newest} (event {self.events})")
        self._newest[place] = max(version, newest)
        self._gone.discard(place)


def _version(event: Mapping[str, Any]) -> int | None:
    if event["operationType"] == "update":
        found = event.get("updateDescription", {}).get("updatedFields", {}).get(VERSION)
    else:
        found = event.get("fullDocument", {}).get(VERSION)
    return None if found is None else int(found)


def comparable(value: Any) -> object:
    """The same for values that are one `_id` to a server: Python holds 5, 5.0 and Decimal("5.00") equal as well."""
    match value:
        case bool():
            return "bool", value
        case Decimal128():
            return comparable(value.to_decimal())
        case int() | float() | Decimal():
            return "number", "NaN" if math.isnan(value) else value
        case Mapping():
            return "document", tuple((name, comparable(inner)) for name, inner in value.items())
        case list():
            return "array", tuple(map(comparable, value))
        case _:
            return type(value).__name__, repr(value)


class Watched:
    """Reads the change stream of one database, in a thread, from entry to exit of a `with`: `take` gets every event.

    `stages` say what of an event is read.
    """

    def __init__(
        self,
        client: raw.Client,
        database: str,
        stages: Sequence[Mapping[str, Any]],
        take: Callable[[Mapping[str, Any]], None],
    ) -> None:
        self._client, self._database, self._stages, self._take = client, database, stages, take
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=f"changes of {database}", daemon=True)

    def __enter__(self) -> Self:
        self._stream = self._watch()
        self._stop = threading.Event()
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if error is None:
            self._client[self._database][END].insert_one({})
        else:
            self._stop.set()
        self._thread.join(60)
        assert error is not None or not self._thread.is_alive(), "the change stream did not come to its end within 60 s"
        if self._error is not None and error is None:
            raise self._error

    @property
    def is_over(self) -> bool:
        """Whether all events are read."""
        return not self._thread.is_alive()

    def _watch(self, **after: Any) -> DatabaseChangeStream[dict[str, Any]]:
        watched = self._client.get_database(self._database, codec_options=_RAW)
        return watched.watch(self._stages, max_await_time_ms=500, **after)

    def _next(self) -> Mapping[str, Any] | None:
        """The next event; the stream begins again behind the last one where a server was lost more than once."""
        try:
            return self._stream.try_next()
        except ConnectionFailure:
            after = self._stream.resume_token
            self._stream.close()
            self._stream = self._watch(resume_after=after)
            return None

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                event = self._next()
                if event is None or "documentKey" not in event:  # nothing yet, or about a collection
                    continue
                if event["ns"]["coll"] == END:
                    return
                self._take(event)
        except BaseException as error:  # noqa: BLE001  # handed to the thread that waits
            self._error = error
        finally:
            self._stream.close()


class Order(Watched):
    """The versions of all documents of one database at the destination, from entry to exit of a `with`."""

    def __init__(self, client: raw.Client, database: str) -> None:
        self.history = History()
        super().__init__(client, database, _LITTLE, self.history.add)

    def seen(self, *, at_least: int) -> int:
        """How many events there were, once all are read; fail where a document went back, or too few came."""
        assert self.is_over, "ask after the `with`: the change stream is still being read"
        faults, events = self.history.faults, self.history.events
        listed = "\n".join(faults[:_SHOWN])
        assert not faults, f"{len(faults)} of {events} events at the destination are out of order; the first:\n{listed}"
        assert events >= at_least, f"in order, but the destination saw {events} changes, not {at_least}"
        return events
