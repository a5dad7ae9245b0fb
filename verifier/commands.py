"""Commands of MongoDB as people paste them into its shell."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import bson
from bson.json_util import CANONICAL_JSON_OPTIONS, dumps

_INT32 = 2**31


@dataclass(frozen=True, slots=True)
class Command:
    """A command for one database."""

    database: str
    body: Mapping[str, Any]

    @property
    def text(self) -> str:
        """`db.getSiblingDB("…").runCommand({…})`; values that JSON has no types for are Extended JSON."""
        where = f"db.getSiblingDB({json.dumps(self.database, ensure_ascii=False)})"
        if _is_plain(self.body):
            return f"{where}.runCommand({json.dumps(self.body, ensure_ascii=False)})"
        canonical = dumps(self.body, json_options=CANONICAL_JSON_OPTIONS, ensure_ascii=False)
        return f"{where}.runCommand(EJSON.deserialize({canonical}, {{relaxed: false}}))"


def _is_plain(value: Any) -> bool:
    """Whether the shell reads the value's JSON as just this value: it takes every whole number for an int32."""
    match value:
        case bson.Int64():
            return False
        case None | bool() | str():
            return True
        case int():
            return -_INT32 <= value < _INT32
        case float():
            return math.isfinite(value) and not value.is_integer()
        case Mapping():
            return all(map(_is_plain, value.values()))
        case list():
            return all(map(_is_plain, value))
    return False
