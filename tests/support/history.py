"""A source whose oplog holds little: how near its end is, and how to get beyond it."""

from __future__ import annotations

import os
import time
from typing import Any

from bson.timestamp import Timestamp

from tests.support import raw
from tests.support.awaited import patient
from towpath.checks.capture import despite_drops

_MB = 1024 * 1024


def first(client: raw.Client) -> Timestamp:
    """The time in the oplog's first entry."""
    entries = client.local["oplog.rs"]
    found: dict[str, Any] = despite_drops(lambda: entries.find_one({}, {"ts": 1}, sort=[("$natural", 1)])) or {}
    moment: Timestamp = found["ts"]
    return moment


def fill(client: raw.Client, share: float) -> None:
    """Write elsewhere until the oplog is this full, and drops nothing yet."""
    stats: list[dict[str, Any]] = [{"$collStats": {"storageStats": {}}}]
    while True:
        found = next(iter(client.local["oplog.rs"].aggregate(stats)))["storageStats"]
        if found["size"] > share * found["maxSize"]:
            return
        client.filler.documents.insert_one({"x": os.urandom(_MB // 2)})


def lose(client: raw.Client, timeout: float = 60) -> None:
    """Have the server drop what is in its oplog by now. It does so behind the last regular checkpoint."""
    now, end = client.admin.command("ping")["operationTime"], time.monotonic() + patient(timeout)
    while first(client) <= now:
        assert time.monotonic() < end, f"the oplog still begins at {first(client)}, not after {now}"
        client.filler.documents.insert_many([{"x": os.urandom(_MB)} for _ in range(4)])
    client.drop_database("filler")
