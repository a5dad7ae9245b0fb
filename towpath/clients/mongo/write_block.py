"""Block and unblock the writes of applications to a cluster: `setUserWriteBlockMode` (MongoDB 6.0).

The behaviour while it is on, as tried on 6.0.5 (`tests/clients/test_write_block.py` covers most of it):

- Writes, DDL and `$out` are refused (UserWritesBlocked, 371), in all databases except `admin`, `config` and `local`.
  When `block` returns, every acknowledged write is applied, and no more follow. A running `updateMany` stops half-way:
  its changes so far stay, and its client gets the error. An index build is aborted.
- Users with the action `bypassWriteBlockingMode` can still write: the roles `root` and `restore` have it. **Without
  access control no user has it**, so all writes are blocked, including those of Towpath's sinks.
- The TTL monitor deletes nothing, neither by TTL indexes nor in clustered collections. It resumes after `unblock`.
- Reads, snapshot reads and change streams continue. The cluster time advances through the servers' own no-ops.
- The mode is a replicated document: it survives restarts, elections and the loss of a primary.
- Switching it on takes the global lock. It waits for every open transaction, also one that only reads, and during this
  **all reads and writes of the cluster wait behind it**. Therefore `block` tries for two seconds at a time, with pauses
  of one second. Switching it off waits for nothing. Without open transactions either takes some hundredths of a second.
"""

from __future__ import annotations

import time
from typing import Any

import pymongo
import tenacity
from pymongo.errors import AutoReconnect, OperationFailure, PyMongoError

from towpath.clients.mongo.client import Client
from towpath.clients.mongo.privileges import Privileges
from towpath.clients.mongo.versions import WRITE_BLOCK, short
from towpath.errors import TowpathError
from towpath_verifier import brief, feature_version

#: The mongosh command that unblocks writes by hand.
MONGOSH_UNDO = "db.adminCommand({setUserWriteBlockMode: 1, global: false})"
#: The actions on the resource {cluster: true} that switching the mode and reading its state require.
ACTIONS = ("setUserWriteBlockMode", "serverStatus", "getParameter")
_ROLE = (
    '{createRole: "towpathBlocker", roles: [], privileges: [{resource: {cluster: true}, actions: ['
    + ", ".join(f'"{action}"' for action in ACTIONS)
    + "]}]}"
)
#: The action on the resource {cluster: true} with which a user can still write.
BYPASS = "bypassWriteBlockingMode"
_ON = 2  # of repl.userWriteBlockMode; 1 is off, 0 is not known yet
_TRY_S, _PAUSE_S, _POLL_S = 2.0, 1.0, 0.01


def problem(client: Client, granted: Privileges | None) -> str:
    """Why this user, who has these privileges, cannot block the writes of this cluster, and what to do; empty if it
    can. Changes nothing."""
    hello = client.admin.command("hello")
    if hello.get("msg") == "isdbgrid":
        return "writes cannot be blocked through a mongos: sharded clusters are not supported; name a replica set"
    if "setName" not in hello:
        return "a standalone mongod cannot block writes: start it with --replSet, or stop the applications' writes"
    missing = granted.missing_on_cluster(ACTIONS) if granted else []
    if granted and missing:
        user, _, database = granted.user.rpartition("@")
        return (
            f"the user {granted.user} may not block writes: it lacks {', '.join(missing)} on the cluster; run"
            f' db.getSiblingDB("admin").runCommand({_ROLE}) and'
            f' db.getSiblingDB("{database}").runCommand({{grantRolesToUser: "{user}",'
            ' roles: [{role: "towpathBlocker", db: "admin"}]})'
        )
    level, server = feature_version(client), tuple(client.server_info()["versionArray"][:2])
    if level < WRITE_BLOCK:
        step = "upgrade the servers" if server < WRITE_BLOCK else "finish the upgrade"
        return (
            f"MongoDB {short(level)} (featureCompatibilityVersion) cannot block writes: that needs"
            f" {short(WRITE_BLOCK)}; stop the applications' writes yourself (--stop-with, or by hand), or {step}:"
            f' db.adminCommand({{setFeatureCompatibilityVersion: "{short(max(server, WRITE_BLOCK))}"}})'
        )
    return ""


def writes_through(granted: Privileges | None) -> bool:
    """Whether a user with these privileges can write while writes are blocked. Without access control no user can."""
    return granted is not None and not granted.missing_on_cluster([BYPASS])


def is_on(client: Client) -> bool:
    """Whether the primary blocks writes. Requires the action `serverStatus` on the cluster."""
    return bool(client.admin.command("serverStatus", metrics=0)["repl"].get("userWriteBlockMode") == _ON)


def block(client: Client, *, patience: float = 30.0) -> None:
    """Block writes; when this returns, the mode is majority-committed. Does nothing if it is on already.

    Waits for elections and open transactions, `patience` seconds at most. Raises `TowpathError`; the mode may be on
    then, and the message says how to switch it off.
    """
    _switch(client, on=True, patience=patience)


def unblock(client: Client, *, patience: float = 30.0) -> None:
    """Unblock writes; waits and raises as `block` does."""
    _switch(client, on=False, patience=patience)


def _switch(client: Client, *, on: bool, patience: float) -> None:
    tries = tenacity.Retrying(
        retry=tenacity.retry_if_exception(_is_transient),
        wait=tenacity.wait_fixed(_PAUSE_S),
        stop=tenacity.stop_after_delay(patience),
        reraise=True,
    )
    try:
        tries(_switch_once, client, on=on)
    except PyMongoError as error:
        raise TowpathError(_failure(client, error, on=on)) from error


def _switch_once(client: Client, *, on: bool) -> None:
    """Switch and wait for a majority, because the command takes no write concern. An election can lose the change."""
    with pymongo.timeout(_TRY_S):
        at = client.admin.command({"setUserWriteBlockMode": 1, "global": on})["operationTime"]
        while client.admin.command("hello")["lastWrite"]["majorityOpTime"]["ts"] < at:
            time.sleep(_POLL_S)
        if is_on(client) is not on:
            raise AutoReconnect("the primary stepped down before a majority had the change")


def _is_transient(error: BaseException) -> bool:
    """Whether a retry may succeed, as after an election, a network error, or a timeout for the lock."""
    return isinstance(error, PyMongoError) and (not isinstance(error, OperationFailure) or error.timeout)


def _failure(client: Client, error: PyMongoError, *, on: bool) -> str:
    action = "block writes" if on else "unblock writes"
    state = "it may block them nevertheless" if on else "it may still block them"
    return f"the cluster does not {action}: {brief(error)}{_transactions(client)}; {state}; to undo: {MONGOSH_UNDO}"


def _transactions(client: Client) -> str:
    """A clause about the open transactions that a switch waits for; empty if the user may not see them (`inprog`)."""
    stages: list[dict[str, Any]] = [
        {"$currentOp": {"allUsers": True, "idleSessions": True}},
        {"$match": {"transaction.parameters.autocommit": False}},
    ]
    try:
        with pymongo.timeout(_TRY_S):
            operations = list(client.admin.aggregate(stages))
    except PyMongoError:
        return ""
    if not operations:
        return ""
    oldest = max(int(operation["transaction"].get("timeOpenMicros", 0)) for operation in operations) / 1_000_000
    clients = sorted({str(operation.get("client", "unknown")) for operation in operations})
    return (
        f"; it waits for {len(operations)} open transactions, the oldest open for {oldest:.0f} s, from"
        f" {', '.join(clients[:5])}: let them end, or end them with killSessions, and try again"
    )
