"""`towpath takeover`: the source is killed, and the destination has what the source had at one point in time."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import httpx
import pytest
from bson import Timestamp
from pymongo import MongoClient

from tests.conftest import MakePipeline
from tests.support import bank, control, fuzz, mongod, raw, rest, workers
from tests.support.awaited import until
from tests.support.bank import Bank
from tests.support.pipeline import TOWPATH, Pipeline, Settings, towpath
from tests.support.started import started
from towpath.clients.mongo.client import cluster_time
from towpath.stack import Stack
from towpath.store import state_files
from towpath_verifier import described

pytestmark = pytest.mark.servers


def kill_during(command: list[str | Path], stack: Stack, part: str, step: str, within: float) -> None:
    """Kill a part of the stack, or the command itself, once it has told this step; it ends `within` seconds."""
    with started(command, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        next(line for line in running.stdout if f'"{step}"' in line)
        if part == "tool":
            running.kill()
        else:
            control.restart(stack.directory, part, signal.SIGKILL)
        running.stdout.read()
        print(f"it ended with {running.wait(within)}")


@contextmanager
def lost(stack: Stack) -> Iterator[None]:
    """The source is killed, and started again at the end."""
    control.kill(stack.directory, "source-0", signal.SIGKILL)
    try:
        yield
    finally:
        control.start(stack.directory, "source-0")


def out_of_reach(pipeline: Pipeline) -> Path:
    """Its file with an address of the source at which nothing answers, as behind a firewall."""
    file, address = pipeline.file.with_name("out-of-reach.toml"), pipeline.addresses.source.partition("?")[0]
    file.write_text(pipeline.file.read_text().replace(address, re.sub(r":\d+/", ":1/", address)))
    file.chmod(0o600)
    return file


def prepared(make_pipeline: MakePipeline) -> Pipeline:
    pipeline = make_pipeline(Settings(partitions=4))
    bank.fill(pipeline.source_client[pipeline.name])
    pipeline.source("north").create_index("until", name="expired", expireAfterSeconds=3_600)
    pipeline.deploy()
    pipeline.wait()
    towpath("prepare", pipeline.file)
    towpath("verify", pipeline.file)
    return pipeline


def indexes(pipeline: Pipeline, client: raw.Client) -> dict[str, dict[str, Any]]:
    found = described(client, [pipeline.namespace(name) for name in (*bank.BANKS, "journal")])
    return {namespace: dict(one.indexes) for namespace, one in found.items()}


def events(stdout: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stdout.splitlines()]


@pytest.mark.parametrize("run", range(fuzz.TIMES))
def test_every_transaction_is_there_whole_or_not_at_all(
    make_pipeline: MakePipeline, stack: Stack, seed: int, run: int
) -> None:
    pipeline, random = prepared(make_pipeline), Random(seed + run)
    form = indexes(pipeline, pipeline.source_client)
    if run == 0:
        refused = towpath("takeover", pipeline.file, expect=1)
        assert "the source answers" in refused.stdout and "--source-is-lost" in refused.stdout
        refused = towpath("takeover", out_of_reach(pipeline), expect=1)
        assert "the source answers Connect's workers" in refused.stdout
        assert pipeline.status()["cutover"] is None
    with Bank(pipeline.addresses.source, pipeline.name, seed + run) as transfers:
        replicated = pipeline.destination("journal")
        until("replicated transfers", lambda: replicated.estimated_document_count() > 100)
        time.sleep(random.random())
        with lost(stack):
            killed = time.monotonic()
            said = ["--source-is-lost"] if run else []
            told = events(towpath("takeover", pipeline.file, "--json", *said).stdout)
            seconds = time.monotonic() - killed
            print([(one["step"], one["seconds"]) for one in told if one["event"] == "step"])
            end = told[-1]
            marker = pipeline.status(expect=1)["cutover"]
            assert marker["state"] == "destination primary" and marker["is_takeover"], marker
            point = cluster_time(marker["cluster_time"])
            assert f"before the source's cluster time {point}" in end["words"], end
            at = Timestamp(point.seconds, point.ordinal)
            count = bank.assert_whole(pipeline.destination_client[pipeline.name], transfers.acknowledged, at)
            assert indexes(pipeline, pipeline.destination_client) == form
            assert "must stay stopped" in towpath("resume", pipeline.file, expect=2).stderr
    assert "must stay stopped" in towpath("deploy", pipeline.file, expect=2).stderr
    print(f"{count} of {len(transfers.acknowledged)} transfers are there; it took {seconds:.1f} s from the kill")
    assert count > 100
    assert "the destination took over at" in towpath("takeover", pipeline.file).stdout
    undone = towpath("takeover", pipeline.file, "--undo", expect=2)
    assert "cannot be undone" in undone.stderr


@pytest.mark.nightly
def test_a_drill_changes_nothing_and_tells_what_a_takeover_would_give(
    make_pipeline: MakePipeline, tmp_path: Path, seed: int
) -> None:
    pipeline = prepared(make_pipeline)
    with (
        mongod.start_replica_set(tmp_path / "scratch", name="scratch") as scratch,
        MongoClient[dict[str, Any]](scratch.uri) as client,
        Bank(pipeline.addresses.source, pipeline.name, seed) as transfers,
    ):
        until("transfers", lambda: len(transfers.acknowledged) > 100)
        before = pipeline.status()["connectors"]
        drill = ("takeover", pipeline.file, "--drill", "--destination", scratch.uri)
        found = json.loads(towpath(*drill, "--json").stdout)
        print(found)
        assert found["whole"] and not found["differences"] and found["documents"] > 200, found
        assert found["recovery_seconds"] < 30
        at = cluster_time(found["cluster_time"])
        bank.assert_whole(client[pipeline.name], transfers.acknowledged, Timestamp(at.seconds, at.ordinal))
        assert pipeline.status()["connectors"] == before and pipeline.status()["cutover"] is None
        assert indexes(pipeline, client) == indexes(pipeline, pipeline.source_client)
        assert "--empty" in towpath(*drill, expect=2).stderr
        shown = towpath(*drill, "--empty", "--yes").stdout
    print(shown)
    assert "the same as the source at that time" in shown and "would have been lost" in shown
    assert "belong to --drill" in towpath("takeover", pipeline.file, "--destination", scratch.uri, expect=2).stderr
    pipeline.wait()
    towpath("verify", pipeline.file)


UNCAPTURED = 500


def taken_over(pipeline: Pipeline, stack: Stack) -> None:
    """Some documents of the source were never captured, and the new primary has others of its own."""
    old, new = pipeline.source("journal"), pipeline.destination("journal")
    old.insert_many({"_id": number, "number": -number, "text": "old"} for number in range(-200, 0))
    pipeline.wait()
    capture = f"{pipeline.addresses.connect}/connectors/{pipeline.name}-source"
    httpx.put(f"{capture}/pause", timeout=90).raise_for_status()
    until("the capture is paused", lambda: rest.get(f"{capture}/status").json()["connector"]["state"] == "PAUSED")
    old.insert_many({"_id": number, "number": number, "text": "never captured"} for number in range(10_000, 10_300))
    old.update_many({"_id": {"$lt": -100}}, {"$set": {"text": "never captured"}})
    old.delete_many({"_id": {"$gte": -100, "$lt": 0}})
    with lost(stack):
        towpath("takeover", pipeline.file, "--source-is-lost")
        assert "red  source" in towpath("takeover", pipeline.file, "--return", "--yes", expect=1).stdout
        new.insert_many({"_id": number, "number": number, "text": "new"} for number in range(20_000, 20_100))
        new.update_many({"_id": {"$in": [-1, -199]}}, {"$set": {"text": "new"}})
    until("the source answers", lambda: old.find_one() is not None)


def overwritten(pipeline: Pipeline) -> dict[int, dict[str, Any]]:
    """The newest file of a return, by `_id`."""
    newest = max(state_files.folder(pipeline.name).glob("old-source-*"))
    lines = [json.loads(line) for line in newest.read_text().splitlines()]
    found = {int(next(iter(line["id"]["_id"].values()))): line for line in lines}
    assert len(found) == len(lines)
    return found


@pytest.mark.nightly
def test_an_old_source_returns_and_nothing_that_it_had_alone_is_lost(make_pipeline: MakePipeline, stack: Stack) -> None:
    """What was never captured is in the file; then both sides are equal, and a fail back is clean."""
    pipeline = prepared(make_pipeline)
    file, old, new = pipeline.file, pipeline.source("journal"), pipeline.destination("journal")
    assert "there was no takeover" in towpath("takeover", file, "--return", "--yes", expect=2).stderr
    taken_over(pipeline, stack)
    command = [TOWPATH, "takeover", file, "--return"]
    declined = subprocess.run(command, input="n\n", capture_output=True, text=True, timeout=300, check=False)
    assert declined.returncode == 1 and "not done: declined" in declined.stdout, declined
    words = "300 documents of the old source would be written, and 300 deleted; 500 of all were never captured"
    assert words in declined.stderr, declined.stderr
    assert pipeline.status(expect=1)["cutover"]["is_takeover"] and old.count_documents({"_id": {"$gte": 20_000}}) == 0
    told = events(towpath("takeover", file, "--return", "--yes", "--json").stdout)
    print(declined.stdout, [(one["step"], one["seconds"]) for one in told if one["event"] == "step"])
    versions = overwritten(pipeline)
    assert len([one for one in versions.values() if one["never_captured"]]) == UNCAPTURED
    assert versions[10_000]["new_primary"] is None
    assert versions[10_000]["old_source"]["text"] == "never captured"
    assert versions[-1]["old_source"] is None and versions[-1]["new_primary"]["text"] == "new"
    assert versions[-199]["old_source"]["text"] == "never captured" and versions[-199]["new_primary"]["text"] == "new"
    back = file.with_name(f"{file.stem}-back.toml")
    towpath("verify", back)
    new.insert_one({"_id": 30_000, "number": 30_000})
    towpath("wait", back)
    assert old.find_one({"_id": 30_000})
    marker = pipeline.status(expect=1)["cutover"]
    assert not marker["is_takeover"] and marker["has_reverse_pipeline"]
    assert "there was no takeover" in towpath("takeover", file, "--return", "--yes", expect=2).stderr
    towpath("cutover", file, "--back", "--stop-with", "true", "--max-pause", "2m")
    old.insert_one({"_id": 40_000, "number": 40_000})
    pipeline.wait()
    towpath("verify", file)
    assert new.find_one({"_id": 40_000}) and pipeline.status()["cutover"] is None


#: What is killed, and the last step that the takeover has told by then.
KILLED = (
    ("tool", "stopping the capture"),
    ("tool", "restoring the schema of the new primary"),
    (workers.FIRST, "stopping the capture"),
    ("kafka", "fencing the capture"),
    ("destination-0", "stopping the sink"),
)


def undone(pipeline: Pipeline) -> bool:
    """Whether a takeover that was killed is undone now; it may have been complete before."""
    words = [str(TOWPATH), "takeover", str(pipeline.file), "--undo"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert ("everything is as before" in done.stdout) or "is complete and cannot be undone" in done.stderr, done
    return done.returncode == 0


@pytest.mark.nightly
@pytest.mark.parametrize(("part", "step"), KILLED, ids=[f"{part}: {step}" for part, step in KILLED])
def test_whatever_is_killed_it_is_done_again_with_the_same_result(
    make_pipeline: MakePipeline, stack: Stack, seed: int, part: str, step: str
) -> None:
    """The command ends undone, or with what is left to do; or it was quicker."""
    pipeline = prepared(make_pipeline)
    with Bank(pipeline.addresses.source, pipeline.name, seed) as transfers:
        until("transfers", lambda: len(transfers.acknowledged) > 100)
        with lost(stack):
            kill_during([TOWPATH, "takeover", pipeline.file, "--json"], stack, part, step, 240)
            if part == "tool" and undone(pipeline):
                found = [
                    one for held in indexes(pipeline, pipeline.destination_client).values() for one in held.values()
                ]
                assert not any(one.get("unique") or one.get("prepareUnique") for one in found), found
                assert 3_600 not in [one.get("expireAfterSeconds") for one in found], found
            # the capture, which was stopped or killed, cannot start again without a source
            print(towpath("takeover", pipeline.file, "--accept", "--source-is-lost").stdout)
            marker = pipeline.status(expect=1)["cutover"]
            point = cluster_time(marker["cluster_time"])
            at = Timestamp(point.seconds, point.ordinal)
            bank.assert_whole(pipeline.destination_client[pipeline.name], transfers.acknowledged, at)


#: What is killed, and the last step that the return has told by then.
KILLED_IN_RETURN = (
    ("tool", "capturing what was never captured"),
    ("tool", "waiting for the reverse pipeline"),
    (workers.FIRST, "preparing the reverse pipeline"),
    ("kafka", "resuming the capture"),
    ("source-0", "relaxing the schema of the old primary"),
    ("destination-0", "waiting for the reverse pipeline"),
)


@pytest.mark.nightly
@pytest.mark.parametrize(("part", "step"), KILLED_IN_RETURN, ids=[f"{part}: {step}" for part, step in KILLED_IN_RETURN])
def test_a_return_that_is_interrupted_is_done_again(
    make_pipeline: MakePipeline, stack: Stack, part: str, step: str
) -> None:
    """What was never captured is in the file of the first attempt, or of a later one."""
    pipeline = prepared(make_pipeline)
    taken_over(pipeline, stack)
    kill_during([TOWPATH, "takeover", pipeline.file, "--return", "--yes", "--json"], stack, part, step, 660)
    written = list(state_files.folder(pipeline.name).glob("old-source-*"))
    if pipeline.status(expect=1)["cutover"]["is_takeover"]:
        towpath("resume", pipeline.file, expect=2)
        towpath("takeover", pipeline.file, "--return", "--yes")
    lines = {
        line["id_bson"]
        for place in {*written, *state_files.folder(pipeline.name).glob("old-source-*")}
        for line in map(json.loads, place.read_text().splitlines())
    }
    assert len(lines) >= UNCAPTURED
    towpath("verify", pipeline.file.with_name(f"{pipeline.file.stem}-back.toml"))
    towpath("cutover", pipeline.file, "--back", "--stop-with", "true", "--max-pause", "2m")
    pipeline.wait()
    towpath("verify", pipeline.file)
