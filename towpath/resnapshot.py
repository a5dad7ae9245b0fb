"""A resnapshot: the source connector reads documents again, through the log, for changes that it can no longer read.

Its configuration names the resnapshot; a connector that has taken up another one before begins it. Where its stream
cannot go on it begins anew, with a copy like the first one; else it copies while the stream goes on. What remains is
to have documents removed that were deleted meanwhile: whoever asks for that says at the end, with a request of its
own kind, that all of it is asked for. From that moment on the log tells every state again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import bson
from bson.timestamp import Timestamp
from pymongo import MongoClient
from pymongo.errors import OperationFailure, PyMongoError

from connectors.control import statuses
from connectors.rest import Connect, failure
from towpath.errors import MongoUnreachable, NotYet, TopicError
from towpath.kafka.topics import Topics
from towpath.log.source_offsets import SourceState, read_state
from towpath.mongo.client import connected
from towpath.namespaces import Selection
from towpath.pipeline import ClusterTime, Pipeline

NAME, ONLY = "towpath.resnapshot", "towpath.resnapshot.only"
#: What a deployment leaves as it is.
KEYS = (NAME, ONLY)
_LOST = (286, 280, 136)  # ChangeStreamHistoryLost, ChangeStreamFatalError, CappedPositionLost
_PAUSE = 0.5  # seconds between two looks
_FAILED_FOR = 5.0  # seconds: a failure may be that of the task that is about to be replaced
_EVERYTHING = ".*"


@dataclass(frozen=True, slots=True)
class Captured:
    """How one source connector stands: up to when everything is captured, and whether what follows is lost."""

    connector: str
    state: SourceState
    since: ClusterTime
    lost: bool
    asked: str
    """The resnapshot in its configuration, or its offsets; empty when there never was one."""
    only: str
    """The expression that goes with it."""

    @property
    def under_way(self) -> bool:
        return bool(self.asked) and self.state.closed != self.asked


def look(pipeline: Pipeline, connect: Connect) -> list[Captured]:
    """Every source connector that has begun. Raises `MongoUnreachable` when the source does not answer."""
    found = []
    with connected(pipeline.source_uri, "source") as client:
        for name in pipeline.source_connectors:
            state, config = read_state(connect, name), connect.config(name) or {}
            since = state.position.time if state.position else state.start
            if since is not None:
                asked, only = config.get(NAME, state.resnapshot), config.get(ONLY, _EVERYTHING)
                found.append(Captured(name, state, since, is_lost(client, since), asked, only))
    return found


def is_lost(client: MongoClient[dict[str, Any]], since: ClusterTime) -> bool:
    """Whether the source's oplog no longer holds what came after a moment, as a change stream from there on tells."""
    keys: list[dict[str, Any]] = [{"$project": {"_id": 1}}]
    start = Timestamp(since.seconds, since.ordinal)
    try:
        with client.watch(keys, start_at_operation_time=start, batch_size=1, max_await_time_ms=100) as stream:
            stream.try_next()
        return False
    except OperationFailure as error:
        if error.code in _LOST:
            return True
        raise MongoUnreachable(f"the source does not say how far back its oplog reaches: {error}") from error
    except PyMongoError as error:
        raise MongoUnreachable(f"the source does not say how far back its oplog reaches: {error}") from error


def expression(pipeline: Pipeline, only: Iterable[str]) -> str:
    """What the connectors are told to read again."""
    chosen = tuple(only)
    return Selection(pipeline.include, pipeline.exclude, chosen).namespace_regex if chosen else _EVERYTHING


def ask(pipeline: Pipeline, connect: Connect, name: str, only: str) -> None:
    """Have every source connector begin the resnapshot of this name; one that has failed begins anew with it."""
    for connector in pipeline.source_connectors:
        config = connect.config(connector) or {}
        connect.put(connector, {**config, NAME: name, ONLY: only})
        connect.resume(connector)


def go_on(pipeline: Pipeline, connect: Connect) -> None:
    """Restart what has failed, and resume what is paused."""
    for connector in pipeline.source_connectors:
        connect.resume(connector)
        connect.restart(connector, only_failed=True)


def wait_copied(pipeline: Pipeline, connect: Connect, name: str, say: Callable[[str], None]) -> None:
    """Return once every source connector has read everything again. Raises `TowpathError` when one has failed."""

    def words(state: SourceState) -> str:
        if state.resnapshot != name:
            return "begins"
        if state.phase == "copy" or state.copying:
            rows, of = sum(c.rows for c in state.copies), sum(max(c.documents, c.rows) for c in state.copies)
            return f"has read {rows:,} of about {of:,} documents again"
        return ""

    _wait(pipeline, connect, words, say, None)


def close(pipeline: Pipeline, connect: Connect, topics: Topics, name: str, timeout: float) -> None:
    """Say that everything was asked for, and return once the log is whole again. Raises `NotYet` after `timeout` s."""
    failed: list[str] = []
    producer = topics.producer()
    value = bson.encode({"resnapshot": name})
    producer.produce(pipeline.request_topic, value, on_delivery=lambda error, _: failed.append(str(error or "")))
    left = producer.flush(60)
    if left or any(failed):
        raise TopicError(f"cannot write to {pipeline.request_topic} at {topics.bootstrap}: {failed or 'no answer'}")

    def words(state: SourceState) -> str:
        return "" if state.closed == name else "has not read everything that was asked for yet"

    _wait(pipeline, connect, words, lambda _: None, timeout)


def _wait(
    pipeline: Pipeline,
    connect: Connect,
    words: Callable[[SourceState], str],
    say: Callable[[str], None],
    timeout: float | None,
) -> None:
    began = well = time.monotonic()
    told = 0.0
    while True:
        found = {one: words(read_state(connect, one)) for one in pipeline.source_connectors}
        waiting = {one: why for one, why in found.items() if why}
        if not waiting:
            return
        failed = failure(statuses(connect, waiting))
        well = well if failed else time.monotonic()
        if failed and time.monotonic() > well + _FAILED_FOR:
            raise failed
        line = "; ".join(f"{one} {why}" for one, why in waiting.items())
        if timeout is not None and time.monotonic() > began + timeout:
            raise NotYet(f"not in time: {line}")
        if time.monotonic() > told + 10:
            say(line)
            told = time.monotonic()
        time.sleep(_PAUSE)
