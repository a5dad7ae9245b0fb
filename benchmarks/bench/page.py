"""The report: one Markdown page of what all benchmarks found, made from their JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.bench.report import number

REPORT = "report.md"
_VERSIONS = ("mongod.version", "kafka.version", "debezium.version", "mongo-kafka.version")


def write(directory: Path, names: Sequence[str]) -> Path:
    """Draw the pictures and write the page, of those benchmarks whose JSON is there."""
    from benchmarks.bench.plots import plots  # matplotlib takes a second to load, and only reports need it

    files = [directory / f"{name}.json" for name in names]
    found = [json.loads(file.read_text()) for file in files if file.exists()]
    pictures = {one["benchmark"]: [file.name for file in plots(one, directory)] for one in found}
    report = directory / REPORT
    report.write_text("\n".join(page(found, pictures)) + "\n")
    return report


def page(found: Sequence[Mapping[str, Any]], pictures: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """The lines of the page."""
    yield "# Benchmarks: the newest report"
    yield ""
    commands = ", ".join(dict.fromkeys(code(one["command"]) for one in found))
    yield f"Made by {commands}. [README.md](README.md) says what is measured, and how to read it."
    yield ""
    yield from table(["benchmark", "demand", "wanted", "found", ""], _all_goals(found))
    yield from table(["benchmark", "when", "commit", "took", "machine"], map(_circumstances, found))
    versions = {f"{name.removesuffix('.version')} {one['versions'][name]}": None for one in found for name in _VERSIONS}
    yield f"Versions: {', '.join(versions)}."
    yield ""
    for one in found:
        yield from _chapter(one, pictures[one["benchmark"]])


def code(text: str) -> str:
    return f"`{text}`"


def _all_goals(found: Sequence[Mapping[str, Any]]) -> Iterator[list[str]]:
    for one in found:
        for goal in one["goals"]:
            yield [one["benchmark"], goal["what"], goal["wanted"], goal["found"], "" if goal["met"] else "**missed**"]


def _circumstances(one: Mapping[str, Any]) -> list[str]:
    machine = one["machine"]
    told = f"{machine['processor']}, {machine['cores']} cores, {machine['memory_gb']:.0f} GB"
    return [one["benchmark"], one["when"], code(one["commit"]), f"{one['seconds']} s", told]


def _chapter(one: Mapping[str, Any], pictures: Sequence[str]) -> Iterator[str]:
    yield f"## {one['benchmark']}"
    yield ""
    yield f"Options: {', '.join(f'{name} {value}' for name, value in one['options'].items())}."
    yield ""
    for part in one["parts"]:
        yield f"**{part['title']}**, medians of {_runs(part)}:"
        yield ""
        yield from _numbers(part)
    for note in one["notes"]:
        yield f"- {note}"
    yield from [""] if one["notes"] else []
    for picture in pictures:
        yield f"![{picture.removesuffix('.svg')}]({picture})"
        yield ""


def _runs(part: Mapping[str, Any]) -> str:
    count = len(part["runs"]) // len(part["medians"])
    return f"{count} runs a side" if count > 1 else "one run a side"


def _numbers(part: Mapping[str, Any]) -> Iterator[str]:
    """Numbers as lines when there are few sides, sides as lines when there are many."""
    medians, ratios = part["medians"], part["ratios"]
    names = list(dict.fromkeys(name for of in medians.values() for name in of))
    if len(medians) > 4:
        return table(["", *names], ([side, *_cells(of, names)] for side, of in medians.items()))
    columns = {**medians, **{f"{side} / towpath": of for side, of in ratios.items()}}
    return table(["", *columns], ([name, *(_cells(of, [name])[0] for of in columns.values())] for name in names))


def _cells(of: Mapping[str, float], names: Sequence[str]) -> list[str]:
    return [number(of[name]) if name in of else "" for name in names]


def table(heads: Sequence[str], rows: Iterator[list[str]]) -> Iterator[str]:
    yield f"| {' | '.join(heads)} |"
    yield f"|{'---|' * len(heads)}"
    for row in rows:
        yield f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |"
    yield ""
