"""The code of `docs/design/record.md` that applies an update, taken from the page."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

_PAGE = Path(__file__).parents[2] / "docs" / "design" / "record.md"

Apply = Callable[[dict[str, Any], dict[str, Any]], None]


def page_s_apply() -> Apply:
    (code,) = re.findall(r"```python\n(.*?)```", _PAGE.read_text(), re.DOTALL)
    names: dict[str, Any] = {}
    exec(code, names)
    found: Apply = names["apply"]
    return found
