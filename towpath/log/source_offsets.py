"""A source connector's committed state: position, copies, re-read requests answered, schema changes seen, splices."""

from __future__ import annotations

import base64
import json
import struct
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from operator import itemgetter
from typing import Annotated, Any, Literal

import bson
from pydantic import BeforeValidator, Field, TypeAdapter

from towpath.clients.connect.rest import Connect
from towpath.clients.mongo.client import ClusterTime, cluster_time
from towpath.errors import TowpathError

#: The key in the partitions of MongoSource's own offsets; its value is the connector's topic.prefix.
OURS = "towpath"
#: Offsets of which a connector has one each: a key of the partition, and the field of `SourceState`.
_PARTS = ("requests", "ddl", "schema", "splices")
_Time = Annotated[ClusterTime, BeforeValidator(cluster_time)]
_MaybeTime = Annotated[ClusterTime | None, BeforeValidator(lambda text: cluster_time(text) if text else None)]
_Words = Annotated[str, BeforeValidator(lambda text: text or "")]
#: The setting of a source connector that selects the namespaces to capture.
SELECTION = "collection.include.list"


@dataclass(frozen=True, slots=True)
class SourcePosition:
    """What a source connector has committed. All events *before* `time` are in the log; some at `time` may not be."""

    time: ClusterTime
    snapshot_running: bool

    def has_passed(self, time: ClusterTime) -> bool:
        """Whether every change up to and including `time` is in the log.

        The events of one transaction share their cluster time, so only a later one proves that all are in the log.
        """
        return not self.snapshot_running and self.time > time


@dataclass(frozen=True, slots=True)
class Range:
    """One range of `_id`s in a copy."""

    rows: int
    bytes: int
    done: bool
    time: Annotated[_MaybeTime, Field(validation_alias="t")] = None
    """The largest cluster time at which a part of the range was read."""
    retries: int = 0
    reason: _Words = ""
    """The last error; empty without one."""


@dataclass(frozen=True, slots=True)
class CollectionCopy:
    """A collection that is being copied, or whose copy the stream has not passed yet."""

    namespace: str
    planned: int | None
    """The number of ranges; None until the collection is cut into ranges."""
    documents: int
    """Estimated, as `bytes` is."""
    bytes: int
    ranges: tuple[Range, ...]
    """The ranges that have begun."""
    pending: int = 0
    """Documents that changed while they were copied in natural order, and are not re-read yet. Until then the log does
    not hold their changes."""

    @property
    def done(self) -> bool:
        return self.planned is not None and self.ranges_done >= self.planned and not self.pending

    @property
    def ranges_done(self) -> int:
        return sum(range.done for range in self.ranges)

    @property
    def rows(self) -> int:
        return sum(range.rows for range in self.ranges)

    @property
    def bytes_read(self) -> int:
        return sum(range.bytes for range in self.ranges)

    @property
    def time(self) -> ClusterTime | None:
        """The cluster time that the stream has to pass before the copy is over."""
        return max((range.time for range in self.ranges if range.time is not None), default=None)

    @property
    def retries(self) -> int:
        return sum(range.retries for range in self.ranges)

    @property
    def reason(self) -> str:
        return next((range.reason for range in reversed(self.ranges) if range.reason), "")


@dataclass(frozen=True, slots=True)
class Requests:
    """How far the connector has answered re-read requests: all before `next`."""

    next: int
    index: int = 0
    waiting: _Words = ""
    """Why the requests wait; empty when they do not."""
    skipped: int = 0
    """Those before `next` that the connector could not answer, or not for all of their documents."""


@dataclass(frozen=True, slots=True)
class Splices:
    """What splices came to, over the life of the pipeline."""

    splices: int = 0
    """Arrays that are in the log as splices."""
    saved: int = 0
    """Bytes by which the records are smaller than with these arrays."""
    dropped: int = 0
    """Arrays that were forgotten for lack of memory."""

    def __add__(self, other: Splices) -> Splices:
        return Splices(self.splices + other.splices, self.saved + other.saved, self.dropped + other.dropped)


@dataclass(frozen=True, slots=True)
class Refill:
    """The rows of a collection that was renamed or replaced follow its schema change; or several of these joined."""

    namespace: str
    """Empty for joined ones of several collections."""
    start: Annotated[_Time, Field(validation_alias="from")]
    """Of the change; of joined ones, the first."""
    end: Annotated[_MaybeTime, Field(validation_alias="to")] = None
    """When the log has all rows; None until then."""
    changes: int = 1
    """How many are joined. Between `start` and `end` there may be times at which the log has all rows."""


@dataclass(frozen=True, slots=True)
class SchemaCapture:
    """How one source connector writes schema changes to the log."""

    is_on: Annotated[bool, Field(validation_alias="on")] = True
    """Whether it still does: not once `[ddl]` is removed."""
    refills: Annotated[tuple[Refill, ...], BeforeValidator(lambda text: json.loads(text or "[]"))] = ()
    """The newest ones, and the older ones joined."""
    error: _Words = ""
    """Why schema changes cannot be read at present; empty when they can."""


#: Documents disappeared or appeared without a record.
DROP, RENAME = "drop", "rename"
#: The source's history was lost before it was read: any schema change may have happened.
UNSEEN = "unseen"


@dataclass(frozen=True, slots=True)
class Ddl:
    """A schema change at a cluster time; of several changes of one kind to one collection, the last."""

    time: Annotated[_Time, Field(validation_alias="t")]
    kind: str
    """drop, rename, create, modify, createIndexes or dropIndexes, as the server names them; or unseen."""
    namespace: str
    to: str
    """The new name of a renamed collection."""

    @property
    def mark(self) -> str:
        """Identifies the change among all others."""
        return " ".join((str(self.time), self.kind, self.namespace, self.to)).strip()

    @property
    def at(self) -> datetime:
        return datetime.fromtimestamp(self.time.seconds, UTC)

    @property
    def namespaces(self) -> tuple[str, ...]:
        return tuple(filter(None, (self.namespace, self.to)))


@dataclass(frozen=True, slots=True)
class DdlHistory:
    """The schema changes that one source connector has seen; `dropped` counts older ones that are no longer kept."""

    events: Annotated[tuple[Ddl, ...], BeforeValidator(json.loads)]
    dropped: int
    error: str
    """Why the connector cannot see schema changes at present; empty when it can."""


@dataclass(frozen=True, slots=True)
class SourceState:
    """All that one source connector has committed; Debezium's own connector has only a `position`."""

    position: SourcePosition | None
    phase: Literal["copy", "catch-up", "stream"] | None = None
    """`catch-up`: the stream runs between two rounds of the initial copy. None of Debezium's own connector."""
    round: int = 0
    """Of the initial copy, from 1."""
    selection: str | None = None
    """The `collection.include.list` that the connector has applied."""
    copies: tuple[CollectionCopy, ...] = ()
    copied: ClusterTime | None = None
    """The largest cluster time of all copies so far; once no copy is in progress, the log is exact from there on.
    None of Debezium's own connector."""
    requests: Requests | None = None
    warning: str = ""
    """A warning about the source's oplog; empty without one."""
    start: _MaybeTime = None
    """Where the last round of the copy began: everything up to then is in the log, or comes with a row."""
    resnapshot: str = ""
    """The last resnapshot that began; empty without one."""
    closed: str = ""
    """The last resnapshot that ended; empty without one."""
    gap: _MaybeTime = None
    """Since when changes are missing from the log and documents are re-read instead; None when none are missing."""
    lost: bool = False
    """Whether the offsets were gone while the log had records: nothing is captured until a resnapshot."""
    ddl: DdlHistory | None = None
    """The schema changes seen; None when the connector does not watch them."""
    schema: SchemaCapture | None = None
    """None when schema changes are not in the log."""
    splices: Splices = Splices()
    rules: str = ""
    """The rules that the log's records follow, as MongoSource stores them; empty for none."""
    open: _MaybeTime = None
    """The transaction of the source within which the log ends, as it was too large to be written at once; else None."""
    changed: Mapping[str, int] = field(default_factory=dict)
    """Namespace → documents that have changed and are not read yet, of collections of which only some documents leave:
    until then the log does not hold their changes."""

    @property
    def is_initial(self) -> bool:
        """Whether the initial copy is not over, also while the stream runs between two of its rounds."""
        return self.phase in ("copy", "catch-up")

    @property
    def copying(self) -> tuple[CollectionCopy, ...]:
        return tuple(copy for copy in self.copies if not copy.done)

    @property
    def held(self) -> tuple[CollectionCopy, ...]:
        """Collections that are copied, but whose copy the stream has not passed yet."""
        return tuple(copy for copy in self.copies if copy.done)

    def has_answered(self, offset: int) -> bool:
        """Whether the request at this offset of the request topic is answered: its documents are in the log."""
        return self.requests is not None and self.requests.next > offset


_RANGE, _STATE = TypeAdapter(Range), TypeAdapter(SourceState)


def read_state(connect: Connect, name: str) -> SourceState:
    """Raises `NoSuchConnector`, and `TowpathError` for offsets in an unknown format."""
    return source_state(connect.offsets(name))


def source_state(offsets: Iterable[Mapping[str, Any]]) -> SourceState:
    """The state in `[{"partition": {…}, "offset": {…}}, …]`, as Connect lists a connector's offsets."""
    pairs = [(item["partition"], item["offset"]) for item in offsets]
    ours = [(partition, offset) for partition, offset in pairs if OURS in partition]
    try:
        # before anything was captured, and during the initial copy in ranges, there is no position of the stream
        position = next((source_position(offset) for partition, offset in pairs if "server_id" in partition), None)
        root = next((offset for partition, offset in ours if len(partition) == 1), None)
        if root is None:
            return SourceState(position)
        pending = _pending(ours)
        copies = _copies(json.loads(root["namespaces"]), ours, pending)
        changed = {name: pending[name] for name in json.loads(root.get("pending", "[]"))}
        # committed when a copy is over; the times of copies in progress are with their ranges
        copied = max([cluster_time(root["copied"]), *(copy.time for copy in copies if copy.time)])
        given = {"phase": root["phase"], "selection": root["selection"], "position": position}
        given |= {"copies": copies, "copied": copied, "changed": changed}
        parts = {part: offset for partition, offset in ours for part in _PARTS if part in partition}
        return _STATE.validate_python(root | parts | given)
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise TowpathError(f"the source connector committed offsets that cannot be understood: {error!r}") from error


def _pending(ours: list[tuple[Any, Any]]) -> Counter[str]:
    """Namespace → documents that are to be re-read."""
    pending: Counter[str] = Counter()
    for partition, offset in ours:
        if "pending" in partition:
            pending[partition["pending"]] += int(offset["documents"])
    return pending


def _copies(
    namespaces: Iterable[str], ours: list[tuple[Any, Any]], pending: Mapping[str, int]
) -> tuple[CollectionCopy, ...]:
    plans: dict[str, tuple[int | None, int, int]] = {}
    ranges: dict[str, dict[int, Range]] = {}
    for partition, offset in ours:
        if "range" in partition:
            ranges.setdefault(partition["namespace"], {})[int(partition["range"])] = _RANGE.validate_python(offset)
        elif "namespace" in partition:
            plans[partition["namespace"]] = int(offset["ranges"]), int(offset["documents"]), int(offset["bytes"])
    return tuple(
        CollectionCopy(
            namespace,
            *plans.get(namespace, (None, 0, 0)),
            tuple(of_range for _, of_range in sorted(ranges.get(namespace, {}).items(), key=itemgetter(0))),
            pending.get(namespace, 0),
        )
        for namespace in sorted(set(namespaces))
    )


def in_order(histories: Iterable[DdlHistory]) -> tuple[Ddl, ...]:
    """The schema changes that all source connectors have seen, each once, the oldest first."""
    by_mark = {ddl.mark: ddl for history in histories for ddl in history.events}
    return tuple(sorted(by_mark.values(), key=lambda ddl: ddl.time))


def resume_token_time(token: str) -> ClusterTime:
    """The cluster time in a resume token as Debezium stores it: base64 of the BSON `{_data: <hex>}`.

    The key string in `_data` begins with the type byte 0x82 and an eight-byte timestamp (MongoDB, key_string.h).
    """
    try:
        text = bson.decode(base64.b64decode(token))["_data"]
        kind, seconds, ordinal = struct.unpack(">BII", bytes.fromhex(text[:18]))
    except (ValueError, KeyError, TypeError, struct.error, bson.errors.BSONError) as error:
        raise TowpathError(f"the source connector committed a resume token that cannot be read: {token!r}") from error
    if kind != 0x82:
        raise TowpathError(f"the source connector committed a resume token without a cluster time: {token!r}")
    return ClusterTime(seconds, ordinal)


def source_position(offset: Mapping[str, Any]) -> SourcePosition:
    """The position in one offset of Debezium's MongoDB connector (`sec`, `ord`, `resume_token`, `initsync`)."""
    token = offset.get("resume_token")
    time = resume_token_time(token) if token else ClusterTime(int(offset["sec"]), int(offset["ord"]))
    return SourcePosition(time, snapshot_running=bool(offset.get("initsync")))
