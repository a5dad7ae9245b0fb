"""Both sides are equal whatever breaks, whenever it does: a few pairs of fault and state; `scripts/soak` has all.

The site has three nodes a side, one broker and one worker: what is killed is all there is of it, or the primary.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from benchmarks.soak.faults import FAULTS
from benchmarks.soak.hits import Hits, Pair
from benchmarks.soak.runs import Plan, Result, Strike, run
from benchmarks.soak.states import STATES
from tests.support import log, progress
from tests.support.awaited import promised, until
from tests.support.pipeline import Settings
from tests.support.shapes import SHAPES
from tests.support.site import Site, site
from towpath.clients.kafka.topics import Topic
from towpath.session import opened

pytestmark = [pytest.mark.servers, pytest.mark.nightly, pytest.mark.serial]

_TRIES = 3  # until a fault meets its state
WAITS = "the task waits for a primary of the source"


@pytest.fixture(scope="module")
def there(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with site(SHAPES["one"], tmp_path_factory.mktemp("faults")) as found:
        yield found


@contextmanager
def no_primary(there: Site) -> Iterator[None]:
    """The source has lost two of three members, until the exit of the `with`."""
    primary = there.primary("source")
    secondaries = [node for node in there.nodes("source") if node != primary]
    for node in secondaries:
        there.kill(node)
    try:
        until("source without primary", lambda: not there.hello(primary).get("isWritablePrimary"), 60, 0.1)
        yield
    finally:
        for node in secondaries:
            there.start(node)


@contextmanager
def over_quota(there: Site) -> Iterator[None]:
    """The destination answers writes as Atlas does when there is no more space (8000), until the exit of the `with`."""
    writes = ["insert", "update", "delete", "findAndModify", "bulkWrite", "commitTransaction"]
    with there.direct(there.primary("destination")) as client:
        client.admin.command(
            "configureFailPoint", "failCommand", mode="alwaysOn", data={"failCommands": writes, "errorCode": 8000}
        )
        try:
            yield
        finally:
            client.admin.command("configureFailPoint", "failCommand", mode="off")


def strike(there: Site, folder: Path, seed: int, *pairs: Pair) -> Result:
    """The first run in which every fault met its state, one after another."""
    strikes = tuple(Strike(FAULTS[fault], STATES[state]) for fault, state in pairs)
    plan, hits = Plan(seed, strikes, documents=200), Hits()
    for tried in range(_TRIES):
        result = run(there, replace(plan, seed=seed + tried), hits, folder)
        print(f"{plan}: {result}")
        if result.hit:
            return result
    raise AssertionError(f"not all of {pairs} met in {_TRIES} tries")


def test_a_new_primary_at_the_destination_and_a_broker_that_comes_back_lose_nothing_and_need_no_help(
    there: Site, tmp_path: Path, seed: int
) -> None:
    pairs = ("destination-primary-kill", "transaction"), ("broker-kill", "streaming")
    result = strike(there, tmp_path, seed, *pairs)
    assert result.struck[0].recovered_s < 15


def test_records_flow_within_15_s_of_there_being_another_primary_than_one_that_sleeps_at_the_source(
    there: Site, tmp_path: Path, seed: int
) -> None:
    result = strike(there, tmp_path, seed, ("source-primary-stop", "streaming"))
    assert result.recovered_s < 15


def test_a_task_that_starts_while_the_source_has_no_primary_waits_for_one(there: Site, tmp_path: Path) -> None:
    with there.deployed(tmp_path) as pipeline:
        pipeline.wait()
        connector = f"{pipeline.name}-source"
        with no_primary(there):
            httpx.post(f"{there.url()}/connectors/{connector}/tasks/0/restart", timeout=90).raise_for_status()
            worker = there.processes[there.workers[0]].log
            until("task that waits", lambda: worker.read_text().count(WAITS) >= 2, 150, 0.5)  # each after 30 s
        until("running task", lambda: [it["state"] for it in there.tasks(connector)] == ["RUNNING"], 60, 0.2)
        pipeline.source("docs").update_many({}, {"$set": {"n": 1}})
        pipeline.wait()
        assert [it["state"] for it in there.tasks(connector)] == ["RUNNING"]
        pipeline.assert_same("docs", at_least=100)


def test_a_source_without_primary_for_longer_than_the_driver_waits_holds_up_the_hand_over_and_does_not_end_it(
    there: Site, tmp_path: Path
) -> None:
    with there.deployed(tmp_path, 1000, Settings(capture={"documents_per_second": 100})) as pipeline:
        until("most of the copy", lambda: progress.copied(pipeline) >= 800, 60, 0.05)
        pipeline.source("docs").update_many({}, {"$set": {"n": 1}})
        with no_primary(there):
            time.sleep(60)  # the driver looks for a primary for 30
        pipeline.wait()
        assert [it["state"] for it in there.tasks(f"{pipeline.name}-source")] == ["RUNNING"]
        pipeline.assert_same("docs", at_least=1000)


def test_a_destination_that_is_over_its_quota_is_waited_for(there: Site, tmp_path: Path) -> None:
    with there.deployed(tmp_path) as pipeline:
        pipeline.wait()
        before = progress.total(pipeline)
        with over_quota(there):
            pipeline.source("docs").update_many({}, {"$set": {"n": 1}})
            time.sleep(40)  # longer than drivers try again
            assert progress.total(pipeline) == before
            found = pipeline.status(expect=0)
            assert (found["state"], found["dead_letters"]) == ("running", 0)
        pipeline.wait()
        assert [it["state"] for it in there.tasks(f"{pipeline.name}-sink")] == ["RUNNING"] * 2
        pipeline.assert_same("docs", at_least=100)
        assert not log.records(there.addresses.bootstrap, f"{pipeline.name}.dead-letters")


def test_a_primary_of_the_destination_that_sleeps_while_much_is_written_to_it_is_given_up(
    there: Site, tmp_path: Path
) -> None:
    """What it does not take fills the connection: nothing answers, and the driver would continue to write forever."""
    with there.deployed(tmp_path, 1) as pipeline:
        pipeline.wait()
        copies, primary = pipeline.destination("docs"), there.primary("destination")
        connector = f"{pipeline.name}-sink"
        sink = f"{there.url()}/connectors/{connector}"
        httpx.put(f"{sink}/pause", timeout=30).raise_for_status()
        until("paused sink", lambda: {it["state"] for it in there.tasks(connector)} == {"PAUSED"}, 60, 0.2)
        pipeline.source("docs").insert_many([{"_id": n, "text": "x" * 15_000_000} for n in range(1, 9)])
        with opened(pipeline.file) as it:
            topic = [Topic(pipeline.topic("docs"), 4)]
            until("documents in the log", lambda: sum(end for _, end in it.topics.ends(topic).values()) > 8, 60, 0.2)
        there.kill(primary, signal.SIGSTOP)
        try:
            httpx.put(f"{sink}/resume", timeout=30).raise_for_status()
            there.primary("destination", without=primary)
            begun = time.monotonic()
            promised("large document", lambda: copies.count_documents({}) > 1, 100, 0.1)
            assert time.monotonic() - begun < 15
        finally:
            there.kill(primary, signal.SIGCONT)
        pipeline.wait()
        pipeline.assert_same("docs", at_least=9)


def test_a_copy_during_which_the_source_has_another_primary_goes_on(there: Site, tmp_path: Path, seed: int) -> None:
    strike(there, tmp_path, seed, ("source-step-down", "copy"))


@pytest.mark.parametrize("change", ["ddl", "rename", "drop"])
@pytest.mark.parametrize("fault", ["worker-kill", "broker-kill", "destination-primary-kill"])
def test_a_schema_change_is_made_once_whatever_is_killed_at_each_of_its_states(
    there: Site, tmp_path: Path, seed: int, fault: str, change: str
) -> None:
    states = ("first arrived", "all arrived", "done not noted", "noted")
    strike(there, tmp_path, seed, *((fault, f"{change} {state}") for state in states))
