"""What was hit how often: fault × state, with the tries that missed, as a table and as JSON."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

#: A fault and the state that it was to hit.
Pair = tuple[str, str]


@dataclass(slots=True)
class Hits:
    hit: Counter[Pair] = field(default_factory=Counter)
    missed: Counter[Pair] = field(default_factory=Counter)
    runs: list[dict[str, Any]] = field(default_factory=list)

    @classmethod
    def read(cls, file: Path) -> Hits:
        """What was written before; nothing where there is no such file. Raises `ValueError` for another file."""
        if not file.exists():
            return cls()
        try:
            found = json.loads(file.read_text(encoding="utf-8"))
            rows = {(one["fault"], one["state"]): one for one in found["pairs"]}
            hit, missed = (Counter({at: int(it[name]) for at, it in rows.items()}) for name in ("hits", "missed"))
            return cls(hit, missed, list(found["runs"]))
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"{file} is no table of hits: {error!r}") from error

    def table(self) -> str:
        """A line a pair."""
        pairs = sorted({*self.hit, *self.missed})
        lines = [
            f"{fault:<28} {state:<21} {self.hit[fault, state]:4} {self.missed[fault, state]:6}"
            for fault, state in pairs
        ]
        return "\n".join([f"{'fault':<28} {'state':<21} hits missed", *lines])

    def write(self, file: Path) -> None:
        pairs = sorted({*self.hit, *self.missed})
        rows = [{"fault": f, "state": s, "hits": self.hit[f, s], "missed": self.missed[f, s]} for f, s in pairs]
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps({"pairs": rows, "runs": self.runs}, indent=1) + "\n", encoding="utf-8")
