"""Late writes: what is written to a pipeline's collections after its writers were said to have ended."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any

from bson.json_util import RELAXED_JSON_OPTIONS, dumps
from pymongo.change_stream import ChangeStream
from pymongo.errors import ConnectionFailure, PyMongoError

from towpath.bookkeeping.positions import DATABASE
from towpath.pipeline import Pipeline
from verifier.errors import Unsuitable
from verifier.proof import token_time
from verifier.reads import Client, brief, now

_AWAIT_MS = 50
_AGAIN_S, _LOOK_S, _JOIN_S = 0.2, 0.02, 1.0
_DOCUMENT = "documentKey"


class LateWrites:
    """Watches on a thread, from its making on, everything that a pipeline takes in: also collections to come.

    `end` is called once, with words, for the first write, or when writes cannot be seen. Raises `Unsuitable` for a
    standalone, which has no change streams.
    """

    def __init__(self, client: Client, pipeline: Pipeline, side: str, end: Callable[[str], None]) -> None:
        since = now(client)
        if since is None:
            raise Unsuitable(f"the {side} is a standalone mongod, on which writes cannot be seen")
        self._client, self._pipeline, self._side, self._end = client, pipeline, side, end
        self._since = self._seen = since
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="late writes", daemon=True)

    def __enter__(self) -> LateWrites:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stopped.set()
        self._thread.join(_JOIN_S)  # a server that does not answer is not waited for

    def look(self) -> None:
        """Return once all that was written up to this call has been looked at; not at all after a late write."""
        until = now(self._client) or self._since
        while self._seen < until:
            time.sleep(_LOOK_S)

    def _run(self) -> None:
        while not self._stopped.is_set():
            try:
                with watch(self._client, self._pipeline, start_at_operation_time=self._since) as stream:
                    self._follow(stream)
                    return
            except ConnectionFailure:
                self._stopped.wait(_AGAIN_S)
            except PyMongoError as error:
                if not self._stopped.is_set():
                    self._end(f"cannot see whether anything is written to the {self._side}: {brief(error)}")
                return

    def _follow(self, stream: ChangeStream[Any]) -> None:
        while not self._stopped.is_set():
            event = stream.try_next()
            if event is None:
                self._seen = token_time(stream.resume_token)
            elif event["clusterTime"] > self._since:
                self._end(self._words(event))
                return

    def _words(self, event: Mapping[str, Any]) -> str:
        id = event.get(_DOCUMENT, {}).get("_id")
        shown = "" if id is None else f" of _id {dumps(id, json_options=RELAXED_JSON_OPTIONS, ensure_ascii=False)}"
        at = event["clusterTime"].as_datetime().strftime("%Y-%m-%d %H:%M:%S UTC")
        return (
            f"writes went on although they were to have ended: {event['namespace']} got the {event['operationType']}"
            f"{shown} at {at}, at the {self._side}. Documents that expire count as well: then try again, or with"
            " --block-writes, under which none expires"
        )


def watch(client: Client, pipeline: Pipeline, **where: Any) -> ChangeStream[Any]:
    """A change stream of what the pipeline takes in; `namespace` is an event's, `renamed` what a collection became."""
    taken_in = {"$regex": pipeline.selection.namespace_regex}
    stages: list[Mapping[str, Any]] = [
        {
            "$project": {
                **dict.fromkeys(("operationType", "ns", _DOCUMENT, "clusterTime"), 1),
                "namespace": {"$concat": ["$ns.db", ".", "$ns.coll"]},
                "renamed": {"$concat": ["$to.db", ".", "$to.coll"]},
            }
        },
        {"$match": {"ns.db": {"$ne": DATABASE}, "$or": [{"namespace": taken_in}, {"renamed": taken_in}]}},
    ]
    return client.watch(stages, max_await_time_ms=_AWAIT_MS, **where)
