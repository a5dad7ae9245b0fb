"""What the two sides of a pair are: collections that can be compared, or something else, in words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from verifier.differences import Namespace, Pair
from verifier.reads import Client, existing, patiently

_NO_DOCUMENTS = {
    "view": "a view, which holds no documents of its own",
    "timeseries": "a time-series collection, which has no index on _id",
}


@dataclass(frozen=True, slots=True)
class Found:
    """One collection at one side; `uuid` is None where there is none."""

    kind: str
    uuid: bytes | None
    options: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Looked:
    """Both sides of a pair."""

    pair: Pair
    source: Found
    destination: Found

    @property
    def cannot(self) -> str:
        """Why the two cannot be compared; empty when they can."""
        for name, side, found in self._sides():
            if found.kind in _NO_DOCUMENTS:
                return f"{name} at the {side} is {_NO_DOCUMENTS[found.kind]}: it is not compared"
        return ""

    @property
    def notes(self) -> Sequence[str]:
        """What a reader of the verdict should know."""
        absent = [f"{name} does not exist at the {side}" for name, side, found in self._sides() if found.kind == "none"]
        return absent + [
            f"{name} is capped at the {side}: it drops its oldest documents by itself"
            for name, side, found in self._sides()
            if found.options.get("capped")
        ]

    @property
    def ordered_alike(self) -> bool:
        """Whether both sides keep `_id`s in the order that `verifier.order` knows."""
        return not any("collation" in found.options for _, _, found in self._sides())

    def gone(self, later: Looked) -> Sequence[str]:
        """What was dropped since, or dropped and created anew."""
        return [
            f"{name} was dropped{' and created anew' if after.uuid else ''} at the {side} during the run"
            for (name, side, before), (_, _, after) in zip(self._sides(), later._sides(), strict=True)
            if before.uuid is not None and before.uuid != after.uuid
        ]

    def _sides(self) -> Iterable[tuple[Namespace, str, Found]]:
        return (
            (self.pair.source, "source", self.source),
            (self.pair.destination, "destination", self.destination),
        )


def look(source: Client, destination: Client, pairs: Sequence[Pair], lost_for: float) -> list[Looked]:
    """Ask both sides what they have. Raises `VerifierError`."""

    def ask() -> list[Looked]:
        ours = existing(source, [pair.source for pair in pairs])
        theirs = existing(destination, [pair.destination for pair in pairs])
        return [Looked(p, _found(ours.get(p.source)), _found(theirs.get(p.destination))) for p in pairs]

    return patiently("list the collections of both sides", lost_for, ask)


def _found(listed: Mapping[str, Any] | None) -> Found:
    if listed is None:
        return Found("none", None, {})
    uuid = listed.get("info", {}).get("uuid")
    return Found(listed["type"], None if uuid is None else bytes(uuid), listed.get("options", {}))
