"""The broker's disk is full: the broker ends itself; with room and another start all goes on, and nothing is lost.

On a stack of its own, so only when `TOWPATH_TEST_DISK` is set. Connect keeps nothing on its disk but its logs.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from pymongo import MongoClient

import stack as embedded
from tests.support.awaited import until
from tests.support.disk import Disk, small_disk
from tests.support.pipeline import Addresses, Pipeline, towpath
from tests.support.ticker import Ticker

pytestmark = pytest.mark.skipif("TOWPATH_TEST_DISK" not in os.environ, reason="a stack of its own: TOWPATH_TEST_DISK=1")
COUNT = 200


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    with small_disk(tmp_path / "full" / "data" / "kafka", 300) as disk:
        yield disk


@pytest.fixture
def pipeline(tmp_path: Path, disk: Disk) -> Iterator[Pipeline]:
    directory, name = tmp_path / "full", f"t{secrets.token_hex(4)}"
    made = embedded.up(embedded.StackOptions(directory=directory), print)
    where = Addresses(made.source, made.destination, made.bootstrap, made.connect, directory / "secrets")
    try:
        with (
            MongoClient[dict[str, Any]](made.source) as source,
            MongoClient[dict[str, Any]](made.destination) as target,
        ):
            pipeline = Pipeline(name, tmp_path / f"{name}.toml", where, source, target)
            pipeline.source("docs").insert_many([{"_id": i, "n": 0} for i in range(COUNT)])
            pipeline.deploy()
            pipeline.wait()
            yield pipeline
    finally:
        embedded.down(directory)


def answers(made: Pipeline) -> bool:
    process = embedded.status(made.file.parent / "full").processes["kafka"]
    return process.running


def states(pipeline: Pipeline) -> list[str]:
    found = []
    for side in ("source", "sink"):
        told = httpx.get(f"{pipeline.addresses.connect}/connectors/{pipeline.name}-{side}/status", timeout=90).json()
        found += [task["state"] for task in told["tasks"]]
    return found


def test_nothing_is_lost_by_a_broker_without_room(pipeline: Pipeline, disk: Disk, tmp_path: Path) -> None:
    documents, directory = pipeline.source("docs"), tmp_path / "full"
    text, tick = "z" * 20_000, iter(range(10**9))

    def change() -> None:
        number = next(tick)
        documents.update_one({"_id": number % COUNT}, {"$inc": {"n": 1}, "$set": {"text": f"{number} {text}"}})

    with Ticker(0.02, change) as changes:
        disk.fill(leaving=2 << 20)
        until("broker that ended itself", lambda: not answers(pipeline), 120, every=0.2)
        changes.wait_for(changes.done + 100)
        disk.empty()
        embedded.start(directory, "kafka")
        changes.wait_for(changes.done + 100)
    print(f"tasks after the broker is back: {states(pipeline)}")
    pipeline.wait(timeout=240)
    pipeline.assert_same("docs", at_least=COUNT)
    assert set(states(pipeline)) == {"RUNNING"}
    assert pipeline.status()["dead_letters"] == 0
    towpath("verify", pipeline.file)
