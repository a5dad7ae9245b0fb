"""Gather the facts of a plan. Every query only reads; a server that does not answer makes its figures unknown."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from bson.timestamp import Timestamp
from pymongo.errors import ExecutionTimeout

from towpath.checks import connect, destination, kafka, log, source
from towpath.checks.everything import findings, inventory
from towpath.checks.planning.facts import Disk, Facts, Unknown, Writes, known
from towpath.checks.planning.sample import take
from towpath.clients.mongo.client import Client
from towpath.clients.mongo.privileges import if_allowed
from towpath.deploy.inventory import Extent, Inventory
from towpath.errors import TowpathError
from towpath.session import Session
from towpath.store.positions import DATABASE

Value = TypeVar("Value")

#: The newest entries of the oplog that are read: so many, of so many hours, for so many milliseconds.
_ENTRIES, _HOURS, _ENTRIES_MS = 50_000, 24, 3_000
#: If they are all that the oplog holds, and of a shorter time, they tell nothing of a day.
_SHORTEST_S = 60


def gather(session: Session, path: Path, seconds: float) -> Facts:
    """The facts of the pipeline in the file `path`. `seconds`: of the sample; 0 for none."""
    found = inventory(session)
    checked = tuple(findings(found, session, path))
    ask = partial(_ask, found)
    collections = ask(source.SIDE, lambda: _collections(found))
    captured = () if isinstance(collections, Unknown) else collections
    return Facts(
        pipeline=session.pipeline,
        findings=checked,
        unreachable={subject: failure.sentence for subject, failure in found.unreachable.items()},
        deployed=_deployed(found),
        collections=collections,
        sample=Unknown("no sample was taken (--sample 0)")
        if not seconds
        else ask(
            source.SIDE,
            lambda: found.source.ask(partial(take, collections=captured, pipeline=session.pipeline, seconds=seconds)),
        ),
        oplog=ask(source.SIDE, lambda: _oplog(found)),
        writes=ask(
            source.SIDE,
            lambda: found.source.ask(partial(_writes, namespace_regex=session.pipeline.selection.namespace_regex)),
        ),
        replicas=ask(kafka.SUBJECT, lambda: _replicas(found)),
        kafka_disks=ask(kafka.SUBJECT, lambda: _kafka_disks(found)),
        destination_disk=ask(destination.SIDE, lambda: _destination_disk(found, captured)),
    )


def _ask(found: Inventory, subject: str, query: Callable[[], Value]) -> Value | Unknown:
    """The answer of a server, or why there is none."""
    if subject in found.unreachable:
        return Unknown(f"the {subject} cannot be read" if subject != kafka.SUBJECT else "Kafka cannot be read")
    return known(query)


def _deployed(found: Inventory) -> bool | Unknown:
    """Connect is not asked without Kafka: each request would take 90 s."""
    subject = kafka.SUBJECT if kafka.SUBJECT in found.unreachable else connect.SUBJECT
    return _ask(found, subject, lambda: found.is_deployed)


def _collections(found: Inventory) -> tuple[Extent, ...]:
    if source.namespaces(found) == () and (user := found.source.privileges) and user.missing(("listCollections",), ""):
        raise TowpathError(f"the user {user.user} may not list the collections of every database")
    return tuple(found.extents.values())


def _oplog(found: Inventory) -> log.Oplog:
    oplog = found.source.ask(log.read)
    if oplog is None:
        raise TowpathError(
            'the user may not read it: grant find and collStats on {db: "local", collection: "oplog.rs"}'
        )
    return oplog


def _writes(client: Client, namespace_regex: str) -> Writes:
    """What the newest entries hold. Of an entry of several changes, those of the pipeline count in proportion."""
    entries = client.local["oplog.rs"]
    last = if_allowed(lambda: entries.find_one({}, {"ts": 1}, sort=[("$natural", -1)]))
    if not last:
        raise TowpathError("the user may not read the oplog")
    names = {"$ifNull": ["$o.applyOps.ns", ["$ns"]]}
    is_own = {"$regexMatch": {"input": "$$this", "regex": namespace_regex}}
    stages: list[dict[str, Any]] = [
        {"$limit": _ENTRIES},
        {"$match": {"ts": {"$gte": Timestamp(last["ts"].time - _HOURS * 3_600, 0)}}},
        {
            "$project": {
                "ts": 1,
                "changes": {"$max": [1, {"$size": names}]},
                "own": {"$size": {"$filter": {"input": names, "as": "this", "cond": is_own}}},
                "bytes": {"$bsonSize": "$$ROOT"},
            }
        },
        {
            "$group": {
                "_id": None,
                "first": {"$min": "$ts"},
                "read": {"$sum": 1},
                "entries": {"$sum": "$changes"},
                "bytes": {"$sum": "$bytes"},
                "own_entries": {"$sum": "$own"},
                "own_bytes": {"$sum": {"$multiply": ["$bytes", {"$divide": ["$own", "$changes"]}]}},
            }
        },
    ]
    try:
        found = log.despite_drops(
            lambda: next(iter(entries.aggregate(stages, hint={"$natural": -1}, maxTimeMS=_ENTRIES_MS)))
        )
    except ExecutionTimeout as error:
        raise TowpathError(f"the source did not count its newest changes within {_ENTRIES_MS // 1000} s") from error
    seconds = last["ts"].time - found["first"].time
    if found["read"] < _ENTRIES and seconds < _SHORTEST_S:
        raise TowpathError(f"the oplog began {seconds} s ago")
    return Writes(
        max(seconds, 1), found["entries"], round(found["bytes"]), found["own_entries"], round(found["own_bytes"])
    )


def _replicas(found: Inventory) -> int:
    if found.pipeline.kafka.replication_factor > 0:
        return found.pipeline.kafka.replication_factor
    return int(found.broker_settings(found.brokers[0]).get("default.replication.factor", "1"))


def _kafka_disks(found: Inventory) -> tuple[Disk, ...]:
    disks = found.topics.disks()
    if disks is None:
        raise TowpathError("the brokers do not report their disks to this user (ACL: Describe on the cluster)")
    return tuple(Disk(name, *(sizes or (None, None))) for name, sizes in disks.items())


def _destination_disk(found: Inventory, captured: tuple[Extent, ...]) -> Disk:
    """The primary's. A database that does not exist yet shows none, so Towpath's and MongoDB's are asked too."""
    names = dict.fromkeys((*(one.destination.partition(".")[0] for one in captured), DATABASE, "admin"))
    answers = [found.destination.ask(partial(_stats, name)) for name in names]
    if all(stats is None for stats in answers):
        raise TowpathError(f"the user may not run dbStats on {', '.join(names)}; the role read includes it")
    for stats in answers:
        if stats and stats.get("fsTotalSize"):
            total, used = int(stats["fsTotalSize"]), int(stats["fsUsedSize"])
            return Disk("disk of the destination's primary", total - used, total)
    raise TowpathError(f"the server reports no file system of the databases {', '.join(names)}")


def _stats(database: str, client: Client) -> dict[str, Any] | None:
    return if_allowed(lambda: client[database].command("dbStats"))
