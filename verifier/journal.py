"""What a run has done, on disk, so that one that was interrupted can go on: JSON lines, the plan first."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from verifier.differences import Pair
from verifier.errors import VerifierError
from verifier.ranges import Bounds
from verifier.workers import Range


@dataclass(frozen=True, slots=True)
class Done:
    """A range that needs not be read again; what differed in it has only to be looked at again."""

    number: int
    documents: int
    size: int
    read: int
    differing: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class Journal:
    """`about` says what the run compares, and how: a run goes on only with the same.

    Raises `VerifierError` when it cannot be written.
    """

    path: Path

    def begin(self, about: Mapping[str, Any], ranges: Iterable[Range]) -> None:
        with self._told():
            self.path.unlink(missing_ok=True)
            self.path.touch(mode=0o600)
        plan = [
            [
                one.number,
                one.pair.source,
                one.pair.destination,
                _hex(one.bounds.low),
                _hex(one.bounds.high),
                one.batch_size,
                one.ordered,
            ]
            for one in ranges
        ]
        self._append({"about": about, "ranges": plan})

    def done(self, one: Done) -> None:
        differing = [found.hex() for found in one.differing]
        self._append({"range": one.number, "counts": [one.documents, one.size, one.read], "differing": differing})

    def end(self) -> None:
        """Nothing is left to go on with."""
        self.path.unlink(missing_ok=True)

    def read(self, about: Mapping[str, Any]) -> tuple[list[Range], dict[int, Done]] | None:
        """The plan, and the ranges that are done; None when no run was interrupted.

        Raises `VerifierError` when it was a run of another kind.
        """
        try:
            first, *others = self.path.read_text().splitlines()
            plan = json.loads(first)
        except (FileNotFoundError, ValueError):
            return None  # none, or one that ended before its plan was written
        if plan["about"] != json.loads(json.dumps(about)):
            raise VerifierError(
                f"the run to go on with ({self.path}) compared something else, or otherwise: give it the same options,"
                " or begin anew without --resume"
            )
        ranges = [
            Range(number, Pair(source, destination), Bounds(_bytes(low), _bytes(high)), batch_size, ordered)
            for number, source, destination, low, high, batch_size, ordered in plan["ranges"]
        ]
        return ranges, {one.number: one for one in map(_done, others) if one}

    def _append(self, line: Mapping[str, Any]) -> None:
        with self._told(), self.path.open("a") as file:
            file.write(json.dumps(line) + "\n")
            file.flush()
            os.fsync(file.fileno())

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise VerifierError(
                f"cannot write {self.path}, by which a run goes on where it ended: {error.strerror}; make room there"
            ) from error


def _done(line: str) -> Done | None:
    try:
        found = json.loads(line)
    except ValueError:
        return None  # the run ended while it wrote this line
    documents, size, read = found["counts"]
    return Done(found["range"], documents, size, read, tuple(map(bytes.fromhex, found["differing"])))


def _hex(bound: bytes | None) -> str | None:
    return None if bound is None else bound.hex()


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else bytes.fromhex(text)
