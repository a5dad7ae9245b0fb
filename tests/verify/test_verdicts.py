"""What a verdict counts for: one life of a pipeline and its two clusters, whoever else verifies at the same time."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from tests.conftest import MakePipeline
from tests.support import control
from tests.support.awaited import until
from tests.support.pipeline import TOWPATH, Pipeline, Settings, towpath
from towpath.cutover import gate as rules
from towpath.cutover.gate import Readiness
from towpath.cutover.steps import CutoverOptions
from towpath.session import opened
from towpath.stack import Stack
from towpath.store import verdict, verdict_file

pytestmark = pytest.mark.servers

RUN_S = 120


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state" / "towpath"


def gate(pipeline: Pipeline) -> str:
    """What the cutover's gate says of the verification."""
    with opened(pipeline.file) as it:
        good, found, advice = rules.verified(Readiness(it, None, CutoverOptions(max_age=3600, newest=1, timeout=10)))
    return f"{'ok' if good else 'red'} {found} {advice}"


def verified(pipeline: Pipeline) -> list[str]:
    """What `status` says of verification."""
    lines = towpath("status", pipeline.file).stdout.splitlines()
    return [line for line in lines if line.startswith("verified")]


def filled(pipeline: Pipeline) -> None:
    pipeline.source("orders").insert_many([{"_id": number} for number in range(200)])
    pipeline.deploy()
    pipeline.wait()


@pytest.mark.nightly
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
    assert pipeline.status(expect=1)["verification"]["last"] is None
    pipeline.deploy()
    pipeline.wait()
    assert pipeline.status()["verification"]["last"] is None
    assert "same" not in "".join(verified(pipeline))
    said = gate(pipeline)
    assert said.startswith("red") and "deployed again" in said and f"towpath verify {pipeline.file}" in said
    ready = towpath("cutover", pipeline.file, "--dry-run", "--no-reverse-pipeline", expect=1).stdout
    assert [line.split()[1] for line in ready.splitlines() if line.startswith("red")] == ["verified"]
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


@pytest.mark.nightly
def test_two_verifications_at_once_both_end_with_their_verdicts(
    pipeline: Pipeline, tmp_path: Path, state: Path
) -> None:
    filled(pipeline)
    pipeline.destination("orders").insert_one({"_id": -1})
    slow = ("--alone", "--tries", "5", "--json")  # 15 s
    journal = state / pipeline.name / "verify.journal"
    with verify(pipeline, tmp_path, *slow) as first:
        until("journal of the first", journal.exists, RUN_S)
        second = towpath("verify", pipeline.file, "--json", expect=1)
        refused = towpath("verify", pipeline.file, "--resume", expect=2).stderr
        assert first.process.poll() is None, "the first still runs"
        out = first.end(expect=1)
    for said in (second.stdout, out):
        assert json.loads(said.splitlines()[-1])["extra"] == 1
    assert [one.kind for one in verdict_file.read(verdict_file.path(pipeline.name))] == ["extra"]
    for said in (second.stderr, refused):
        assert f"pid {first.process.pid}, since 2" in said


@pytest.mark.nightly
def test_what_was_compared_before_another_history_began_does_not_count(
    pipeline: Pipeline, tmp_path: Path, state: Path
) -> None:
    filled(pipeline)
    towpath("verify", pipeline.file)
    pipeline.destination("orders").insert_one({"_id": -1})
    slow, journal = ("--tries", "5"), state / pipeline.name / "verify.journal"
    words = "the destination has another history since 2"
    with opened(pipeline.file) as session:
        with verify(pipeline, tmp_path, *slow) as killed:
            until("journal", journal.exists, RUN_S)
            killed.process.kill()
            killed.process.wait()
        verdict.begin_history(pipeline.destination_client, session.pipeline, "a gap in the log was accepted")
        assert words in gate(pipeline) and "when a gap in the log was accepted" in gate(pipeline)
        refused = towpath("verify", pipeline.file, "--resume", expect=2).stderr
        assert "cannot resume the run" in refused and words in refused
        with verify(pipeline, tmp_path, "--alone", *slow) as overtaken:
            until("another journal", lambda: "a gap in" in journal.read_text(encoding="utf-8"), RUN_S)
            verdict.begin_history(pipeline.destination_client, session.pipeline, "missed deletes were accepted")
            overtaken.await_word("there is no verdict: ")
            overtaken.end(expect=2)


def test_a_verdict_is_known_on_every_machine_and_not_believed_of_a_destination_that_forgot_it(
    pipeline: Pipeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(pipeline)
    towpath("verify", pipeline.file)
    kept = pipeline.destination_client["towpath"]["verdicts"]
    old = kept.find_one({"_id": pipeline.name}) or {}
    assert (old["verdict"], old["compared"]) == ("same", 200)
    towpath("verify", pipeline.file, "-n", pipeline.namespace("orders"))
    towpath("verify", pipeline.file, "--last", "10")
    assert gate(pipeline).startswith("ok"), "one of a part takes nothing from that of everything"
    here = tmp_path / "state"
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "elsewhere"))
    assert gate(pipeline).startswith("ok")
    assert pipeline.status()["verification"]["last"]["compared"] == 200
    monkeypatch.setenv("XDG_STATE_HOME", str(here))
    kept.update_one({"_id": pipeline.name}, {"$set": {"id": "another", "since": "2020-01-01T00:00:00+00:00"}})
    assert "restored from a backup" in gate(pipeline), "it holds an older one"
    kept.delete_one({"_id": pipeline.name})
    assert "restored from a backup" in gate(pipeline)
    towpath("verify", pipeline.file)
    assert gate(pipeline).startswith("ok")
    pipeline.destination("orders").rename("before", dropTarget=True)
    pipeline.destination_client[pipeline.name]["before"].aggregate([{"$out": "orders"}])
    pipeline.destination_client[pipeline.name].drop_collection("before")
    assert "was dropped since, or is another one" in gate(pipeline), "it was restored with other collections"


@pytest.mark.nightly
def test_a_destination_that_takes_no_verdict_leaves_it_on_this_machine(pipeline: Pipeline) -> None:
    filled(pipeline)
    full = {"validator": {"$jsonSchema": {"required": ["no verdict has this"]}}}
    database = pipeline.destination_client["towpath"]
    database.command("create", "verdicts", **full) if "verdicts" not in database.list_collection_names() else (
        database.command("collMod", "verdicts", **full)
    )
    try:
        done = towpath("verify", pipeline.file)
        assert "stored on this machine only: cannot write it to towpath.verdicts" in done.stderr
        assert gate(pipeline).startswith("ok")
    finally:
        database.command("collMod", "verdicts", validator={})


@pytest.mark.nightly
def test_documents_read_again_in_part_leave_no_verdict_on_everything(pipeline: Pipeline) -> None:
    filled(pipeline)
    pipeline.source("users").insert_one({"_id": 1})
    pipeline.wait()
    pipeline.destination("orders").delete_one({"_id": 7})
    towpath("resnapshot", pipeline.file, "--only", pipeline.namespace("users"), "--yes")
    assert pipeline.status()["verification"]["last"]["of"] == f"everything of {pipeline.namespace('users')}"
    assert pipeline.status()["verification"]["full"] is None
    assert "never" in gate(pipeline)


@pytest.mark.nightly
def test_one_that_is_removed_shows_no_copy(make_pipeline: MakePipeline) -> None:
    pipeline = make_pipeline(Settings(mode="plain", copy="debezium"))
    filled(pipeline)
    towpath("remove", pipeline.file)
    found = pipeline.status(expect=1)
    assert (found["state"], found["copy"]["collections"]) == ("missing", [])
    assert "copy" not in towpath("status", pipeline.file, expect=1).stdout.split()


def missing(pipeline: Pipeline) -> int | None:
    """How many documents are missing; none while others are still to be compared."""
    follow = pipeline.status()["verification"]["follow"]
    return None if follow["waiting"] or follow["unresolved"] or follow["behind_records"] else follow["missing"]


@pytest.mark.nightly
def test_one_that_follows_keeps_to_itself_and_goes_on_where_it_was(
    pipeline: Pipeline, tmp_path: Path, state: Path
) -> None:
    filled(pipeline)
    with verify(pipeline, tmp_path, "--follow") as first:
        first.await_word("comparing documents that change")
        assert f"pid {first.process.pid}, since 2" in towpath("verify", pipeline.file, "--follow", expect=2).stderr
        assert gate(pipeline).startswith("ok")
        pipeline.destination("orders").delete_one({"_id": 3})
        pipeline.source("orders").update_one({"_id": 3}, {"$set": {"n": 1}})
        until("difference", lambda: missing(pipeline) == 1)
        full = pipeline.status()["verification"]["full"]
        assert (full["verdict"], full["clean"]) == ("same", False), "it was, when it was made"
        assert "1 difference found since" in gate(pipeline)
        first.process.kill()
        first.process.wait()
    pipeline.source("orders").insert_one({"_id": 1000})
    pipeline.wait()
    pipeline.destination("orders").delete_many({"_id": {"$in": [1000, 5]}})
    with verify(pipeline, tmp_path, "--follow") as second:
        second.await_word("continuing the `verify --follow` that ended")
        until("difference of between", lambda: missing(pipeline) == 2)
        assert {one.key[-5:-1] for one in verdict_file.read(state / pipeline.name / "follow.jsonl")} == {
            number.to_bytes(4, "little") for number in (3, 1000)
        }, "and not what no record is about: nothing else was read"
        second.process.send_signal(signal.SIGTERM)
        second.end(expect=1)
    assert "2 repaired" in towpath("repair", pipeline.file).stdout
    assert pipeline.status()["verification"]["follow"]["missing"] == 0
    assert gate(pipeline).startswith("ok")
    _ends_of_the_log(pipeline, tmp_path)


def _ends_of_the_log(pipeline: Pipeline, folder: Path) -> None:
    """Where the log no longer reaches back, everything is compared."""
    pipeline.source("orders").insert_many([{"_id": 2000 + n} for n in range(20)])
    pipeline.wait()
    admin = AdminClient({"bootstrap.servers": pipeline.addresses.bootstrap})
    topic = pipeline.topic("orders")
    ends = admin.list_offsets({TopicPartition(topic, n): OffsetSpec.latest() for n in range(4)})
    records = [
        TopicPartition(one.topic, one.partition, max(future.result().offset - 1, 0)) for one, future in ends.items()
    ]
    for future in admin.delete_records(records).values():  # the last offset is the mark of a transaction
        future.result()
    with verify(pipeline, folder, "--follow") as third:
        third.await_word("the log no longer reaches back to where it ended")
        third.await_word("comparing documents that change")
        assert pipeline.status()["verification"]["follow"]["missing"] == 1, "that no record was about"
    pipeline.destination_client["towpath"]["verdicts"].delete_one({"_id": pipeline.name})
    with verify(pipeline, folder, "--follow") as fourth:
        fourth.await_word("restored from a backup")


@pytest.mark.nightly
def test_one_that_follows_outlives_kafka_that_is_away(pipeline: Pipeline, stack: Stack, tmp_path: Path) -> None:
    filled(pipeline)
    with verify(pipeline, tmp_path, "--follow") as following:
        following.await_word("comparing documents that change")
        control.kill(stack.directory, "kafka", signal.SIGTERM)
        try:
            following.await_word("cannot reach Kafka")
        finally:
            control.start(stack.directory, "kafka")
        following.await_word("Kafka answers again")
        pipeline.source("orders").insert_one({"_id": 1000})
        pipeline.wait()
        pipeline.destination("orders").delete_one({"_id": 5})
        pipeline.source("orders").update_one({"_id": 5}, {"$set": {"n": 1}})
        until("difference", lambda: missing(pipeline) == 1)
        following.process.send_signal(signal.SIGTERM)
        following.end(expect=1)
