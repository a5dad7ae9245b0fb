"""The progress of a run on disk, from which an interrupted run can resume: JSON lines, the plan first."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

from towpath_verifier.differences import Pair
from towpath_verifier.errors import VerifierError
from towpath_verifier.ranges import Bounds
from towpath_verifier.workers import Range


@dataclass(frozen=True, slots=True)
class FinishedRange:
    """A finished range; a resumed run re-reads only the documents that differed in it."""

    number: int
    documents: int
    size: int
    read: int
    differing: tuple[bytes, ...]
    """BSON `{_id: …}` of each."""


@dataclass(frozen=True, slots=True)
class Journal:
    """The file. `about` identifies what a run compares, and how; only a run with the same `about` can resume it.

    `since` is when the first run began, in seconds since the epoch: a verdict is as old as the oldest range.

    Raises `VerifierError` when the file cannot be written.
    """

    path: Path

    def begin(self, about: Mapping[str, Any], since: float, ranges: Iterable[Range]) -> None:
        with self._writing():
            self.path.unlink(missing_ok=True)
            self.path.touch(mode=0o600)
        plan = [
            (work.number, *astuple(work.pair), *map(_hex, astuple(work.bounds)), work.batch_size, work.ordered)
            for work in ranges
        ]
        self._append({"about": about, "since": since, "ranges": plan})

    def add(self, finished: FinishedRange) -> None:
        counts, differing = (finished.documents, finished.size, finished.read), [id.hex() for id in finished.differing]
        self._append({"range": finished.number, "counts": counts, "differing": differing})

    def end(self) -> None:
        """Remove the file: the run is complete."""
        self.path.unlink(missing_ok=True)

    def about(self) -> Mapping[str, Any] | None:
        """What the interrupted run compares; None if no run was interrupted."""
        plan = self._read()
        return plan[0]["about"] if plan else None

    def read(self, about: Mapping[str, Any]) -> tuple[float, list[Range], dict[int, FinishedRange]] | None:
        """When it began, the plan, and the finished ranges by number; None if no run was interrupted.

        Raises `VerifierError` when the interrupted run compared something else, or in another way.
        """
        lines = self._read()
        if lines is None:
            return None
        plan, others = lines
        if plan["about"] != json.loads(json.dumps(about)):
            raise VerifierError(
                f"cannot resume the run in {self.path}: it compared something else, or with other options",
                "use the same options, or start again without resume",
                where=str(self.path),
            )
        ranges = [
            Range(number, Pair(source, destination), Bounds(_bytes(low), _bytes(high)), batch_size, ordered)
            for number, source, destination, low, high, batch_size, ordered in plan["ranges"]
        ]
        return plan["since"], ranges, {finished.number: finished for finished in map(_finished, others) if finished}

    def _read(self) -> tuple[dict[str, Any], list[str]] | None:
        """The first line, and the others as text."""
        try:
            first, *others = self.path.read_text(encoding="utf-8").splitlines()
            return json.loads(first), others
        except (FileNotFoundError, ValueError):
            return None  # no file, or the run ended before it had written its plan

    def _append(self, line: Mapping[str, Any]) -> None:
        with self._writing(), self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
            file.flush()
            os.fsync(file.fileno())

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            what = f"cannot write the journal {self.path}: {error.strerror}"
            raise VerifierError(what, "make room there", where=str(self.path)) from error


def _finished(line: str) -> FinishedRange | None:
    try:
        entry = json.loads(line)
    except ValueError:
        return None  # the run ended while it wrote this line
    documents, size, read = entry["counts"]
    return FinishedRange(entry["range"], documents, size, read, tuple(map(bytes.fromhex, entry["differing"])))


def _hex(bound: bytes | None) -> str | None:
    return None if bound is None else bound.hex()


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else bytes.fromhex(text)
