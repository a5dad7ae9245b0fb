"""Have a cluster refuse the writes of its applications, and take them again: `setUserWriteBlockMode` (MongoDB 6.0).

What holds while it is on, tried on 6.0.5 (`tests/mongo/test_write_block.py` has most of it):

- Writes, DDL and `$out` are refused (UserWritesBlocked, 371), in all databases but `admin`, `config` and `local`. When
  `block` returns, every write that was or will be acknowledged is there, and nothing comes after it. An `updateMany`
  under way stops half-way: what it had changed stays, and its client gets the error. An index build is aborted.
- Who has the action `bypassWriteBlockingMode` writes on: the roles `root` and `restore`. **Without access
  control nobody has it**, so nobody writes, a sink of ours included, whatever machine it is on.
- The TTL monitor deletes nothing, neither by TTL indexes nor in clustered collections. It does after `unblock`.
- Reads, snapshot reads and change streams go on, and so does the cluster time, by the servers' own no-ops.
- It is a replicated document: it survives restarts, step-downs and a primary's death.
- Switching it on takes the global lock. So it waits for every open transaction, also one that only reads, and **all
  reads and writes of the cluster wait behind it** meanwhile. `block` therefore asks for two seconds at a time, with
  pauses of one. Switching it off waits for nobody. Without open transactions either takes a few hundredths of a second.
"""

from __future__ import annotations

import time
from typing import Any

import pymongo
import tenacity
from pymongo import MongoClient
from pymongo.errors import AutoReconnect, OperationFailure, PyMongoError

from towpath.errors import TowpathError
from towpath.mongo.privileges import privileges
from verifier.descriptions import version

Client = MongoClient[dict[str, Any]]

#: What makes a cluster take writes again, for people in MongoDB's shell.
MONGOSH_UNDO = "db.adminCommand({setUserWriteBlockMode: 1, global: false})"
#: What switching it, and looking whether it can be and is on, take on the resource {cluster: true}.
ACTIONS = ("setUserWriteBlockMode", "serverStatus", "getParameter")
_ROLE = (
    '{createRole: "towpathBlocker", roles: [], privileges: [{resource: {cluster: true}, actions: ['
    + ", ".join(f'"{action}"' for action in ACTIONS)
    + "]}]}"
)
#: Who has it on the resource {cluster: true} writes on.
BYPASS = "bypassWriteBlockingMode"
_SINCE = (6, 0)
_ON = 2  # of repl.userWriteBlockMode; 1 is off, 0 is not known yet
_TRY_S, _PAUSE_S, _LOOK_S = 2.0, 1.0, 0.01


def trouble(client: Client) -> str:
    """Why this user cannot block the writes of this cluster, and what to do; empty when it can. Changes nothing."""
    hello = client.admin.command("hello")
    if hello.get("msg") == "isdbgrid":
        return "writes cannot be blocked through a mongos: sharded clusters are not supported; name a replica set"
    if "setName" not in hello:
        return "a standalone mongod cannot block writes: start it with --replSet, or stop the applications' writes"
    known = privileges(client)
    missing = known.missing_on_cluster(ACTIONS) if known else []
    if known and missing:
        user, _, database = known.user.rpartition("@")
        return (
            f"the user {known.user} may not block writes: it misses {', '.join(missing)} on the cluster; run"
            f' db.getSiblingDB("admin").runCommand({_ROLE}) and'
            f' db.getSiblingDB("{database}").runCommand({{grantRolesToUser: "{user}",'
            ' roles: [{role: "towpathBlocker", db: "admin"}]})'
        )
    found = version(client)
    if found < _SINCE:
        return (
            f"MongoDB {found[0]}.{found[1]} (featureCompatibilityVersion) cannot block writes: that needs 6.0; raise it"
            ' with db.adminCommand({setFeatureCompatibilityVersion: "6.0"}), or stop the applications\' writes'
        )
    return ""


def writes_through(client: Client) -> bool:
    """Whether this user's writes are taken while the cluster blocks writes; nobody's are without access control."""
    known = privileges(client)
    return known is not None and not known.missing_on_cluster([BYPASS])


def is_on(client: Client) -> bool:
    """Whether the primary refuses its applications' writes. Takes the action `serverStatus` on the cluster."""
    return bool(client.admin.command("serverStatus", metrics=0)["repl"].get("userWriteBlockMode") == _ON)


def block(client: Client, *, patience: float = 30.0) -> None:
    """Have the cluster refuse writes; when this returns, a majority knows. Nothing changes when it is on already.

    Elections are waited for, and open transactions, until `patience` (in seconds) is over. Raises `TowpathError`; it
    may be on then, and the message says how to switch it off.
    """
    _switch(client, on=True, patience=patience)


def unblock(client: Client, *, patience: float = 30.0) -> None:
    """Have the cluster take writes again; as `block` in all else."""
    _switch(client, on=False, patience=patience)


def _switch(client: Client, *, on: bool, patience: float) -> None:
    tries = tenacity.Retrying(
        retry=tenacity.retry_if_exception(_passes),
        wait=tenacity.wait_fixed(_PAUSE_S),
        stop=tenacity.stop_after_delay(patience),
        reraise=True,
    )
    try:
        tries(_once, client, on=on)
    except PyMongoError as error:
        raise TowpathError(_words(client, error, on=on)) from error


def _once(client: Client, *, on: bool) -> None:
    """The command takes no write concern, so a majority is waited for here; and an election may have been since."""
    with pymongo.timeout(_TRY_S):
        at = client.admin.command({"setUserWriteBlockMode": 1, "global": on})["operationTime"]
        while client.admin.command("hello")["lastWrite"]["majorityOpTime"]["ts"] < at:
            time.sleep(_LOOK_S)
        if is_on(client) is not on:
            raise AutoReconnect("the primary stepped down before a majority had the change")


def _passes(error: BaseException) -> bool:
    """Whether another try may do: an election, a connection, a lock that is not to be had for now."""
    return isinstance(error, PyMongoError) and (not isinstance(error, OperationFailure) or error.timeout)


def _words(client: Client, error: PyMongoError, *, on: bool) -> str:
    told = (getattr(error, "details", None) or {}).get("errmsg", str(error))
    what = "block writes" if on else "take writes again"
    state = "it may block them all the same" if on else "it may still block them"
    return f"the cluster does not {what}: {told}{_transactions(client)}; {state}; to undo: {MONGOSH_UNDO}"


def _transactions(client: Client) -> str:
    """The open transactions that a switch waits for, in words; empty for who may not see them (`inprog`)."""
    stages: list[dict[str, Any]] = [
        {"$currentOp": {"allUsers": True, "idleSessions": True}},
        {"$match": {"transaction.parameters.autocommit": False}},
    ]
    try:
        with pymongo.timeout(_TRY_S):
            found = list(client.admin.aggregate(stages))
    except PyMongoError:
        return ""
    if not found:
        return ""
    oldest = max(int(one["transaction"].get("timeOpenMicros", 0)) for one in found) / 1_000_000
    who = sorted({str(one.get("client", "unknown")) for one in found})
    return (
        f"; it waits for {len(found)} open transactions, the oldest for {oldest:.0f} s, of {', '.join(who[:5])}:"
        " let them end, or end them with killSessions, and try again"
    )
