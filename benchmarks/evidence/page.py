"""The page of the evidence, made from its JSON and from nothing else."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from benchmarks.bench.page import code, table

_VERSIONS = ("mongod", "kafka", "debezium", "mongo-kafka")
#: What the history check has seen, as a column.
_LISTS = {
    "appends": "appends",
    "transactions": "transactions of the source",
    "records": "records of the log",
    "states": "states at the destination",
    "points": "times at which the destination was the source as of one time",
}


def write(results: Path) -> Path:
    """Write the page beside the results."""
    place = results.with_suffix(".md")
    place.write_text("\n".join(page(json.loads(results.read_text(encoding="utf-8")))) + "\n", encoding="utf-8")
    return place


def page(found: Mapping[str, Any]) -> Iterator[str]:
    """The lines of the page."""
    machine, suite = found["machine"], found["suite"]
    rounds: list[dict[str, Any]] = suite["rounds"]
    told = {name: found["versions"][f"{name}.version"] for name in _VERSIONS}
    yield "# Evidence"
    yield ""
    yield f"Made by {code(found['command'])} with seed {found['seed']}, {found['when']},"
    yield f"of commit {code(found['commit'])},"
    yield f"in {found['seconds']:,} s"
    yield f"on {machine['processor']}, {machine['cores']} cores, {machine['memory_gb']:.0f} GB;"
    yield f"{', '.join(f'{name} {version}' for name, version in told.items())}."
    yield "[Development](development.md) says what is run; [evidence.json](evidence.json) has all seeds and commands."
    yield ""
    yield "## Faults, with the history check"
    yield ""
    yield code(suite["command"])
    yield ""
    yield from table(["stack", "rounds", "failed", "faults that hit their state", "missed"], _shapes(rounds))
    yield from _pairs(found["pairs"], rounds)
    lists = [one["lists"] for one in rounds if "lists" in one]
    yield from table(
        ["the history check saw", ""],
        ([words, f"{sum(one[name] for one in lists):,}"] for name, words in _LISTS.items()),
    )
    for one in rounds:
        if "failed" in one:
            yield f"- **Failed**: {one['shape']}, seed {one['seed']}: {' '.join(one['failed'].split())}"
    yield from [""] if any("failed" in one for one in rounds) else []
    yield from _planted(found["planted"])


def _shapes(rounds: list[dict[str, Any]]) -> Iterator[list[str]]:
    for shape in dict.fromkeys(one["shape"] for one in rounds):
        mine = [one for one in rounds if one["shape"] == shape]
        struck = Counter(it["hit"] for one in mine for it in one.get("struck", ()))
        failed = sum("failed" in one for one in mine)
        yield [shape, str(len(mine)), str(failed), str(struck[True]), str(struck[False])]


def _pairs(pairs: list[list[str]], rounds: list[dict[str, Any]]) -> Iterator[str]:
    """How many pairs of a fault and a state were hit, and which ones were not."""
    struck = (zip(one["strikes"], one.get("struck", ()), strict=False) for one in rounds)
    hit = [pair for round_ in struck for pair, it in round_ if it["hit"]]
    left: dict[str, list[str]] = {}
    for fault, state in pairs:
        if [fault, state] not in hit:
            left.setdefault(fault, []).append(state)
    yield f"{len(pairs) - sum(map(len, left.values()))} of {len(pairs)} pairs of a fault and a state were hit."
    yield f"Not hit{':' if left else ': none.'}"
    yield ""
    for fault, states in left.items():
        yield f"- {fault} at {', '.join(states)}"
    yield from [""] if left else []


def _planted(planted: list[dict[str, Any]]) -> Iterator[str]:
    yield "## Planted faults"
    yield ""
    counts = Counter(one["verdict"] for one in planted)
    verdicts = ", ".join(f"{number} {words}" for words, number in counts.items())
    yield f"{len(planted)} faults were planted, each in its own plugin: {verdicts}."
    yield ""
    yield from table(
        ["in this plugin", "file", "struck by", "verdict", "rounds", "what the round said"],
        (
            [
                one["name"],
                code(one["file"]),
                " at ".join(one["pair"]),
                one["verdict"] if one["verdict"] == "noticed" else f"**{one['verdict']}**",
                str(one["rounds"]),
                one["by"],
            ]
            for one in planted
        ),
    )
