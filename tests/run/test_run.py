"""`towpath run`: what fails is restarted, dead letters are repaired, and its own death loses nothing."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
from confluent_kafka import Consumer

from tests.conftest import MakePipeline
from tests.support import schema
from tests.support.awaited import until
from tests.support.pipeline import TOWPATH, Pipeline, Settings, towpath
from towpath.clients.kafka import consume
from towpath.clients.kafka.topics import Topics
from towpath.config.loading import read
from towpath.errors import TopicError
from towpath.log.dead_letters import letters

pytestmark = pytest.mark.servers

KEEPS = "[log]\ncompact = true\n[run]\nverify = true"
REFUSING = {"refused": {"$exists": False}}


class Running:
    """A `towpath run --json` and what it has told."""

    def __init__(self, process: subprocess.Popen[bytes], out: Path) -> None:
        self.process, self._out = process, out

    def told(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self._out.read_text().splitlines() if line.endswith("}")]

    def await_word(self, words: str, timeout: float = 120) -> dict[str, Any]:
        return until(f"word of {words!r} in {self._out}", lambda: self._with(words), timeout)

    def _with(self, words: str) -> dict[str, Any] | None:
        return next((event for event in self.told() if words in event["words"]), None)

    def children(self) -> list[psutil.Process]:
        return psutil.Process(self.process.pid).children()


@contextmanager
def running(pipeline: Pipeline, folder: Path, name: str, *options: str) -> Iterator[Running]:
    out = folder / name
    with out.open("w") as stream, (folder / f"{name}.err").open("w") as errors:
        process = subprocess.Popen([TOWPATH, "run", pipeline.file, "--json", *options], stdout=stream, stderr=errors)
        try:
            yield Running(process, out)
        finally:
            process.kill()
            process.wait()
    errors_told = (folder / f"{name}.err").read_text().splitlines()
    assert [line for line in errors_told if not line.startswith("serving http")] == []
    schema.refuse(("run", "--json"), out.read_text().rpartition("\n")[0])


def test_a_supervisor_restarts_repairs_verifies_and_survives(make_pipeline: MakePipeline, tmp_path: Path) -> None:
    pipeline = make_pipeline(Settings(partitions=1, extra=KEEPS))
    pipeline.source("a").insert_many([{"_id": n} for n in range(100)])
    pipeline.write()
    assert f"towpath deploy {pipeline.file}" in towpath("run", pipeline.file, expect=2).stderr
    pipeline.deploy()
    with running(pipeline, tmp_path, "first") as first:
        children = until("compact and verify", lambda: len(first.children()) == 2 and first.children())
        assert f"pid {first.process.pid}" in towpath("run", pipeline.file, expect=2).stderr
        os.kill(first.process.pid, signal.SIGKILL)
        until("end of what it had started", lambda: not any(map(psutil.Process.is_running, children)))
    with running(pipeline, tmp_path, "second") as second:
        refuse_and_accept(pipeline, second)
        until("verdict without differences", lambda: clean(pipeline))
        second.process.terminate()
        assert second.process.wait(60) == 0, second.told()[-1]
        end = second.told()[-1]
    assert (end["event"], end["exit"], end["dead_letters"], end["state"]) == ("end", 0, 0, "running")
    assert end["restarts"][f"{pipeline.name}-sink"] >= 1
    pipeline.assert_same("a", at_least=400)


class Deaf(Topics):
    """The stack's topics, and consumers to which nothing answers."""

    def consumer(self, **settings: Any) -> Consumer:
        return Topics("127.0.0.1:1").consumer(**settings)


def test_dead_letters_of_a_silent_broker_hold_nothing_up(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    topics = Deaf(pipeline.addresses.bootstrap)
    name = f"{pipeline.name}.dead-letters"
    topics.create([name], 1, 1, {})
    producer = topics.producer()
    producer.produce(name, b"of someone else")
    assert producer.flush(60) == 0
    monkeypatch.setattr(consume, "_PATIENCE", 0.5)
    with pytest.raises(TopicError, match=f"no answer from Kafka for 0 s when reading {name}"):
        list(letters(read(pipeline.write()), topics, follow=False))
    heard = letters(read(pipeline.file), Topics(pipeline.addresses.bootstrap), follow=False)
    assert [(one.at, one.value) for one in heard] == [(0, b"of someone else")]


@pytest.mark.nightly
def test_documents_that_someone_removed_are_dead_letters_until_run_rereads_them(
    pipeline: Pipeline, tmp_path: Path
) -> None:
    pipeline.source("a").insert_many([{"_id": n} for n in range(20)])
    pipeline.deploy()
    pipeline.wait()
    pipeline.destination("a").delete_many({"_id": {"$in": [3, 7]}})
    for value in range(3):
        pipeline.source("a").update_many({}, {"$set": {"x": value}})
    pipeline.wait()
    found = pipeline.status()
    assert (found["state"], found["dead_letters"]) == ("running", 2)
    (cause,) = found["dead_letter_causes"]
    assert cause["reason"].startswith("TWP-DOCUMENT-GONE: an update was not applied"), cause
    with running(pipeline, tmp_path, "run") as run:
        run.await_word("TWP-DOCUMENT-GONE")
        until("all documents", lambda: pipeline.destination("a").count_documents({"x": 2}) == 20)
    pipeline.source("a").update_many({}, {"$set": {"x": 3}})
    pipeline.wait()
    pipeline.assert_same("a", at_least=20)
    assert pipeline.status()["dead_letters"] == 2


def refuse_and_accept(pipeline: Pipeline, run: Running) -> None:
    """The destination refuses two documents, then so many that the sink stops, and takes all of them again."""
    run.await_word("comparing documents that change")
    destination = pipeline.destination_client[pipeline.name]
    destination.command({"collMod": "a", "validator": REFUSING})
    pipeline.source("a").update_many({"_id": {"$lt": 2}}, {"$set": {"refused": True}})
    run.await_word(f" of {pipeline.name}.a: Document failed validation (121)")
    until("two refused documents", lambda: [one for one in run.told() if one["event"] == "repair" and one["left"] == 2])
    pipeline.source("a").insert_many([{"_id": 1000 + n, "refused": True} for n in range(300)])
    run.await_word(f"{pipeline.name}-sink failed: ")
    run.await_word("(restart 1)")
    destination.command({"collMod": "a", "validator": {}})
    run.await_word(f"{pipeline.name}-sink runs again")
    until("repair of all", lambda: [one for one in run.told() if one["event"] == "repair" and not one["left"]], 90)


def clean(pipeline: Pipeline) -> bool:
    found = pipeline.status()
    follow = found["verification"]["follow"]
    left = ("missing", "different", "extra", "waiting", "unresolved", "behind_records")
    return found["state"] == "running" and not any(follow[name] for name in left)
