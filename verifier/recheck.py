"""How often a difference is read again, and when."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from bson.timestamp import Timestamp

#: Whether everything that the source had written up to this moment has been applied at the destination.
Passed: TypeAlias = Callable[[Timestamp], bool]


@dataclass(frozen=True, slots=True)
class Recheck:
    """Pauses in seconds between reads of a document that differed; the defaults suit a lag of about a second.

    `patience` is how long a difference may wait after its last try for the pipeline to pass it, or for a document
    that never stands still.
    """

    first: float = 0.5
    factor: float = 2.0
    jitter: float = 0.1
    tries: int = 6
    patience: float = 300.0

    def __post_init__(self) -> None:
        even = all(map(math.isfinite, (self.first, self.factor, self.patience)))
        fits = self.first >= 0 and self.factor >= 1 and 0 <= self.jitter < 1 and self.tries >= 1 and self.patience >= 0
        if not (even and fits):
            raise ValueError(
                f"{self} cannot be: first and patience are 0 or more, factor 1 or more, jitter 0 to 1, tries 1 or more"
            )

    def pause(self, tried: int, chance: random.Random) -> float:
        """Seconds until the next read, after so many."""
        even = self.first * self.factor ** min(tried, self.tries - 1)
        return even * (1 + self.jitter * (2 * chance.random() - 1))
