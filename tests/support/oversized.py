"""An update of a few megabytes at the server whose change event is larger than 16 MB."""

from __future__ import annotations

from typing import Any

#: With a name so long, an event says 20,000 times 900 bytes; the oplog's entry says them once.
LONG, ELEMENTS = "n" * 900, 20_000
_EACH = {"$mergeObjects": ["$$this", {"v": {"$add": ["$$this.v", 1]}}]}
CHANGE_ALL = [{"$set": {LONG: {"$map": {"input": f"${LONG}", "in": _EACH}}}}]


def long_named(id: Any) -> dict[str, Any]:
    return {"_id": id, LONG: [{"v": 0, "w": n, "pad": "x" * 60} for n in range(ELEMENTS)]}
