"""The alert rules as the tests read them, and copies with other limits and times."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from towpath.stack.plan import ALERTS

TEXT = ALERTS.read_text()
NAMES = re.findall(r"- alert: (\w+)", TEXT)


def expressions() -> dict[str, str]:
    """Alert → PromQL."""
    found = re.findall(r"- alert: (\w+)\n +expr: (?:>-\n)?(.+?)\n +for:", TEXT, re.DOTALL)
    return {name: " ".join(query.split()) for name, query in found}


def quick(file: Path, limits: Mapping[str, str]) -> Path:
    """Write the rules with every `for` of a second, and with other texts in place of some; each has to be there."""
    text = re.sub(r"for: \w+", "for: 1s", TEXT)
    for old, new in limits.items():
        assert old in text, old
        text = text.replace(old, new)
    file.write_text(text, encoding="utf-8")
    return file
