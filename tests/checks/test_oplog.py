"""Reads of a source's oplog."""

from __future__ import annotations

from pathlib import Path

import pytest
from pymongo.errors import OperationFailure
from pymongo.write_concern import WriteConcern

from tests.support import mongod, raw
from towpath.checks import capture
from towpath.clients.mongo.client import ClusterTime
from towpath.clients.mongo.replica_set import operation_time
from towpath.config.namespaces import Selection
from towpath.log.source_offsets import SourcePosition, SourceState

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


def test_a_source_is_restored_if_its_oplog_lacks_the_entry_up_to_which_it_was_captured(tmp_path: Path) -> None:
    with mongod.start_replica_set(tmp_path) as servers, raw.Client(servers.uri) as client:
        entry = operation_time(client)
        client.shop.get_collection("orders", write_concern=WriteConcern("majority")).insert_one({"_id": 0})

        def is_restored(seconds: int, ordinal: int) -> bool:
            position = SourcePosition(ClusterTime(seconds, ordinal), snapshot_running=False)
            start = ClusterTime(entry.seconds - 7200, 1)
            return capture.is_restored(client, SourceState(position, start=start))

        assert not is_restored(entry.seconds, entry.ordinal)
        assert is_restored(entry.seconds, 0), "no entry has this ordinal"
        assert is_restored(entry.seconds - 3600, 1), "the set was initiated later"
        assert not is_restored(entry.seconds + 3600, 1), "not known: the server may be behind it"


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
