"""What Connect's REST API answers, taken apart: anything but what Connect says is a `KeyError`, `TypeError` …"""

from __future__ import annotations

import time
from typing import Any, TypeVar

import httpx

T = TypeVar("T")

_WHOLE = 120.0  # seconds until an answer has to be there to its last byte, however steadily it drips
_LARGEST = 256 << 20  # bytes; the largest answer, all offsets of a copy of many ranges, is far below


def read(answer: httpx.Response) -> httpx.Response:
    """An answer with its whole body. Raises `TimeoutError` when its end does not come, or is too far off."""
    end, size = time.monotonic() + _WHOLE, 0
    parts: list[bytes] = []
    for part in answer.iter_bytes():
        parts.append(part)
        size += len(part)
        if time.monotonic() > end or size > _LARGEST:
            raise TimeoutError
    return httpx.Response(answer.status_code, content=b"".join(parts))


def names(found: Any) -> list[str]:
    return sorted(of(str, name) for name in of(list, found))


def settings(found: Any) -> dict[str, str]:
    return {of(str, key): of(str, value) for key, value in found.items()}


def faults(found: Any) -> dict[str, list[str]]:
    values = [item["value"] for item in found["configs"] if item["value"]]  # Debezium lists settings without one
    return {value["name"]: [of(str, error) for error in value["errors"]] for value in values if value["errors"]}


def offsets(found: Any) -> list[dict[str, Any]]:
    items = [item for item in of(list, found["offsets"]) if item["offset"] is not None]
    return [{"partition": of(dict, item["partition"]), "offset": of(dict, item["offset"])} for item in items]


def of(kind: type[T], value: Any) -> T:
    if not isinstance(value, kind):
        raise TypeError(f"{value!r} is no {kind.__name__}")
    return value


def message(answer: httpx.Response) -> str:
    try:
        said = str(answer.json()["message"])
    except (ValueError, KeyError, TypeError, RecursionError):
        said = answer.text[:200] or answer.reason_phrase or "without a word"
    return "".join(character if character.isprintable() else " " for character in said).strip()


def is_page(answer: httpx.Response) -> bool:
    """Whether it is the web server's own page, which answers before the worker has begun."""
    return answer.content.lstrip().startswith(b"<")


def is_about_connector(missing: httpx.Response) -> bool:
    """Whether a 404 is Connect's word on a connector, and not that of a web server, or on a path that nobody knows."""
    try:
        told = missing.json()
        return bool(told["error_code"] == 404 and told["message"] != "HTTP 404 Not Found")
    except (ValueError, KeyError, TypeError, RecursionError):
        return False
