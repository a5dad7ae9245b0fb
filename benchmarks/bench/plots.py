"""Pictures of what benchmarks found, made from their JSON."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import nan
from pathlib import Path
from textwrap import fill
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.bench import hops
from benchmarks.bench.measured import DESTINATION, WORKER
from benchmarks.bench.report import STEADY, per_second

_SIZE = (7.5, 4.0)  # inches
_COLOURS = {"towpath": "#1b6ca8", "stock": "#d1495b", "plain": "#edae49"}
_OTHER = "#6b705c"


def plots(found: Mapping[str, Any], directory: Path) -> list[Path]:
    """Draw all pictures of one benchmark; a benchmark that has none gives none."""
    # the same numbers give the same file, byte for byte
    mpl.rcParams.update({"svg.hashsalt": "towpath", "svg.fonttype": "none", "axes.spines.top": False})
    made = []
    for name, title, draw in _PICTURES.get(found["benchmark"], ()):
        figure = Figure(figsize=_SIZE, layout="constrained")
        axes = figure.add_subplot()
        axes.set_title(title, fontsize=10, loc="left")
        draw(axes, found)
        file = directory / f"{name}.svg"
        figure.savefig(file, metadata={"Date": None})
        made.append(file)
    return made


def _growth(axes: Axes, found: Mapping[str, Any]) -> None:
    for side, points in found["series"]["growth"].items():
        lengths, sizes = zip(*points, strict=True)
        style = "--" if "capped" in side else "-"
        axes.plot(lengths, sizes, marker=".", label=side, color=_colour(side), linestyle=style)
    axes.axhline(found["series"]["reading"], color="grey", linewidth=0.8, linestyle=":", label="the reading")
    axes.set(yscale="log", xlabel="readings in the document", ylabel="bytes of the record of one push", ylim=(50, None))
    axes.legend()


def _bytes(axes: Axes, found: Mapping[str, Any]) -> None:
    medians = found["parts"][-1]["medians"]  # at a pace: a backlog flatters stock's oplog
    _bars(axes, list(hops.HOPS), {side: [of[f"{hop} B/push"] for hop in hops.HOPS] for side, of in medians.items()})
    axes.set(yscale="log", ylabel="bytes a push")


def _rates(axes: Axes, found: Mapping[str, Any]) -> None:
    parts = found["parts"]
    sides = dict.fromkeys(side for part in parts for side in part["medians"])
    rates = {
        side: [part["medians"].get(side, {}).get(per_second(part["item"]), nan) for part in parts] for side in sides
    }
    _bars(axes, [fill(part["title"], 18) for part in parts], rates)
    axes.set(ylabel=f"{parts[0]['item']}s a second")


def _steady_rates(axes: Axes, found: Mapping[str, Any]) -> None:
    rates = {
        side: of[f"{STEADY}: {per_second(part['item'])}"]
        for part in found["parts"]
        for side, of in part["medians"].items()
    }
    axes.bar([fill(side, 12) for side in rates], list(rates.values()), color=_COLOURS["towpath"])
    axes.set(ylabel="documents a second, steady")
    axes.tick_params(axis="x", labelsize=8)


def _processors(axes: Axes, found: Mapping[str, Any]) -> None:
    part = found["parts"][0]
    names = [f"{process}: CPU µs/{part['item']}" for process in (WORKER, DESTINATION)]
    _bars(axes, names, {side: [of[name] for name in names] for side, of in part["medians"].items()})


def _lags(axes: Axes, found: Mapping[str, Any]) -> None:
    for label, lags in found["series"]["lags"].items():
        axes.plot(range(len(lags)), lags, label=label, color=_colour(label), linestyle=_line(label, found))
    axes.set(yscale="log", xlabel="percentile of the markers", ylabel="lag, ms")
    axes.legend()


def _line(label: str, found: Mapping[str, Any]) -> str:
    mine = [one for one in found["series"]["lags"] if one.split()[0] == label.split()[0]]
    return "-" if mine.index(label) == 0 else "--"


def _variants(axes: Axes, found: Mapping[str, Any]) -> None:
    part = found["parts"][0]
    rates = {label: of[per_second(part["item"])] for label, of in part["medians"].items()}
    axes.barh(list(rates)[::-1], list(rates.values())[::-1], color=[_colour(label) for label in list(rates)[::-1]])
    axes.set(xlabel=f"{part['item']}s a second")


def _bars(axes: Axes, groups: Sequence[str], by_side: Mapping[str, Sequence[float]]) -> None:
    width = 0.8 / len(by_side)
    for number, (side, values) in enumerate(by_side.items()):
        at = [place + (number - (len(by_side) - 1) / 2) * width for place in range(len(groups))]
        axes.bar(at, values, width, label=side, color=_colour(side))
    axes.set_xticks(range(len(groups)), [name.replace(" → ", "\n→ ") for name in groups], fontsize=8)
    axes.legend()


def _colour(label: str) -> str:
    if "without" in label:
        return _OTHER
    return _COLOURS.get(label.split()[0].rstrip(","), _OTHER)


_Draw = Callable[[Axes, Mapping[str, Any]], None]
_PICTURES: dict[str, tuple[tuple[str, str, _Draw], ...]] = {
    "arrays": (
        ("arrays-growth", "One push of 100 bytes, by the length of its array", _growth),
        ("arrays-hops", "One push of 100 bytes into a long document, hop by hop, at a pace", _bytes),
    ),
    "growth": (("growth", "First copy: more documents, partitions, workers", _steady_rates),),
    "load": (("load", "First copy, from end to end", _rates),),
    "stream": (("stream-lag", "Lag from the source's primary to the destination's", _lags),),
    "bulking": (("bulking", "CPU of interleaved changes from a full log", _processors),),
    "write-concern": (("write-concern", "Out of the log, by write concern and tasks", _variants),),
}
