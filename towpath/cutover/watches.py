"""What a cutover follows on change streams, each on a thread: late writes, and changes of the schemas it has read."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from threading import Event, Thread
from types import TracebackType
from typing import Any, Self

from bson.json_util import RELAXED_JSON_OPTIONS, dumps
from bson.timestamp import Timestamp
from pymongo.change_stream import ChangeStream
from pymongo.errors import ConnectionFailure, PyMongoError

from towpath.clients.mongo.client import Cluster
from towpath.clients.mongo.replica_set import open_connections
from towpath.clients.mongo.versions import EXPANDED_EVENTS
from towpath.config.pipeline import Pipeline
from towpath.deploy.schema import AT_ONCE
from towpath.session import Session
from towpath.store.positions import DATABASE
from towpath_verifier import Client, Unsuitable, brief, cluster_time, feature_version, token_time

_AWAIT_MS = 50
_RETRY_S, _POLL_S, _JOIN_S = 0.2, 0.02, 1.0
_DOCUMENT = "documentKey"


class _Watch:
    """Follows a change stream of `client` on a thread, from the cluster time `since` on."""

    def __init__(self, client: Client, since: Timestamp) -> None:
        self._client, self._since, self._seen = client, since, since
        self._stopped = Event()
        self._thread = Thread(target=self._run, name="watch", daemon=True)

    def opened(self, **start: Any) -> ChangeStream[Any]:
        raise NotImplementedError

    def see(self, event: Mapping[str, Any]) -> None:
        """Take in an event."""
        raise NotImplementedError

    def fail(self, error: PyMongoError) -> None:
        """It cannot be followed; called once."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stopped.set()
        self._thread.join(_JOIN_S)  # does not wait for a server that does not answer

    def catch_up(self, is_over: Callable[[], bool] = lambda: False) -> None:
        """Return once everything before this call was seen, or once `is_over`; never, if the watch has ended."""
        until = cluster_time(self._client) or self._since
        while self._seen < until and not is_over():
            time.sleep(_POLL_S)

    def _run(self) -> None:
        while not self._stopped.is_set():
            try:
                with self.opened(start_at_operation_time=self._since) as stream:
                    self._follow(stream)
                    return
            except ConnectionFailure:
                self._stopped.wait(_RETRY_S)
            except PyMongoError as error:
                if not self._stopped.is_set():
                    self.fail(error)
                return

    def _follow(self, stream: ChangeStream[Any]) -> None:
        while not self._stopped.is_set():
            event = stream.try_next()
            if event is None:
                self._seen = token_time(stream.resume_token)
            elif event["clusterTime"] > self._since:
                self.see(event)


class LateWrites(_Watch):
    """Watches everything that a pipeline captures, from its creation on; also new collections.

    It calls `end` once, with a message, for the first write, or when it cannot watch. `catch_up` never returns after a
    late write. Raises `Unsuitable` for a standalone, which has no change streams.
    """

    def __init__(self, cluster: Cluster, pipeline: Pipeline, side: str, end: Callable[[str], None]) -> None:
        with cluster.connected() as client:
            since = cluster_time(client)
        if since is None:
            raise Unsuitable(f"the {side} is a standalone mongod, which has no change stream to watch for writes")
        super().__init__(client, since)
        self._pipeline, self._side, self._end = pipeline, side, end

    def opened(self, **start: Any) -> ChangeStream[Any]:
        return watch(self._client, self._pipeline, **start)

    def fail(self, error: PyMongoError) -> None:
        self._end(f"cannot watch the {self._side} for writes: {brief(error)}")

    def see(self, event: Mapping[str, Any]) -> None:
        self._stopped.set()  # what was seen is not past this event
        self._end(self._message(event))

    def _message(self, event: Mapping[str, Any]) -> str:
        id = event.get(_DOCUMENT, {}).get("_id")
        document = "" if id is None else f" of _id {dumps(id, json_options=RELAXED_JSON_OPTIONS, ensure_ascii=False)}"
        at = event["clusterTime"].as_datetime().strftime("%Y-%m-%d %H:%M:%S UTC")
        return (
            f"writes continued after the stop: {event['namespace']} got the {event['operationType']}{document} at {at}"
            f" on the {self._side}. Documents deleted by a TTL index count as well: then try again, or use"
            " --block-writes, which stops TTL deletes"
        )


def watch(client: Client, pipeline: Pipeline, **start: Any) -> ChangeStream[Any]:
    """A change stream of what the pipeline captures, with the added fields `namespace` and `renamed` (the new name)."""
    selected = {"$regex": pipeline.selection.namespace_regex}
    stages: list[Mapping[str, Any]] = [
        {
            "$project": {
                **dict.fromkeys(("operationType", "ns", _DOCUMENT, "clusterTime"), 1),
                "namespace": {"$concat": ["$ns.db", ".", "$ns.coll"]},
                "renamed": {"$concat": ["$to.db", ".", "$to.coll"]},
            }
        },
        {"$match": {"ns.db": {"$ne": DATABASE}, "$or": [{"namespace": selected}, {"renamed": selected}]}},
    ]
    return client.watch(stages, max_await_time_ms=_AWAIT_MS, **start)


#: Events of a change stream with `showExpandedEvents` (MongoDB 6.0) that change a schema.
_OF_SCHEMA = ("create", "createIndexes", "drop", "dropIndexes", "modify", "rename")
_CONNECTIONS = 3  # of the watches for late writes and for schemas, and of what runs during them


class _SchemaWatch(_Watch):
    """Calls `end` once, with a message, for the first change of a collection's options or indexes, or of a view."""

    def __init__(
        self, client: Client, since: Timestamp, side: str, is_ours: Callable[[str], bool], end: Callable[[str], None]
    ) -> None:
        super().__init__(client, since)
        self._side, self._is_ours, self._end = side, is_ours, end
        self.failed = False

    def opened(self, **start: Any) -> ChangeStream[Any]:
        return watch_schemas(self._client, **start)

    def see(self, event: Mapping[str, Any]) -> None:
        names = [f"{name['db']}.{name['coll']}" for name in (event["ns"], event.get("to")) if name]
        if self._stopped.is_set() or not any(map(self._is_ours, names)):
            return
        self._stopped.set()
        what = f"{names[0]} got the {event['operationType']} at the {self._side}"
        self._end(f"a schema changed after it was read for the pause: {what}; begin again")

    def fail(self, error: PyMongoError) -> None:
        self.failed = True

    def stop(self) -> None:
        """What changes from now on is not seen."""
        self._stopped.set()


@dataclass(slots=True)
class SchemaWatches:
    """What a cutover reads of the schemas before the pause, and must not change until it is restored."""

    session: Session
    end: Callable[[str], None]
    """Called once, from any thread, with a message for the first change."""
    _watches: list[_SchemaWatch] = field(default_factory=list)

    @property
    def unchanged(self) -> bool:
        """Ends the watch. Whether nothing has changed until now; False where that is not known: before MongoDB 6.0.

        Never returns after a change, which `end` reports.
        """
        for watch in self._watches:
            watch.catch_up(lambda watch=watch: watch.failed)  # type: ignore[misc]
        known = len(self._watches) == 2 and not any(watch.failed for watch in self._watches)
        for watch in self._watches:
            watch.stop()
        return known

    def begin(self, stack: ExitStack) -> None:
        """Watch both sides, until `stack` ends it. Afterwards every connection that a pause needs is open."""
        session, pipeline = self.session, self.session.pipeline
        old_names = {new: old for old, new in pipeline.collections.rename.items()}

        def is_written(name: str) -> bool:
            old = str(old_names.get(name, name))
            return pipeline.selection.matches(old) and pipeline.renamed(old) == name

        for cluster, is_ours in ((session.source, pipeline.selection.matches), (session.destination, is_written)):
            with cluster.connected() as client:
                open_connections(client, _CONNECTIONS + AT_ONCE)
                since = cluster_time(client)
                if since is not None and feature_version(client) >= EXPANDED_EVENTS:
                    watch = _SchemaWatch(client, since, cluster.side, is_ours, self.end)
                    self._watches.append(stack.enter_context(watch))


def watch_schemas(client: Client, **start: Any) -> ChangeStream[Any]:
    """A change stream of changes of options and indexes, of any collection but Towpath's."""
    stages: list[Mapping[str, Any]] = [
        {"$match": {"operationType": {"$in": list(_OF_SCHEMA)}, "ns.db": {"$ne": DATABASE}}},
        {"$project": {"operationType": 1, "ns": 1, "to": 1, "clusterTime": 1}},
    ]
    return client.watch(stages, show_expanded_events=True, max_await_time_ms=_AWAIT_MS, **start)
