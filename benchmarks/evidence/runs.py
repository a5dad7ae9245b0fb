"""Runs of `scripts/soak`: of the plugin as it is, and of one with a planted fault; and what they have shown."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, BinaryIO, Literal

from benchmarks.evidence.planted import ROOT, Planted
from benchmarks.soak.faults import FAULTS
from towpath.stack import StackError

_LEEWAY = 40.0  # minutes, of a last round that waits for what does not come
_MOST = 60.0  # minutes, after which no round of a planted fault begins
_STOPS_S = 60.0  # in which a soak stops its stack
_SHOWN = 200
_HITS = 5  # of a pair: more than a night gives
Verdict = Literal["noticed", "survived", "could not run", "not run"]


@dataclass(frozen=True, slots=True)
class Soak:
    """A run of `scripts/soak`."""

    command: str
    ended: int | None
    """Its exit code; None if it was stopped because it did not end."""
    seconds: int
    rounds: Sequence[dict[str, Any]]

    @property
    def failed(self) -> str:
        """What the first round that failed has said; empty if none has."""
        return next((str(one["failed"]) for one in self.rounds if "failed" in one), "")


@dataclass(frozen=True, slots=True)
class Tried:
    """What became of a planted fault."""

    name: str
    file: str
    pair: tuple[str, str]
    verdict: Verdict
    rounds: int = 0
    by: str = ""
    """What the round that failed has said."""
    command: str = ""
    seconds: int = 0


def suite(place: Path, seed: int, minutes: float) -> Soak:
    """All stacks, for so many minutes: of the pairs of a fault and a state, those come next that were hit least."""
    words = ["--minutes", f"{minutes:g}", "--matrix", str(_HITS), "--keep-going"]
    return soak(place / "suite", seed, words, minutes)


def tried(wanted: Iterable[Planted], place: Path, seed: int, rounds: int, end: float) -> Iterator[Tried]:
    """Each fault in its turn, and before the first one of a pair, a round of that pair without one.

    `end` is on the monotonic clock: none begins after it.
    """
    controls: dict[tuple[str, str], Soak] = {}
    random = Random(seed)
    for number, planted in enumerate(wanted):
        folder, own = place / f"planted-{number}", random.randrange(2**31)
        if time.monotonic() >= end:
            yield Tried(planted.name, planted.file, planted.pair, "not run")
            continue
        if planted.pair not in controls:
            controls[planted.pair] = soak(folder / "control", own, _options(planted, 1), _MOST)
        control = controls[planted.pair]
        if control.ended == 0:
            yield _tried(planted, folder, own, rounds)
        else:
            why = control.failed or f"the soak ended with {control.ended}"
            yield _of(planted, control, "could not run", f"without the fault as well: {why}")


def _tried(planted: Planted, folder: Path, seed: int, rounds: int) -> Tried:
    try:
        plugins = planted.build(folder / "built")
    except StackError as error:
        return Tried(planted.name, planted.file, planted.pair, "could not run", by=_short(str(error)))
    try:
        words = [*_options(planted, rounds), "--plugins", str(plugins)]
        return judged(planted, soak(folder / "soak", seed, words, _MOST))
    finally:
        shutil.rmtree(folder / "built")


def judged(planted: Planted, run: Soak) -> Tried:
    """What a soak of a plugin with a fault has shown."""
    if run.failed:
        return _of(planted, run, "noticed", run.failed)
    if run.ended == 0 and run.rounds:
        return _of(planted, run, "survived", "")
    return _of(planted, run, "could not run", f"the soak ended with {run.ended}, after {len(run.rounds)} rounds")


def _of(planted: Planted, run: Soak, verdict: Verdict, by: str) -> Tried:
    count = len(run.rounds)
    return Tried(planted.name, planted.file, planted.pair, verdict, count, _short(by), run.command, run.seconds)


def _short(words: str) -> str:
    return " ".join(words.split())[:_SHOWN]


def _options(planted: Planted, rounds: int) -> list[str]:
    fault, state = planted.pair
    pair = ["--shape", FAULTS[fault].shape, "--fault", fault, "--state", state, "--strikes", "1"]
    return [*pair, "--large-bytes", "2000000", "--rounds", str(rounds), "--minutes", f"{_MOST:g}"]


def soak(folder: Path, seed: int, words: Sequence[str], minutes: float) -> Soak:
    """Run it, with all that it makes in this folder. It is stopped if it takes far longer than these minutes."""
    folder.mkdir(parents=True)
    hits, begun = folder / "hits.json", time.monotonic()
    options = ["--seed", str(seed), *words]
    command = [sys.executable, "-m", "benchmarks.soak", *options, "--hits", str(hits)]
    with (folder / "log").open("wb") as log, _ending(command, log, folder) as process:
        try:
            ended: int | None = process.wait(60 * (minutes + _LEEWAY))
        except subprocess.TimeoutExpired:
            ended = None
    rounds = json.loads(hits.read_text(encoding="utf-8"))["runs"] if hits.exists() else []
    return Soak(shlex.join(["scripts/soak", *options]), ended, round(time.monotonic() - begun), rounds)


@contextmanager
def _ending(command: Sequence[str], log: BinaryIO, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The process of a command, which ends with the `with` at the latest, and stops what it has started."""
    own = os.environ | {"TMPDIR": str(folder)}
    with subprocess.Popen(command, cwd=ROOT, env=own, stdout=log, stderr=subprocess.STDOUT) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGINT)
                try:
                    process.wait(_STOPS_S)
                except subprocess.TimeoutExpired:
                    process.kill()  # its guard ends the servers
