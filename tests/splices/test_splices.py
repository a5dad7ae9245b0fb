"""Edited arrays travel as splices, and both sides stay byte-identical, whatever is killed, folded or damaged."""

from __future__ import annotations

import signal
import subprocess
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from itertools import count
from random import Random
from typing import Any

import bson
import pytest
from pymongo import UpdateOne
from pymongo.client_session import ClientSession

from tests.conftest import MakePipeline
from tests.splices.edits import CAP, DOTTED, ROWS, Edits, dotted, row
from tests.support import control, fuzz, log, raw, workers
from tests.support.awaited import until
from tests.support.batches import BATCHES, await_backlog, sink_paused
from tests.support.pipeline import TOWPATH, Pipeline, Settings, towpath
from tests.support.progress import total
from tests.support.reference import page_s_apply
from tests.support.started import started
from towpath import stack as embedded
from towpath.log import reread_requests
from towpath.session import opened

pytestmark = pytest.mark.servers

EDITS = 1_000 if fuzz.TIMES == 1 else 10_000 * fuzz.TIMES
DOCUMENTS, SEGMENT = 120, 500
#: `[write]` one after another, and what is killed during that. A broker without replicas may lose the end of a
#: transaction when it is killed (KAFKA-20734), so it is told to end.
TURNS: tuple[tuple[Mapping[str, Any], str, signal.Signals], ...] = (
    ({}, workers.FIRST, signal.SIGKILL),
    ({"batch_records": 30}, "kafka", signal.SIGTERM),
    ({"fold": False, "batch_records": 200}, "", signal.SIGTERM),
    (BATCHES["huge"], "", signal.SIGTERM),
)

Documents = dict[bytes, dict[str, Any]]
_NUMBERS = count()


def write(pipeline: Pipeline, edits: Edits, number: int) -> None:
    """So many edits in segments: most as an ordered bulk, some as a transaction; now and then a re-read."""
    documents, odd = pipeline.source("docs"), pipeline.source("odd")
    done, random = 0, edits.random
    while done < number:
        segment = edits.segment(min(SEGMENT, number - done))
        done += len(segment)
        if random.random() < 0.8:
            documents.bulk_write(segment, ordered=True)
            odd.bulk_write([dotted(random, random.randrange(5)), UpdateOne({"_id": 0}, {"$push": {ROWS: row(random)}})])
            continue

        def together(session: ClientSession, segment: list[Any] = segment) -> None:
            documents.bulk_write(segment, ordered=True, session=session)

        with pipeline.source_client.start_session() as session:
            session.with_transaction(together)
        if random.random() < 0.3:
            reread(pipeline, random.sample(range(DOCUMENTS), 20))


def reread(pipeline: Pipeline, ids: list[int]) -> None:
    with opened(pipeline.file) as it:
        wanted = [bson.encode({"_id": one}) for one in ids]
        reread_requests.write(it.pipeline, it.topics, pipeline.namespace("docs"), wanted)


def in_log(pipeline: Pipeline, collection: str) -> tuple[Documents, Counter[bool]]:
    """What a reader of the log has in the end, and how many records have splices (True) and have none."""
    apply, held, spliced = page_s_apply(), Documents(), Counter[bool]()
    for record in log.records(pipeline.addresses.bootstrap, pipeline.topic(collection)):
        key, value = record.key or b"", None if record.value is None else bson.decode(record.value)
        spliced["$splice" in (value or {})] += 1
        if value is None:
            held.pop(key, None)
        elif "_id" in value:
            held[key] = value
        else:
            apply(held[key], value)
    return held, spliced


def test_thousands_of_edits_of_arrays_leave_both_sides_identical(
    make_pipeline: MakePipeline, stack: embedded.Stack, seed: int, nightly: bool
) -> None:
    """By night the worker and the broker are killed in between."""
    settings = Settings(whole_documents=("odd",))
    pipeline, edits = make_pipeline(settings), Edits(seed, DOCUMENTS)
    pipeline.source("docs").insert_many(edits.fill())
    pipeline.source("odd").insert_many({"_id": n, ROWS: [row(edits.random)] * 20, DOTTED: []} for n in range(5))
    turns = TURNS * max(1, EDITS // 50_000)
    for bounds, killed, number in turns:
        replace(pipeline, settings=replace(settings, write=bounds)).deploy()
        share, before = EDITS // len(turns) // 2, total(pipeline)
        write(pipeline, edits, share)
        until("edits applied with these bounds", lambda before=before: total(pipeline) > before)  # type: ignore[misc]
        if killed and nightly:
            control.restart(stack.directory, killed, number)
        write(pipeline, edits, share)
    pipeline.wait()
    pipeline.assert_same("docs", at_least=DOCUMENTS)
    pipeline.assert_same("odd", at_least=5)
    found = told(pipeline, lambda splices: splices["splices"] > 0)  # a kill loses what was counted last
    print(found["splices"], found["sink"])
    assert found["dead_letters"] == 0
    assert found["splices"]["saved"] > 500 * found["splices"]["splices"]

    held, spliced = in_log(pipeline, "docs")
    print(spliced)
    there = raw.read(pipeline.source("docs"))
    stored = {bson.encode({"_id": bson.Int64(bson.decode(one)["_id"])}): one for one in there}
    assert {key: bson.encode(document) for key, document in held.items()} == stored
    assert spliced[False]
    # the fewer edits, the more of them come right after a deployment, before the connector knows the arrays
    assert spliced[True] > EDITS / (20 if fuzz.TIMES == 1 else 8)
    assert in_log(pipeline, "odd")[1].keys() == {False}
    towpath("verify", pipeline.file, "--last", "5000")


def told(pipeline: Pipeline, wanted: Any) -> dict[str, Any]:
    """The status, once it tells of the splices that are wanted: the connector does so every few seconds."""

    def look() -> dict[str, Any] | None:
        status = pipeline.status()
        return status if wanted(status["splices"]) else None

    return until("splices in status", look, 30, 0.5)


def capped(pipeline: Pipeline, ids: range) -> None:
    """A push into each of these documents, each array at its cap."""
    one_more = {"n": next(_NUMBERS), "text": "x" * 40}
    pushed = {"$push": {ROWS: {"$each": [one_more], "$slice": -CAP}}}
    pipeline.source("docs").bulk_write([UpdateOne({"_id": one}, pushed) for one in ids], ordered=False)


def deployed(pipeline: Pipeline, documents: int) -> None:
    """A pipeline that has copied so many documents with arrays at their cap."""
    random = Random(documents)
    pipeline.source("docs").insert_many({"_id": n, ROWS: [row(random) for _ in range(CAP)]} for n in range(documents))
    pipeline.deploy()
    pipeline.wait()


def is_spliced(pipeline: Pipeline) -> bool:
    """Whether the newest records have splices."""
    before = in_log(pipeline, "docs")[1]
    capped(pipeline, range(10))
    pipeline.wait()
    (newest,) = in_log(pipeline, "docs")[1] - before
    return newest


@pytest.mark.nightly
def test_the_cache_is_switched_off_and_on_with_a_deployed_pipeline(make_pipeline: MakePipeline) -> None:
    settings = Settings(capture={"splice_cache": 0})
    pipeline = make_pipeline(settings)
    deployed(pipeline, 10)
    assert not any(is_spliced(pipeline) for _ in range(3))
    assert "splices" not in towpath("status", pipeline.file).stdout
    turns: list[tuple[dict[str, Any], bool]] = [
        ({}, True),
        ({"splice_cache": 0}, False),
        ({"splice_cache": "1MiB"}, True),
    ]
    for capture, expected in turns:
        replace(pipeline, settings=replace(settings, capture=capture)).deploy()
        # the task of before may capture some more
        until("task with another cache", lambda expected=expected: is_spliced(pipeline) == expected)  # type: ignore[misc]
    pipeline.assert_same("docs", at_least=10)
    count = in_log(pipeline, "docs")[1][True]
    told(pipeline, lambda splices: splices["splices"] == count and splices["saved"] > count * 500)
    assert f"splices       {count} arrays as splices, " in towpath("status", pipeline.file).stdout


@pytest.mark.nightly
def test_a_backlog_of_capped_pushes_is_one_write_a_document(pipeline: Pipeline) -> None:
    deployed(pipeline, 20)
    capped(pipeline, range(20))
    pipeline.wait()
    before = until("numbers of all records", lambda: _sink(pipeline, 40))
    with sink_paused(pipeline):
        for _ in range(30):
            capped(pipeline, range(20))
        await_backlog(pipeline, 600)
    pipeline.wait()
    after = until("numbers of all records", lambda: _sink(pipeline, 640))
    pipeline.assert_same("docs", at_least=20)
    # a fetch can end within the backlog of a partition, and the next one begins another transaction
    assert after["writes"] - before["writes"] <= 3 * 20


def _sink(pipeline: Pipeline, records: int) -> dict[str, int] | None:
    sink: dict[str, int] = pipeline.status()["sink"]
    return sink if sink["records"] >= records else None


@pytest.mark.nightly
@pytest.mark.parametrize("pushes", [1, 40])
def test_an_array_that_someone_damaged_makes_dead_letters_until_it_is_reread(pipeline: Pipeline, pushes: int) -> None:
    """A document that is changed often does not stop the others."""
    deployed(pipeline, 50)
    for _ in range(2):
        capped(pipeline, range(50))
    pipeline.wait()
    pipeline.destination("docs").update_one({"_id": 7}, {"$pop": {ROWS: -1}})
    for _ in range(pushes):
        capped(pipeline, range(50))
    pipeline.wait()
    status = pipeline.status()
    assert status["state"] == "running"
    assert 1 <= status["dead_letters"] <= pushes
    reasons = [cause["reason"] for cause in status["dead_letter_causes"]]
    assert all(f"its array '{ROWS}'" in reason for reason in reasons), reasons
    (first,) = (reason for reason in reasons if f"does not have the {CAP} elements" in reason)
    assert "`towpath repair PIPELINE --dead-letters`" in first
    shown = towpath("tail", pipeline.file, "--dead-letters", "--no-follow").stdout
    assert first in shown and f'{{"$splice": {{"{ROWS}": [{CAP}, [0, 1, []]' in shown
    towpath("repair", pipeline.file, "--dead-letters")
    for _ in range(3):
        capped(pipeline, range(50))
    pipeline.wait()
    pipeline.assert_same("docs", at_least=50)
    assert pipeline.status()["dead_letters"] == status["dead_letters"]


@pytest.mark.nightly
def test_run_rereads_documents_whose_arrays_someone_damaged(pipeline: Pipeline) -> None:
    deployed(pipeline, 10)
    for _ in range(2):
        capped(pipeline, range(10))
    pipeline.wait()
    pipeline.destination("docs").update_many({"_id": {"$in": [3, 7]}}, {"$push": {ROWS: "stray"}})
    with started([TOWPATH, "run", pipeline.file], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL):
        for _ in range(5):
            capped(pipeline, range(10))
        strays = {ROWS: "stray"}
        until("dead letters", lambda: pipeline.status()["dead_letters"])
        until("repair", lambda: not pipeline.destination("docs").count_documents(strays), 120)
    pipeline.wait()
    pipeline.assert_same("docs", at_least=10)


@pytest.mark.nightly
def test_people_see_a_splice_in_short(pipeline: Pipeline) -> None:
    deployed(pipeline, 1)
    for _ in range(2):
        capped(pipeline, range(1))
    pipeline.wait()
    arguments = ("tail", pipeline.file, pipeline.namespace("docs"), "--from-beginning", "--no-follow")
    last = towpath(*arguments).stdout.splitlines()[-1]
    assert f'  update    {{"_id": 0}}  {ROWS}: -1 at 0, +1 at {CAP} [{{' in last
    assert (
        f'"value": "{{\\"$splice\\": {{\\"{ROWS}\\": [{CAP}, [0, 1, []], [{CAP}, 0, [{{'
        in (towpath(*arguments, "--json").stdout.splitlines()[-1])
    )
