"""A plan, without servers: what is shown of which facts, and what stops a pipeline."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import bson
import pytest

from tests.support.schema import complaints
from towpath.checks.capture import Oplog
from towpath.checks.facts import Extent
from towpath.checks.plan import (
    Disk,
    LogSize,
    Pause,
    Plan,
    Sample,
    Unknown,
    Writes,
    compressed_size,
    documents_in,
)
from towpath.checks.rule import error, ok, warning
from towpath.cli.check import commands, json_fields, text, write_report
from towpath.config.events import VERSION
from towpath.config.loading import read, write_pipeline_file
from towpath.config.pipeline import Pipeline

FILE = Path("shop.toml")
GB = 10**9
#: A million documents of 1 KB.
ORDERS = Extent("shop.orders", "shop.orders", 1_000_000, GB, GB // 2, 2, GB // 50)
SAMPLE = Sample(seconds=3, documents=150_000, bytes=150_000_000, log_ratio=0.6)
#: Two days at 1 MB/s.
OPLOG = Oplog(span=172_800, size=172_800_000_000, limit=172_800_000_000)
WRITES = Writes(seconds=3_600, entries=72_000, bytes=72_000_000, own_entries=36_000, own_bytes=36_000_000)
DISK = Disk("disk of the destination's primary", 100 * GB, 200 * GB)


@pytest.fixture(scope="module")
def pipeline(tmp_path_factory: pytest.TempPathFactory) -> Pipeline:
    return read(write_pipeline_file(tmp_path_factory.mktemp("plan") / "shop.toml", include=["shop.*"]))


@pytest.fixture
def plan(pipeline: Pipeline) -> Plan:
    return Plan(
        pipeline=pipeline,
        found=(ok("fine", about="source"),),
        unreachable={},
        deployed=False,
        collections=(ORDERS,),
        sample=SAMPLE,
        oplog=OPLOG,
        changes=WRITES,
        replicas=3,
        kafka_disks=tuple(Disk(f"broker {number}: /kafka", 50 * GB, 60 * GB) for number in (1, 2, 3)),
        destination_disk=DISK,
        pause=Pause(1, 1_000_000, 1, 0, 0.001),
    )


def levels(plan: Plan, subject: str) -> list[str]:
    return [finding.level for finding in plan.findings if finding.subject == subject]


def log_of(plan: Plan) -> LogSize:
    assert isinstance(plan.log, LogSize)
    return plan.log


def test_a_pipeline_without_a_problem(plan: Plan) -> None:
    assert (plan.errors, plan.unknown) == (0, {})
    assert log_of(plan).copy_bytes == 3 * 600_000_000  # three replicas of 60 %
    assert log_of(plan).day_bytes == 86_400 * 500_000 * 3 * 0.6  # half of the oplog's 1 MB/s
    assert log_of(plan).free_bytes == 150 * GB
    assert [levels(plan, f"plan {part}") for part in ("log", "destination")] == [["ok"]] * 2
    assert [line.split()[1] for line, _ in commands(plan, FILE)] == [
        *("deploy", "deploy", "run", "status", "prepare", "wait", "verify", "cutover")
    ]
    shown = text(plan, FILE)
    assert "one thread read 50,000 documents/s, 50.0 MB/s" in shown
    assert "after it, unique indexes with 1,000,000 entries (1) are converted" in " ".join(shown.split())
    slow = replace(plan, pause=Pause(1, 50_000_000, 1, 50_000_000, 0.001))
    assert "in it, unique indexes with 50,000,000 entries (1) are rebuilt" in " ".join(text(slow, FILE).split())
    assert levels(slow, "plan pause") == ["warning"]


def test_the_limits_of_the_copy_are_a_time(plan: Plan, pipeline: Pipeline) -> None:
    limited = pipeline.changed(capture={"documents_per_second": 1_000})
    assert "the limits in [capture] alone take 17 min" in text(replace(plan, pipeline=limited), FILE)
    assert "limits" not in text(plan, FILE)


def test_no_copy_needs_no_log(plan: Plan, pipeline: Pipeline) -> None:
    none = pipeline.changed(capture={"copy_method": "none"})
    assert log_of(replace(plan, pipeline=none)).copy_bytes == 0
    assert "nothing is copied" in text(replace(plan, pipeline=none), FILE)


def test_empty_collections_need_no_log(plan: Plan) -> None:
    empty = replace(ORDERS, documents=0, bytes=0)
    plan = replace(plan, collections=(empty,), sample=Unknown("the collections hold no documents"))
    assert log_of(plan).copy_bytes == 0
    assert plan.unknown.keys() == {"sample"}


def test_the_newest_changes_stand_for_the_day_where_the_oplog_is_new(plan: Plan) -> None:
    plan = replace(plan, oplog=Oplog(span=10, size=10, limit=1000))
    assert log_of(plan).day_bytes == 24 * 36_000_000 * 3 * 0.6
    assert "too new to tell" in text(plan, FILE)


@pytest.mark.parametrize(("free", "level"), [(1, "error"), (700_000_000, "warning"), (2 * GB, "ok")])
def test_disks_hold_what_comes(plan: Plan, free: int, level: str) -> None:
    assert levels(replace(plan, destination_disk=replace(DISK, free=free)), "plan destination") == [level]
    broker = Disk("broker 1: /kafka", 3 * free, 4 * free)
    assert levels(replace(plan, kafka_disks=(broker,)), "plan log") == [level]


def test_a_disk_of_an_old_broker_is_not_judged(plan: Plan) -> None:
    plan = replace(plan, kafka_disks=(Disk("broker 1: /kafka", None, None),))
    assert levels(plan, "plan log") == []
    assert "broker 1: /kafka: free space unknown" in text(plan, FILE)


def test_a_large_document_is_shown(plan: Plan) -> None:
    assert "the largest document had 9.4 MB" in text(replace(plan, sample=replace(SAMPLE, largest=9 << 20)), FILE)
    assert "largest" not in text(plan, FILE)


def test_sizes_come_from_the_sample_where_the_server_reports_none(plan: Plan) -> None:
    plan = replace(plan, collections=(replace(ORDERS, bytes=None, storage_bytes=None, index_bytes=None),))
    assert plan.total == (1_000_000, GB)
    assert plan.unknown.keys() == {"destination"}
    assert " ? " in text(plan, FILE)


def test_errors_of_check_stop_it_and_the_plan_comes_first_again(plan: Plan) -> None:
    plan = replace(
        plan, found=(ok("fine", about="a"), warning("hm", "x", about="b"), error("bad", "fix it", about="c"))
    )
    file = Path("my shop.toml")
    assert [finding.level for finding in plan.findings[:2]] == ["error", "warning"]
    assert commands(plan, file)[0][0] == "towpath plan 'my shop.toml'"
    shown = text(plan, file)
    assert shown.startswith("plan of shop: 1 error to resolve first\n")
    assert "error    c: bad\n         → fix it" in shown


def test_what_is_deployed_is_not_deployed_again(plan: Plan) -> None:
    plan = replace(plan, deployed=True, destination_disk=replace(DISK, free=1))
    assert not [line for line, _ in commands(plan, FILE) if "deploy" in line]
    assert text(plan, FILE).startswith("plan of shop: deployed already\n")
    assert plan.errors == 0  # what the disk holds may be the copy


def test_an_operator_creates_the_connectors(plan: Plan, pipeline: Pipeline) -> None:
    owned = replace(plan, pipeline=pipeline.changed(connect={"owner": "strimzi"}))
    lines = [line for line, _ in commands(owned, FILE)]
    assert lines[1:4] == [
        "towpath deploy shop.toml",
        "towpath manifests shop.toml > shop.yaml",
        "kubectl apply -f shop.yaml",
    ]
    assert not [line for line in lines if line.startswith("towpath run")]


def nothing_known(plan: Plan) -> Plan:
    why = Unknown("no answer")
    return replace(
        plan,
        unreachable={"source": "cannot reach it", "kafka": "nor that"},
        deployed=why,
        collections=why,
        sample=why,
        oplog=why,
        changes=why,
        replicas=why,
        kafka_disks=why,
        destination_disk=why,
        pause=why,
    )


def test_a_plan_of_nothing_says_why(plan: Plan) -> None:
    plan = nothing_known(plan)
    shown = text(plan, FILE)
    assert shown.startswith("plan of shop: incomplete: cannot read kafka, source\n")
    assert shown.count("unknown: no answer") >= 6
    assert json_fields(plan, FILE)["sample"] is None
    assert set(plan.unknown.values()) == {"no answer"}


@pytest.mark.parametrize("known", [True, False])
def test_json_is_as_described(plan: Plan, known: bool) -> None:
    plan = plan if known else nothing_known(plan)
    line: dict[str, Any] = json.loads(json.dumps({"v": VERSION, **json_fields(plan, FILE)}))
    assert list(complaints("plan", line)) == []


def test_text_fits_a_terminal(plan: Plan) -> None:
    many = tuple(replace(ORDERS, namespace=f"shop.{'long-' * 12}{number}") for number in range(30))
    shown = text(replace(plan, collections=many), FILE)
    assert max(map(len, shown.splitlines())) <= 80
    assert "and 10 more" in shown
    assert "30,000,000" in shown


def test_the_page_holds_what_the_text_holds(plan: Plan, tmp_path: Path) -> None:
    plan = replace(plan, found=(error("<b>bad</b>", "fix it", about="c"),))
    write_report(tmp_path / "plan.html", plan, FILE)
    page = (tmp_path / "plan.html").read_text()
    for words in (
        "1 error to resolve first",
        "shop.orders",
        "1,000,000",
        "fix it",
        "towpath plan shop.toml",
        "50.0 MB/s",
    ):
        assert words in page
    assert "<b>bad</b>" not in page


def test_documents_of_a_batch() -> None:
    documents = [bson.encode({"_id": number, "s": "x" * number}) for number in range(5)]
    assert list(documents_in(b"".join(documents))) == documents
    assert list(documents_in(b"")) == []


def test_the_log_is_compressed_in_blocks() -> None:
    alike = [bson.encode({"_id": number, "text": "the same text again and again " * 20}) for number in range(1_000)]
    size = sum(map(len, alike))
    assert compressed_size([alike]) < size / 5
    noise = [bson.encode({"_id": number, "noise": Random(number).randbytes(1_000)}) for number in range(100)]
    assert 0.95 < compressed_size([noise]) / sum(map(len, noise)) < 1.2
