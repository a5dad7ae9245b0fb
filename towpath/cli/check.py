"""`towpath check`; `towpath plan`: as text of 80 columns, as an HTML page, and as JSON; and `towpath doctor`."""

from __future__ import annotations

import shlex
import textwrap
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import click

from towpath.checks.capture import Oplog
from towpath.checks.facts import Extent, Facts
from towpath.checks.plan import Disk, LogSize, Pause, Plan, Sample, Unknown, Writes, gather
from towpath.checks.rule import LEVELS, Finding
from towpath.cli import DIFFERENT, ERROR, launcher, report
from towpath.cli.options import FILE, json_option, opened, pipeline_argument, print_json, say
from towpath.config.mongo_uri import without_credentials
from towpath.config.pipeline import Pipeline
from towpath.config.text import counted, duration, size, utc
from towpath.deploy import deployment
from towpath.run import doctor as collected

Part = TypeVar("Part")

_WIDTH = 80
_SHOWN = 20  # collections, the largest first
_LABEL = 13  # columns
_LARGE = 1 << 20  # bytes of a document that some brokers do not take
HEADINGS = ("collection", "documents", "size", "on disk", "average", "indexes")
_COLOURS = {"error": "red", "warning": "yellow", "ok": "green"}


@click.command()
@pipeline_argument
@json_option
def check(file: Path, as_json: bool) -> None:
    """Check the file PIPELINE and all servers that it names, and print advice for each error and warning.

    Run it before the first `deploy` and after each change of the file. It changes nothing.

    Exit codes: 0 no errors (warnings are allowed); 1 errors; 2 the file cannot be read.
    """
    with opened(file) as session:
        findings = sorted(deployment.findings(Facts(session)), key=lambda finding: LEVELS.index(finding.level))
    for finding in findings:
        print_json(finding.as_json()) if as_json else click.echo(_line(finding))
    counts = {level: sum(finding.level == level for finding in findings) for level in LEVELS}
    if not as_json:
        click.echo(f"{counted(counts['error'], 'error')}, {counted(counts['warning'], 'warning')}")
    if counts["error"]:
        raise click.exceptions.Exit(DIFFERENT)


def _line(finding: Finding) -> str:
    level = click.style(f"{finding.level:<8}", fg=_COLOURS[finding.level], bold=finding.level == "error")
    line = f"{level} {finding.subject}: {finding.finding}"
    return f"{line}\n         → {finding.advice}" if finding.advice else line


@click.command()
@pipeline_argument
@click.option(
    "--log",
    "logs",
    multiple=True,
    type=click.Path(path_type=Path, exists=True),
    help="A log to add, such as a Connect worker's, or a folder of *.log; repeatable.",
)
@click.option("--output", type=FILE, help="The archive; default: towpath-doctor-NAME-TIME.zip in this folder.")
def doctor(file: Path, logs: tuple[Path, ...], output: Path | None) -> None:
    """Collect what a bug report about PIPELINE needs into a ZIP archive, and print its path.

    The archive has versions, the pipeline file, what `status` and `check` print, the connectors' configurations,
    states and offsets, the topics' settings, and the end of each log that --log names. Passwords and keys are
    replaced. Run it at any time, also when servers do not answer; it changes nothing.

    Exit codes: 0 written; 2 the pipeline file or a log cannot be read, or the archive cannot be written.
    """
    with opened(file) as session:
        archive = output or Path(f"towpath-doctor-{session.pipeline.name}-{datetime.now(UTC):%Y%m%dT%H%M%SZ}.zip")
        names = collected.write(session, file, logs, archive, launcher)
    say(f"holds {', '.join(names)}; look through it before you pass it on")
    if tracker := collected.tracker():
        say(f"report a bug at {tracker}")
    click.echo(archive)


@click.command()
@pipeline_argument
@click.option(
    "--sample",
    "seconds",
    default=3.0,
    type=click.FloatRange(0, 60),
    metavar="SECONDS",
    help="How long to read from the source, within the limits in [capture]; 0: no sample, and no size of the log.",
)
@click.option("--html", "page", type=FILE, help="Also write an HTML page, for a change ticket.")
@json_option
def plan(file: Path, seconds: float, page: Path | None, as_json: bool) -> None:
    """Show what PIPELINE has to copy, find what would fail, and print the commands to run next.

    Run it before the first `deploy`. It changes nothing: it counts documents and bytes, reads from the source for some
    seconds to measure a rate, and shows the disk that the log and the destination need, how far the oplog reaches back,
    and what the pause of a cutover has to do. It includes all that `check` finds. What cannot be found out is shown as
    unknown, with the reason.

    Exit codes: 0 it could begin; 1 errors stop it; 2 a server does not answer, or the file cannot be read.
    """
    with opened(file) as session:
        facts = Facts(session)
        found = gather(facts, deployment.findings(facts), seconds)
    if as_json:
        print_json(json_fields(found, file))
    else:
        click.echo(text(found, file))
    if page is not None:
        write_report(page, found, file)
        say(f"wrote {page}")
    if found.unreachable:
        raise click.exceptions.Exit(ERROR)
    if found.errors:
        raise click.exceptions.Exit(DIFFERENT)


def commands(plan: Plan, path: Path) -> list[tuple[str, str]]:
    """What to run next, in order, and why."""
    pipeline, file, resources = plan.pipeline, shlex.quote(str(path)), f"{plan.pipeline.name}.yaml"
    is_new, has_operator = plan.deployed is not True, pipeline.has_operator
    of_operator = is_new and has_operator
    lines = (
        (plan.errors, f"towpath plan {file}", "again, once the errors above are resolved"),
        (is_new, f"towpath deploy {file} --dry-run", "what would be created"),
        (is_new and not has_operator, f"towpath deploy {file}", "creates topics and connectors; the copy begins"),
        (of_operator, f"towpath deploy {file}", "creates topics; connectors that are missing are named"),
        (of_operator, f"towpath manifests {file} > {resources}", "with the images: docs/how-to/kubernetes.md"),
        (of_operator, f"kubectl apply -f {resources}", "creates connectors and `towpath run`; the copy begins"),
        (not has_operator, f"towpath run {file}", "supervises it from now on, in another shell or as a service"),
        (True, f"towpath status {file} --watch", "copy, lag, dead letters"),
        (not pipeline.ddl.apply, f"towpath prepare {file}", "indexes, once the copy is applied"),
        (True, f"towpath wait {file}", "until everything written so far is at the destination"),
        (True, f"towpath verify {file}", "both sides, byte for byte"),
        (True, f"towpath cutover {file} --dry-run", "is everything ready to switch?"),
    )
    return [(line, why) for applies, line, why in lines if applies]


def headline(plan: Plan) -> str:
    if plan.unreachable:
        return f"incomplete: cannot read {', '.join(sorted(plan.unreachable))}"
    if plan.errors:
        return f"{counted(plan.errors, 'error')} to resolve first"
    return "deployed already" if plan.deployed is True else "could begin"


def sections(plan: Plan) -> dict[str, list[str]]:
    """Heading → lines: everything but the collections, the findings and the commands."""
    disk = plan.destination_disk
    free = [f"free space unknown: {disk.reason}"] if isinstance(disk, Unknown) else _disks((disk,))
    return {
        "copy": [*_copy(plan.pipeline, plan.total), *_lines(plan.sample, _sample)],
        "oplog": _lines(plan.oplog, _oplog),
        "changes": _lines(plan.changes, _changes),
        "log": list(dict.fromkeys((*_lines(plan.log, _log), *_lines(plan.kafka_disks, _disks)))),
        "destination": [*_lines(plan.destination, _destination), *free],
        "pause": _lines(plan.pause, _pause),
    }


def _lines(part: Part | Unknown, describe: Callable[[Part], Iterator[str]]) -> list[str]:
    return [f"unknown: {part.reason}"] if isinstance(part, Unknown) else list(describe(part))


def _copy(pipeline: Pipeline, total: tuple[int, int] | Unknown) -> Iterator[str]:
    if pipeline.copy_method == "none":
        yield '[capture] copy = "none": nothing is copied'
    elif isinstance(total, Unknown):
        yield f"unknown: {total.reason}"
    else:
        documents, of_bytes = total
        capture = pipeline.capture
        limits = ((documents, capture.documents_per_second), (of_bytes, capture.bytes_per_second))
        limited = max((amount / rate for amount, rate in limits if rate), default=0.0)
        yield f"{counted(documents, 'document')}, {size(of_bytes)}"
        if limited:
            yield f"the limits in [capture] alone take {duration(limited)}"


def _sample(sample: Sample) -> Iterator[str]:
    rate, speed = sample.documents / sample.seconds, size(round(sample.bytes / sample.seconds))
    yield f"one thread read {rate:,.0f} documents/s, {speed}/s, from this machine in {sample.seconds:.1f} s"
    if sample.largest >= _LARGE:
        yield f"the largest document had {size(sample.largest)}"


def _oplog(oplog: Oplog) -> Iterator[str]:
    yield f"{oplog.reach.removeprefix('is ')}; {size(oplog.limit)} at most"
    yield "needed: a day or more, for outages"


def _changes(writes: Writes) -> Iterator[str]:
    rate = writes.own_entries / writes.seconds
    yield (
        f"{rate:,.1f} a second in these collections, {size(round(writes.own_bytes / writes.seconds))}/s, over the last"
        f" {duration(writes.seconds)}"
    )
    yield f"all databases: {writes.entries / writes.seconds:,.1f} a second"


def _log(log: LogSize) -> Iterator[str]:
    replicas = counted(log.replicas, "replica")
    yield f"{size(log.copy_bytes)} for the copy, on all brokers: {replicas}, compressed with lz4"
    if log.day_bytes is not None:
        yield f"{size(log.day_bytes)} a day for changes at the present rate; [log] retention says how long they stay"


def _disks(disks: tuple[Disk, ...]) -> Iterator[str]:
    for disk in disks:
        if disk.free is None or disk.total is None:
            yield f"{disk.name}: free space unknown: Kafka reports it from version 3.3 on"
        else:
            yield f"{disk.name}: {size(disk.free)} free of {size(disk.total)}"


def _destination(needed: tuple[int, int]) -> Iterator[str]:
    yield f"{size(needed[0])} of documents and {size(needed[1])} of indexes on disk, as at the source"


def _pause(pause: Pause) -> Iterator[str]:
    yield f"about {duration(pause.seconds)} at a cutover; not included: its lag, the stop of the writers,"
    yield "and the verification of their last changes"
    if pause.unique_indexes:
        indexes = f"unique indexes with {pause.entries:,} entries ({pause.unique_indexes:,})"
        if pause.rebuilt_entries:
            yield f"in it, {indexes} are rebuilt; after it with --rebuild-later"
        else:
            yield f"after it, {indexes} are converted, about {duration(pause.seconds_after)}"


def rows(plan: Plan) -> list[tuple[str, ...]]:
    """The collections, the largest first, as HEADINGS names the columns; then those that are left out, and all."""
    by_size = sorted(_known(plan), key=lambda collection: (-(collection.bytes or 0), collection.namespace))
    table = [_row(collection) for collection in by_size[:_SHOWN]]
    if len(by_size) > _SHOWN:
        table.append((f"and {len(by_size) - _SHOWN:,} more", *("" for _ in HEADINGS[1:])))
    total = plan.total
    if len(by_size) > 1 and not isinstance(total, Unknown):
        storage = sum(collection.storage_bytes or 0 for collection in by_size)
        indexes = sum(collection.indexes for collection in by_size)
        of_indexes = sum(collection.index_bytes or 0 for collection in by_size)
        table.append(_row(Extent("all", "", *total, storage, indexes, of_indexes)))
    return table


def _known(plan: Plan) -> tuple[Extent, ...]:
    return () if isinstance(plan.collections, Unknown) else plan.collections


def _row(collection: Extent) -> tuple[str, ...]:
    indexes = "?" if collection.index_bytes is None else f"{collection.indexes:,}, {size(collection.index_bytes)}"
    sizes = (collection.bytes, collection.storage_bytes, collection.average_bytes)
    cells = ("?" if count is None else size(count) for count in sizes)
    return collection.namespace, f"{collection.documents:,}", *cells, indexes


def text(plan: Plan, file: Path) -> str:
    """The plan for a terminal of 80 columns; what `check` finds good is left out."""
    lines = [f"plan of {plan.pipeline.name}: {headline(plan)}", ""]
    if isinstance(plan.collections, Unknown):
        lines += _section("collections", [f"unknown: {plan.collections.reason}"])
    else:
        lines += _table(plan)
    lines.append("")
    for name, words in sections(plan).items():
        lines += _section(name, words)
    return "\n".join([*lines, "", *_findings(plan), "", "next:", *_commands(commands(plan, file))])


def _commands(next_ones: list[tuple[str, str]]) -> list[str]:
    """In two columns, or what a command is for on a separate line."""
    width = max(len(command) for command, _ in next_ones)
    lines = [f"  {command:<{width}}  # {why}" for command, why in next_ones]
    if max(map(len, lines)) <= _WIDTH:
        return lines
    return [line for command, why in next_ones for line in (f"  # {why}", f"  {command}")]


def _section(name: str, words: list[str]) -> list[str]:
    lines = [part for line in words for part in _filled(line, _WIDTH - _LABEL, "  ")]
    return [f"{name if not number else '':<{_LABEL}}{line}" for number, line in enumerate(lines)]


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


def write_report(place: Path, plan: Plan, file: Path) -> None:
    """Write the page. Raises `TowpathError` when it cannot be written."""
    pipeline = plan.pipeline
    report.write(
        place,
        "plan",
        name=pipeline.name,
        headline=headline(plan),
        mark="bad" if plan.errors else "same",
        facts={
            "planned": utc(time.time()),
            "source": without_credentials(pipeline.source.uri),
            "destination": without_credentials(pipeline.destination.uri),
            "Kafka": pipeline.kafka.bootstrap,
            "Kafka Connect": pipeline.connect.url,
            "includes": ", ".join(pipeline.collections.include),
            "leaves out": ", ".join(pipeline.collections.exclude),
        },
        sections=sections(plan),
        headings=HEADINGS,
        rows=rows(plan),
        findings=plan.findings,
        commands=commands(plan, file),
    )


def json_fields(plan: Plan, file: Path) -> dict[str, Any]:
    """The plan as `--json` prints it. What is not known is null, with its reason in `unknown`."""
    of_pause = ("seconds", "seconds_after", "unique_indexes", "entries", "rebuilt_entries")
    return {
        "name": plan.pipeline.name,
        "ready": not plan.errors,
        "unreachable": sorted(plan.unreachable),
        "deployed": _or_null(plan.deployed, bool),
        "documents": _or_null(plan.total, lambda pair: pair[0]),
        "bytes": _or_null(plan.total, lambda pair: pair[1]),
        "collections": [asdict(one) | {"average_bytes": one.average_bytes} for one in _known(plan)],
        "sample": _or_null(
            plan.sample,
            lambda it: (
                asdict(it)
                | {"seconds": round(it.seconds, 3), "log_ratio": round(it.log_ratio, 4), "left": round(it.left, 4)}
            ),
        ),
        "changes": _or_null(plan.changes, asdict),
        "log": _or_null(plan.log, asdict),
        "oplog": _or_null(
            plan.oplog,
            lambda oplog: {"hours": round(oplog.hours, 2), "bytes": oplog.limit, "too_new": oplog.young},
        ),
        "destination": _or_null(
            plan.destination,
            lambda needed: {
                "document_bytes": needed[0],
                "index_bytes": needed[1],
                "free_bytes": _or_null(plan.destination_disk, lambda disk: disk.free),
            },
        ),
        "pause": _or_null(plan.pause, lambda pause: {name: getattr(pause, name) for name in of_pause}),
        "unknown": [{"what": what, "reason": reason} for what, reason in plan.unknown.items()],
        "findings": [finding.as_json() for finding in plan.findings],
        "commands": [{"command": command, "why": why} for command, why in commands(plan, file)],
    }


def _or_null(part: Part | Unknown, describe: Callable[[Part], Any]) -> Any:
    return None if isinstance(part, Unknown) else describe(part)
