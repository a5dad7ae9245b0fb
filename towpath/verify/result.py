"""The result of a verification: its headline, its counts, and the first differences as text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import towpath_verifier
from towpath.config import events
from towpath.deploy.schema import Metadata
from towpath.store.verdict_file import KINDS
from towpath_verifier import SCREENED, UNORDERED, Kind, Shown, Verdict, extended_json, readable


@dataclass(frozen=True, slots=True)
class Example:
    """A difference as text."""

    namespace: str
    id: str
    kind: Kind
    paths: Sequence[Shown]
    source: str | None
    destination: str | None

    @classmethod
    def of(cls, difference: towpath_verifier.Difference) -> Example:
        return cls(
            difference.namespace,
            extended_json(difference.id) or f"BSON {difference.id.hex()}",
            difference.kind,
            difference.paths,
            None if difference.source is None else readable(difference.source),
            None if difference.destination is None else readable(difference.destination),
        )


@dataclass(frozen=True, slots=True)
class VerificationResult:
    """The result of a run. `metadata`: differences of options, views and indexes; None when they were not compared."""

    verdict: Verdict
    examples: Sequence[Example] = ()
    metadata: Metadata | None = None

    @property
    def differences(self) -> int:
        return self.verdict.differences + (len(self.metadata.differences) if self.metadata else 0)

    @property
    def headline(self) -> str:
        """In a few words: `same`, `same, field order ignored`, `screened`, `not the same`, `no verdict`."""
        if self.differences:
            return "not the same"
        if self.verdict.errors:
            return "no verdict"
        words = [tally.verdict for tally in self.verdict.tallies]
        return next((weaker for weaker in (SCREENED, UNORDERED) if weaker in words), "same")


def as_event(
    result: VerificationResult, of: str, ddl: Sequence[str] = (), only: Sequence[str] = (), id: str = ""
) -> events.Verdict:
    """The last line of a verdict."""
    verdict = result.verdict
    kinds: dict[str, Any] = {kind: verdict.total(kind) for kind in KINDS}
    return events.Verdict(
        clean=result.headline in ("same", SCREENED, UNORDERED),
        compared=verdict.compared,
        **kinds,
        metadata=None if result.metadata is None else len(result.metadata.differences),
        deferred=None if result.metadata is None else len(result.metadata.deferred),
        seconds=round(verdict.seconds, 3),
        documents_per_second=round(verdict.compared / verdict.seconds) if verdict.seconds else 0,
        at=datetime.now(UTC).isoformat(timespec="milliseconds"),
        since=datetime.fromtimestamp(verdict.since, UTC).isoformat(timespec="milliseconds"),
        verdict=result.headline,
        bytes_per_document=round(verdict.read / verdict.compared, 3) if verdict.compared else 0,
        notes=[note for tally in verdict.tallies for note in tally.notes],
        errors=verdict.errors,
        of=of,
        ddl=ddl,
        only=only,
        id=id or uuid4().hex,
    )
