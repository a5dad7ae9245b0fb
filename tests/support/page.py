"""The commands and programs that a page of the documentation shows, and whether commands print what it shows."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"


@dataclass(frozen=True)
class Command:
    """A command after `$`, and the lines that the page shows below it."""

    text: str
    output: list[str]


def commands(page: str) -> list[Command]:
    """All commands of a page's `console` blocks."""
    found: list[Command] = []
    for block in re.findall(r"^```console\n(.*?)^```", page, re.M | re.S):
        for line in block.splitlines():
            if line.startswith("$ "):
                found.append(Command(line[2:], []))
            elif line.strip():
                found[-1].output.append(line)
    return found


def program(page: str, start: str, folder: Path) -> Path:
    """The program of a page whose first line begins like this, as a file."""
    (code,) = (
        part for part in re.findall(r"^```python\n(.*?)^```", (DOCS / page).read_text(), re.M | re.S) if start in part
    )
    file = folder / start.split()[0].strip('"')
    file.write_text(code)
    return file


def differs(shown: list[str], printed: str) -> str | None:
    """The first line of a page that a command did not print, in this order.

    A line `…` stands for any lines. Numbers, also times and ports, may be others, and so may the width of columns;
    the processes of a stack may be ready in another order.
    """
    lines = iter(_ready([alike(line) for line in printed.splitlines() if line.strip()]))
    loose = False
    for line in _ready(shown):
        if line.strip() == "…":
            loose = True
            continue
        for other in lines:
            if other == alike(line):
                break
            if not loose:
                return line
        else:
            return line
        loose = False
    return None if loose else next(lines, None)


def alike(line: str) -> str:
    return " ".join(re.sub(r"\d[\d,.:]*", "0", line).split())


def _ready(lines: list[str]) -> list[str]:
    """The same lines, those of processes that are ready sorted among themselves."""
    ready = iter(sorted(line for line in lines if " is ready after " in line))
    return [next(ready) if " is ready after " in line else line for line in lines]
