"""Waits for facts: what it waits for has a name, and the last value seen shows when it does not come."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

Fact = TypeVar("Fact")

_SLOWEST = 4


def patient(seconds: float) -> float:
    """The limit of a wait, when `seconds` are enough on a quiet machine: a slow one with load takes longer."""
    return _SLOWEST * seconds


def until(what: str, look: Callable[[], Fact | None], timeout: float = 60, every: float = 0.15) -> Fact:
    """The first true value of `look`; `timeout`, on a quiet machine, and `every` in seconds."""
    return _awaited(what, look, patient(timeout), every)


def promised(what: str, look: Callable[[], Fact | None], seconds: float, every: float = 0.15) -> Fact:
    """As `until`, for what the product promises within so many seconds: only in a test that is marked `serial`."""
    return _awaited(what, look, seconds, every)


def _awaited(what: str, look: Callable[[], Fact | None], seconds: float, every: float) -> Fact:
    end = time.monotonic() + seconds
    while not (found := look()):
        assert time.monotonic() < end, f"no {what} within {seconds:.0f} s; the last check gave {found!r}"
        time.sleep(every)
    return found
