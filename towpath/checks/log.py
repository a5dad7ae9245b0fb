"""The checks of the log and the oplog: whether they keep what a rebuild and capture still need."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeVar

from pymongo.errors import OperationFailure

from towpath.clients.mongo.client import Client
from towpath.clients.mongo.privileges import if_allowed
from towpath.config.finding import Finding, error, ok, warning
from towpath.config.pipeline import Pipeline
from towpath.errors import ConnectUnreachable, MongoUnreachable, TowpathError
from towpath.history import resnapshot
from towpath.history.resnapshot import Captured
from towpath.log.topic_settings import MARK, is_compacted
from towpath.session import Session

_SHORT_MS = 600_000  # a shorter lag leaves little time during an outage of a broker or Connect
_FOREVER = -1

_POSITION_LOST = 136  # CappedPositionLost: the server dropped the entry at which a query was
_TRIES = 10

Settings = Mapping[str, str]
Answer = TypeVar("Answer")


def guard(subject: str, settings: Settings, begins: int, pipeline: Pipeline) -> Iterator[Finding]:
    """The topic keeps the records that a rebuild needs. `begins`: its first offset."""
    yield from _retention(subject, settings, begins, pipeline)
    if not pipeline.log.compact:
        yield from _no_compaction(subject, settings)
    else:
        yield from _compaction(subject, settings, pipeline.log.compaction_lag)


def _retention(subject: str, settings: Settings, begins: int, pipeline: Pipeline) -> Iterator[Finding]:
    desired, actual = pipeline.log.retention, int(settings.get("retention.ms", _FOREVER))
    if actual != _FOREVER and (desired == _FOREVER or actual < desired):
        period = "forever" if desired == _FOREVER else f"for {desired} ms"
        yield warning(
            subject,
            f"retention.ms={actual}: the brokers delete records that the file keeps {period}; the log cannot rebuild"
            " documents that have not changed since",
            "run `towpath deploy`, which applies [log] retention",
            where="retention.ms",
        )
    if int(settings.get("retention.bytes", _FOREVER)) != _FOREVER:
        yield warning(
            subject,
            f"retention.bytes={settings['retention.bytes']}: the brokers delete the oldest records of a partition that"
            " grows larger",
            "run `towpath deploy`, which sets retention.bytes=-1",
            where="retention.bytes",
        )
    if begins and desired == _FOREVER:
        yield warning(
            subject,
            f"begins at offset {begins}, not at 0: the first records are gone, and the log cannot rebuild documents"
            " that have not changed since",
            "`towpath replay` lists them; to get a whole log, run `towpath remove --topics`, empty the destination and"
            " deploy",
        )


def _no_compaction(subject: str, settings: Settings) -> Iterator[Finding]:
    if is_compacted(settings):
        yield error(
            subject,
            f"cleanup.policy={settings['cleanup.policy']}: compaction keeps only the last record of a key, which may be"
            " an update without the document that it changes",
            "run `towpath deploy`, which sets cleanup.policy=delete; or set [log] compact = true, deploy, and run"
            " `towpath compact --from-beginning`, which re-reads these documents",
            where="cleanup.policy",
        )


def _compaction(subject: str, settings: Settings, lag_ms: int) -> Iterator[Finding]:
    if not is_compacted(settings):
        yield warning(
            subject,
            f"cleanup.policy={settings.get('cleanup.policy')}: the topic held records before [log] compact was set, and"
            " is not compacted yet",
            "leave `towpath compact` running: it enables compaction once all updates are protected",
            where="cleanup.policy",
        )
    elif int(settings.get(MARK, 0)) < lag_ms:
        yield error(
            subject,
            f"{MARK}={settings.get(MARK)}, less than [log] compaction_lag ({lag_ms}): the log cleaner may"
            " drop a whole document of which then only an update is left",
            "run `towpath deploy`, which applies the file's settings, then `towpath compact --once --from-beginning`",
            where=MARK,
        )


def plan(pipeline: Pipeline) -> Iterator[Finding]:
    """The settings of the log in the pipeline file go together."""
    lag_ms = pipeline.log.compaction_lag
    if not pipeline.log.compact:
        return
    if lag_ms < _SHORT_MS:
        yield warning(
            "file",
            f"[log] compaction_lag is {lag_ms // 1000} s: when Connect, a broker or `towpath compact` is"
            " down for longer, the log cleaner drops documents that a rebuild needs",
            "set hours, not minutes; the default is 24h",
        )
    if pipeline.log.retention != _FOREVER and pipeline.log.retention <= lag_ms:
        yield warning(
            "file",
            f"[log] retention ({pipeline.log.retention // 1000} s) is not longer than compaction_lag"
            f" ({lag_ms // 1000} s): records are deleted before the log cleaner may compact them",
            "compaction has no effect here: set a longer retention, or compact = false",
        )


def check(session: Session) -> Iterator[Finding]:
    """The oplog still holds what the source connectors have not captured.

    A server that does not answer yields no finding here, and one that refuses a warning: nothing else reads this.
    """
    try:
        if not session.pipeline.has_own_source:
            return
        captures = resnapshot.read_captured(session)
        with session.source.briefly() as client:
            oplog = read(client)
    except (MongoUnreachable, ConnectUnreachable):
        return
    except TowpathError as failure:
        yield warning(_SUBJECT, f"cannot be compared with what is captured: {failure.sentence}", failure.advice)
        return
    for captured in captures:
        yield from check_capture(oplog, captured)


def warnings(session: Session) -> tuple[str, ...]:
    """The errors and warnings of `check`, one line each, for `status`."""
    return tuple(
        f"{finding.subject}: {finding.finding}; {finding.advice}" for finding in check(session) if finding.level != "ok"
    )


_SUBJECT = "source oplog"
#: Hours. A day is enough to notice in the morning what broke in the evening, and to repair it.
SHORT_HOURS = 24.0
#: An oplog this full has begun to drop its oldest entries, so that its span is its window.
_FULL = 0.9
#: The share of the window that capture may be behind without a warning.
_NEAR = 0.5
#: Bytes per second of a copy on a small machine with indexes and other load.
SLOW_COPY = 5 * 2**20


@dataclass(frozen=True, slots=True)
class Oplog:
    """The extent of an oplog. `io.towpath.debezium.Oplog` has the same rules in the source connector."""

    span: int
    """Seconds between its first and its last entry."""
    size: int
    """Bytes in use."""
    limit: int
    """Maximum size in bytes."""
    kept: float = 0.0
    """Its minimum retention in hours."""
    last: int = 0
    """The time of its last entry, in seconds since the epoch."""

    @property
    def full(self) -> bool:
        return self.size > _FULL * self.limit

    @property
    def young(self) -> bool:
        """Whether it is too early to estimate the write rate."""
        return not self.full and self.span < 3600

    @property
    def hours(self) -> float:
        """The window in hours: the current one if the oplog is full, else an estimate from the write rate so far."""
        grown = 1.0 if self.full else self.limit / max(self.size, 1)
        return max(self.span * grown / 3600, self.kept)

    def is_near(self, since: int) -> bool:
        """Whether a change made at `since` (seconds since the epoch) is dropped already, or will be soon."""
        return self.last - since > _NEAR * self.hours * 3600


def despite_drops(query: Callable[[], Answer]) -> Answer:
    """The answer to a query of the oplog, asked again when the server drops the entries that it reads."""
    for _ in range(_TRIES - 1):
        try:
            return query()
        except OperationFailure as failure:
            if failure.code != _POSITION_LOST:
                raise
    return query()


def read(client: Client) -> Oplog | None:
    """The extent of the oplog; None if the user may not read it."""
    entries = client.local["oplog.rs"]
    first = if_allowed(lambda: despite_drops(lambda: entries.find_one({}, {"ts": 1}, sort=[("$natural", 1)])))
    last = if_allowed(lambda: entries.find_one({}, {"ts": 1}, sort=[("$natural", -1)]))
    sizes = if_allowed(lambda: next(iter(entries.aggregate([{"$collStats": {"storageStats": {}}}])))["storageStats"])
    if not first or not last or not sizes:
        return None
    server = if_allowed(lambda: client.admin.command("serverStatus")) or {}
    kept = float(server.get("oplogTruncation", {}).get("oplogMinRetentionHours", 0.0))
    return Oplog(last["ts"].time - first["ts"].time, sizes["size"], sizes["maxSize"], kept, last["ts"].time)


def check_window(oplog: Oplog | None) -> Iterator[Finding]:
    if oplog is None:
        yield warning(
            _SUBJECT,
            "its window is unknown: the user may not read local.oplog.rs",
            'grant find and collStats on {db: "local", collection: "oplog.rs"}, or run rs.printReplicationInfo() as'
            f" another user: the window should be {SHORT_HOURS:.0f} hours or more",
        )
    elif oplog.young:
        share = f"{oplog.size / max(oplog.limit, 1):.1%} of {oplog.limit / 2**20:,.0f} MiB"
        yield ok(_SUBJECT, f"is too new to estimate its window: {share} in {oplog.span / 60:.0f} minutes")
    elif oplog.hours < SHORT_HOURS:
        yield warning(
            _SUBJECT,
            f"reaches back {oplog.hours:.1f} hours at the current write rate ({oplog.limit / 2**20:,.0f} MiB): a"
            " capture that is down for longer, or an initial copy that takes longer, has to start over",
            f"enlarge it to {SHORT_HOURS:.0f} hours or more: db.adminCommand({{replSetResizeOplog: 1, size: <MiB>,"
            f" minRetentionHours: {SHORT_HOURS:.0f}}}) on every member",
        )
    else:
        yield ok(_SUBJECT, f"reaches back {oplog.hours:,.0f} hours at the current write rate")


def check_capture(oplog: Oplog | None, captured: Captured) -> Iterator[Finding]:
    """The oplog still holds the changes that a deployed source connector has not captured."""
    subject = f"{_SUBJECT}, {captured.connector}"
    behind = oplog.last - captured.since.seconds if oplog else 0
    if captured.state.lost:
        yield error(
            f"log, {captured.connector}",
            "holds records of an earlier capture, and the offsets that continue it are lost: documents that were"
            " deleted at the source since would stay at the destination",
            "run `towpath resnapshot PIPELINE`, which re-reads all documents and does not empty the destination",
        )
    elif captured.lost:
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
    elif oplog and oplog.is_near(captured.since.seconds):
        yield warning(
            subject,
            f"reaches back {_duration(oplog.hours * 3600)}, and capture is {_duration(behind)} behind: if the oplog"
            " drops changes before they are captured, `towpath resnapshot` has to re-read everything",
            "make sure that the connector runs (`towpath status`), or enlarge the oplog (replSetResizeOplog, with"
            " minRetentionHours) on every member",
        )
    elif oplog:
        yield ok(subject, f"reaches back {_duration(oplog.hours * 3600)}, and capture is {_duration(behind)} behind")


def _duration(seconds: float) -> str:
    for unit, length in (("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:,.0f} {unit}"
    return f"{max(seconds, 0):.0f} s"


def check_copy(oplog: Oplog | None, documents: int, size: int, pipeline: Pipeline) -> Iterator[Finding]:
    """The oplog window is longer than a copy of so many documents and bytes takes."""
    if oplog is None or oplog.young or pipeline.copy_method == "none" or not size:
        return
    limits = ((documents, pipeline.capture.documents_per_second), (size, pipeline.capture.bytes_per_second))
    limited = max((amount / rate / 3600 for amount, rate in limits if rate), default=0.0)
    extent = f"{size / 2**30:,.1f} GiB"
    enlarge = "enlarge the oplog (replSetResizeOplog with minRetentionHours)"
    if limited > oplog.hours:
        yield error(
            _SUBJECT,
            f"reaches back {oplog.hours:.1f} hours, but a copy of {extent} takes {limited:.1f} hours at the limits in"
            " [capture]: the stream could not start where the copy began",
            f"raise documents_per_second or bytes_per_second, or {enlarge}",
        )
        return
    slow = max(limited, size / SLOW_COPY / 3600)
    duration = f"a copy of {extent} takes {slow:.1f} hours at {SLOW_COPY // 2**20} MiB/s"
    if slow > oplog.hours:
        yield warning(
            _SUBJECT,
            f"reaches back {oplog.hours:.1f} hours, but {duration}, the rate of a small machine: if the copy is no"
            " faster, the stream cannot start where the copy began",
            f"{enlarge}, or make sure that the copy is faster",
        )
    else:
        yield ok(_SUBJECT, f"reaches back {oplog.hours:,.1f} hours, and {duration} or less")
