"""Sides in turn: what swings with the machine then hits all of them."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from typing import TypeVar

from benchmarks.bench.measured import Run

S = TypeVar("S", bound=str)
T = TypeVar("T")


def pairs(what: str, sides: Sequence[S], repetitions: int, one: Callable[[str, S, bool], Run]) -> list[Run]:
    """Each side once to warm up, then so many times, in another order every time.

    `one` makes a run of a name that no other run has, fit for a pipeline; its last argument says whether it is to warm
    up only.
    """
    runs = []
    for turn in range(repetitions + 1):
        for side in in_turn(sides, turn):
            name = re.sub(r"[^a-z0-9]+", "-", f"{what}-{side}-{turn}")
            run = one(name, side, turn == 0)
            say(f"{what}: {'run' if turn else 'warm-up'} {turn} of {side}: {run.per_second:,.0f} a second")
            runs += [run] if turn else []
    return runs


def in_turn(sides: Sequence[T], turn: int) -> list[T]:
    """The sides in an order in which another one is first every time."""
    first = turn % len(sides)
    return [*sides[first:], *sides[:first]]


def say(words: str) -> None:
    print(words, file=sys.stderr, flush=True)
