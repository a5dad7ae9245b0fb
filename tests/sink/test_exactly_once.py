"""Each change exactly once, in the source's order, whatever dies, sleeps, comes back late or comes in addition."""

from __future__ import annotations

import json
import signal
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random

import bson
import httpx
import pytest
from bson import Int64

from tests.conftest import MakePipeline
from tests.support import control, fuzz, log, workers
from tests.support.awaited import until
from tests.support.batches import BATCHES
from tests.support.order import Order
from tests.support.pipeline import Pipeline, Settings, towpath
from tests.support.progress import State, applied, await_applied, copied, reach, total
from tests.support.ticker import Ticker
from tests.support.workload import Workload
from tests.support.workload.versions import VERSION
from tests.support.writer import Writer
from towpath import stack as embedded
from towpath.log import reread_requests
from towpath.log.source_offsets import read_state
from towpath.session import Session, opened

pytestmark = pytest.mark.servers

COLLECTIONS = ("one", "two")
#: How often a worker is killed, in one state after another.
ROUNDS = 2 * fuzz.TIMES
KILLED_IN: tuple[State, ...] = ("copy", "hand-over", "stream")
#: The states of one pipeline in which its worker is killed; by day, one.
TURNS = (
    [KILLED_IN[: ROUNDS - first] for first in range(0, ROUNDS, len(KILLED_IN))] if fuzz.TIMES > 1 else [("hand-over",)]
)
FOUR_TASKS = {"tasks": 4}


exactly_once = partial(Settings, mode="exactly-once")


def workload(pipeline: Pipeline, seed: int, *collections: str, documents: int = 300) -> Workload:
    sources = [pipeline.source(name) for name in collections or COLLECTIONS]
    found = Workload(seed, sources, documents=documents, versions=True)
    found.fill()
    return found


def order(pipeline: Pipeline) -> Order:
    return Order(pipeline.destination_client, pipeline.name)


def read_again(pipeline: Pipeline, *collections: str) -> None:
    """Ask for every document of these collections."""
    with opened(pipeline.file) as it:
        for name in collections:
            ids = [bson.encode({"_id": one["_id"]}) for one in pipeline.source(name).find({}, {"_id": 1})]
            reread_requests.write(it.pipeline, it.topics, pipeline.namespace(name), ids)


def read_from_source(pipeline: Pipeline) -> int:
    """How many documents the source has ever handed out."""
    metrics = pipeline.source_client.admin.command("serverStatus")["metrics"]
    return int(metrics["document"]["returned"])


def answered(it: Session, namespace: str, offset: int) -> bool:
    return read_state(it.connect, it.pipeline.source_connector_of(namespace)).has_answered(offset)


@pytest.mark.parametrize(
    ("turn", "states"), list(enumerate(TURNS)), ids=[f"{at}: {', '.join(s)}" for at, s in enumerate(TURNS)]
)
def test_both_sides_are_equal_after_the_worker_was_killed(
    make_pipeline: MakePipeline, stack: embedded.Stack, seed: int, turn: int, states: tuple[State, ...], nightly: bool
) -> None:
    """Each state has batches of another size."""
    documents = 1_500 if nightly else 500
    moment, settings = Random(seed + turn), exactly_once(capture={"documents_per_second": 300})
    pipeline, sizes = make_pipeline(settings), [*BATCHES, *BATCHES][turn % len(BATCHES) :]
    changes = workload(pipeline, seed + turn, documents=documents)
    with order(pipeline) as events:
        with Writer(changes, per_second=100) as writer:
            for state, size in zip(states, sizes, strict=False):
                print(f"killed in {state} with {size} batches")
                replace(pipeline, settings=replace(settings, write=BATCHES[size])).deploy()
                if state != states[0]:
                    await_applied(pipeline, more=1)  # by tasks with that size
                reach(pipeline, state)
                read_again(pipeline, *COLLECTIONS)
                writer.wait_for(writer.applied + moment.randrange(100))
                control.restart(stack.directory, workers.FIRST, signal.SIGKILL)
            pipeline.deploy()  # with batches that catch up quickly
            reach(pipeline, "stream")
            await_applied(pipeline, more=200)
        pipeline.wait()
    print(changes.statistics)
    pipeline.assert_same(*COLLECTIONS, at_least=documents)
    assert events.seen(at_least=2_000 if nightly else 900)


@pytest.mark.nightly
def test_a_copy_that_was_killed_half_way_goes_on_and_reads_the_rest_only(
    make_pipeline: MakePipeline, stack: embedded.Stack
) -> None:
    pipeline = make_pipeline(exactly_once(capture={"documents_per_second": 20_000}))
    documents, count = pipeline.source("docs"), 100_000
    makes = [int, lambda n: f"k{n}", lambda n: n + 0.5, lambda n: {"n": n, "of": "docs"}, lambda n: bson.ObjectId()]
    documents.insert_many({"_id": makes[n % len(makes)](n), "n": n, "text": "x" * 900} for n in range(count))
    pipeline.deploy()
    until("half of the copy", lambda: copied(pipeline) > 0.45 * count, every=0.02)
    control.kill(stack.directory, workers.FIRST)
    before = read_from_source(pipeline)
    control.start(stack.directory, workers.FIRST)
    pipeline.wait()
    assert read_from_source(pipeline) - before < 0.6 * count
    pipeline.assert_same("docs", at_least=count)
    assert len(log.records(pipeline.addresses.bootstrap, pipeline.topic("docs"))) == count


@pytest.mark.nightly
def test_a_copy_onto_documents_that_were_there_survives_a_killed_worker(
    make_pipeline: MakePipeline, stack: embedded.Stack, seed: int
) -> None:
    """Some of the rows are inserts, others replace what the destination holds under their `_id`."""
    random, count = Random(seed), 2_000
    pipeline = make_pipeline(exactly_once(capture={"documents_per_second": 250}))
    source = pipeline.source("docs")
    source.insert_many({"_id": number, "n": 0, "text": "x" * random.randrange(300)} for number in range(count))
    present = random.sample(range(count), count // 3)
    pipeline.destination("docs").insert_many({"_id": number, "stale": True, "n": -1} for number in present)

    def change(times: int) -> None:
        for number in random.choices(range(count), k=times):
            source.update_one({"_id": number}, {"$inc": {"n": 1}, "$push": {"list": random.random()}})

    pipeline.deploy()
    for part in (0.2, 0.6):
        until("part of the copy", lambda part=part: total(pipeline) > part * count, every=0.02)
        change(100)
        control.restart(stack.directory, workers.FIRST, signal.SIGKILL)
        change(100)
    pipeline.wait()
    pipeline.assert_same("docs", at_least=count)
    assert not log.records(pipeline.addresses.bootstrap, f"{pipeline.name}.dead-letters")


@pytest.fixture(scope="module")
def second(stack: embedded.Stack) -> Iterator[str]:
    """A second worker of the stack, for the tests of this file that want one."""
    with workers.one_more(stack.directory) as name:
        yield name


@pytest.mark.nightly
def test_a_worker_that_slept_in_a_transaction_while_its_tasks_moved_changes_nothing_when_it_wakes(
    make_pipeline: MakePipeline, stack: embedded.Stack, second: str, seed: int
) -> None:
    pipeline = make_pipeline(exactly_once(write=FOUR_TASKS))
    changes = workload(pipeline, seed)
    port = embedded.status(stack.directory).processes[second].port
    connect, sink = pipeline.addresses.connect, f"{pipeline.name}-sink"
    with order(pipeline) as events:
        pipeline.deploy()
        pipeline.wait()
        moved = until("task of the sink on the second worker", lambda: workers.tasks(connect, sink, port))
        before = applied(pipeline)
        with Writer(changes, per_second=300):
            with workers.asleep_in_a_transaction(stack.directory, second, pipeline.destination_client) as transaction:
                others = embedded.status(stack.directory).processes[workers.FIRST].port
                until("all tasks on the first worker", lambda: len(workers.tasks(connect, sink, others)) == 4)
            until("end of its transaction", lambda: not workers.is_open(pipeline.destination_client, transaction))
            await_applied(pipeline, more=300)
        pipeline.wait()
    after = applied(pipeline)
    assert any(after[place].epoch > before[place].epoch for place in before), f"tasks {moved} moved: {before} {after}"
    assert all(after[it].epoch >= before[it].epoch and after[it].offset >= before[it].offset for it in before)
    pipeline.assert_same(*COLLECTIONS, at_least=300)
    assert events.seen(at_least=600)


@pytest.mark.nightly
def test_a_rolling_restart_to_another_version_of_the_jar_loses_and_repeats_nothing(
    make_pipeline: MakePipeline, stack: embedded.Stack, second: str, seed: int, tmp_path: Path
) -> None:
    pipeline = make_pipeline(exactly_once(write=FOUR_TASKS))
    changes = workload(pipeline, seed)
    running = embedded.status(stack.directory).processes
    urls = [f"http://127.0.0.1:{running[name].port}" for name in (workers.FIRST, second)]
    wanted = f"{workers.version(urls[0])}-next"
    newer = workers.plugins_of_version(wanted, tmp_path / "plugins")
    with order(pipeline) as events:
        pipeline.deploy()
        with Writer(changes, per_second=100):
            await_applied(pipeline, more=200)
            for name in (second, workers.FIRST):
                with workers.plugin_path(stack.directory, name, newer):
                    control.restart(stack.directory, name)
                await_applied(pipeline, more=200)
        pipeline.wait()
    assert [workers.version(url) for url in urls] == [wanted, wanted]
    pipeline.assert_same(*COLLECTIONS, at_least=300)
    assert events.seen(at_least=700)


@pytest.mark.nightly
def test_documents_read_again_while_they_change_are_answered_once_each_and_equal(make_pipeline: MakePipeline) -> None:
    pipeline = make_pipeline(exactly_once())
    documents, name, times = pipeline.source("docs"), pipeline.namespace("docs"), 3
    documents.insert_many([{"_id": n, VERSION: Int64(1), "text": "x" * 500} for n in range(1000)])
    wanted = [bson.encode({"_id": n}) for n in range(1010)]  # the last ten are not there
    pipeline.deploy()
    pipeline.wait()
    with order(pipeline) as events, opened(pipeline.file) as it:
        with Ticker(
            0.2, lambda: documents.update_many({}, {"$inc": {VERSION: Int64(1)}, "$set": {"a.b": 1}})
        ) as ticker:
            for _ in range(times):
                asked = reread_requests.write(it.pipeline, it.topics, name, wanted)
                assert asked is not None
                until("answer", partial(answered, it, name, asked))
            ticker.wait_for(ticker.done + 5)
        pipeline.wait()
    pipeline.assert_same("docs", at_least=1000)
    assert events.seen(at_least=2000)
    found = log.records(pipeline.addresses.bootstrap, pipeline.topic("docs"))
    answers = Counter((one.key, one.contract["op"], one.value is None) for one in found if one.contract["op"] in b"rd")
    keys = [bson.encode({"_id": Int64(n)}) for n in range(1010)]
    assert (
        answers
        == {  # the first copy read each of those that are there, too
            **{(key, b"r", False): times + 1 for key in keys[:1000]},
            **{(key, b"d", True): times for key in keys[1000:]},
        }
    )


@pytest.mark.nightly
def test_a_destination_restored_from_a_backup_goes_on_from_the_position_in_it(
    make_pipeline: MakePipeline, seed: int
) -> None:
    pipeline = make_pipeline(exactly_once())
    changes = workload(pipeline, seed, "one")
    pipeline.deploy()
    pipeline.wait()
    towpath("pause", pipeline.file)
    ours, positions = {"_id.pipeline": pipeline.name}, pipeline.destination_client["towpath"]["offsets"]
    backup, at = list(pipeline.destination("one").find()), list(positions.find(ours))
    towpath("resume", pipeline.file)
    with Writer(changes, per_second=500) as writer:
        writer.wait_for(1000)
    pipeline.wait()
    towpath("remove", pipeline.file, "--yes")
    pipeline.destination("one").delete_many({})
    pipeline.destination("one").insert_many(backup)
    for position in at:
        positions.replace_one({"_id": position["_id"]}, position)
    pipeline.deploy()
    pipeline.wait()
    pipeline.assert_same("one", at_least=200)


@pytest.mark.nightly
def test_what_the_destination_refuses_is_in_the_dead_letters_with_the_reason_and_the_rest_arrives(
    make_pipeline: MakePipeline,
) -> None:
    pipeline = make_pipeline(exactly_once())
    documents, bad = pipeline.source("docs"), [7, 1007, 2007, 3007]
    pipeline.destination_client[pipeline.name].command({"create": "docs", "validator": {"bad": {"$ne": True}}})
    pipeline.create("docs")
    pipeline.deploy()
    pipeline.wait()
    sink = f"{pipeline.addresses.connect}/connectors/{pipeline.name}-sink"
    httpx.put(f"{sink}/pause", timeout=30).raise_for_status()  # for large batches: too many refused in one stop it
    documents.insert_many([{"_id": n, "bad": n in bad, "text": "x" * 100} for n in range(4000)])
    bootstrap = pipeline.addresses.bootstrap
    until("all documents in the log", lambda: len(log.records(bootstrap, pipeline.topic("docs"))) == 4000)
    httpx.put(f"{sink}/resume", timeout=30).raise_for_status()
    pipeline.wait()
    assert pipeline.destination("docs").count_documents({}) == 4000 - len(bad)
    letters = log.records(bootstrap, f"{pipeline.name}.dead-letters")
    assert sorted({bson.decode(one.value or b"")["_id"] for one in letters}) == bad
    origins = {(one.headers["topic"], one.headers["partition"], one.headers["offset"]) for one in letters}
    assert len(origins) == len(bad)
    for one in letters:
        assert one.headers["topic"].decode() == pipeline.topic("docs")
        assert one.headers["namespace"].decode() == pipeline.namespace("docs")
        assert one.headers["code"] == b"121"
        assert "failed validation" in one.headers["reason"].decode()
    assert pipeline.status()["dead_letters"] == len(bad)
    told = towpath("tail", pipeline.file, "--dead-letters", "--no-follow", "--json").stdout.splitlines()
    assert {json.loads(line)["code"] for line in told} == {121}
    assert len(told) == len(letters)
    documents.delete_many({"_id": {"$in": bad}})
    pipeline.wait()
    pipeline.assert_same("docs", at_least=3990)


@pytest.mark.nightly
def test_a_namespace_added_to_a_running_pipeline_is_copied_in_order_with_its_changes(
    make_pipeline: MakePipeline, seed: int
) -> None:
    settings = exactly_once(include=("one",), capture={"documents_per_second": 500})
    pipeline = make_pipeline(settings)
    first, added = workload(pipeline, seed, "one"), workload(pipeline, seed + 1, "two", documents=1500)
    with order(pipeline) as events:
        pipeline.deploy()
        pipeline.wait()
        assert pipeline.destination("two").estimated_document_count() == 0
        with Writer(first, per_second=60) as one, Writer(added, per_second=100) as two:
            replace(pipeline, settings=replace(settings, include=COLLECTIONS)).deploy()
            until("copy of the new namespace", lambda: pipeline.destination("two").estimated_document_count() >= 600)
            one.wait_for(one.applied + 60)
            two.wait_for(two.applied + 100)
        pipeline.wait()
    pipeline.assert_same(*COLLECTIONS, at_least=900)
    assert events.seen(at_least=1300)
    assert pipeline.status()["dead_letters"] == 0, "an update before its row is none"
    found = log.records(pipeline.addresses.bootstrap, pipeline.topic("two"))
    last_row = max(time_of(record) for record in found if record.contract["op"] == b"r")
    marked = [time_of(record) for record in found if record.row_follows]
    print(f"{len(marked)} updates were marked")
    assert all(time <= last_row for time in marked)


def time_of(record: log.Logged) -> tuple[int, ...]:
    return tuple(int(part) for part in record.contract["t"].split(b":"))
