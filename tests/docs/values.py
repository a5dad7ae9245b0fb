"""The values that figures on pages come from: constants and defaults of the code, and results of benchmarks."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import click

from towpath.cli import towpath

ROOT = Path(__file__).parents[2]
_SECONDS = {"ms": 1e-3, "s": 1, "m": 60, "h": 3600, "d": 86_400}
_DURATION = re.compile(r'"?(\d+)(ms|s|m|h|d)"?')
_JAVA_DURATION = re.compile(r"(?:Duration\.of|TimeUnit\.)(millis|seconds|minutes)[\w.]*\((\d+)\)[\w.()]*", re.I)
_JAVA_SECONDS = {"millis": 1e-3, "seconds": 1, "minutes": 60}


class NoValue(LookupError):
    """The code, or the results, do not have what the table names."""


def value(place: str) -> float:
    """What the code has there, durations of Java and durations with a unit in seconds. A place is one of

    - `Waves.java:SMALLEST`, `towpath/kafka/client.py:LARGEST_RECORD`: what this name is set to
    - `connectors/sink.json:consumer.override.fetch.max.bytes`: a key of a JSON object
    - `docs/reference/connectors.md:towpath.silence.ms`: the default of a connector's setting (that page is generated)
    - `towpath cutover --max-pause`: the default of an option
    - `verifier/hashes.py:/into (\\d+) parts/`: what an expression finds in any file
    """
    if place.startswith("towpath "):
        return _option(*place.removeprefix("towpath ").split())
    name, _, wanted = place.partition(":")
    text = _file(name).read_text()
    if wanted.startswith("/"):
        return _number(_only(re.findall(wanted.strip("/"), text), place))
    if name.endswith(".json"):
        return _number(json.loads(text)[wanted])
    if name.endswith(".md"):
        return _number(_only(re.findall(rf"^\| `{re.escape(wanted)}` \|[^|]*\| `([^`]*)` \|", text, re.M), place))
    end = ";" if name.endswith(".java") else r"(?:  #.*)?$"
    found = re.findall(rf"^[\w ]*?((?:\w+, )*{wanted}\b(?:, \w+)*)(?:: .+?)? = (.+?){end}", text, re.M)
    names, values = (part.split(", ") for part in _only(found, place))
    return _number(values[names.index(wanted)])


def median(benchmark: str, part: int, side: str, figure: str) -> float:
    """Of all runs of a side, by its name and the figure's in docs/benchmarks/report.md."""
    return float(_benchmark(benchmark)["parts"][part]["medians"][side][figure])


def share(benchmark: str, part: int, side: str, of: str, figure: str) -> float:
    """How many times as much one side has of a figure as another."""
    return median(benchmark, part, side, figure) / median(benchmark, part, of, figure)


def goal(benchmark: str, what: str) -> float:
    """The first number of what a benchmark found."""
    found = next(goal["found"] for goal in _benchmark(benchmark)["goals"] if goal["what"] == what)
    return float(re.sub("[^0-9.].*", "", found.replace(",", "")))


def option(benchmark: str, name: str) -> int:
    """What a benchmark ran with."""
    return int(_benchmark(benchmark)["options"][name])


@cache
def _benchmark(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((ROOT / "docs" / "benchmarks" / f"{name}.json").read_text())
    return found


def _file(name: str) -> Path:
    if not name.endswith(".java"):
        return ROOT / name
    found: Path = _only([file for file in _java() if str(file).endswith(f"/{name}")], name)
    return found


@cache
def _java() -> list[Path]:
    return sorted((ROOT / "transforms" / "src").rglob("*.java"))


def _option(verb: str, name: str) -> float:
    command = towpath.get_command(click.Context(towpath), verb)
    options = command.params if command else []
    default = _only([option for option in options if name in option.opts], f"towpath {verb} {name}").default
    return _number(f'"{default}"' if isinstance(default, str) else str(default))


def _number(text: str) -> float:
    """Of an expression, as Python and Java write it."""
    if found := _DURATION.fullmatch(text):
        return int(found[1]) * _SECONDS[found[2]]
    if found := _JAVA_DURATION.fullmatch(text):
        return int(found[2]) * _JAVA_SECONDS[found[1].lower()]
    expression = re.sub(r"(?<=\d)(?:_(?=\d)|[Lf]\b)", "", text)
    if not re.fullmatch(r"[\d.+*/()<\s-]+", expression):
        raise NoValue(f"{text!r} is not a number")
    return float(eval(expression))  # digits and operators only


def _only(found: list[Any], what: str) -> Any:
    if len(found) != 1:
        raise NoValue(f"{what} is there {len(found)} times")
    return found[0]
