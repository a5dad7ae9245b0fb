"""Random cases that can be had again: the environment names the seed, and how many times as many there are to be."""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Iterator

SEED = int(os.environ.get("TOWPATH_FUZZ_SEED", "1"))
TIMES = int(os.environ.get("TOWPATH_FUZZ_TIMES", "1"))


def cases(what: str, count: int) -> Iterator[tuple[str, random.Random]]:
    """A name and a source of chance for each case; says at the end how many there were."""
    for number in range(count * TIMES):
        yield f"{what}, case {number} of TOWPATH_FUZZ_SEED={SEED}", random.Random(SEED * 1_000_000_007 + number)
    print(f"fuzz: {what}: {count * TIMES} cases, TOWPATH_FUZZ_SEED={SEED}")


def told(what: str, outcomes: Counter[str]) -> None:
    print(f"fuzz: {what}: {dict(sorted(outcomes.items()))}")
