"""How far a source connector has come, in the cluster time of the source."""

from __future__ import annotations

import base64
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import bson

from towpath.errors import TowpathError


@dataclass(frozen=True, slots=True, order=True)
class ClusterTime:
    """A MongoDB timestamp: seconds since the epoch, and an ordinal within that second."""

    seconds: int
    ordinal: int

    def __str__(self) -> str:
        return f"{self.seconds}:{self.ordinal}"


def cluster_time(text: str) -> ClusterTime:
    """The time that was written as `seconds:ordinal`. Raises ValueError for anything else."""
    seconds, _, ordinal = text.partition(":")
    return ClusterTime(int(seconds), int(ordinal))


@dataclass(frozen=True, slots=True)
class SourcePosition:
    """What a source connector has committed. All events *before* `time` are in the log; those at it may not all be."""

    time: ClusterTime
    snapshot_running: bool

    def has_passed(self, moment: ClusterTime) -> bool:
        """Whether every change up to and including `moment` is in the log.

        Events of one transaction share their cluster time, so that only a later one proves that all are out.
        """
        return not self.snapshot_running and self.time > moment


def resume_token_time(token: str) -> ClusterTime:
    """The cluster time inside a resume token as Debezium stores it: base64 of the BSON `{_data: <hex>}`.

    The key string in `_data` begins with its type byte 0x82 and eight bytes of timestamp (MongoDB, key_string.h).
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


def debezium_position(offsets: Iterable[tuple[Mapping[str, Any], Mapping[str, Any]]]) -> SourcePosition | None:
    """The position among (partition, offset) of a source connector: Debezium's own has a `server_id`.

    None while there is none: nothing was captured yet, or the first copy by ranges is under way.
    """
    return next((source_position(offset) for partition, offset in offsets if "server_id" in partition), None)
