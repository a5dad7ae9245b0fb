"""What `docs/json.md` says of the lines that commands print with `--json`, and whether lines are as it says."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from towpath.config import events
from towpath.config.events import TimedEvent

PAGE = Path(__file__).parents[2] / "docs" / "json.md"
_HEADING = re.compile(r"(#{2,3}) (\w+)(?:: (.*))?")
_ROW = re.compile(r"\| `([^`]+)` \| (optional )?(.+?) \| (.*?) ?\|")
_TYPES: Mapping[str, type | tuple[type, ...]] = {
    "any": object,
    "array": list,
    "boolean": bool,
    "integer": int,
    "null": type(None),
    "number": (int, float),
    "object": dict,
    "string": str,
}

#: Path of a field → whether it is optional, and its type in words.
Table = Mapping[str, tuple[bool, str]]


@cache
def page() -> dict[str, tuple[tuple[str, ...], Table]]:
    """Verb, or kind of event → the values of `event`, and its fields."""
    found: dict[str, tuple[tuple[str, ...], dict[str, tuple[bool, str]]]] = {}
    section = ""
    for line in PAGE.read_text().splitlines():
        if heading := _HEADING.fullmatch(line):
            section = heading[2]
            found[section] = tuple(re.findall(r"`([^`]+)`", heading[3] or "")), {}
        elif row := _ROW.fullmatch(line):
            assert row[1] not in found[section][1], f"{section} has {row[1]} twice"
            found[section][1][row[1]] = bool(row[2]), row[3]
    return dict(found)


def refuse(arguments: Sequence[str], lines: str) -> None:
    """Fail on a line that a command printed with `--json` and that the page does not describe."""
    command = arguments[0]
    if "--json" in arguments and command != "--help":
        for line in lines.splitlines():
            wrong = list(complaints(command, json.loads(line)))
            assert not wrong, f"{command} printed what docs/json.md does not describe: {wrong}\n{line}"


def complaints(command: str, line: Mapping[str, Any]) -> Iterator[str]:
    """What of a line is not as the page says."""
    line = dict(line)
    if command != "stack" and line.pop("v") != events.VERSION:
        yield "v"
    command = {"resnapshot": "verify"}.get(command, command)
    if command not in events.BY_COMMAND:
        yield from _fields("", line, page()[command][1])
        return
    found = events.event(line)
    if found is None or type(found) not in events.BY_COMMAND[command]:
        yield f"{found!r} is no event of {command}"
        return
    about = dict(page()[type(found).__name__][1])
    if command in ("run", "cutover", "takeover") and isinstance(found, TimedEvent):
        about |= page()["run" if command == "run" else "cutover"][1]
    if line.pop("event") not in page()[type(found).__name__][0]:
        yield "event"
    yield from _fields("", line, about)


def _fields(path: str, value: Mapping[str, Any], table: Table) -> Iterator[str]:
    own = {name: row for name, row in table.items() if re.fullmatch(re.escape(path) + r"[^.\[]+", name)}
    if not own and path:
        return  # told in words
    names = {name[len(path) :] for name in own}
    yield from (f"{path}{name} is not described" for name in value.keys() - names)
    for name, (is_optional, words) in own.items():
        key = name[len(path) :]
        if key not in value:
            yield from [] if is_optional else [f"{name} is not there"]
            continue
        if not fits(value[key], words):
            yield f"{name} is not {words}: {value[key]!r}"
        parts = value[key] if isinstance(value[key], list) else [value[key]]
        mark = "[]." if isinstance(value[key], list) else "."
        for part in parts:
            if isinstance(part, dict):
                yield from _fields(f"{name}{mark}", part, table)


def fits(value: object, words: str) -> bool:
    names = words.split(" or ")
    if isinstance(value, bool):
        return "boolean" in names or "any" in names
    return any(isinstance(value, _TYPES[name]) for name in names)
