"""What a verification came to, and the file of the last verdict: JSON lines, one a difference, then the counts."""

from __future__ import annotations

import json
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import verifier
from towpath import state_files
from towpath.errors import TowpathError
from towpath.events import BadLine, Difference, as_line, event
from towpath.verification.scope import Metadata
from verifier import Kind, Namespace, Verdict
from verifier.values import Shown, extended_json, paths, whole

KINDS: tuple[Kind, ...] = ("missing", "extra", "different", "order")


def path(pipeline: str) -> Path:
    """Where the last verdict of a pipeline is kept on this machine."""
    return state_files.folder(pipeline) / "verdict.jsonl"


@contextmanager
def turn(place: Path) -> Iterator[None]:
    """Held by whoever replaces a verdict, or takes something out of it."""
    with state_files.locked(place.with_name(f"{place.name}.lock"), wait=True):
        yield


def difference(found: verifier.Difference, destination_namespace: Namespace) -> Difference:
    """The event of one difference."""
    return Difference(
        namespace=found.namespace,
        destination_namespace=destination_namespace,
        id=shown_id(found.id),
        id_bson=found.id.hex(),
        kind=found.kind,
        paths=paths(found),
    )


def shown_id(id: bytes) -> Any:
    """As JSON; None where Extended JSON would not tell it exactly."""
    shown = extended_json(id)
    return None if shown is None else json.loads(shown)


def read(place: Path) -> Iterator[Difference]:
    """The documents that a verdict names. Raises `TowpathError` when there is none, or it is not whole."""
    whole = False
    for number, found in enumerate(_lines(place), 1):
        if whole:
            raise TowpathError(f"{place}, line {number}: something follows the counts; run `towpath verify` again")
        if "clean" in found:
            whole = True
            continue
        if "command" in found:  # of options, views and indexes, which are not mended through the log
            continue
        try:
            named = event({"event": "difference", **found})  # no version before had that in it
            if not isinstance(named, Difference):
                raise BadLine("not a difference")
            bytes.fromhex(named.id_bson)
            yield named
        except ValueError as error:
            raise TowpathError(f"{place}, line {number}, is no difference: {error!r}") from error
    if not whole:
        raise TowpathError(f"{place} is not whole: its last line must hold the counts; run `towpath verify` again")


def counts(place: Path) -> dict[str, Any]:
    """The last line of a verdict."""
    lines = deque(_lines(place), maxlen=1)
    last = lines[0] if lines else {}
    if "clean" not in last:
        raise TowpathError(f"{place} is not whole: its last line must hold the counts; run `towpath verify` again")
    return last


def last(pipeline: str) -> dict[str, Any] | None:
    """The counts of a pipeline's last verdict on this machine; None when there is none."""
    place = path(pipeline)
    return counts(place) if place.exists() else None


def strike(place: Path, mended: Callable[[Namespace, bytes], bool], only: str | None = None) -> None:
    """Take out of a verdict what is the same by now, so that it names what is left.

    `only`: just if the verdict has this id, and is no later one.
    """
    with turn(place):
        if only is not None and (not place.exists() or counts(place).get("id") != only):
            return
        with state_files.writing(place) as file:
            _struck(place, file, mended)


def _struck(place: Path, file: state_files.Writing, mended: Callable[[Namespace, bytes], bool]) -> None:
    gone: Counter[str] = Counter()
    for found in _lines(place):
        if "id_bson" in found and mended(found["namespace"], bytes.fromhex(found["id_bson"])):
            gone[found["kind"]] += 1
        elif "clean" in found:
            left: dict[str, int] = {kind: found[kind] - gone[kind] for kind in KINDS}
            clean = not any(left.values()) and not found.get("metadata") and not found.get("trouble")
            file.write(as_line({**found, **left, "clean": clean, "repaired": found.get("repaired", 0) + gone.total()}))
        else:
            file.write(as_line(found))


def _lines(place: Path) -> Iterator[dict[str, Any]]:
    try:
        with place.open() as file:
            for text in file:
                found = json.loads(text)
                if not isinstance(found, dict):
                    raise ValueError(f"{text[:40]!r} is no object")
                yield found
    except FileNotFoundError as error:
        raise TowpathError(f"there is no verdict at {place}; run `towpath verify` first") from error
    except (OSError, ValueError) as error:
        raise TowpathError(f"cannot read the verdict {place}: {error}") from error


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
    def of(cls, found: verifier.Difference) -> Example:
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

    def add(self, one: verifier.Difference) -> None:
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


def figures(found: Found) -> dict[str, Any]:
    """The counts of a verdict."""
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
