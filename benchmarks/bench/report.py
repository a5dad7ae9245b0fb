"""What a benchmark found: as values, as JSON, and as tables for people."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any, Final

import psutil
from rich.console import Console
from rich.table import Table

from benchmarks.bench.measured import Run
from towpath.stack.tools import versions

#: What the other sides are divided by.
BASE: Final = "towpath"
#: The processes of a side together; and what a run was from a third to nine tenths of its items.
IN_ALL, STEADY = "in all", "steady"


@dataclass(frozen=True, slots=True)
class Part:
    """Runs that may be compared with one another: the same work, one side after the other."""

    title: str
    item: str
    runs: Sequence[Run]
    rated: bool = True
    """Whether the time that the work took may be compared."""

    def numbers(self, run: Run) -> dict[str, float]:
        """Every number of a run, by its name in tables."""
        cpu = {f"{process}: CPU µs/{self.item}": run.micros(process) for process in run.cpu}
        in_all = {f"{IN_ALL}: CPU µs/{self.item}": run.micros(*run.cpu)} if len(run.cpu) > 1 else {}
        middle = self.numbers(run.steady) if run.steady else {}
        return {
            **({per_second(self.item): run.per_second} if self.rated else {}),
            **cpu,
            **in_all,
            **run.numbers,
            **{f"{STEADY}: {name}": value for name, value in middle.items()},
        }

    def medians(self) -> dict[str, dict[str, float]]:
        """Side → number → its median; Towpath first."""
        found = {}
        for side in sorted({run.side for run in self.runs}, key=lambda side: (not side.startswith(BASE), side)):
            mine = [self.numbers(run) for run in self.runs if run.side == side]
            found[side] = {key: median(one[key] for one in mine) for key in mine[0]}
        return found


@dataclass(frozen=True, slots=True)
class Goal:
    """Something that was to be reached, and what was found."""

    what: str
    wanted: str
    found: str
    met: bool


@dataclass(frozen=True, slots=True)
class Found:
    """All that one benchmark found; `series` is what its plots are made of."""

    parts: Sequence[Part]
    goals: Sequence[Goal] = ()
    notes: Sequence[str] = ()
    series: Mapping[str, Any] = field(default_factory=dict)


def at_least(what: str, found: float, wanted: float, unit: str = "times") -> Goal:
    return Goal(what, f"at least {number(wanted)} {unit}", f"{number(found)} {unit}", found >= wanted)


def at_most(what: str, found: float, wanted: float, unit: str = "times") -> Goal:
    return Goal(what, f"at most {number(wanted)} {unit}", f"{number(found)} {unit}", found <= wanted)


def told(what: str, found: str) -> Goal:
    """What no goal demands, and is worth a line."""
    return Goal(what, "", found, True)


def machine() -> dict[str, Any]:
    """What the numbers were measured on."""
    names = [
        line for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines() if line.startswith("model name")
    ]
    return {
        "processor": names[0].partition(": ")[2] if names else platform.processor(),
        "cores": os.cpu_count(),
        "memory_gb": round(psutil.virtual_memory().total / 2**30, 1),
        "system": platform.platform(),
        "python": platform.python_version(),
    }


def as_json(what: str, command: str, options: Mapping[str, Any], found: Found, seconds: float) -> dict[str, Any]:
    return {
        "benchmark": what,
        "command": command,
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": commit(),
        "seconds": round(seconds),
        "machine": machine(),
        "versions": dict(versions()),
        "options": dict(options),
        "parts": [_part(part) for part in found.parts],
        "goals": [asdict(goal) for goal in found.goals],
        "notes": list(found.notes),
        "series": dict(found.series),
    }


def show(found: Found) -> None:
    """Print every run in the order in which it ran, the medians, and how many times as much the other sides take."""
    console = Console(width=None if Console().is_terminal else 200)
    for part in found.parts:
        console.print(part.title, style="bold")
        console.print(_table(part))
    for goal in found.goals:
        verdict = ("met   " if goal.met else "MISSED") if goal.wanted else "      "
        console.print(f"{verdict} {goal.what}: {goal.found}{f' (wanted: {goal.wanted})' if goal.wanted else ''}")
    for note in found.notes:
        console.print(note, style="dim")


def per_second(item: str) -> str:
    """What the rate of such items is called."""
    return f"{item}es/s" if item.endswith("sh") else f"{item}s/s"


def _table(part: Part) -> Table:
    """A line for each number, a column for each side: the median, and from where to where the runs went."""
    medians, ratios = part.medians(), ratios_of(part.medians())
    table = Table()
    table.add_column("median (least–most)")
    for column in (*medians, *(f"{side} / {BASE}" for side in ratios)):
        table.add_column(column, justify="right")
    for name in dict.fromkeys(name for found in medians.values() for name in found):
        spread = [_spread(part, side, name) for side in medians]
        table.add_row(name, *spread, *(number(found[name]) if name in found else "" for found in ratios.values()))
    return table


def _spread(part: Part, side: str, name: str) -> str:
    runs = [part.numbers(run).get(name) for run in part.runs if run.side == side]
    found = [value for value in runs if value is not None]
    if not found:
        return ""
    middle = number(median(found))
    return middle if len(found) == 1 else f"{middle} ({number(min(found))}–{number(max(found))})"


def ratios_of(medians: Mapping[str, Mapping[str, float]]) -> dict[str, dict[str, float]]:
    """Side → number → how many times as much as Towpath's; nothing where Towpath's is zero, or is not there."""
    base = medians.get(BASE, {})
    return {
        side: {name: value / base[name] for name, value in found.items() if base.get(name)}
        for side, found in medians.items()
        if side != BASE and base
    }


def number(value: float) -> str:
    """Three digits that count, or all before the point."""
    if value == int(value) or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def _part(part: Part) -> dict[str, Any]:
    medians = part.medians()
    runs = [{"side": run.side, "items": run.items, "seconds": round(run.seconds, 3)} for run in part.runs]
    return {
        "title": part.title,
        "item": part.item,
        "runs": [told | _rounded(part.numbers(run)) for told, run in zip(runs, part.runs, strict=True)],
        "medians": {side: _rounded(found) for side, found in medians.items()},
        "ratios": {side: _rounded(found) for side, found in ratios_of(medians).items()},
    }


def _rounded(found: Mapping[str, float]) -> dict[str, float]:
    return {name: float(f"{value:.5g}") for name, value in found.items()}


def commit() -> str:
    """What was measured; results that were just written are no change of it."""
    results = (":(top,exclude)docs/benchmarks", ":(top,exclude)docs/evidence.*")
    changed = _git("status", "--porcelain", "--untracked-files=no", "--", ":/", *results)
    return _git("rev-parse", "--short", "HEAD") + (" with changes" if changed else "")


def _git(*words: str) -> str:
    told = subprocess.run(["git", *words], cwd=Path(__file__).parent, capture_output=True, text=True, check=False)
    return told.stdout.strip()
