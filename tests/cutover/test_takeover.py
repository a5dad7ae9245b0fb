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

import pytest
from bson import Timestamp

from tests.conftest import MakePipeline
from tests.support import bank, control, fuzz, raw, workers
from tests.support.awaited import until
from tests.support.bank import Bank
from tests.support.pipeline import TOWPATH, Pipeline, Settings, towpath
from tests.support.started import started
from towpath.clients.mongo.client import cluster_time
from towpath.stack import Stack
from towpath_verifier import described

pytestmark = pytest.mark.servers


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
    refused = towpath("takeover", pipeline.file, expect=1)
    assert "the source answers" in refused.stdout and "--source-is-lost" in refused.stdout
    refused = towpath("takeover", out_of_reach(pipeline), expect=1)
    assert "the source answers Connect's workers" in refused.stdout
    assert pipeline.status()["cutover"] is None
    with Bank(pipeline.addresses.source, pipeline.name, seed + run) as transfers:
        until("transfers", lambda: len(transfers.acknowledged) > 100)
        time.sleep(random.random())
        with lost(stack):
            killed = time.monotonic()
            told = events(towpath("takeover", pipeline.file, "--json").stdout)
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
    assert count > 0.5 * len(transfers.acknowledged)
    assert "the destination took over at" in towpath("takeover", pipeline.file).stdout
    undone = towpath("takeover", pipeline.file, "--undo", expect=2)
    assert "cannot be undone" in undone.stderr


#: What is killed, and the last step that the takeover has told by then.
KILLED = (
    ("tool", "stopping the capture"),
    ("tool", "restoring the schema of the new primary"),
    (workers.FIRST, "stopping the capture"),
    ("kafka", "fencing the capture"),
    ("destination-0", "stopping the sink"),
)


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
            command = [TOWPATH, "takeover", pipeline.file, "--json"]
            with started(command, stdout=subprocess.PIPE, text=True) as running:
                assert running.stdout is not None
                next(line for line in running.stdout if f'"{step}"' in line)
                if part == "tool":
                    running.kill()
                else:
                    control.restart(stack.directory, part, signal.SIGKILL)
                running.stdout.read()
                print(f"it ended with {running.wait(240)}")
            if part == "tool":
                assert "everything is as before" in towpath("takeover", pipeline.file, "--undo").stdout
                found = [
                    one for held in indexes(pipeline, pipeline.destination_client).values() for one in held.values()
                ]
                assert not any(one.get("unique") or one.get("prepareUnique") for one in found), found
                assert 3_600 not in [one.get("expireAfterSeconds") for one in found], found
            print(towpath("takeover", pipeline.file, "--accept").stdout)
            marker = pipeline.status(expect=1)["cutover"]
            point = cluster_time(marker["cluster_time"])
            at = Timestamp(point.seconds, point.ordinal)
            bank.assert_whole(pipeline.destination_client[pipeline.name], transfers.acknowledged, at)
