"""What a verdict counts for: one life of a pipeline and its two clusters, whoever else verifies meanwhile."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.awaited import until
from tests.support.pipeline import TOWPATH, Pipeline, towpath
from towpath import verdicts

RUN_S = 120


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state" / "towpath"


def gate(pipeline: Pipeline) -> str:
    """What the cutover's gate says of the verification."""
    done = subprocess.run(
        [TOWPATH, "cutover", pipeline.file, "--dry-run", "--no-way-back"], capture_output=True, text=True, check=False
    )
    lines = done.stdout.splitlines()
    place = next(place for place, line in enumerate(lines) if line.split()[1:2] == ["verified"])
    assert lines[place].startswith("ok") or done.returncode == 1, lines
    return " ".join(lines[place : place + 2])


def verified(pipeline: Pipeline) -> list[str]:
    """What `status` says of verification."""
    lines = towpath("status", pipeline.file).stdout.splitlines()
    return [line for line in lines if line.startswith("verified")]


def filled(pipeline: Pipeline) -> None:
    pipeline.source("orders").insert_many([{"_id": number} for number in range(200)])
    pipeline.deploy()
    pipeline.wait()


def test_a_verdict_counts_for_one_life_of_a_pipeline_and_its_two_clusters(pipeline: Pipeline) -> None:
    filled(pipeline)
    towpath("verify", pipeline.file)
    assert "same: 200 documents, everything" in "".join(verified(pipeline))
    assert gate(pipeline).startswith("ok")
    swapped = replace(
        pipeline,
        addresses=replace(
            pipeline.addresses, source=pipeline.addresses.destination, destination=pipeline.addresses.source
        ),
    )
    swapped.write()
    assert "same" not in "".join(verified(swapped))
    assert "the source was" in "".join(verified(swapped))
    assert gate(swapped).startswith("red")
    pipeline.write()
    assert gate(pipeline).startswith("ok"), "nothing is forgotten by looking"
    towpath("remove", pipeline.file, "--topics", "--yes")
    assert pipeline.status(expect=1)["last_verdict"] is None
    pipeline.deploy()
    pipeline.wait()
    assert pipeline.status()["last_verdict"] is None
    assert "same" not in "".join(verified(pipeline))
    said = gate(pipeline)
    assert said.startswith("red") and "deployed anew" in said and f"towpath verify {pipeline.file}" in said
    towpath("verify", pipeline.file)
    assert gate(pipeline).startswith("ok")


class Verify:
    """A `towpath verify` that runs beside the test."""

    def __init__(self, pipeline: Pipeline, folder: Path, *options: str) -> None:
        self._err = folder / f"verify-{len(list(folder.iterdir()))}.err"
        with self._err.open("w") as errors:
            command = [str(TOWPATH), "verify", str(pipeline.file), *options]
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True)

    def said(self) -> str:
        return self._err.read_text()

    def await_word(self, words: str) -> None:
        until(f"word of {words!r}", lambda: words in self.said() or self.process.poll() is not None, RUN_S)
        assert words in self.said(), self.said()

    def end(self, expect: int) -> str:
        out, _ = self.process.communicate(timeout=RUN_S)
        assert self.process.returncode == expect, f"ended with {self.process.returncode}: {out}\n{self.said()}"
        return out


@contextmanager
def verify(pipeline: Pipeline, folder: Path, *options: str) -> Iterator[Verify]:
    running = Verify(pipeline, folder, *options)
    try:
        yield running
    finally:
        running.process.kill()
        running.process.wait()


def test_two_verifications_at_once_both_end_with_their_verdicts(
    pipeline: Pipeline, tmp_path: Path, state: Path
) -> None:
    filled(pipeline)
    pipeline.destination("orders").insert_one({"_id": -1})
    slow = ("--alone", "--first", "4", "--factor", "1", "--tries", "2", "--json")
    journal = state / pipeline.name / "verify.journal"
    with verify(pipeline, tmp_path, *slow) as first:
        until("journal of the first", journal.exists, RUN_S)
        second = towpath("verify", pipeline.file, "--json", expect=1)
        assert first.process.poll() is None, "the first still runs"
        out = first.end(expect=1)
    for said in (second.stdout, out):
        assert json.loads(said.splitlines()[-1])["extra"] == 1
    assert [one.kind for one in verdicts.read(verdicts.path(pipeline.name))] == ["extra"]
    assert f"pid {first.process.pid}" in second.stderr
