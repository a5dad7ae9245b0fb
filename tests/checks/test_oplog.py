"""Reads of a source's oplog that drops its entries."""

from __future__ import annotations

from pathlib import Path

import pytest
from pymongo.errors import OperationFailure

from tests.support import mongod, raw
from towpath.checks import capture

pytestmark = pytest.mark.servers

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
