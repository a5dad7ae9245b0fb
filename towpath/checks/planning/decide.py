"""Decide from the facts and estimates: what stops the pipeline, and what to run next."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from towpath.checks.log import SHORT_HOURS
from towpath.checks.planning.estimates import (
    SAFETY,
    CopyTime,
    DestinationSize,
    LogSize,
    OplogNeed,
    copy_time,
    destination_size,
    log_size,
    oplog_need,
)
from towpath.checks.planning.facts import Facts, Unknown
from towpath.config.finding import LEVELS, Finding, error, ok, warning
from towpath.config.text import duration, size
from towpath.deploy.inventory import Extent

#: Disks need more than is written: segments and files grow in steps, and other writers go on.
_ROOM = 1.5


@dataclass(frozen=True, slots=True)
class Command:
    line: str
    why: str


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything to know before anything is made."""

    facts: Facts
    collections: tuple[Extent, ...]
    copy: CopyTime | Unknown
    log: LogSize | Unknown
    oplog: OplogNeed | Unknown
    destination: DestinationSize | Unknown
    findings: tuple[Finding, ...]
    """Errors first."""
    commands: tuple[Command, ...]

    @property
    def errors(self) -> int:
        return sum(finding.level == "error" for finding in self.findings)

    @property
    def unknown(self) -> dict[str, str]:
        """Part of the plan → why it is not known."""
        facts = self.facts
        parts = {
            "deployed": facts.deployed,
            "collections": facts.collections,
            "sample": facts.sample,
            "copy": self.copy,
            "oplog": self.oplog,
            "changes": facts.writes,
            "log": self.log,
            "kafka_disks": facts.kafka_disks,
            "destination": self.destination,
            "destination_disk": facts.destination_disk,
        }
        return {name: part.reason for name, part in parts.items() if isinstance(part, Unknown)}


def decide(facts: Facts, file: Path) -> Plan:
    """The plan for the pipeline in `file`."""
    collections = () if isinstance(facts.collections, Unknown) else facts.collections
    copy = copy_time(facts)
    log, oplog, destination = log_size(facts), oplog_need(facts, copy), destination_size(facts)
    begun = facts.deployed is True  # then the oplog and the disks have held what is copied already
    own = [] if begun else [*_oplog_findings(oplog, copy), *_disk_findings(log, destination)]
    found = sorted([*facts.findings, *own], key=lambda finding: LEVELS.index(finding.level))
    stopped = any(finding.level == "error" for finding in found)
    return Plan(
        facts=facts,
        collections=collections,
        copy=copy,
        log=log,
        oplog=oplog,
        destination=destination,
        findings=tuple(dict.fromkeys(found)),
        commands=tuple(_commands(facts, shlex.quote(str(file)), stopped=stopped)),
    )


_ENLARGE = (
    "enlarge the oplog on every member:"
    " db.adminCommand({{replSetResizeOplog: 1, size: <MiB>, minRetentionHours: {hours}}})"
)


def _oplog_findings(oplog: OplogNeed | Unknown, copy: CopyTime | Unknown) -> Iterator[Finding]:
    """The oplog holds the changes until the copy is over, and then some."""
    if isinstance(oplog, Unknown) or isinstance(copy, Unknown) or oplog.needed_hours is None or not copy.seconds[1]:
        return
    window, needed = duration(oplog.hours * 3600), duration(oplog.needed_hours * 3600)
    enlarge = _ENLARGE.format(hours=max(round(oplog.needed_hours + 0.5), round(SHORT_HOURS)))
    if oplog.young:
        yield ok("plan oplog", f"should reach back {needed}; it is too new to tell how far it will")
    elif copy.seconds[0] > oplog.hours * 3600:
        yield error(
            "plan oplog",
            f"reaches back {window}, less than the shortest estimate of the copy, {duration(copy.seconds[0])}: the"
            " stream could not start where the copy began",
            enlarge,
        )
    elif oplog.needed_hours > oplog.hours:
        yield warning(
            "plan oplog",
            f"reaches back {window}; {needed} would be safe ({SAFETY} times the longest estimate of the copy)",
            enlarge,
        )
    else:
        yield ok("plan oplog", f"reaches back {window}, and {needed} is safe")


def _disk_findings(log: LogSize | Unknown, destination: DestinationSize | Unknown) -> Iterator[Finding]:
    if isinstance(log, LogSize) and log.free is not None:
        yield from _room("plan log", "the brokers' disks", log.copy, log.free)
    if isinstance(destination, DestinationSize) and destination.disk and destination.disk.free is not None:
        needed = destination.documents + destination.indexes
        yield from _room("plan destination", f"the {destination.disk.name}", needed, destination.disk.free)


def _room(subject: str, what: str, needed: int, free: int) -> Iterator[Finding]:
    figures = f"{what}: {size(free)} free for about {size(needed)}"
    if needed > free:
        yield error(subject, figures, "make room there, or replicate fewer collections")
    elif needed * _ROOM > free:
        yield warning(subject, f"{figures}, which leaves little room", "make room there before the copy begins")
    else:
        yield ok(subject, figures)


def _commands(facts: Facts, file: str, *, stopped: bool) -> Iterator[Command]:
    """What to run next, in order."""
    if stopped:
        yield Command(f"towpath plan {file}", "again, once the errors above are settled")
    if facts.deployed is not True:
        yield Command(f"towpath deploy {file} --dry-run", "what would be created")
        yield from _begin(facts, file)
    if not facts.pipeline.has_operator:
        yield Command(f"towpath run {file}", "supervises it from now on, in another shell or as a service")
    yield Command(f"towpath status {file} --watch", "copy, lag, dead letters")
    if not facts.pipeline.ddl.apply:
        yield Command(f"towpath prepare {file}", "indexes, once the copy is applied")
    yield Command(f"towpath wait {file}", "until everything written so far is at the destination")
    yield Command(f"towpath verify {file}", "both sides, byte for byte")
    yield Command(f"towpath cutover {file} --dry-run", "is everything ready to switch?")


def _begin(facts: Facts, file: str) -> Iterator[Command]:
    """What begins the copy."""
    if not facts.pipeline.has_operator:
        yield Command(f"towpath deploy {file}", "creates topics and connectors; the copy begins")
        return
    resources = f"{facts.pipeline.name}.yaml"
    yield Command(f"towpath deploy {file}", "creates topics; connectors that are missing are named")
    yield Command(f"towpath manifests {file} > {resources}", "with the images: docs/how-to/kubernetes.md")
    yield Command(f"kubectl apply -f {resources}", "creates connectors and `towpath run`; the copy begins")
