"""The pairs of versions of MongoDB on which the core is tested."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Pair:
    """Versions, or a path of a program. `level`: the source's featureCompatibilityVersion, if not its version."""

    source: str
    destination: str
    level: str = ""

    def __str__(self) -> str:
        return f"{self.source}{f' at {self.level}' if self.level else ''} to {self.destination}"


PAIRS = (
    Pair("5.0.4", "6.0.5"),
    Pair("5.0.4", "5.0.4"),
    Pair("6.0.5", "6.0.27"),
    Pair("6.0.27", "6.0.27"),
    Pair("6.0.5", "6.0.27", level="5.0"),
)
