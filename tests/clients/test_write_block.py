"""A cluster that blocks writes: who still writes, what stays, what continues, and what a primary's end changes."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pymongo import MongoClient, WriteConcern
from pymongo.errors import OperationFailure, PyMongoError

from tests.support import control, mongod, servers
from tests.support.awaited import until
from tests.support.secured import documented_roles
from towpath.clients.mongo import write_block
from towpath.clients.mongo.privileges import privileges
from towpath.errors import TowpathError
from towpath_verifier import feature_version

pytestmark = pytest.mark.servers

Client = MongoClient[dict[str, Any]]
USERS = {
    "application": ["readWriteAnyDatabase"],
    "blocker": ["towpathBlocker", "readWriteAnyDatabase"],
    "sink": ["bypass", "readWriteAnyDatabase"],
}
_BLOCKED = 371  # UserWritesBlocked in MongoDB's error_codes.yml


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Client]]:
    """User → client, on a replica set of one with access control and with the role of docs/reference/roles.md."""
    role, root = documented_roles()["towpathBlocker"], mongod.Root("root", "secret")
    bypass = [{"resource": {"cluster": True}, "actions": ["bypassWriteBlockingMode"]}]
    with (
        mongod.start_replica_set(tmp_path_factory.mktemp("guarded"), root=root) as running,
        Client(running.uri) as client,
    ):
        client.admin.command("createRole", "towpathBlocker", privileges=role, roles=[])
        client.admin.command("createRole", "bypass", privileges=bypass, roles=[])
        clients = {"root": client}
        for name, roles in USERS.items():
            client.admin.command("createUser", name, pwd="secret", roles=roles)
            clients[name] = Client(running.uri.replace("root:", f"{name}:"))
        yield clients
        for one in clients.values():
            one.close()


@pytest.fixture
def blocked(guarded: dict[str, Client]) -> Iterator[dict[str, Client]]:
    guarded["root"].shop.orders.delete_many({})
    write_block.block(guarded["blocker"])
    yield guarded
    write_block.unblock(guarded["blocker"])


def test_users_with_the_bypass_still_write_and_no_one_else(blocked: dict[str, Client]) -> None:
    assert {name: write_block.writes_through(privileges(one)) for name, one in blocked.items()} == {
        "root": True,
        "application": False,
        "blocker": False,
        "sink": True,
    }
    for name, client in blocked.items():
        if write_block.writes_through(privileges(client)):
            _in_transaction(client, name)
            continue
        with pytest.raises(OperationFailure) as refused:
            _in_transaction(client, name)
        assert refused.value.code == _BLOCKED
    assert {one["_id"] for one in blocked["application"].shop.orders.find()} == {"root", "sink"}


def _in_transaction(client: Client, name: str) -> None:
    with client.start_session() as session, session.start_transaction():
        client.shop.orders.insert_one({"_id": name}, session=session)


def test_snapshot_reads_and_change_streams_go_on_and_so_does_the_time(blocked: dict[str, Client]) -> None:
    client = blocked["blocker"]
    with client.shop.orders.watch() as stream, client.start_session(snapshot=True) as session:
        before = client.admin.command("hello")["operationTime"]
        blocked["sink"].shop.orders.insert_one({"_id": 1})
        assert stream.next()["documentKey"] == {"_id": 1}
        assert client.shop.orders.count_documents({}, session=session) == 1
        until("the time to advance", lambda: client.admin.command("hello")["operationTime"].time > before.time, 30)


def test_blocking_and_unblocking_twice_is_as_once(guarded: dict[str, Client]) -> None:
    client = guarded["blocker"]
    for switch, on in ((write_block.block, True), (write_block.unblock, False)):
        switch(client)
        switch(client)
        assert write_block.is_on(client) is on
    guarded["application"].shop.orders.insert_one({"_id": "again"})


def problem(client: Client) -> str:
    return write_block.problem(client, privileges(client))


def test_who_may_not_block_is_told_the_role(guarded: dict[str, Client]) -> None:
    found = problem(guarded["application"])
    assert "application@admin may not block writes: it lacks setUserWriteBlockMode, serverStatus, getPara" in found
    assert 'grantRolesToUser: "application"' in found
    (privilege,) = documented_roles()["towpathBlocker"]
    assert "actions: [" + ", ".join(f'"{one}"' for one in privilege["actions"]) + "]" in found
    assert problem(guarded["blocker"]) == problem(guarded["root"]) == ""
    with pytest.raises(TowpathError, match="not authorized"):
        write_block.block(guarded["application"])


def test_an_open_transaction_is_named_and_waited_for(guarded: dict[str, Client]) -> None:
    client = guarded["root"]
    with client.start_session() as session, session.start_transaction():
        client.shop.orders.find_one({}, session=session)  # a read is enough
        with pytest.raises(TowpathError) as held:
            write_block.block(client, patience=1)
        assert "waits for 1 open transactions" in str(held.value)
        assert write_block.MONGOSH_UNDO in str(held.value)
        assert not write_block.is_on(client)
        client.shop.orders.insert_one({"_id": "in it"}, session=session)
        ended = threading.Timer(1, session.commit_transaction)
        ended.start()
        write_block.block(client)
        ended.join()
    try:
        assert guarded["application"].shop.orders.find_one({"_id": "in it"})
    finally:
        write_block.unblock(client)


def test_other_servers_are_told_apart(guarded: dict[str, Client], tmp_path: Path) -> None:
    root = guarded["root"]
    root.admin.command("setFeatureCompatibilityVersion", "5.0")
    try:
        assert "MongoDB 5.0 (featureCompatibilityVersion) cannot block" in problem(root)
        assert feature_version(guarded["application"]) == (6, 0)  # who may not see more is told the server's own
    finally:
        root.admin.command("setFeatureCompatibilityVersion", "6.0")
    with mongod.start_standalone(tmp_path) as running, Client(running.uri) as client:
        assert "a standalone mongod cannot block writes" in problem(client)


@pytest.mark.nightly
def test_nothing_expires_and_no_index_is_built_while_blocked(tmp_path: Path) -> None:
    with (
        servers.replica_set(tmp_path, "--setParameter", "ttlMonitorSleepSecs=1") as address,
        Client(f"mongodb://{address}/?replicaSet=guarded") as client,
    ):
        assert problem(client) == ""
        database = client.shop
        database.orders.create_index("until", expireAfterSeconds=0)
        database.command({"create": "visits", "clusteredIndex": {"key": {"_id": 1}, "unique": True}})
        database.command({"collMod": "visits", "expireAfterSeconds": 1})
        soon = datetime.now(UTC) + timedelta(seconds=1.5)
        database.orders.insert_many([{"until": soon} for _ in range(50)])
        database.visits.insert_many([{"_id": soon + timedelta(milliseconds=n)} for n in range(50)])
        write_block.block(client)
        assert not write_block.writes_through(privileges(client))
        until("all to expire", lambda: datetime.now(UTC) > soon + timedelta(seconds=1.5), 30)
        seen = _passes(client)
        until("two more passes of the TTL monitor", lambda: _passes(client) > seen + 1, 30)
        assert database.orders.count_documents({}) == database.visits.count_documents({}) == 50
        with pytest.raises(OperationFailure, match="User writes blocked"):
            database.orders.create_index("n")
        write_block.unblock(client)
        until("expired", lambda: database.orders.count_documents({}) == database.visits.count_documents({}) == 0, 30)


def _passes(client: Client) -> int:
    return int(client.admin.command("serverStatus")["metrics"]["ttl"]["passes"])


class Writers:
    """Insert as fast as they can; what was acknowledged is remembered."""

    def __init__(self, client: Client) -> None:
        self.acknowledged: set[str] = set()
        self.refused = 0
        self._client, self._ended = client, threading.Event()
        self._threads = [threading.Thread(target=self._write, args=(n,)) for n in range(4)]

    def _write(self, thread: int) -> None:
        done = 0
        while not self._ended.is_set():
            done += 1
            try:
                self._client.shop.orders.insert_one({"_id": f"{thread}-{done}"})
                self.acknowledged.add(f"{thread}-{done}")
            except PyMongoError:
                self.refused += 1
                time.sleep(0.01)

    def __enter__(self) -> Writers:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join()


def test_every_acknowledged_write_is_there_when_it_returns_and_none_comes_later(guarded: dict[str, Client]) -> None:
    orders = guarded["root"].shop.orders
    orders.delete_many({})
    try:
        with Writers(guarded["application"]) as writers:
            until("writes", lambda: len(writers.acknowledged) > 200, 60)
            write_block.block(guarded["blocker"])
            held = {one["_id"] for one in orders.find()}
            refused = writers.refused
            until("refusals", lambda: writers.refused > refused + 20, 60)
        assert {one["_id"] for one in orders.find()} == held == writers.acknowledged
    finally:
        write_block.unblock(guarded["blocker"])


@pytest.mark.nightly
def test_a_block_outlives_step_downs_and_the_primarys_death(tmp_path: Path) -> None:
    with mongod.start_replica_set(tmp_path, nodes=3) as running, Client(running.uri) as client:
        orders = client.shop.orders.with_options(write_concern=WriteConcern("majority"))
        _elect_quickly(client)
        orders.insert_one({"_id": "first"})
        with Writers(client) as writers:
            until("writes", lambda: len(writers.acknowledged) > 200, 60)
            client.admin.command("replSetStepDown", 6, secondaryCatchUpPeriodSecs=5, force=True)
            write_block.block(client)
            held = {one["_id"] for one in orders.find()}
            _kill_primary(client, running)
            refused = writers.refused
            until("refusals by the next primary", lambda: writers.refused > refused + 20, 60)
        assert write_block.is_on(client)
        assert {one["_id"] for one in orders.find()} == held >= writers.acknowledged | {"first"}
        write_block.unblock(client)
        orders.insert_one({"_id": "last"})


def _elect_quickly(client: Client) -> None:
    found = client.admin.command("replSetGetConfig")["config"]
    settings = found["settings"] | {"electionTimeoutMillis": 3000, "heartbeatIntervalMillis": 500}
    client.admin.command("replSetReconfig", found | {"version": found["version"] + 1, "settings": settings})


def _kill_primary(client: Client, running: mongod.Servers) -> None:
    address = client.admin.command("hello")["me"]
    (primary,) = (one for one in running.processes.values() if address.endswith(f":{one.port}"))
    assert control.send(primary, signal.SIGKILL)
