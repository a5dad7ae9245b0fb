"""The result of a verification, and the file of the last verdict: JSON lines, the differences, then the counts."""

from __future__ import annotations

import json
from collections import Counter, deque
from collections.abc import Iterator, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import towpath_verifier
from towpath.config.events import BadLine, Difference, as_line, event
from towpath.errors import TowpathError
from towpath.store import state_files
from towpath.verify.scope import Metadata
from towpath_verifier import SCREENED, UNORDERED, Key, Kind, Namespace, Shown, Verdict, extended_json, id_key, readable

KINDS: tuple[Kind, ...] = ("missing", "extra", "different", "order")


def path(pipeline: str) -> Path:
    """The file of a pipeline's last verdict on this machine."""
    return state_files.folder(pipeline) / "verdict.jsonl"


@contextmanager
def locked(place: Path) -> Iterator[None]:
    """A lock for replacing or changing a verdict."""
    with state_files.locked(place.with_name(f"{place.name}.lock"), wait=True):
        yield


def difference(difference: towpath_verifier.Difference, destination_namespace: Namespace) -> Difference:
    """The event of one difference."""
    return Difference(
        namespace=difference.namespace,
        destination_namespace=destination_namespace,
        id=shown_id(difference.id),
        id_bson=difference.id.hex(),
        kind=difference.kind,
        paths=difference.paths,
    )


def shown_id(id: bytes) -> Any:
    """The `_id` as JSON; None where Extended JSON cannot express it exactly."""
    return json.loads(extended_json(id) or "null")


def read(place: Path) -> Iterator[Difference]:
    """The differences of documents in a verdict. Raises `TowpathError` when the file is missing or incomplete."""
    complete = False
    for number, line in enumerate(_lines(place), 1):
        if complete:
            raise TowpathError(f"{place}, line {number}: there is a line after the counts; run `towpath verify` again")
        complete = "clean" in line
        if complete or "command" in line:  # of options, views and indexes, which are not repaired through the log
            continue
        try:
            parsed = event({"event": "difference", **line})  # older versions wrote no "event"
            if not isinstance(parsed, Difference):
                raise BadLine("not a difference")
            bytes.fromhex(parsed.id_bson)
            yield parsed
        except ValueError as error:
            raise TowpathError(f"{place}, line {number}, is not a difference: {error!r}") from error
    if not complete:
        raise _incomplete(place)


def counts(place: Path) -> dict[str, Any]:
    """The last line of a verdict."""
    lines = deque(_lines(place), maxlen=1)
    last = lines[0] if lines else {}
    if "clean" not in last:
        raise _incomplete(place)
    return last


def _incomplete(place: Path) -> TowpathError:
    return TowpathError(f"{place} is not whole: its last line must hold the counts; run `towpath verify` again")


def last(pipeline: str) -> dict[str, Any] | None:
    """The counts of a pipeline's last verdict on this machine; None if there is none."""
    place = path(pipeline)
    return counts(place) if place.exists() else None


def remove_repaired(place: Path, repaired: Set[tuple[Namespace, Key]], only: str | None = None) -> None:
    """Remove the repaired documents from a verdict; with `only`, just if the verdict has this id."""
    with locked(place):
        if only is not None and (not place.exists() or counts(place).get("id") != only):
            return
        removed: Counter[str] = Counter()
        with state_files.writing(place) as file:
            for line in _lines(place):
                if "id_bson" in line and (line["namespace"], id_key(bytes.fromhex(line["id_bson"]))) in repaired:
                    removed[line["kind"]] += 1
                    continue
                if "clean" in line:
                    line |= {kind: line[kind] - removed[kind] for kind in KINDS}
                    differs = any(line[kind] for kind in KINDS) or line.get("metadata") or line.get("trouble")
                    line |= {"clean": not differs, "repaired": line.get("repaired", 0) + removed.total()}
                file.write(as_line(line))


def _lines(place: Path) -> Iterator[dict[str, Any]]:
    try:
        with place.open(encoding="utf-8") as file:
            for text in file:
                line = json.loads(text)
                if not isinstance(line, dict):
                    raise ValueError(f"{text[:40]!r} is not an object")
                yield line
    except FileNotFoundError as error:
        raise TowpathError(f"there is no verdict at {place}; run `towpath verify` first") from error
    except (OSError, ValueError) as error:
        raise TowpathError(f"cannot read the verdict {place}: {error}") from error


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
        if self.verdict.trouble:
            return "no verdict"
        words = [tally.verdict for tally in self.verdict.tallies]
        return next((weaker for weaker in (SCREENED, UNORDERED) if weaker in words), "same")


def figures(result: VerificationResult) -> dict[str, Any]:
    """The counts of a verdict."""
    verdict = result.verdict
    return {
        "clean": result.headline in ("same", SCREENED, UNORDERED),
        "compared": verdict.compared,
        **{kind: verdict.total(kind) for kind in KINDS},
        "metadata": None if result.metadata is None else len(result.metadata.differences),
        "held_back": None if result.metadata is None else len(result.metadata.held_back),
        "seconds": round(verdict.seconds, 3),
        "documents_per_second": round(verdict.compared / verdict.seconds) if verdict.seconds else 0,
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "since": datetime.fromtimestamp(verdict.since, UTC).isoformat(timespec="seconds"),
        "verdict": result.headline,
        "bytes_per_document": round(verdict.read / verdict.compared, 3) if verdict.compared else 0,
        "notes": [note for tally in verdict.tallies for note in tally.notes],
        "trouble": verdict.trouble,
    }
