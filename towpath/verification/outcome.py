"""What a verification came to: its verdict, some differences in full, and the counts that are kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from towpath.verification.metadata import Metadata
from towpath.verification.verdict_file import KINDS
from verifier import Difference, Kind, Verdict
from verifier.values import Shown, extended_json, paths, whole


@dataclass(frozen=True, slots=True)
class Example:
    """A difference as it is shown."""

    namespace: str
    id: str
    kind: Kind
    paths: Sequence[Shown]
    source: str | None
    destination: str | None

    @classmethod
    def of(cls, found: Difference) -> Example:
        return cls(
            found.namespace,
            extended_json(found.id) or f"BSON {found.id.hex()}",
            found.kind,
            paths(found),
            None if found.source is None else whole(found.source),
            None if found.destination is None else whole(found.destination),
        )


@dataclass(slots=True)
class Examples:
    """The first differences; all others are only counted."""

    most: int
    found: list[Example] = field(default_factory=list)

    def add(self, one: Difference) -> None:
        if len(self.found) < self.most:
            self.found.append(Example.of(one))


@dataclass(frozen=True, slots=True)
class Found:
    """What a run came to. `metadata` is what differs besides documents; None when that was not compared."""

    verdict: Verdict
    examples: Sequence[Example] = ()
    metadata: Metadata | None = None

    @property
    def differences(self) -> int:
        return self.verdict.differences + (len(self.metadata.differences) if self.metadata else 0)

    @property
    def headline(self) -> str:
        """In one word or two: `same`, `screened`, `not the same`, `no verdict`."""
        if self.differences:
            return "not the same"
        if self.verdict.trouble:
            return "no verdict"
        return "screened" if any(tally.way == "screened" for tally in self.verdict.tallies) else "same"


def counts(found: Found) -> dict[str, Any]:
    """The last line of `--json`."""
    verdict = found.verdict
    return {
        "clean": found.headline in ("same", "screened"),
        "compared": verdict.compared,
        **{kind: verdict.total(kind) for kind in KINDS},
        "metadata": None if found.metadata is None else len(found.metadata.differences),
        "held_back": None if found.metadata is None else len(found.metadata.held_back),
        "seconds": round(verdict.seconds, 3),
        "documents_per_second": round(verdict.compared / verdict.seconds) if verdict.seconds else 0,
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "verdict": found.headline,
        "bytes_per_document": round(verdict.read / verdict.compared, 3) if verdict.compared else 0,
        "notes": [note for tally in verdict.tallies for note in tally.notes],
        "trouble": verdict.trouble,
    }
