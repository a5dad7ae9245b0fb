"""What both sides of a pair are: collections that can be compared, or something else."""

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
class Listed:
    """A namespace at one side; `kind` is `none` if it does not exist, `uuid` None if the server lists none."""

    kind: str
    uuid: bytes | None
    options: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ListedPair:
    """Both sides of a pair."""

    pair: Pair
    source: Listed
    destination: Listed

    @property
    def obstacle(self) -> str:
        """Why the two cannot be compared, in words; empty if they can."""
        for name, side, listed in self._sides():
            if listed.kind in _NO_DOCUMENTS:
                return f"{name} at the {side} is {_NO_DOCUMENTS[listed.kind]}: it is not compared"
        return ""

    @property
    def notes(self) -> Sequence[str]:
        """What qualifies the verdict, in words."""
        absent = [
            f"{name} does not exist at the {side}" for name, side, listed in self._sides() if listed.kind == "none"
        ]
        return absent + [
            f"{name} is capped at the {side}: it drops its oldest documents by itself"
            for name, side, listed in self._sides()
            if listed.options.get("capped")
        ]

    @property
    def ordered_alike(self) -> bool:
        """Whether both sides keep `_id`s in the order that `verifier.order` knows."""
        return not any("collation" in listed.options for _, _, listed in self._sides())

    def gone(self, later: ListedPair) -> Sequence[str]:
        """What was dropped, or dropped and created again, between this listing and a later one; in words."""
        return [
            f"{name} was dropped{' and created again' if after.uuid else ''} at the {side} during the run"
            for (name, side, before), (_, _, after) in zip(self._sides(), later._sides(), strict=True)
            if before.uuid is not None and before.uuid != after.uuid
        ]

    def _sides(self) -> Iterable[tuple[Namespace, str, Listed]]:
        return (
            (self.pair.source, "source", self.source),
            (self.pair.destination, "destination", self.destination),
        )


def look(source: Client, destination: Client, pairs: Sequence[Pair], lost_for: float) -> list[ListedPair]:
    """List the collections of these pairs at both sides. Raises `VerifierError`."""

    def read() -> list[ListedPair]:
        ours = existing(source, [pair.source for pair in pairs])
        theirs = existing(destination, [pair.destination for pair in pairs])
        return [ListedPair(p, _listed(ours.get(p.source)), _listed(theirs.get(p.destination))) for p in pairs]

    return patiently("list the collections of both sides", lost_for, read)


def _listed(entry: Mapping[str, Any] | None) -> Listed:
    """`entry` is the server's, of `listCollections`."""
    if entry is None:
        return Listed("none", None, {})
    uuid = entry.get("info", {}).get("uuid")
    return Listed(entry["type"], None if uuid is None else bytes(uuid), entry.get("options", {}))
