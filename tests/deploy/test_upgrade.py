"""A pipeline that the version before has deployed continues after an upgrade of the plugin and of the tool."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from pymongo import MongoClient

from tests.support import mongod, oracle
from tests.support.awaited import until
from tests.support.checkout import ROOT, Checkout, NoRevision, checkout
from tests.support.mongod import MongodSizes, Servers
from towpath import stack as embedded

pytestmark = pytest.mark.servers

#: A commit with the formats of 1.0; another one is tried with this variable.
BEFORE = os.environ.get("TOWPATH_TEST_UPGRADE_FROM", "2ced403c40e396dd183d020c141eb5b783875f79")
FILE = """
name = "{name}"
mode = "{mode}"
[source]
uri = "{source}"
[destination]
uri = "{destination}"
[collections]
include = ["{name}.*"]
[kafka]
bootstrap = "{bootstrap}"
partitions = 2
[connect]
url = "{connect}"
secrets = "{secrets}"
{extra}
"""
PIPELINES = {
    "compacted": ("exactly-once", '[log]\ncompact = true\ncompaction_lag = "60s"'),
    "moved": ("exactly-once", ""),
    "stock": ("plain", ""),
}


@pytest.fixture
def before(tmp_path: Path) -> Checkout:
    try:
        return checkout(BEFORE, tmp_path / "before", tmp_path / "state")
    except NoRevision as error:
        pytest.skip(f"the version to upgrade from: {error}")


@pytest.fixture
def now(tmp_path: Path) -> Checkout:
    return Checkout(ROOT, tmp_path / "state")


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "stack"
    embedded.down(tmp_path / "stack")


@pytest.fixture
def third(tmp_path: Path) -> Iterator[Servers]:
    """What the log is replayed to."""
    with mongod.start_replica_set(tmp_path / "third", name="third", sizes=MongodSizes(0.25, 64)) as started:
        yield started


class Writer:
    """Inserts, pushes, replaces and deletes, a round at a time."""

    def __init__(self, uri: str, rounds: Iterator[int]) -> None:
        self.client: MongoClient[dict[str, Any]] = MongoClient(uri)
        self._rounds = rounds

    def write(self, *databases: str) -> None:
        number = next(self._rounds)
        for name in databases:
            orders = self.client[name].orders
            orders.insert_many([{"_id": f"{number}-{n}", "items": [n], "n": n} for n in range(200)])
            orders.update_many({"n": {"$lt": 50}}, {"$push": {"items": number}, "$unset": {"gone": 1}})
            orders.delete_many({"n": 199})
            orders.replace_one({"_id": f"{number}-7"}, {"n": 7, "again": number})


def addresses(stack: embedded.Stack) -> dict[str, str]:
    return {
        "source": stack.source,
        "destination": stack.destination,
        "bootstrap": stack.bootstrap,
        "connect": stack.connect,
        "secrets": str(stack.directory.resolve() / "secrets"),
    }


def same(stack: embedded.Stack, name: str, destination: str | None = None) -> None:
    namespace = f"{name}.orders"
    oracle.assert_same(stack.source, destination or stack.destination, [namespace], at_least=100)


@pytest.mark.nightly
@pytest.mark.timeout(900)
def test_pipelines_of_the_version_before_go_on(
    before: Checkout, now: Checkout, place: Path, third: Servers, tmp_path: Path
) -> None:
    before("stack", "up", "--dir", place)
    stack = embedded.status(place)
    rounds = count(1)
    writer = Writer(stack.source, rounds)
    writer.write(*PIPELINES)
    files = {}
    for name, (mode, extra) in PIPELINES.items():
        files[name] = tmp_path / f"{name}.toml"
        files[name].write_text(FILE.format(name=name, mode=mode, extra=extra, **addresses(stack)))
        files[name].chmod(0o600)
        before("deploy", files[name])
    for file in files.values():
        before("wait", file, "--timeout", "120")
    before("replay", files["compacted"], "--destination", third.uri, "--name", "third", "--follow")
    before("prepare", files["moved"])
    before("verify", files["moved"])
    before("cutover", files["moved"], "--stop-with", "true")
    moved_back = files["moved"].with_name("moved-back.toml")
    before("stack", "down", "--dir", place)

    now("stack", "up", "--dir", place)
    assert addresses(embedded.status(place)) == addresses(stack)
    returned = Writer(stack.destination, rounds)
    for _ in range(2):  # with the configurations that the version before has made, and with new ones
        writer.write("compacted", "stock")
        returned.write("moved")
        for file in (files["compacted"], files["stock"], moved_back):
            now("wait", file, "--timeout", "120")
            now("verify", file)
        for name in ("compacted", "stock", "moved"):
            same(stack, name)
        with MongoClient[dict[str, Any]](third.uri) as client:
            held = writer.client.compacted.orders.count_documents({})
            until("the replay", lambda held=held: client.compacted.orders.count_documents({}) == held)
        same(stack, "compacted", third.uri)
        for file in (files["compacted"], files["stock"], moved_back):
            now("deploy", file)
    now("cutover", files["moved"], "--back", "--stop-with", "true")
    writer.write("moved")
    now("wait", files["moved"], "--timeout", "120")
    now("verify", files["moved"])
    same(stack, "moved")
