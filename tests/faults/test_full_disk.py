"""A disk that is full: the broker's, a worker's, this machine's. The destination's: `test_refusing_destination`."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pymongo import MongoClient

from tests.support import control, oracle, raw
from tests.support.awaited import until
from tests.support.command import Command
from tests.support.disk import Disk, small_disk
from tests.support.mongod import MongodSizes
from tests.support.pipeline import TOWPATH, Addresses, Pipeline, Settings, towpath
from tests.support.ticker import Ticker
from towpath import stack as embedded

pytestmark = [pytest.mark.nightly, pytest.mark.servers]
COUNT = 200
BROKER, WORKER = "kafka", "connect-0"


@dataclass(frozen=True, slots=True)
class Site:
    stack: embedded.Stack
    broker: Disk
    """Holds the broker's log folder, and nothing else."""
    worker: Disk
    """Holds what the worker writes, which is its log."""
    source: raw.Client
    destination: raw.Client

    def runs(self, name: str) -> bool:
        return embedded.status(self.stack.directory).processes[name].running


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("full")
    place, log = folder / "stack", folder / "disk" / f"{WORKER}.log"
    with small_disk(place / "data" / BROKER, 400) as broker, small_disk(log.parent, 16) as worker:
        (place / "logs").mkdir()
        (place / "logs" / log.name).symlink_to(log)
        sizes = MongodSizes(0.25, 64)
        options = embedded.StackOptions(place, mongod_cache_gb=sizes.cache_gb, oplog_mb=sizes.oplog_mb)
        try:
            stack = embedded.up(options, print)
            with raw_client(stack.source) as source, raw_client(stack.destination) as destination:
                yield Site(stack, broker, worker, source, destination)
        finally:
            embedded.down(place)


def raw_client(uri: str) -> raw.Client:
    return MongoClient[dict[str, Any]](uri)


@pytest.fixture
def pipeline(site: Site, request: pytest.FixtureRequest, tmp_path: Path) -> Pipeline:
    """One that streams; it goes with the stack."""
    name, stack = request.node.name.split("_")[-1], site.stack
    addresses = Addresses(
        stack.source, stack.destination, stack.bootstrap, stack.connect, stack.directory.resolve() / "secrets"
    )
    made = Pipeline(name, tmp_path / f"{name}.toml", addresses, site.source, site.destination, Settings(partitions=2))
    made.source("docs").insert_many([{"_id": i, "n": 0, "text": "x" * 200} for i in range(COUNT)])
    made.deploy()
    made.wait()
    return made


def changing(pipeline: Pipeline) -> Ticker:
    documents, tick = pipeline.source("docs"), iter(range(10**9))

    def change() -> None:
        number = next(tick)
        documents.update_one({"_id": number % COUNT}, {"$inc": {"n": 1}, "$set": {f"f{number % 7}": number}})
        if number % 10 == 0:
            documents.replace_one({"_id": f"late {number}"}, {"text": os.urandom(100_000)}, upsert=True)

    return Ticker(0.02, change)


def same(pipeline: Pipeline) -> None:
    pipeline.wait(240)
    names = [pipeline.namespace("docs")]
    oracle.assert_same(pipeline.addresses.source, pipeline.addresses.destination, names, at_least=COUNT)


def test_a_broker_without_room_loses_nothing_once_it_has_room_and_is_started_of_broker(
    site: Site, pipeline: Pipeline, tmp_path: Path
) -> None:
    with changing(pipeline) as changes, Command(tmp_path, pipeline.file, "run") as run:
        changes.wait_for(50)
        site.broker.fill()
        until("broker that ends itself for want of room", lambda: not site.runs(BROKER), 180, 0.2)
        said = towpath("status", pipeline.file, expect=2).stderr
        assert f"cannot reach Kafka at {site.stack.bootstrap}: " in said and "is a broker running there?" in said, said
        done = changes.done
        changes.wait_for(done + 50)
        site.broker.empty()
        control.start(site.stack.directory, BROKER)
        until("running pipeline", lambda: is_running(pipeline), 240, 2)
        done = changes.done
        changes.wait_for(done + 50)
        assert run.alive
    same(pipeline)


def is_running(pipeline: Pipeline) -> bool:
    done = subprocess.run([TOWPATH, "status", pipeline.file], capture_output=True, text=True, timeout=120, check=False)
    print(done.returncode, done.stdout[-600:], done.stderr[-600:])
    return done.returncode == 0


def test_a_worker_whose_disk_is_full_goes_on_and_loses_nothing_of_worker(site: Site, pipeline: Pipeline) -> None:
    with changing(pipeline) as changes:
        changes.wait_for(50)
        site.worker.fill()
        towpath("restart", pipeline.file)  # of which there is much to log
        done = changes.done
        changes.wait_for(done + 200)
        pipeline.wait()
        site.worker.empty()
        done = changes.done
        changes.wait_for(done + 50)
    assert site.runs(WORKER)
    assert is_running(pipeline)
    same(pipeline)


def test_a_full_disk_here_ends_commands_with_words_and_leaves_what_was_there_of_here(
    site: Site, pipeline: Pipeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with small_disk(tmp_path / "here", 1) as disk:
        monkeypatch.setenv("XDG_STATE_HOME", str(disk.place))
        verdict = disk.place / "towpath" / pipeline.name / "verdict.jsonl"
        towpath("verify", pipeline.file)
        before = verdict.read_bytes()
        disk.fill()
        said = towpath("verify", pipeline.file, expect=2).stderr
        assert "No space left on device; make room there" in said, said
        assert verdict.read_bytes() == before
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
        said = towpath("verify", pipeline.file, "--report", disk.place / "report.html", expect=2).stderr
        assert f"cannot write the report {disk.place / 'report.html'}: No space left on device;" in said, said
