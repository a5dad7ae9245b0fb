"""The checks of capture: whether the source's oplog still holds what the source connectors have not captured."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from bson.timestamp import Timestamp
from pymongo.errors import ExecutionTimeout, OperationFailure
from pymongo.read_concern import ReadConcern

from towpath.checks.facts import RESNAPSHOT, RESNAPSHOT_ONLY, Facts
from towpath.checks.rule import Finding, about, error, ok, warning
from towpath.clients.mongo.client import Client, ClusterTime
from towpath.clients.mongo.privileges import if_allowed
from towpath.config.namespaces import Selection
from towpath.config.pipeline import Pipeline
from towpath.config.text import duration
from towpath.errors import ConnectError, ConnectUnreachable, MongoUnreachable, TowpathError
from towpath.log import field_rules
from towpath.log.source_offsets import SELECTION, SourceState, source_state
from towpath.session import Session

SUBJECT = "source oplog"
#: Of a resnapshot of all collections.
EVERYTHING = ".*"
#: Hours. A day is enough to notice in the morning what broke in the evening, and to repair it.
SHORT_HOURS = 24.0
#: Entries of the oplog, when changes are counted that are not captured.
MOST_COUNTED = 10_000
_COUNT_MS = 1_000
#: An oplog this full has begun to drop its oldest entries, so that its span is its window.
_FULL = 0.9
#: The share of the window that capture may be behind without a warning.
_NEAR = 0.5
#: Bytes per second of a copy on a small machine with indexes and other load.
SLOW_COPY = 5 * 2**20
_LOST = (286, 280, 136)  # ChangeStreamHistoryLost, ChangeStreamFatalError, CappedPositionLost
_POSITION_LOST = 136  # CappedPositionLost: the server dropped the entry at which a query was
_TRIES = 10
_INITIATION = ("n", {"msg": "initiating set"})  # the first entry of a replica set, until its oplog drops it
_RESNAPSHOT = "run `towpath resnapshot PIPELINE`, which re-reads all documents and does not empty the destination"

Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class Captured:
    """The state of one source connector: up to when everything is captured, and whether later changes are lost."""

    connector: str
    state: SourceState
    since: ClusterTime
    lost: bool
    resnapshot: str
    """The name of the resnapshot in its configuration, or else in its offsets; empty if there never was one."""
    only: str
    """The regular expression of the namespaces that the resnapshot re-reads."""
    reselects: bool = False
    """Whether its task has not taken over the selection in its configuration: it may refuse a collection that is
    included again."""
    has_other_rules: bool = False
    """Whether the log's records follow other rules than those of the file."""
    restored: bool = False
    """Whether changes are lost because the source has another history than the captured one."""

    @property
    def under_way(self) -> bool:
        return bool(self.resnapshot) and self.state.closed != self.resnapshot


def read_captured(
    client: Client,
    pipeline: Pipeline,
    states: Callable[[str], SourceState],
    configs: Callable[[str], Mapping[str, str] | None],
) -> list[Captured]:
    """Every source connector that has a position. The functions return what Connect knows of a connector."""
    captured = []
    for name in pipeline.source_connectors:
        state, settings = states(name), configs(name) or {}
        since = state.position.time if state.position else state.start
        if since is not None:
            resnapshot, only = settings.get(RESNAPSHOT, state.resnapshot), settings.get(RESNAPSHOT_ONLY, EVERYTHING)
            reselects = state.selection is not None and settings.get(SELECTION, state.selection) != state.selection
            restored = is_restored(client, state)
            lost = state.lost or restored or is_lost(client, since)
            rules = field_rules.differ(pipeline, state.rules)
            captured.append(Captured(name, state, since, lost, resnapshot, only, reselects, rules, restored))
    return captured


def is_lost(client: Client, since: ClusterTime) -> bool:
    """Whether the source's oplog no longer holds all changes since then. A change stream from there shows it."""
    keys: list[dict[str, Any]] = [{"$project": {"_id": 1}}]
    start = Timestamp(since.seconds, since.ordinal)
    try:
        with client.watch(keys, start_at_operation_time=start, batch_size=1, max_await_time_ms=100) as stream:
            stream.try_next()
        return False
    except OperationFailure as failure:
        if failure.code in _LOST:
            return True
        raise


def is_restored(client: Client, state: SourceState) -> bool:
    """Whether the source has another history than that of the entry up to which a connector has captured.

    As `io.towpath.debezium.Oplog` decides. False if the server does not say, as when the user may not read the oplog.
    """
    if state.position is None or state.start is None:
        return False
    entry = state.position.time
    if entry <= ClusterTime(state.start.seconds, state.start.ordinal + 1):  # the stream may have passed none
        return False
    stages: list[dict[str, Any]] = [
        {"$match": {"ts": {"$gte": Timestamp(entry.seconds, entry.ordinal)}}},
        {"$limit": 1},
        {"$unionWith": {"coll": "oplog.rs", "pipeline": [{"$limit": 1}]}},
        {"$project": {"_id": 0, "ts": 1, "op": 1, "o.msg": 1}},
    ]
    entries = client.local.get_collection("oplog.rs", read_concern=ReadConcern("majority"))
    try:
        return has_other_history(despite_drops(lambda: list(entries.aggregate(stages))), entry)
    except OperationFailure:
        return False


def has_other_history(found: Sequence[Mapping[str, Any]], entry: ClusterTime) -> bool:
    """`found`: the first entry that is not before `entry`, if there is one, and the first of all."""
    if len(found) < 2 or (at := Timestamp(entry.seconds, entry.ordinal)) == found[0]["ts"]:
        return False
    first = found[1]  # otherwise the oplog has dropped the entry
    return bool(first["ts"] < at or (first.get("op"), first.get("o")) == _INITIATION)


def check(
    session: Session, states: Mapping[str, SourceState], configs: Mapping[str, Mapping[str, str]]
) -> Iterator[Finding]:
    """As `within_oplog`, for `status`: a source that does not answer yields nothing, one that refuses a warning.

    `states` and `configs` are those of the source connectors.
    """
    try:
        if session.pipeline.has_own_source:
            with session.source.briefly() as client:
                captures = read_captured(client, session.pipeline, states.__getitem__, configs.get)
                oplog = read(client)
            for captured in captures:
                yield from _about(captured, oplog)
    except MongoUnreachable:
        return
    except TowpathError as failure:
        yield warning(f"cannot be compared with what is captured: {failure.sentence}", failure.advice, about=SUBJECT)


def warnings(
    session: Session, states: Mapping[str, SourceState], configs: Mapping[str, Mapping[str, str]]
) -> tuple[str, ...]:
    """The errors and warnings of `check`, one line each, for `status`."""
    return tuple(
        f"{finding.subject}: {finding.finding}; {finding.advice}"
        for finding in check(session, states, configs)
        if finding.level != "ok"
    )


def within_oplog(facts: Facts) -> Iterator[Finding]:
    """The oplog still holds what the deployed source connectors have not captured."""
    if not facts.pipeline.has_own_source:
        return

    def state(connector: str) -> SourceState:
        return source_state(facts.offsets(connector) or ())

    read_all = partial(read_captured, pipeline=facts.pipeline, states=state, configs=facts.deployed.get)
    try:
        captures = facts.source.ask(read_all)
    except ConnectUnreachable:
        raise
    except ConnectError as failure:
        # Connect asks Kafka with the login in the connector's present configuration, which `deploy` may replace
        yield warning(f"cannot be compared with what is captured: {failure.sentence}", failure.advice, about=SUBJECT)
        return
    for captured in captures:
        yield from _about(captured, facts.source.ask(read))


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

    @property
    def reach(self) -> str:
        """How far it reaches back, in words."""
        return "is too new to tell how far it reaches back" if self.young else f"reaches back {self.window}"

    @property
    def window(self) -> str:
        return duration(self.hours * 3600)


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


def changes_after(client: Client, time: ClusterTime, selection: Selection) -> int | None:
    """How many changes of these collections the oplog has after a time, with those of transactions.

    None if that is not known: the user may not read the oplog, it has more than `MOST_COUNTED` entries after the time,
    or the source takes too long to count them.
    """
    namespaces = {"$cond": [{"$isArray": "$o.applyOps"}, "$o.applyOps.ns", ["$ns"]]}
    stages: list[dict[str, Any]] = [
        {"$match": {"ts": {"$gt": Timestamp(time.seconds, time.ordinal)}, "op": {"$in": ["i", "u", "d", "c"]}}},
        {"$limit": MOST_COUNTED + 1},
        {"$project": {"namespace": namespaces}},
        {"$unwind": {"path": "$namespace", "includeArrayIndex": "at"}},
        {"$group": {"_id": "$namespace", "changes": {"$sum": 1}, "entries": {"$sum": {"$cond": ["$at", 0, 1]}}}},
    ]
    entries = client.local["oplog.rs"]
    try:
        found = if_allowed(lambda: despite_drops(lambda: list(entries.aggregate(stages, maxTimeMS=_COUNT_MS))))
    except ExecutionTimeout:
        return None
    if found is None or sum(each["entries"] for each in found) > MOST_COUNTED:
        return None
    return sum(int(each["changes"]) for each in found if selection.matches(each["_id"]))


def check_window(oplog: Oplog | None) -> Iterator[Finding]:
    if oplog is None:
        yield warning(
            "its window is unknown, and a restored source is not recognised: the user may not read local.oplog.rs",
            'grant find and collStats on {db: "local", collection: "oplog.rs"}, or run rs.printReplicationInfo() as'
            f" another user: the window should be {SHORT_HOURS:.0f} hours or more",
        )
    elif oplog.young:
        share = f"{oplog.size / max(oplog.limit, 1):.1%} of {oplog.limit / 2**20:,.0f} MiB"
        yield ok(f"{oplog.reach}: {share} in {oplog.span / 60:.0f} minutes")
    elif oplog.hours < SHORT_HOURS:
        yield warning(
            f"reaches back {oplog.hours:.1f} hours at the current write rate ({oplog.limit / 2**20:,.0f} MiB): a"
            " capture that is down for longer has to start over",
            f"enlarge it to {SHORT_HOURS:.0f} hours or more: db.adminCommand({{replSetResizeOplog: 1, size: <MiB>,"
            f" minRetentionHours: {SHORT_HOURS:.0f}}}) on every member",
        )
    else:
        yield ok(f"reaches back {oplog.hours:,.0f} hours at the current write rate")


def _about(captured: Captured, oplog: Oplog | None) -> Iterator[Finding]:
    return about(f"{SUBJECT}, {captured.connector}", check_capture(oplog, captured))


def check_capture(oplog: Oplog | None, captured: Captured) -> Iterator[Finding]:
    """The oplog still holds the changes that a deployed source connector has not captured."""
    behind = max(oplog.last - captured.since.seconds, 0) if oplog else 0
    if captured.state.lost:
        yield error(
            "holds records of an earlier capture, and the offsets that continue it are lost: documents that were"
            " deleted at the source since would stay at the destination",
            _RESNAPSHOT,
            about=f"log, {captured.connector}",
        )
    elif captured.restored:
        yield error(
            f"has no entry of {captured.since}, the end of what is captured, and has not dropped it: the source was"
            " restored, or has lost its latest changes, and the destination may have the last copy of these",
            "`towpath verify PIPELINE --alone` shows what the source lacks. Save it before you run"
            " `towpath resnapshot PIPELINE`, which makes the destination as the source is",
            code="TWP-OTHER-HISTORY",
        )
    elif captured.lost:
        yield error(
            f"no longer holds the changes since {captured.since}, the end of what is captured: the changes after that"
            " are lost to the stream, and a restart does not help",
            f"{_RESNAPSHOT}. If the source was restored, first save what it lacks: `towpath verify PIPELINE --alone`"
            " shows it",
        )
    elif captured.state.gap is not None:
        yield warning(
            f"lacks the changes since {captured.state.gap}, and the resnapshot that replaces them is not finished:"
            " documents that were deleted since are still at the destination",
            "run `towpath resnapshot PIPELINE` to continue it",
            about=f"log, {captured.connector}",
        )
    elif oplog and behind > _NEAR * oplog.hours * 3600:
        reach = f"will reach back {oplog.window} at the write rate so far" if oplog.young else oplog.reach
        yield warning(
            f"{reach}, and capture is {duration(behind)} behind: if the oplog"
            " drops changes before they are captured, `towpath resnapshot` has to re-read everything",
            "make sure that the connector runs (`towpath status`), or enlarge the oplog (replSetResizeOplog, with"
            " minRetentionHours) on every member",
        )
    elif oplog:
        yield ok(f"{oplog.reach}, and capture is {duration(behind)} behind")


def check_copy(oplog: Oplog | None, size: int, pipeline: Pipeline) -> Iterator[Finding]:
    """The oplog window is longer than Debezium's copy of so many bytes takes. MongoSource's own goes in rounds."""
    if oplog is None or oplog.young or pipeline.copy_method != "debezium" or not size:
        return
    slow = size / SLOW_COPY / 3600
    takes = f"a copy of {size / 2**30:,.1f} GiB takes {slow:.1f} hours at {SLOW_COPY // 2**20} MiB/s"
    if slow > oplog.hours:
        yield warning(
            f"reaches back {oplog.hours:.1f} hours, but {takes}, the rate of a small machine: if the copy is no"
            " faster, the stream cannot start where the copy began",
            "enlarge the oplog (replSetResizeOplog with minRetentionHours), or make sure that the copy is faster",
        )
    else:
        yield ok(f"reaches back {oplog.hours:,.1f} hours, and {takes} or less")
