"""`towpath cutover` while it runs."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.support import schema
from tests.support.acknowledged import AcknowledgedWriter
from tests.support.awaited import until
from tests.support.pipeline import TOWPATH, Pipeline
from towpath_verifier.descriptions import described

PATIENCE_S = 240
_LIMITS = ("--last", "20000", "--max-pause", "2m", "--max-lag", "60")  # of machines that have more to do


class Cutover:
    """A `towpath cutover --json` and what it has told."""

    def __init__(self, pipeline: Pipeline, folder: Path, *options: str) -> None:
        self._errors = folder / f"cutover-{datetime.now(UTC):%H%M%S%f}.err"
        with self._errors.open("w") as errors:
            command: list[str | Path] = [TOWPATH, "cutover", pipeline.file, "--json", *_LIMITS, *options]
            pipe = subprocess.PIPE
            self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=errors, text=True)
        self.told: list[dict[str, Any]] = []

    def until(self, wanted: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Read on until it has told that. Fails with all that it said when it ends before."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            schema.refuse(("cutover", "--json"), line)
            self.told.append(json.loads(line))
            if wanted(self.told[-1]):
                return self.told[-1]
        raise AssertionError(f"ended with {self.process.wait()}: {self.told}\n{self._errors.read_text()}")

    def event(self, kind: str) -> dict[str, Any]:
        return self.until(lambda one: one["event"] == kind)

    def at(self, step: str) -> None:
        """Return once it is at that step."""
        until(f"the step {step!r}", lambda: f"{step} …" in self._errors.read_text(), PATIENCE_S, 0.05)

    def answer(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def ended(self, expect: int) -> list[dict[str, Any]]:
        assert self.process.stdout is not None
        self.told += [json.loads(line) for line in self.process.stdout]
        status, said = self.process.wait(PATIENCE_S), self._errors.read_text()
        assert status == expect, f"ended with {status}, not {expect}: {self.told}\n{said}"
        assert "Traceback" not in said, said
        return self.told


@contextmanager
def cutover(pipeline: Pipeline, folder: Path, *options: str) -> Iterator[Cutover]:
    running = Cutover(pipeline, folder, *options)
    try:
        yield running
    finally:
        running.process.kill()
        running.process.wait()


def fail_back(pipeline: Pipeline, folder: Path, writer: AcknowledgedWriter, *options: str) -> None:
    """The writer stops when it is asked to, and continues at the source."""
    with cutover(pipeline, folder, "--back", *options) as running:
        running.event("stop writes")
        writer.pause()
        running.answer()
        assert running.event("switch")["primary"] == "source"
        writer.send(pipeline.source_client)
        running.ended(0)


def indexes(pipeline: Pipeline, client: Any) -> dict[str, Any]:
    found = described(client, [pipeline.namespace(name) for name in ("orders", "users")])
    return {namespace: dict(one.indexes) for namespace, one in found.items()}
