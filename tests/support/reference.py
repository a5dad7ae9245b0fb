"""The code of `docs/design/record.md` that applies an update, taken from the page; and what it takes."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

_PAGE = Path(__file__).parents[2] / "docs" / "design" / "record.md"

Apply = Callable[[dict[str, Any], dict[str, Any]], None]


def page_s_code() -> str:
    (code,) = re.findall(r"```python\n(.*?)```", _PAGE.read_text(), re.DOTALL)
    return code


def page_s_apply() -> Apply:
    names: dict[str, Any] = {}
    exec(page_s_code(), names)
    found: Apply = names["apply"]
    return found


def value_of(description: Mapping[str, Any]) -> dict[str, Any]:
    """The value of a record, as the contract has it, for an update in a change stream."""
    return {
        "$set": description["updatedFields"],
        "$unset": dict.fromkeys(description["removedFields"], ""),
        "$truncate": {array["field"]: array["newSize"] for array in description["truncatedArrays"]},
    }
