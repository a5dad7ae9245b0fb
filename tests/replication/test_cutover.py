"""`towpath cutover`: no acknowledged write is lost or done twice, there and back, and whatever ends it half-way."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.support.acknowledged import AcknowledgedWriter
from tests.support.awaited import until
from tests.support.pipeline import TOWPATH, Pipeline, towpath
from verifier.described import described

_PATIENCE_S = 240


class Cutover:
    """A `towpath cutover --json` and what it has told."""

    def __init__(self, pipeline: Pipeline, folder: Path, *options: str) -> None:
        self._errors = folder / f"cutover-{datetime.now(UTC):%H%M%S%f}.err"
        with self._errors.open("w") as errors:
            command = [TOWPATH, "cutover", pipeline.file, "--json", "--last", "20000", *options]
            pipe = subprocess.PIPE
            self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=errors, text=True)
        self.told: list[dict[str, Any]] = []

    def until(self, wanted: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Read on until it has told that. Fails with all that it said when it ends before."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.told.append(json.loads(line))
            if wanted(self.told[-1]):
                return self.told[-1]
        raise AssertionError(f"ended with {self.process.wait()}: {self.told}\n{self._errors.read_text()}")

    def event(self, kind: str) -> dict[str, Any]:
        return self.until(lambda one: one["event"] == kind)

    def answer(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def ended(self, expect: int) -> list[dict[str, Any]]:
        assert self.process.stdout is not None
        self.told += [json.loads(line) for line in self.process.stdout]
        status, said = self.process.wait(_PATIENCE_S), self._errors.read_text()
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


@contextmanager
def written(pipeline: Pipeline, per_second: int) -> Iterator[AcknowledgedWriter]:
    """A deployed pipeline, verified, with a unique index, one with TTL, and a writer at its source."""
    source = pipeline.source_client
    writer = AcknowledgedWriter(source, pipeline.name, "orders", per_second=per_second)
    writer.fill()
    orders, users = pipeline.source("orders"), pipeline.source("users")
    orders.create_index("until", name="expired", expireAfterSeconds=3600)
    users.insert_many([{"_id": n, "email": f"e{n}"} for n in range(100)])
    users.create_index("email", name="by email", unique=True)
    pipeline.deploy()
    pipeline.wait()
    towpath("prepare", pipeline.file)
    towpath("verify", pipeline.file)
    with writer:
        yield writer
    remove_back(pipeline)


def remove_back(pipeline: Pipeline) -> None:
    back = pipeline.file.with_name(f"{pipeline.file.stem}-back.toml")
    if back.exists():
        towpath("remove", back, "--topics", "--yes")


def indexes(pipeline: Pipeline, client: Any) -> dict[str, Any]:
    found = described(client, [pipeline.namespace(name) for name in ("orders", "users")])
    return {namespace: dict(one.indexes) for namespace, one in found.items()}


def test_there_and_back_without_loss(pipeline: Pipeline, tmp_path: Path) -> None:
    source, destination = pipeline.source_client, pipeline.destination_client
    report = tmp_path / "cutover.html"
    with written(pipeline, per_second=1000) as writer:
        form = indexes(pipeline, source)
        with cutover(pipeline, tmp_path, "--block-writes", "--report", str(report)) as there:
            switch = there.event("switch")
            writer.send(destination)
            end = there.ended(0)[-1]
        assert switch["primary"] == "destination" and "--back" in end["words"]
        assert indexes(pipeline, destination) == form
        print(f"writes had stopped for {writer.gaps} s; the tool says {switch['pause_seconds']} s")
        assert "the destination is primary" in report.read_text()
        writer.wait_for_more(500)
        assert "its sink must stay stopped" in towpath("resume", pipeline.file, expect=2).stderr
        assert pipeline.status(expect=1)["cutover"]["state"] == "over"
        with cutover(pipeline, tmp_path, "--back") as back:
            back.event("stop writes")
            writer.pause()
            back.answer()
            assert back.event("switch")["primary"] == "source"
            writer.send(source)
            back.ended(0)
        writer.wait_for_more(200)
    writer.assert_all_at(source)
    pipeline.wait()
    pipeline.assert_same("orders", "users", at_least=300)
    assert indexes(pipeline, source) == form
    assert pipeline.status()["cutover"] is None
