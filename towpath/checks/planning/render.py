"""A plan as text of 80 columns, as sections for an HTML page, and as JSON."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

from towpath.checks.planning.decide import Plan
from towpath.checks.planning.estimates import CopyTime, Estimate, LogSize, OplogNeed, total
from towpath.checks.planning.facts import Disk, Unknown, Writes
from towpath.config.text import counted, duration, size
from towpath.deploy.inventory import Extent

Part = TypeVar("Part")

_WIDTH = 80
_SHOWN = 20  # collections, the largest first
_LABEL = 13  # columns
HEADINGS = ("collection", "documents", "size", "on disk", "average", "indexes")


@dataclass(frozen=True, slots=True)
class Section:
    """Lines under one heading."""

    name: str
    lines: tuple[str, ...]


def headline(plan: Plan) -> str:
    if plan.facts.unreachable:
        return f"incomplete: cannot read {', '.join(sorted(plan.facts.unreachable))}"
    if plan.errors:
        return f"{counted(plan.errors, 'error')} to settle first"
    return "deployed already" if plan.facts.deployed is True else "could begin"


def sections(plan: Plan) -> Iterator[Section]:
    """Everything but the collections, the findings and the commands."""
    facts = plan.facts
    yield Section("copy", tuple(_lines(plan.copy, _copy)))
    yield Section("oplog", tuple(_lines(plan.oplog, _oplog)))
    yield Section("changes", tuple(_lines(facts.writes, _changes)))
    yield Section("log", tuple(dict.fromkeys((*_lines(plan.log, _log), *_lines(facts.kafka_disks, _disks)))))
    yield Section("destination", tuple(_destination(plan)))


def rows(plan: Plan) -> list[tuple[str, ...]]:
    """The collections, the largest first, as HEADINGS names the columns; then those that are left out, and all."""
    by_size = sorted(plan.collections, key=lambda collection: (-(collection.bytes or 0), collection.namespace))
    table = [_row(collection) for collection in by_size[:_SHOWN]]
    if len(by_size) > _SHOWN:
        table.append((f"and {len(by_size) - _SHOWN:,} more", *("" for _ in HEADINGS[1:])))
    extent = total(plan.facts)
    if len(by_size) > 1 and not isinstance(extent, Unknown):
        storage = sum(collection.storage or 0 for collection in by_size)
        indexes = sum(collection.indexes for collection in by_size)
        of_indexes = sum(collection.index_bytes or 0 for collection in by_size)
        average = size(round(extent[1] / max(extent[0], 1)))
        table.append(
            ("all", f"{extent[0]:,}", size(extent[1]), size(storage), average, f"{indexes:,}, {size(of_indexes)}")
        )
    return table


def _row(collection: Extent) -> tuple[str, ...]:
    indexes = "?" if collection.index_bytes is None else f"{collection.indexes:,}, {size(collection.index_bytes)}"
    sizes = (collection.bytes, collection.storage, collection.average)
    return collection.namespace, f"{collection.documents:,}", *map(_size, sizes), indexes


def _size(count: int | None) -> str:
    return "?" if count is None else size(count)


def _lines(part: Part | Unknown, describe: Callable[[Part], Iterator[str]]) -> Iterator[str]:
    if isinstance(part, Unknown):
        yield f"unknown: {part.reason}"
    else:
        yield from describe(part)


def between(estimate: Estimate) -> str:
    """`4 s`, `4 s to 12 min`, `less than 1 s`, `no time`"""
    shortest, longest = map(duration, estimate)
    if estimate[1] < 1:
        return "less than 1 s" if estimate[1] else "no time"
    return shortest if shortest == longest else f"{shortest} to {longest}"


def _copy(copy: CopyTime) -> Iterator[str]:
    yield between(copy.seconds)
    yield from copy.basis


def _oplog(oplog: OplogNeed) -> Iterator[str]:
    window = (
        "too new to tell how far it reaches back" if oplog.young else f"reaches back {duration(oplog.hours * 3600)}"
    )
    yield f"{window}; {size(oplog.bytes)} at most"
    if oplog.needed_hours is not None:
        yield f"needed: {duration(oplog.needed_hours * 3600)} for the copy, a day or more for outages"


def _changes(writes: Writes) -> Iterator[str]:
    rate = writes.own_entries / writes.seconds
    yield (
        f"{rate:,.1f} a second in these collections, {size(round(writes.own_bytes / writes.seconds))}/s, over the last"
        f" {duration(writes.seconds)}"
    )
    yield f"all databases: {writes.entries / writes.seconds:,.1f} a second"


def _log(log: LogSize) -> Iterator[str]:
    yield f"{size(log.copy)} for the copy, on all brokers: {counted(log.replicas, 'replica')}, lz4 to {log.ratio:.0%}"
    if log.day is not None:
        yield f"{size(log.day)} a day for changes, if they go on as lately; [log] retention says how long they stay"


def _disks(disks: tuple[Disk, ...]) -> Iterator[str]:
    for disk in disks:
        if disk.free is None or disk.total is None:
            yield f"{disk.name}: free space unknown: Kafka reports it from version 3.3 on"
        else:
            yield f"{disk.name}: {size(disk.free)} free of {size(disk.total)}"


def _destination(plan: Plan) -> Iterator[str]:
    need, disk = plan.destination, plan.facts.destination_disk
    if isinstance(need, Unknown):
        yield f"unknown: {need.reason}"
    else:
        yield f"{size(need.documents)} of documents and {size(need.indexes)} of indexes on disk, as at the source"
    if isinstance(disk, Unknown):
        yield f"free space unknown: {disk.reason}"
    else:
        yield from _disks((disk,))


def text(plan: Plan) -> str:
    """The plan for a terminal of 80 columns; what `check` finds good is left out."""
    lines = [f"plan of {plan.facts.pipeline.name}: {headline(plan)}", ""]
    if isinstance(plan.facts.collections, Unknown):
        lines += _section(Section("collections", (f"unknown: {plan.facts.collections.reason}",)))
    else:
        lines += _table(plan)
    lines.append("")
    for section in sections(plan):
        lines += _section(section)
    return "\n".join([*lines, "", *_findings(plan), "", "next:", *_commands(plan)])


def _commands(plan: Plan) -> list[str]:
    """In two columns, or what a command is for on a line of its own."""
    width = max(len(command.line) for command in plan.commands)
    lines = [f"  {command.line:<{width}}  # {command.why}" for command in plan.commands]
    if max(map(len, lines)) <= _WIDTH:
        return lines
    return [line for command in plan.commands for line in (f"  # {command.why}", f"  {command.line}")]


def _section(section: Section) -> list[str]:
    lines = [part for line in section.lines for part in _wrapped(line)]
    return [f"{section.name if not number else '':<{_LABEL}}{line}" for number, line in enumerate(lines)]


def _wrapped(line: str) -> list[str]:
    return _filled(line, _WIDTH - _LABEL, "  ")


def _filled(line: str, width: int, indent: str) -> list[str]:
    return textwrap.wrap(line, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def _table(plan: Plan) -> Iterator[str]:
    table = [HEADINGS, *rows(plan)]
    widths = [max(len(row[column]) for row in table) for column in range(len(HEADINGS))]
    widths[0] = min(widths[0], _WIDTH - sum(widths[1:]) - 2 * (len(HEADINGS) - 1))
    for row in table:
        name = row[0] if len(row[0]) <= widths[0] else f"{row[0][: widths[0] - 1]}…"
        cells = [f"{cell:>{width}}" for cell, width in zip(row[1:], widths[1:], strict=True)]
        yield "  ".join([f"{name:<{widths[0]}}", *cells]).rstrip()


def _findings(plan: Plan) -> Iterator[str]:
    levels = [finding.level for finding in plan.findings]
    yield ", ".join(
        (counted(plan.errors, "error"), counted(levels.count("warning"), "warning"), f"{levels.count('ok')} ok")
    )
    for finding in plan.findings:
        if finding.level != "ok":
            yield from _filled(f"{finding.level:<8} {finding.subject}: {finding.finding}", _WIDTH, " " * 9)
            yield from _filled(f"{' ' * 9}→ {finding.advice}", _WIDTH, " " * 11)


def json_fields(plan: Plan) -> dict[str, Any]:
    """The plan as `--json` prints it. What is not known is null, with its reason in `unknown`."""
    facts, extent = plan.facts, total(plan.facts)
    return {
        "name": facts.pipeline.name,
        "ready": not plan.errors,
        "unreachable": sorted(facts.unreachable),
        "deployed": _or_null(facts.deployed, bool),
        "documents": _or_null(extent, lambda pair: pair[0]),
        "bytes": _or_null(extent, lambda pair: pair[1]),
        "collections": [
            {
                "namespace": collection.namespace,
                "destination_namespace": collection.destination,
                "documents": collection.documents,
                "bytes": collection.bytes,
                "storage_bytes": collection.storage,
                "average_bytes": collection.average,
                "indexes": collection.indexes,
                "index_bytes": collection.index_bytes,
            }
            for collection in plan.collections
        ],
        "sample": _or_null(
            facts.sample,
            lambda sample: {
                "seconds": round(sample.seconds, 3),
                "threads": sample.threads,
                "documents": sample.documents,
                "bytes": sample.bytes,
                "natural": list(sample.natural),
                "log_ratio": round(sample.ratio, 4),
            },
        ),
        "copy": _or_null(
            plan.copy,
            lambda copy: {
                "shortest_seconds": round(copy.seconds[0], 1),
                "longest_seconds": round(copy.seconds[1], 1),
                "basis": list(copy.basis),
            },
        ),
        "changes": _or_null(
            facts.writes,
            lambda writes: {
                "seconds": writes.seconds,
                "entries": writes.entries,
                "bytes": writes.bytes,
                "own_entries": writes.own_entries,
                "own_bytes": writes.own_bytes,
            },
        ),
        "log": _or_null(
            plan.log,
            lambda log: {
                "copy_bytes": log.copy,
                "day_bytes": log.day,
                "replicas": log.replicas,
                "free_bytes": log.free,
            },
        ),
        "oplog": _or_null(
            plan.oplog,
            lambda oplog: {
                "hours": round(oplog.hours, 2),
                "bytes": oplog.bytes,
                "too_new": oplog.young,
                "needed_hours": None if oplog.needed_hours is None else round(oplog.needed_hours, 2),
            },
        ),
        "destination": _or_null(
            plan.destination,
            lambda need: {
                "document_bytes": need.documents,
                "index_bytes": need.indexes,
                "free_bytes": need.disk.free if need.disk else None,
            },
        ),
        "unknown": [{"what": what, "reason": reason} for what, reason in plan.unknown.items()],
        "findings": [finding.as_json() for finding in plan.findings],
        "commands": [{"command": command.line, "why": command.why} for command in plan.commands],
    }


def _or_null(part: Part | Unknown, describe: Callable[[Part], Any]) -> Any:
    return None if isinstance(part, Unknown) else describe(part)
