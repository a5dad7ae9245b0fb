"""What a source connector has committed: its position, what it is copying, which requests wait, which schema changes it
has seen.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any, Literal

from connectors.rest import Connect
from towpath.errors import TowpathError
from towpath.pipeline import ClusterTime, SourcePosition, cluster_time, debezium_position

#: The key that the partitions of MongoSource's own offsets have; its value is the connector's topic.prefix.
OURS = "towpath"
#: The setting of a source connector that says which namespaces it takes in.
SELECTION = "collection.include.list"


@dataclass(frozen=True, slots=True)
class Range:
    """One range of `_id`s of a collection that is being copied."""

    rows: int
    bytes: int
    done: bool
    time: ClusterTime | None
    """The largest cluster time at which a part of it was read."""
    retries: int
    reason: str
    """The last trouble, in words; empty when there was none."""


@dataclass(frozen=True, slots=True)
class CollectionCopy:
    """A collection that is being copied, or whose cluster times the stream has not passed yet."""

    namespace: str
    planned: int | None
    """How many ranges there are; None before they are cut."""
    documents: int
    """About how many there are; `bytes` as well."""
    bytes: int
    began_ms: int | None
    ranges: tuple[Range, ...]
    """Those that were begun."""

    @property
    def done(self) -> bool:
        return self.planned is not None and self.ranges_done >= self.planned

    @property
    def ranges_done(self) -> int:
        return sum(one.done for one in self.ranges)

    @property
    def rows(self) -> int:
        return sum(one.rows for one in self.ranges)

    @property
    def bytes_read(self) -> int:
        return sum(one.bytes for one in self.ranges)

    @property
    def time(self) -> ClusterTime | None:
        """The stream has to pass this until the copy is history."""
        return max((one.time for one in self.ranges if one.time is not None), default=None)

    @property
    def retries(self) -> int:
        return sum(one.retries for one in self.ranges)

    @property
    def reason(self) -> str:
        return next((one.reason for one in reversed(self.ranges) if one.reason), "")


@dataclass(frozen=True, slots=True)
class Requests:
    """How far the connector has answered requests to read again: all before `next` are answered."""

    next: int
    index: int
    waiting: str
    """Why they wait, in words; empty when they do not."""


@dataclass(frozen=True, slots=True)
class SourceState:
    """All that one source connector has committed. Of Debezium's own connector only `position` is ever there."""

    position: SourcePosition | None
    phase: Literal["copy", "stream"] | None = None
    selection: str | None = None
    """The `collection.include.list` that the connector has taken up."""
    copies: tuple[CollectionCopy, ...] = ()
    copied: ClusterTime | None = None
    """The largest cluster time of everything that was copied so far; from it on the log tells every moment, once
    nothing is being copied any more. None when it is not known."""
    requests: Requests | None = None
    warning: str = ""
    """What users should know of the source's oplog; empty when nothing."""
    start: ClusterTime | None = None
    """Where the stream begins that follows a copy."""
    resnapshot: str = ""
    """The resnapshot that was taken up last, and below it that which was closed last; empty when there was none."""
    closed: str = ""
    gap: ClusterTime | None = None
    """Since when changes are missing in the log, in whose place documents are being read again; None when none are."""
    ddl: Watched | None = None
    """What was done to collections as such; None when that is not watched."""

    @property
    def copying(self) -> tuple[CollectionCopy, ...]:
        return tuple(copy for copy in self.copies if not copy.done)

    @property
    def held(self) -> tuple[CollectionCopy, ...]:
        """Copied, and the stream has not passed the time yet."""
        return tuple(copy for copy in self.copies if copy.done)

    def has_answered(self, offset: int) -> bool:
        """Whether the request at this offset of the request topic is answered: its documents are in the log."""
        return self.requests is not None and self.requests.next > offset


def read_state(connect: Connect, name: str) -> SourceState:
    """Raises `NoSuchConnector`, and `TowpathError` for offsets that cannot be understood."""
    return source_state(connect.offsets(name))


def source_state(offsets: Iterable[Mapping[str, Any]]) -> SourceState:
    """The state in `[{"partition": {…}, "offset": {…}}, …]`, as Connect lists a connector's offsets."""
    found = [(item["partition"], item["offset"]) for item in offsets]
    ours = [(partition, offset) for partition, offset in found if OURS in partition]
    position = debezium_position(found)
    try:
        root = next((offset for partition, offset in ours if len(partition) == 1), None)
        if root is None:
            return SourceState(position)
        requests = [offset for partition, offset in ours if "requests" in partition]
        ddl = [offset for partition, offset in ours if "ddl" in partition]
        copies = _copies(json.loads(root["namespaces"]), ours)
        return SourceState(
            position=position,
            phase=root["phase"],
            selection=root["selection"],
            copies=copies,
            copied=_copied(root, copies),
            requests=_requests(requests[0]) if requests else None,
            warning=root.get("warning", ""),
            start=cluster_time(root["start"]) if "start" in root else None,
            resnapshot=root.get("resnapshot", ""),
            closed=root.get("closed", ""),
            gap=cluster_time(root["gap"]) if root.get("gap") else None,
            ddl=watched(ddl[0]) if ddl else None,
        )
    except (KeyError, TypeError, ValueError) as error:
        raise TowpathError(f"the source connector committed offsets that cannot be understood: {error!r}") from error


def _copied(root: Mapping[str, Any], copies: Iterable[CollectionCopy]) -> ClusterTime | None:
    """The connector writes it when a copy is over; the times of those under way are with their ranges."""
    if "copied" not in root:
        return None
    return max([cluster_time(root["copied"]), *(copy.time for copy in copies if copy.time)])


def _copies(namespaces: Iterable[str], ours: list[tuple[Any, Any]]) -> tuple[CollectionCopy, ...]:
    plans: dict[str, Mapping[str, Any]] = {}
    ranges: dict[str, dict[int, Range]] = {}
    for partition, offset in ours:
        if "range" in partition:
            ranges.setdefault(partition["namespace"], {})[int(partition["range"])] = _range(offset)
        elif "namespace" in partition:
            plans[partition["namespace"]] = offset
    return tuple(
        _copy(namespace, plans.get(namespace), ranges.get(namespace, {})) for namespace in sorted(set(namespaces))
    )


def _copy(namespace: str, plan: Mapping[str, Any] | None, ranges: Mapping[int, Range]) -> CollectionCopy:
    begun = tuple(ranges[number] for number in sorted(ranges))
    if plan is None:
        return CollectionCopy(namespace, None, 0, 0, None, begun)
    estimates = int(plan["documents"]), int(plan["bytes"])
    return CollectionCopy(namespace, int(plan["ranges"]), *estimates, int(plan["began"]), begun)


def _range(offset: Mapping[str, Any]) -> Range:
    time = offset.get("t")
    return Range(
        rows=int(offset["rows"]),
        bytes=int(offset.get("bytes", 0)),
        done=bool(offset["done"]),
        time=cluster_time(time) if time else None,
        retries=int(offset.get("retries", 0)),
        reason=str(offset.get("reason") or ""),
    )


def _requests(offset: Mapping[str, Any]) -> Requests:
    return Requests(int(offset["next"]), int(offset.get("index", 0)), str(offset.get("waiting") or ""))


#: Documents went or came without a record.
DROP, RENAME = "drop", "rename"
#: The source's history was lost before it was looked at: anything may have been done before.
UNSEEN = "unseen"


@dataclass(frozen=True, slots=True)
class Ddl:
    """One thing done, at a time of the source; of several of the same kind to one collection the last."""

    time: ClusterTime
    kind: str
    """drop, rename, create, modify, createIndexes, dropIndexes, as the server calls them; or unseen."""
    namespace: str
    to: str
    """The new name of a renamed collection."""

    @property
    def mark(self) -> str:
        """Tells it from everything else that was ever done."""
        return " ".join((str(self.time), self.kind, self.namespace, self.to)).strip()

    @property
    def at(self) -> datetime:
        return datetime.fromtimestamp(self.time.seconds, UTC)

    @property
    def namespaces(self) -> tuple[str, ...]:
        return tuple(filter(None, (self.namespace, self.to)))

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "time": str(self.time), "at": self.at.isoformat()}


@dataclass(frozen=True, slots=True)
class Watched:
    """What one source connector has seen. `dropped` counts older ones that are no longer kept."""

    upto: ClusterTime
    found: tuple[Ddl, ...]
    dropped: int
    trouble: str
    """Why nothing is seen at present, in words; empty when that is not so."""


def watched(offset: Mapping[str, Any]) -> Watched:
    """From the connector's offset. Raises KeyError, TypeError or ValueError for what is none."""
    found = (
        Ddl(cluster_time(one["t"]), one["kind"], one["namespace"], one["to"]) for one in json.loads(offset["events"])
    )
    return Watched(cluster_time(offset["upto"]), tuple(found), int(offset["dropped"]), offset["trouble"])


def in_order(every: Iterable[Watched]) -> tuple[Ddl, ...]:
    """What all source connectors have seen, each once, the oldest first."""
    found = {one.mark: one for watched in every for one in watched.found}
    return tuple(sorted(found.values(), key=lambda one: one.time))
