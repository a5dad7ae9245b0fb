"""How far back the source's oplog reaches: what stands still for longer has to be copied again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pymongo import MongoClient

from towpath.finding import Finding, error, ok, warning
from towpath.pipeline import Copy
from towpath.preflight.cluster import if_allowed
from towpath.resnapshot import Captured

_SUBJECT = "source oplog"
#: A day is what it takes to see in the morning what broke in the evening, and to mend it.
SHORT_HOURS = 24.0
#: An oplog this full has begun to drop its oldest entries, so that its span is its window.
_FULL = 0.9
#: Capture that is behind by this share of the window is warned of.
_NEAR = 0.5
#: Bytes a second that a copy manages on small machines, with indexes and other work beside it.
SLOW_COPY = 5 * 2**20


@dataclass(frozen=True, slots=True)
class Oplog:
    """`span` in seconds between its first and its last entry; `size` and `limit` in bytes; `kept` hours at least.

    `io.towpath.debezium.Oplog` reckons the same in the source connector.
    """

    span: int
    size: int
    limit: int
    kept: float = 0.0
    last: int = 0
    """The time in its last entry, in seconds since the epoch."""

    @property
    def full(self) -> bool:
        return self.size > _FULL * self.limit

    @property
    def young(self) -> bool:
        """Whether it is too early to tell the pace of writes from it."""
        return not self.full and self.span < 3600

    @property
    def hours(self) -> float:
        """The window at the pace of writes so far: as it is when full, else what it will be."""
        grown = 1.0 if self.full else self.limit / max(self.size, 1)
        return max(self.span * grown / 3600, self.kept)

    def is_near(self, since: int) -> bool:
        """Whether what was written at a moment (seconds since the epoch) is soon, or already, no longer held."""
        return self.last - since > _NEAR * self.hours * 3600


def read(client: MongoClient[dict[str, Any]]) -> Oplog | None:
    """None where the user may not read it."""
    oplog = client.local["oplog.rs"]
    first = if_allowed(lambda: oplog.find_one({}, {"ts": 1}, sort=[("$natural", 1)]))
    last = if_allowed(lambda: oplog.find_one({}, {"ts": 1}, sort=[("$natural", -1)]))
    sizes = if_allowed(lambda: next(iter(oplog.aggregate([{"$collStats": {"storageStats": {}}}])))["storageStats"])
    if not first or not last or not sizes:
        return None
    server = if_allowed(lambda: client.admin.command("serverStatus")) or {}
    kept = float(server.get("oplogTruncation", {}).get("oplogMinRetentionHours", 0.0))
    return Oplog(last["ts"].time - first["ts"].time, sizes["size"], sizes["maxSize"], kept, last["ts"].time)


def judge(found: Oplog | None) -> Iterator[Finding]:
    if found is None:
        yield warning(
            _SUBJECT,
            "its window is unknown: the user may not read local.oplog.rs",
            'grant find and collStats on {db: "local", collection: "oplog.rs"}, or run rs.printReplicationInfo() as'
            f" another user: the window should be {SHORT_HOURS:.0f} hours or more",
        )
    elif found.young:
        share = f"{found.size / max(found.limit, 1):.1%} of {found.limit / 2**20:,.0f} MiB"
        yield ok(_SUBJECT, f"is too new to estimate its window: {share} in {found.span / 60:.0f} minutes")
    elif found.hours < SHORT_HOURS:
        yield warning(
            _SUBJECT,
            f"reaches back {found.hours:.1f} hours at the current write rate ({found.limit / 2**20:,.0f} MiB): a"
            " capture that is down for longer, or an initial copy that takes longer, has to start over",
            f"enlarge it to {SHORT_HOURS:.0f} hours or more: db.adminCommand({{replSetResizeOplog: 1, size: <MiB>,"
            f" minRetentionHours: {SHORT_HOURS:.0f}}}) on every member",
        )
    else:
        yield ok(_SUBJECT, f"reaches back {found.hours:,.0f} hours at the current write rate")


def judge_capture(found: Oplog | None, captured: Captured) -> Iterator[Finding]:
    """Whether a source connector that is deployed comes near the oplog's end, or is beyond it."""
    subject = f"{_SUBJECT}, {captured.connector}"
    behind = found.last - captured.since.seconds if found else 0
    if captured.lost:
        yield error(
            subject,
            f"no longer holds the changes since {captured.since}, the end of what is captured: the changes after that"
            " are lost to the stream, and a restart does not help",
            "run `towpath resnapshot PIPELINE`, which re-reads all documents and does not empty the destination",
        )
    elif captured.state.gap is not None:
        yield warning(
            f"log, {captured.connector}",
            f"lacks the changes since {captured.state.gap}, and the resnapshot that replaces them is not finished:"
            " documents that were deleted since are still at the destination",
            "run `towpath resnapshot PIPELINE` to continue it",
        )
    elif found and found.is_near(captured.since.seconds):
        yield warning(
            subject,
            f"reaches back {_time(found.hours * 3600)}, and capture is {_time(behind)} behind: if the oplog drops"
            " changes before they are captured, `towpath resnapshot` has to re-read everything",
            "make sure that the connector runs (`towpath status`), or enlarge the oplog (replSetResizeOplog, with"
            " minRetentionHours) on every member",
        )
    elif found:
        yield ok(subject, f"reaches back {_time(found.hours * 3600)}, and capture is {_time(behind)} behind")


def _time(seconds: float) -> str:
    for unit, length in (("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:,.0f} {unit}"
    return f"{max(seconds, 0):.0f} s"


def judge_copy(found: Oplog | None, documents: int, size: int, copy: Copy) -> Iterator[Finding]:
    """Whether the oplog reaches back over a copy of so many documents and bytes: the stream begins where it began."""
    if found is None or found.young or copy.way == "none" or not size:
        return
    limits = ((documents, copy.documents_per_second), (size, copy.bytes_per_second))
    limited = max((amount / rate / 3600 for amount, rate in limits if rate), default=0.0)
    extent = f"{size / 2**30:,.1f} GiB"
    enlarge = "enlarge the oplog (replSetResizeOplog with minRetentionHours)"
    if limited > found.hours:
        yield error(
            _SUBJECT,
            f"reaches back {found.hours:.1f} hours, but a copy of {extent} takes {limited:.1f} hours at the limits in"
            " [capture]: the stream could not start where the copy began",
            f"raise documents_per_second or bytes_per_second, or {enlarge}",
        )
        return
    slow = max(limited, size / SLOW_COPY / 3600)
    words = f"a copy of {extent} takes {slow:.1f} hours at {SLOW_COPY // 2**20} MiB/s"
    if slow > found.hours:
        yield warning(
            _SUBJECT,
            f"reaches back {found.hours:.1f} hours, but {words}, the rate of a small machine: if the copy is no faster,"
            " the stream cannot start where the copy began",
            f"{enlarge}, or make sure that the copy is faster",
        )
    else:
        yield ok(_SUBJECT, f"reaches back {found.hours:,.1f} hours, and {words} or less")
