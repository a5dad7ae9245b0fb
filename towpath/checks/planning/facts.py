"""What is known of a planned pipeline: figures of both clusters, of Kafka, and of a short sample; or why one is not."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from towpath.checks.log import Oplog
from towpath.config.finding import Finding
from towpath.config.pipeline import Pipeline
from towpath.deploy.inventory import Extent
from towpath.errors import TowpathError

Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class Unknown:
    """What could not be found out, and why."""

    reason: str


def known(query: Callable[[], Value]) -> Value | Unknown:
    """The answer to a query, or why there is none."""
    try:
        return query()
    except TowpathError as error:
        return Unknown(error.sentence)


@dataclass(frozen=True, slots=True)
class Sample:
    """What was read for some seconds, in the way of the copy."""

    seconds: float
    threads: int
    documents: int
    bytes: int
    natural: tuple[str, ...]
    """The collections that the copy reads in natural order."""
    kept_bytes: int
    """Of some of these documents,"""
    compressed_bytes: int
    """and of the records of the log that they become: with key and header, after lz4."""

    @property
    def ratio(self) -> float:
        """Bytes on disk in the log for each byte of a document."""
        return self.compressed_bytes / self.kept_bytes


@dataclass(frozen=True, slots=True)
class Writes:
    """The newest entries of the oplog."""

    seconds: int
    """Between the first and the last of them."""
    entries: int
    bytes: int
    own_entries: int
    """Of the collections to replicate."""
    own_bytes: int


@dataclass(frozen=True, slots=True)
class Disk:
    """A file system. None: the server does not report it."""

    name: str
    free: int | None
    total: int | None


@dataclass(frozen=True, slots=True)
class Facts:
    """Everything that a plan is decided from."""

    pipeline: Pipeline
    findings: tuple[Finding, ...]
    """Those of `towpath check`."""
    unreachable: Mapping[str, str]
    """Server → why it cannot be read: it does not answer, or refuses."""
    deployed: bool | Unknown
    collections: tuple[Extent, ...] | Unknown
    sample: Sample | Unknown
    oplog: Oplog | Unknown
    writes: Writes | Unknown
    replicas: int | Unknown
    """Of each partition of the log."""
    kafka_disks: tuple[Disk, ...] | Unknown
    destination_disk: Disk | Unknown
