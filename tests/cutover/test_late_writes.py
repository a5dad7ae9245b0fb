"""Writes that continue after the stop end a cutover, whatever becomes of the connection, without a server."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import bson
import pytest
from bson.timestamp import Timestamp
from pymongo.errors import AutoReconnect, OperationFailure

from tests.support.cutover_world import pipeline_of
from tests.support.sessions import FakeCluster
from towpath.cutover import watches
from towpath.cutover.watches import LateWrites
from towpath_verifier import Unsuitable

SINCE = Timestamp(100, 1)


def token(second: int) -> dict[str, str]:
    return {"_data": f"82{second:08x}00000001"}


def write(second: int, increment: int = 1, **more: Any) -> dict[str, Any]:
    at = Timestamp(second, increment)
    return {"clusterTime": at, "namespace": "shop.orders", "operationType": "insert"} | more


class Stream:
    """A change stream that gives these events, in turn; None where there is none, and how far it is then."""

    def __init__(self, *events: Any) -> None:
        self._events, self.resume_token = list(events), token(0)

    def try_next(self) -> Any:
        event = self._events.pop(0) if self._events else None
        if isinstance(event, Exception):
            raise event
        if isinstance(event, int):
            self.resume_token = token(event)
            return None
        return event


class Watching:
    """Late writes of `shop`, over these change streams, of which each is opened once the one before has failed."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch, *streams: Any) -> None:
        self.streams, self.opened, self.ended = list(streams), list[Any](), list[str]()
        self.over = threading.Event()
        self.now = SINCE
        pipeline = pipeline_of(folder)
        patch.setattr(watches, "watch", self._watch)
        patch.setattr(watches, "cluster_time", lambda client: self.now if client == "source" else None)
        patch.setattr(watches, "_RETRY_S", 0)
        patch.setattr(watches, "_POLL_S", 0.001)
        cluster: Any = FakeCluster("source")
        self.writes = LateWrites(cluster, pipeline, "source", self._end)

    @contextmanager
    def _watch(self, client: str, pipeline: Any, **start: Any) -> Iterator[Stream]:
        assert (client, pipeline.name) == ("source", "shop")
        self.opened.append(start)
        stream = self.streams.pop(0)
        if isinstance(stream, Exception):
            raise stream
        yield stream

    def _end(self, words: str) -> None:
        self.ended.append(words)
        self.over.set()


def test_the_first_write_after_the_stop_is_told_once_with_its_document(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    late = write(107, documentKey={"_id": bson.Int64(5)})
    watching = Watching(tmp_path, monkeypatch, Stream(100, late, write(108)))
    with watching.writes:
        assert watching.over.wait(10)
    assert watching.opened == [{"start_at_operation_time": SINCE}]
    (words,) = watching.ended
    assert words.startswith(
        "writes continued after the stop: shop.orders got the insert of _id 5 at 1970-01-01 00:01:47 UTC on the source"
    )


def test_a_write_without_a_document_is_told_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    watching = Watching(tmp_path, monkeypatch, Stream(write(107, operationType="drop")))
    with watching.writes:
        assert watching.over.wait(10)
    assert "shop.orders got the drop at" in watching.ended[0]


def test_a_lost_connection_is_opened_again_from_the_stop_on_and_hides_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    streams = [Stream(AutoReconnect("gone")), AutoReconnect("still gone"), Stream(write(101))]
    watching = Watching(tmp_path, monkeypatch, *streams)
    with watching.writes:
        assert watching.over.wait(10)
    assert watching.opened == [{"start_at_operation_time": SINCE}] * 3
    assert len(watching.ended) == 1


def test_writes_that_cannot_be_watched_end_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    watching = Watching(tmp_path, monkeypatch, OperationFailure("not authorized", 13))
    with watching.writes:
        assert watching.over.wait(10)
    assert watching.ended == ["cannot watch the source for writes: not authorized"]


def test_it_has_caught_up_once_the_stream_has_passed_the_time_of_the_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was written at the stop or before it does not count."""
    stream = Stream(write(99), write(100), 104, 105, 106)
    watching = Watching(tmp_path, monkeypatch, stream)
    watching.now = Timestamp(106, 1)
    with watching.writes as writes:
        writes.catch_up()
        assert stream.resume_token == token(106)
    assert watching.ended == []


def test_it_never_catches_up_with_a_late_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    watching = Watching(tmp_path, monkeypatch, Stream(103, write(105), 110, 120))
    watching.now = Timestamp(104, 1)
    looks = iter([False] * 50)
    with watching.writes as writes:
        assert watching.over.wait(10)
        with pytest.raises(StopIteration):
            writes.catch_up(lambda: next(looks))


def test_a_standalone_shows_no_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watches, "cluster_time", lambda client: None)
    cluster: Any = FakeCluster("source")
    with pytest.raises(Unsuitable, match="the source is a standalone"):
        LateWrites(cluster, pipeline_of(tmp_path), "source", print)


def test_all_that_the_pipeline_captures_is_watched_and_its_own_bookkeeping_is_not(tmp_path: Path) -> None:
    asked: list[Any] = []
    client: Any = SimpleNamespace(watch=lambda stages, **how: asked.append((stages, how)))
    pipeline = pipeline_of(tmp_path)
    watches.watch(client, pipeline, start_at_operation_time=SINCE)
    ((stages, how),) = asked
    assert how["start_at_operation_time"] == SINCE
    project, match = stages
    selected = {"$regex": pipeline.selection.namespace_regex}
    assert match == {"$match": {"ns.db": {"$ne": "towpath"}, "$or": [{"namespace": selected}, {"renamed": selected}]}}
    assert project["$project"] == {
        "operationType": 1,
        "ns": 1,
        "documentKey": 1,
        "clusterTime": 1,
        "namespace": {"$concat": ["$ns.db", ".", "$ns.coll"]},
        "renamed": {"$concat": ["$to.db", ".", "$to.coll"]},
    }
