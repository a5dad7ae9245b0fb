"""What was deleted from the log before the sink applied it is told, stops the sink, and is repaired; so is a log that
was cut short or made again. What is deleted after it was applied is nothing."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from tests.conftest import MakePipeline
from tests.support.awaited import until
from tests.support.pipeline import TOWPATH, Pipeline, Settings, towpath
from towpath.clients.connect.rest import Connect, code_of
from towpath.log.definitions import change_settings
from towpath.log.lag import pipeline_ends
from towpath.run.restarts import lasting
from towpath.session import opened

pytestmark = pytest.mark.servers

ONE = Settings(partitions=1)


@contextmanager
def connect(pipeline: Pipeline) -> Iterator[Connect]:
    with Connect(pipeline.addresses.connect) as found:
        yield found


def insert(pipeline: Pipeline, first: int, count: int) -> None:
    """So many documents, which are in the log when this returns, whatever the sink does."""
    with opened(pipeline.file) as it:

        def written() -> int:
            return sum(end for _, end in pipeline_ends(it.pipeline, it.topics).values())

        before = written()
        pipeline.source("docs").insert_many([{"_id": n, "v": 0} for n in range(first, first + count)])
        until("the documents in the log", lambda: written() >= before + count)


def stop(pipeline: Pipeline) -> None:
    with connect(pipeline) as found:
        found.stop(f"{pipeline.name}-sink")
        until("end of the sink's tasks", lambda: not found.status(f"{pipeline.name}-sink").tasks)


def resume(pipeline: Pipeline) -> None:
    with connect(pipeline) as found:
        found.resume(f"{pipeline.name}-sink")


def failures(pipeline: Pipeline) -> tuple[str, ...]:
    with connect(pipeline) as found:
        return until("failure of the sink", lambda: found.status(f"{pipeline.name}-sink").reasons)


def cut(pipeline: Pipeline) -> int:
    """Have the brokers delete all that is in the log, as retention does; where it begins now."""
    kafka = AdminClient({"bootstrap.servers": pipeline.addresses.bootstrap})
    [cutting] = kafka.delete_records([TopicPartition(pipeline.topic("docs"), 0, -1)]).values()
    return int(cutting.result(timeout=30).low_watermark)


def broken(pipeline: Pipeline) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = pipeline.status(expect=1)["log_breaks"]
    return found


def deployed(pipeline: Pipeline, count: int = 100) -> None:
    pipeline.source("docs").insert_many([{"_id": n, "v": 0} for n in range(count)])
    pipeline.deploy()
    pipeline.wait()


def repair(pipeline: Pipeline, at_least: int) -> None:
    pipeline.wait()
    towpath("verify", pipeline.file, expect=1)
    towpath("repair", pipeline.file, "--yes")
    towpath("verify", pipeline.file)
    pipeline.assert_same("docs", at_least=at_least)


@pytest.mark.nightly
def test_records_that_are_gone_before_they_are_applied_stop_everything_until_that_is_accepted(
    make_pipeline: MakePipeline,
) -> None:
    pipeline = make_pipeline(ONE)
    deployed(pipeline)
    towpath("verify", pipeline.file)
    stop(pipeline)
    insert(pipeline, 100, 1000)
    first = cut(pipeline)
    insert(pipeline, 1100, 100)

    said = towpath("wait", pipeline.file, expect=2).stderr
    assert f"TWP-LOG-GAP: {pipeline.topic('docs')}, partition 0: " in said and f"from {first:,} to" in said
    [found] = broken(pipeline)
    assert (found["code"], found["first"], found["last_at"] is not None) == ("TWP-LOG-GAP", first, True)
    resume(pipeline)
    [reason] = failures(pipeline)
    assert reason.startswith("TWP-LOG-GAP: ") and lasting([code_of(reason)]) is not None
    for words in (
        f"{pipeline.topic('docs')}-0",
        f"offset {found['position']}, stored at ",
        f"offset {first}",
        "--accept-log",
    ):
        assert words in reason
    assert "A restart does not help: TWP-LOG-GAP" in towpath("status", pipeline.file, expect=1).stdout
    assert "TWP-LOG-GAP" in towpath("wait", pipeline.file, expect=2).stderr
    assert "TWP-LOG-GAP" in towpath("restart", pipeline.file, expect=2).stderr
    supervised(pipeline)
    assert pipeline.destination("docs").count_documents({}) == 100

    said = towpath("restart", pipeline.file, "--accept-log-gap").stderr
    assert f"the sink continues at offset {first:,}" in said and "towpath verify" in said and "towpath repair" in said
    assert "when a gap in the log was accepted" in pipeline.status()["verification"]["doubt"]
    repair(pipeline, 1200)
    assert pipeline.status()["log_breaks"] == []
    assert "nothing to accept" in towpath("restart", pipeline.file, "--accept-log-gap", expect=2).stderr


@pytest.mark.nightly
def test_a_running_sink_stops_where_records_are_gone_and_a_rebuild_repairs_it(make_pipeline: MakePipeline) -> None:
    pipeline = make_pipeline(ONE)
    deployed(pipeline)
    with connect(pipeline) as found:
        found.pause(f"{pipeline.name}-sink")
        until("pause", lambda: found.status(f"{pipeline.name}-sink").tasks[0].state == "PAUSED")
    insert(pipeline, 100, 50)
    cut(pipeline)
    insert(pipeline, 150, 50)
    resume(pipeline)
    [reason] = failures(pipeline)
    assert reason.startswith("TWP-LOG-GAP: ")
    assert pipeline.destination("docs").count_documents({}) == 100, "nothing behind the gap is applied"
    assert "--force" in towpath("replay", pipeline.file, "--rebuild", "--yes", expect=1).stderr
    towpath("replay", pipeline.file, "--rebuild", "--yes", "--force", expect=1)
    assert pipeline.destination("docs").count_documents({}) == 50
    repair(pipeline, 200)


def supervised(pipeline: Pipeline) -> None:
    """`run` says what to do, restarts nothing, and ends with 1."""
    failures(pipeline)
    with subprocess.Popen([TOWPATH, "run", pipeline.file, "--json"], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        events = (json.loads(line) for line in process.stdout)
        stopped = next(event for event in events if event["event"] in ("stopped", "failed", "restart", "end"))
        process.terminate()
        end = [stopped, *events][-1]
    assert stopped["event"] == "stopped" and "TWP-LOG-GAP" in stopped["reason"]
    assert stopped["run"].startswith(f"towpath restart {pipeline.file} --accept-log-gap; towpath verify")
    assert (process.returncode, end["exit"], end["restarts"]) == (1, 1, {})


def noted(pipeline: Pipeline) -> dict[str, Any]:
    offsets = pipeline.destination_client["towpath"]["offsets"]
    found = offsets.find_one({"_id.pipeline": pipeline.name, "_id.topic": pipeline.topic("docs")})
    assert found is not None
    return dict(found)


def note(pipeline: Pipeline, change: dict[str, Any]) -> None:
    offsets = pipeline.destination_client["towpath"]["offsets"]
    assert offsets.update_one({"_id": noted(pipeline)["_id"]}, change).modified_count == 1


CHANGES: dict[str, dict[str, Any]] = {
    "ends before": {"$inc": {"offset": 1000}},
    "has grown since": {"$set": {"lastAt": datetime(2026, 1, 1, tzinfo=UTC)}},
}


@pytest.mark.nightly
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_log_that_was_cut_before_the_position_stops_the_sink(
    make_pipeline: MakePipeline, change: dict[str, Any]
) -> None:
    """As an unclean election leaves it: the position, not the log, is changed here."""
    pipeline = make_pipeline(ONE)
    deployed(pipeline)
    stop(pipeline)
    note(pipeline, change)
    insert(pipeline, 100, 50)
    assert "TWP-LOG-END" in towpath("wait", pipeline.file, expect=2).stderr
    assert [one["code"] for one in broken(pipeline)] == ["TWP-LOG-END"]
    resume(pipeline)
    assert failures(pipeline)[0].startswith("TWP-LOG-END: ")
    towpath("restart", pipeline.file, "--accept-log-gap")
    repair(pipeline, 150)


@pytest.mark.nightly
def test_a_topic_that_was_made_again_stops_the_sink_wherever_its_end_is(make_pipeline: MakePipeline) -> None:
    pipeline = make_pipeline(ONE)
    deployed(pipeline, 10)
    stop(pipeline)
    topic = pipeline.topic("docs")
    with opened(pipeline.file) as it:
        it.topics.delete([topic])
        until("end of the topic", lambda: topic not in it.topics.all())
        it.topics.create([topic], 1, -1, change_settings(it.pipeline))
    insert(pipeline, 10, 100)
    assert noted(pipeline)["offset"] < ends(pipeline)[1]
    assert "TWP-LOG-TOPIC" in towpath("wait", pipeline.file, expect=2).stderr
    assert [one["code"] for one in broken(pipeline)] == ["TWP-LOG-TOPIC"]
    resume(pipeline)
    assert failures(pipeline)[0].startswith("TWP-LOG-TOPIC: ")
    rebuild = ("replay", pipeline.file, "--rebuild", "--yes")
    assert f"missing  {topic}, partition 0: TWP-LOG-TOPIC" in towpath(*rebuild, expect=1).stderr
    said = towpath("restart", pipeline.file, "--accept-log-gap").stderr
    assert "the sink continues at offset 0" in said
    pipeline.wait()
    assert "TWP-LOG-TOPIC" in towpath(*rebuild, expect=1).stderr  # the new topic lacks what the old one held
    pipeline.assert_same("docs", at_least=110)


def ends(pipeline: Pipeline) -> tuple[int, int]:
    with opened(pipeline.file) as it:
        return pipeline_ends(it.pipeline, it.topics)[pipeline.topic("docs"), 0]


@pytest.mark.nightly
def test_what_is_deleted_after_it_was_applied_is_nothing(make_pipeline: MakePipeline) -> None:
    """Neither for a sink that was just stopped by the version before, nor for one that continues."""
    pipeline = make_pipeline(ONE)
    deployed(pipeline)
    stop(pipeline)
    note(pipeline, {"$unset": {"clear": "", "topicId": "", "lastAt": ""}})
    assert cut(pipeline) == noted(pipeline)["offset"] + 1, "the mark of the last transaction is gone as well"
    assert broken(pipeline) == []
    resume(pipeline)
    pipeline.wait()
    until("look at an idle partition", lambda: noted(pipeline).get("clear") == ends(pipeline)[1])
    assert noted(pipeline)["topicId"]
    insert(pipeline, 100, 50)
    pipeline.wait()
    until("look at an idle partition", lambda: noted(pipeline).get("clear") == ends(pipeline)[1])
    cut(pipeline)
    insert(pipeline, 150, 50)
    pipeline.wait()
    assert pipeline.status()["log_breaks"] == []
    towpath("restart", pipeline.file, "--all")
    pipeline.wait()
    pipeline.assert_same("docs", at_least=200)


@pytest.mark.nightly
def test_in_plain_mode_a_gap_is_told_while_the_sink_stands(make_pipeline: MakePipeline) -> None:
    pipeline = make_pipeline(replace(ONE, mode="plain", copy="towpath"))
    deployed(pipeline)
    stop(pipeline)
    insert(pipeline, 100, 50)
    first = cut(pipeline)
    insert(pipeline, 150, 50)
    assert "TWP-LOG-GAP" in towpath("wait", pipeline.file, expect=2).stderr
    assert [(one["code"], one["first"]) for one in broken(pipeline)] == [("TWP-LOG-GAP", first)]
    assert f"the sink continues at offset {first:,}" in towpath("restart", pipeline.file, "--accept-log-gap").stderr
    repair(pipeline, 200)
