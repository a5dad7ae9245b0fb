"""Bytes at each hop: counted by the servers, by Kafka's clients inside Connect, and on the broker's disk.

Every counter belongs to one party that says so itself. Asking a mongod costs a reply, which is taken off again.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bson import Timestamp

from benchmarks.bench.measured import Client, newest
from benchmarks.bench.sides import Way
from tests.support import rest
from towpath import stack as embedded

READ, PRODUCED, STORED, CONSUMED, WRITTEN, OPLOG = HOPS = (
    "source → Connect",
    "Connect → Kafka",
    "log on disk",
    "Kafka → sink",
    "sink → destination",
    "destination oplog",
)
_METRIC = re.compile(r'^(\w+)\{(?:.*,)?client_id="([^"]+)".*} (\S+)', re.MULTILINE)
_SENT = "kafka_producer_outgoing_bytes_total"
_RECEIVED = "kafka_consumer_incoming_bytes_total"


@dataclass(frozen=True, slots=True)
class Counted:
    """All counters at one moment; `own` is what counting added to them afterwards.

    `time` is the newest operation of the destination.
    """

    bytes: Mapping[str, float]
    own: Mapping[str, float]
    time: Timestamp


def count(stack: embedded.Stack, way: Way, source: Client, destination: Client) -> Counted:
    metrics = rest.get(stack.metrics_urls["connect-0"], timeout=30).text
    read, written = _looks(source, "bytesOut"), _looks(destination, "bytesIn")
    found = {
        READ: read[0],
        PRODUCED: client_bytes(metrics, _SENT, f"connector-producer-{way.source}-"),
        STORED: _on_disk(stack.directory, way.names),
        CONSUMED: client_bytes(metrics, _RECEIVED, f"connector-consumer-{way.sink}-"),
        WRITTEN: written[0],
    }
    own = {hop: 2 * (second - first) for hop, (first, second) in ((READ, read), (WRITTEN, written))}
    return Counted(found, own, newest(destination))


def since(before: Counted, stack: embedded.Stack, way: Way, source: Client, destination: Client) -> dict[str, float]:
    """Hop → bytes since then."""
    after = count(stack, way, source, destination)
    found = {hop: now - before.bytes[hop] - before.own.get(hop, 0) for hop, now in after.bytes.items()}
    return found | {OPLOG: _oplog(destination, before.time)}


def writes(client: Client, after: Timestamp, namespace: str) -> int:
    """How many changes of documents of that namespace the server made after that operation."""
    stages: list[dict[str, Any]] = [
        {"$match": {"ts": {"$gt": after}}},
        {"$project": {"change": {"$ifNull": ["$o.applyOps", ["$$ROOT"]]}}},
        {"$unwind": "$change"},
        {"$match": {"change.ns": namespace}},
        {"$count": "found"},
    ]
    return sum(int(counted["found"]) for counted in client.local["oplog.rs"].aggregate(stages))


def client_bytes(metrics: str, name: str, client: str) -> float:
    """The sum of a metric over the clients whose id begins so; 0 while there are none."""
    found = _METRIC.findall(metrics)
    return sum(float(value) for metric, of, value in found if metric == name and of.startswith(client))


def _looks(client: Client, name: str) -> tuple[float, float]:
    """The server's own count, twice: the second time it holds what asking adds."""
    first, second = (float(client.admin.command("serverStatus")["network"][name]) for _ in range(2))
    return first, second


def _on_disk(directory: Path, topics: tuple[str, ...]) -> float:
    """The bytes of the topics' segments."""
    folders = (
        folder for folder in (directory / "data" / "kafka").iterdir() if folder.name.rpartition("-")[0] in topics
    )
    return sum(segment.stat().st_size for folder in folders for segment in folder.glob("*.log"))


def _oplog(client: Client, after: Timestamp) -> float:
    """The bytes of all entries after that operation, but for the server's own no-ops."""
    wanted = {"$match": {"ts": {"$gt": after}, "op": {"$ne": "n"}}}
    total = {"$group": {"_id": None, "bytes": {"$sum": {"$bsonSize": "$$ROOT"}}}}
    return sum(float(found["bytes"]) for found in client.local["oplog.rs"].aggregate([wanted, total]))
