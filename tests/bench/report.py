"""What a benchmark tells: a table for people, JSON for everything else."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

import psutil
from rich.console import Console
from rich.table import Table

from stack.versions import versions
from tests.bench.measured import Run
from tests.bench.sides import SIDES


def machine() -> dict[str, Any]:
    """What the figures were measured on."""
    names = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    return {
        "processor": names[0].partition(": ")[2] if names else platform.processor(),
        "cores": os.cpu_count(),
        "memory_gb": round(psutil.virtual_memory().total / 2**30, 1),
        "system": platform.platform(),
        "python": platform.python_version(),
    }


def as_json(what: str, options: dict[str, Any], runs: Sequence[Run]) -> dict[str, Any]:
    return {
        "benchmark": what,
        "machine": machine(),
        "versions": dict(versions()),
        "options": options,
        "sides": {side: {"mode": mode, "median": _median(runs, side)} for side, mode in SIDES.items()},
        "runs": [_run(run) for run in runs],
    }


def show(what: str, item: str, runs: Sequence[Run]) -> None:
    """Print every run in the order in which it ran, the medians, and how many times as much the stock side takes."""
    processes = list(runs[0].cpu)
    table = Table(title=what)
    columns = [f"{item}s/s", *(f"{process} µs CPU/{item}" for process in processes)]
    for number, column in enumerate(["side", *columns]):
        table.add_column(column, justify="right" if number else "left")
    for run in runs:
        table.add_row(run.side, *_cells([run.per_second, *map(run.micros, processes)]))
    table.add_section()
    towpath, stock = (_median(runs, side) for side in ("towpath", "stock"))
    for side, found in (("median of towpath", towpath), ("median of stock", stock)):
        table.add_row(side, *_cells(list(found.values())))
    table.add_row("stock / towpath", *(f"{stock[key] / towpath[key]:.2f}" if towpath[key] else "" for key in towpath))
    Console(width=None if Console().is_terminal else 160).print(table)


def _cells(numbers: Sequence[float]) -> list[str]:
    return [f"{numbers[0]:,.0f}", *(f"{number:,.1f}" for number in numbers[1:])]


def _median(runs: Sequence[Run], side: str) -> dict[str, float]:
    mine = [_figures(run) for run in runs if run.side == side]
    return {key: median(one[key] for one in mine) for key in mine[0]}


def _figures(run: Run) -> dict[str, float]:
    return {"per_second": run.per_second} | {f"{process}_cpu_us": run.micros(process) for process in run.cpu}


def _run(run: Run) -> dict[str, Any]:
    return {"side": run.side, "items": run.items, "seconds": round(run.seconds, 3)} | {
        key: round(value, 2) for key, value in _figures(run).items()
    }
