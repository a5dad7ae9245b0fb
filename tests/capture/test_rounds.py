"""A copy that takes longer than the source's oplog reaches back: the stream runs between its rounds."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any

import bson
import pytest
from bson import Timestamp
from pymongo import MongoClient

from tests.support import control, mongod, progress, raw, rest
from tests.support.awaited import until
from tests.support.mongod import MongodSizes
from tests.support.pipeline import Addresses, Pipeline, Settings, towpath
from tests.support.workload import Workload
from tests.support.writer import Writer
from towpath import stack as embedded
from towpath.clients.mongo.client import cluster_time
from towpath.log import reread_requests
from towpath.log.source_offsets import source_position
from towpath.session import opened

pytestmark = pytest.mark.servers

WORKER = "connect-0"
#: Bytes of one write that only fills the oplog; so many a second make 16 MB reach back 10 to 40 s.
FILL, FILLS = 160_000, 10
#: For the restart of a killed worker: the transaction that it had open is waited for up to a minute. 150 s.
FEWER_FILLS = 0.4
COPIED, CHANGED = "docs", "other"


@dataclass(slots=True)
class Seen:
    """What was committed while the copy continued."""

    phases: list[tuple[str, int]] = field(default_factory=list)
    """Each phase with its round, in order."""
    largest_share: float = 0
    """Of the oplog's window, that the stream's position or the round's beginning was behind."""
    window: float = 0
    """At that time, in seconds."""

    @property
    def rounds(self) -> int:
        return max((number for _, number in self.phases), default=0)


class Watch:
    """Looks at the offsets and at the oplog until the stream has passed the copy."""

    def __init__(self, pipeline: Pipeline, source: raw.Client) -> None:
        self.pipeline, self.source, self.seen = pipeline, source, Seen()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Seen:
        self._thread.start()
        return self.seen

    def __exit__(self, *error: object) -> None:
        self._stop.set()
        self._thread.join(30)

    def _run(self) -> None:
        while not self._stop.wait(0.1):
            try:
                self._look()
            except Exception as error:  # noqa: BLE001  # a server that a test has stopped
                print(f"watch: {error!r}")

    def _look(self) -> None:
        found = progress.offsets(self.pipeline)
        root = next((offset for partition, offset in found if set(partition) == {"towpath"}), None)
        if root is None:
            return
        phase = (root["phase"], root["round"])
        if phase not in self.seen.phases[-1:]:
            self.seen.phases.append(phase)
        if root["phase"] == "stream":
            return
        oplog = self.source["local"]["oplog.rs"]
        first, last = (self._time(oplog.find().sort("$natural", way).limit(1)) for way in (1, -1))
        times = [source_position(offset).time for partition, offset in found if "server_id" in partition]
        position = max([cluster_time(root["start"]), *times]).seconds
        if last - first > 0 and (last - position) / (last - first) > self.seen.largest_share:
            self.seen.largest_share, self.seen.window = (last - position) / (last - first), last - first

    @staticmethod
    def _time(found: Iterator[Any]) -> int:
        stamp: Timestamp = next(iter(found))["ts"]
        return stamp.time


@contextmanager
def small(
    tmp_path: Path,
    addresses: Addresses,
    destination_client: raw.Client,
    settings: Settings,
    nodes: int = 1,
    fills: float = FILLS,
) -> Iterator[Pipeline]:
    """A pipeline from a source whose oplog holds 16 MB, which writes fill in about ten seconds."""
    sizes = MongodSizes(cache_gb=0.25, oplog_mb=16)
    with (
        mongod.start_replica_set(tmp_path / "small", name="small", nodes=nodes, sizes=sizes) as servers,
        # with a limit, a write is retried until that is over, and not once: elections follow one another
        MongoClient[dict[str, Any]](servers.uri, timeoutMS=60_000) as client,
    ):
        name = f"t{Random().randrange(2**31):x}"
        ours = replace(addresses, source=servers.uri)
        pipeline = Pipeline(name, tmp_path / f"{name}.toml", ours, client, destination_client, settings)
        stop = threading.Event()
        filler = threading.Thread(target=_fill, args=(client, fills, stop), daemon=True)
        filler.start()
        try:
            yield pipeline
        finally:
            stop.set()
            filler.join(30)
            pipeline.discard()
            destination_client.drop_database(name)


def _fill(client: raw.Client, per_second: float, stop: threading.Event) -> None:
    """Fill the oplog, and then go on at this rate."""
    filler, is_full = client["filler"]["filler"], False
    while not stop.wait(1 / (per_second if is_full else FILLS)):
        try:
            filler.replace_one({"_id": 1}, {"_id": 1, "padding": Random().randbytes(FILL)}, upsert=True)
            is_full = is_full or _is_full(client)
        except Exception as error:  # noqa: BLE001  # an election
            print(f"filler: {error!r}")


def copied_in_rounds(
    pipeline: Pipeline,
    seed: int,
    documents: int,
    during: Callable[[Writer], None],
    rounds: int,
    timeout: float = 120,
) -> Seen:
    """Copies under writes; both sides are the same then."""
    collections = [pipeline.source(COPIED), pipeline.source(CHANGED)]
    changes = Workload(seed, collections, documents=documents // 2, may_lose=True)  # in an election
    changes.fill()
    until("full oplog", lambda: _is_full(pipeline.source_client), timeout=60)
    with Watch(pipeline, pipeline.source_client) as seen, Writer(changes, per_second=60) as writer:
        pipeline.deploy()
        during(writer)
        until("end of the copy", lambda: pipeline.status()["copy"]["done"], timeout=timeout, every=1)
        writer.wait_for(writer.applied + 100)
    print(seen)
    pipeline.wait()
    pipeline.assert_same(COPIED, CHANGED, at_least=documents // 2)
    assert seen.rounds >= rounds
    return seen


def _is_full(client: raw.Client) -> bool:
    stats = next(client["local"]["oplog.rs"].aggregate([{"$collStats": {"storageStats": {}}}]))["storageStats"]
    return bool(stats["size"] > 0.9 * stats["maxSize"])


def nothing(writer: Writer) -> None:
    pass


def await_round(pipeline: Pipeline, number: int) -> None:
    until(f"round {number}", lambda: _root(pipeline).get("round", 0) >= number, 120, 0.1)


def assert_under_way(pipeline: Pipeline) -> None:
    """Each command says that the copy is not done."""
    copy, lag = (pipeline.status()[part] for part in ("copy", "lag"))
    assert not copy["done"] and copy["round"] >= 2 and lag["seconds"] >= 0
    waited = towpath("wait", pipeline.file, "--timeout", "1", expect=1)
    assert "is still making the initial copy" in waited.stderr
    verified = towpath("verify", pipeline.file, "--patience", "1", expect=2)
    print(verified.stdout, verified.stderr)
    assert "no verdict" in verified.stdout + verified.stderr


def await_phase(pipeline: Pipeline, phase: str) -> None:
    """Of a round after the first; or what follows the first."""

    def reached() -> bool:
        root = _root(pipeline)
        return root.get("phase") == phase and (phase == "catch-up" or root["round"] > 1)

    until(f"{phase} of a later round", reached, 120, 0.05)


@pytest.mark.nightly
def test_a_copy_that_takes_longer_than_the_oplog_reaches_back(
    tmp_path: Path, addresses: Addresses, destination_client: raw.Client, seed: int
) -> None:
    settings = Settings(capture={"documents_per_second": 150})
    with small(tmp_path, addresses, destination_client, settings) as pipeline:
        assert copied_in_rounds(pipeline, seed, 2_000, nothing, rounds=3).largest_share <= 0.5


@pytest.mark.nightly
@pytest.mark.serial  # the stream stays within half of the window, which others would make smaller
@pytest.mark.parametrize("capture", [{}, {"copy_order": "natural"}, {"copy_tasks": 2}], ids=str)
def test_a_long_copy_in_rounds(
    tmp_path: Path, addresses: Addresses, destination_client: raw.Client, seed: int, capture: dict[str, Any]
) -> None:
    settings = Settings(capture={"documents_per_second": 60, **capture})
    with small(tmp_path, addresses, destination_client, settings) as pipeline:

        def during(writer: Writer) -> None:
            await_round(pipeline, 2)
            assert_under_way(pipeline)

        assert copied_in_rounds(pipeline, seed, 6_000, during, rounds=5, timeout=600).largest_share <= 0.5


@pytest.mark.nightly
def test_a_copy_that_is_paused_continues_and_after_too_long_a_pause_a_resnapshot_completes_it(
    tmp_path: Path, addresses: Addresses, destination_client: raw.Client, seed: int
) -> None:
    settings = Settings(capture={"documents_per_second": 100})
    with small(tmp_path, addresses, destination_client, settings) as pipeline:

        def during(writer: Writer) -> None:
            await_round(pipeline, 2)
            towpath("pause", pipeline.file)
            time.sleep(2)
            towpath("resume", pipeline.file)
            await_round(pipeline, _root(pipeline)["round"] + 1)
            towpath("pause", pipeline.file)
            paused_at = pipeline.source_client.admin.command("ping")["operationTime"]
            until("the oplog has dropped the position", lambda: _first(pipeline.source_client) > paused_at, 120, 0.5)
            towpath("resume", pipeline.file)
            assert "TWP-HISTORY-LOST" in towpath("wait", pipeline.file, "--timeout", "60", expect=2).stderr
            writer.wait_for(writer.applied + 50)
            towpath("resnapshot", pipeline.file, "--yes")

        copied_in_rounds(pipeline, seed, 4_000, during, rounds=2, timeout=300)


def _first(client: raw.Client) -> Timestamp:
    """The time of the oldest entry of the oplog."""
    found: Timestamp = next(iter(client["local"]["oplog.rs"].find().sort("$natural", 1).limit(1)))["ts"]
    return found


@pytest.mark.nightly
@pytest.mark.serial  # beside others the oplog may reach back further than the copy takes
@pytest.mark.parametrize("order", ["id", "natural"])
def test_a_worker_is_killed_in_each_phase_of_a_round(
    tmp_path: Path,
    addresses: Addresses,
    destination_client: raw.Client,
    stack: embedded.Stack,
    seed: int,
    order: str,
) -> None:
    settings = Settings(capture={"documents_per_second": 60, "copy_order": order})
    with small(tmp_path, addresses, destination_client, settings, fills=FEWER_FILLS) as pipeline:

        def kill(writer: Writer) -> None:
            for phase in ("catch-up", "copy"):
                await_phase(pipeline, phase)
                control.restart(stack.directory, WORKER, signal.SIGKILL)

        copied_in_rounds(pipeline, seed, 4_000, kill, rounds=3, timeout=300)


@pytest.mark.nightly
@pytest.mark.parametrize("order", ["id", "natural"])
def test_the_source_has_another_primary_in_each_phase_of_a_round(
    tmp_path: Path, addresses: Addresses, destination_client: raw.Client, seed: int, order: str
) -> None:
    settings = Settings(capture={"documents_per_second": 60, "copy_order": order})
    with small(tmp_path, addresses, destination_client, settings, nodes=3, fills=FEWER_FILLS) as pipeline:

        def step_down(writer: Writer) -> None:
            # the length of a round by the oplog depends on how fast that is written
            connector = f"{pipeline.addresses.connect}/connectors/{pipeline.name}-source/config"
            rest.patch(connector, {"towpath.copy.round.ms": "3000"}).raise_for_status()
            for phase in ("catch-up", "copy"):
                await_phase(pipeline, phase)
                pipeline.source_client.admin.command({"replSetStepDown": 20, "force": True})

        copied_in_rounds(pipeline, seed, 4_000, step_down, rounds=3, timeout=300)


@pytest.mark.nightly
def test_schema_changes_between_rounds(
    tmp_path: Path, addresses: Addresses, destination_client: raw.Client, seed: int
) -> None:
    settings = Settings(capture={"documents_per_second": 60}, extra='[ddl]\ndrop = "apply"')
    with small(tmp_path, addresses, destination_client, settings) as pipeline:
        for name in ("renamed", "dropped", "replaced"):
            pipeline.source(name).insert_many({"_id": n, "text": "x" * 100} for n in range(500))

        def change(writer: Writer) -> None:
            for wanted in (2, 3, 4):
                await_round(pipeline, wanted)
                match wanted:
                    case 2:
                        pipeline.source("renamed").rename("later")
                        pipeline.source("later").insert_one({"_id": "after"})
                    case 3:
                        pipeline.source("dropped").drop()
                        pipeline.source("dropped").insert_one({"_id": "again"})
                        pipeline.source(COPIED).create_index("text")
                    case _:
                        pipeline.source("replaced").aggregate([{"$limit": 50}, {"$out": "replaced"}])

        copied_in_rounds(pipeline, seed, 3_000, change, rounds=4, timeout=300)
        pipeline.assert_same("later", "dropped", "replaced", at_least=500)
        assert "renamed" not in destination_client[pipeline.name].list_collection_names()


@pytest.mark.nightly
@pytest.mark.parametrize("order", ["id", "natural"])
def test_documents_that_are_requested_during_the_copy_are_not_resurrected(
    tmp_path: Path, addresses: Addresses, destination_client: raw.Client, seed: int, order: str
) -> None:
    settings = Settings(capture={"documents_per_second": 60, "copy_order": order})
    with small(tmp_path, addresses, destination_client, settings, fills=FEWER_FILLS) as pipeline:

        def request(writer: Writer) -> None:
            for wanted in (1, 2, 3):
                await_round(pipeline, wanted)
                with opened(pipeline.file) as it:
                    found = pipeline.source(COPIED).find({}, {"_id": 1})
                    ids = [bson.encode({"_id": one["_id"]}) for one in found]
                    reread_requests.write(it.pipeline, it.topics, pipeline.namespace(COPIED), ids)

        copied_in_rounds(pipeline, seed, 4_000, request, rounds=3, timeout=300)


def _root(pipeline: Pipeline) -> dict[str, Any]:
    return next((offset for partition, offset in progress.offsets(pipeline) if set(partition) == {"towpath"}), {})
