"""Reads of a source's oplog."""

from __future__ import annotations

from pathlib import Path

import pytest
from pymongo.errors import OperationFailure

from tests.support import mongod, raw
from towpath.checks import capture
from towpath.clients.mongo.replica_set import operation_time
from towpath.config.namespaces import Selection

pytestmark = pytest.mark.servers

_SHOP = Selection(("shop.*",))
_LOST = {"failCommands": ["find"], "namespace": "local.oplog.rs", "errorCode": 136}


def test_a_first_entry_that_is_dropped_meanwhile_is_read_again(tmp_path: Path) -> None:
    options = ["--setParameter", "enableTestCommands=1"]
    with mongod.start_replica_set(tmp_path, options=options) as servers, raw.Client(servers.uri) as client:
        client.admin.command("configureFailPoint", "failCommand", mode={"times": 3}, data=_LOST)
        oplog = capture.read(client)
        assert oplog is not None
        assert 0 <= oplog.span < 60
        client.admin.command("configureFailPoint", "failCommand", mode="alwaysOn", data=_LOST)
        with pytest.raises(OperationFailure, match="failCommand"):
            capture.read(client)


def test_changes_after_a_time_are_those_of_the_collections_also_in_transactions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = ["--setParameter", "enableTestCommands=1"]
    with mongod.start_replica_set(tmp_path, options=options) as servers, raw.Client(servers.uri) as client:
        for database in ("shop", "other"):
            client[database].orders.insert_one({"_id": 0})
        before = operation_time(client)
        assert capture.changes_after(client, before, _SHOP) == 0
        client.shop.orders.insert_many([{"_id": number} for number in range(1, 4)])
        client.shop.orders.update_one({"_id": 1}, {"$set": {"a": 1}})
        client.other.orders.delete_one({"_id": 0})
        client.admin.command("appendOplogNote", data={"from": "nobody"})
        with client.start_session() as session, session.start_transaction():
            client.shop.orders.delete_one({"_id": 2}, session=session)
            client.other.orders.insert_one({"_id": 5}, session=session)
            client.shop.orders.insert_one({"_id": 5}, session=session)
        assert capture.changes_after(client, before, _SHOP) == 6
        monkeypatch.setattr(capture, "MOST_COUNTED", 6)  # three inserts, an update, a delete, a transaction
        assert capture.changes_after(client, before, _SHOP) == 6
        monkeypatch.setattr(capture, "MOST_COUNTED", 5)
        assert capture.changes_after(client, before, _SHOP) is None
        monkeypatch.undo()
        client.admin.command("configureFailPoint", "maxTimeAlwaysTimeOut", mode="alwaysOn")
        assert capture.changes_after(client, before, _SHOP) is None
