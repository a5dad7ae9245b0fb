"""A plan's rules, without servers: what is estimated from which facts, and what stops a pipeline."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import bson
import pytest

from tests.support.schema import complaints
from towpath.checks.log import Oplog
from towpath.checks.planning import estimates
from towpath.checks.planning.decide import Plan, decide
from towpath.checks.planning.estimates import CopyTime, LogSize, OplogNeed
from towpath.checks.planning.facts import Disk, Facts, Sample, Unknown, Writes
from towpath.checks.planning.render import between, json_fields, text
from towpath.checks.planning.sample import compressed_size, documents_in, scattered
from towpath.cli.report.plan import write_report
from towpath.config.draft import write_pipeline_file
from towpath.config.events import VERSION
from towpath.config.finding import error, ok, warning
from towpath.config.loading import read
from towpath.config.pipeline import Pipeline
from towpath.deploy.inventory import Extent

FILE = Path("shop.toml")
GB = 10**9
#: A million documents of 1 KB, read at 50,000 a second.
ORDERS = Extent("shop.orders", "shop.orders", 1_000_000, GB, GB // 2, 2, GB // 50)
SAMPLE = Sample(
    seconds=3, threads=4, documents=150_000, bytes=150_000_000, natural=(), kept_bytes=1000, compressed_bytes=600
)
#: Two days at 1 MB/s.
OPLOG = Oplog(span=172_800, size=172_800_000_000, limit=172_800_000_000)
WRITES = Writes(seconds=3_600, entries=72_000, bytes=72_000_000, own_entries=36_000, own_bytes=36_000_000)
DISK = Disk("disk of the destination's primary", 100 * GB, 200 * GB)


@pytest.fixture(scope="module")
def pipeline(tmp_path_factory: pytest.TempPathFactory) -> Pipeline:
    return read(write_pipeline_file(tmp_path_factory.mktemp("plan") / "shop.toml", include=["shop.*"]))


@pytest.fixture
def facts(pipeline: Pipeline) -> Facts:
    return Facts(
        pipeline=pipeline,
        findings=(ok("source", "fine"),),
        unreachable={},
        deployed=False,
        collections=(ORDERS,),
        sample=SAMPLE,
        oplog=OPLOG,
        writes=WRITES,
        replicas=3,
        kafka_disks=tuple(Disk(f"broker {number}: /kafka", 50 * GB, 60 * GB) for number in (1, 2, 3)),
        destination_disk=DISK,
    )


def seconds(plan: Plan) -> tuple[float, float]:
    assert isinstance(plan.copy, CopyTime)
    return plan.copy.seconds


def levels(plan: Plan, subject: str) -> list[str]:
    return [finding.level for finding in plan.findings if finding.subject == subject]


def test_a_pipeline_without_trouble(facts: Facts) -> None:
    plan = decide(facts, FILE)
    assert (plan.errors, plan.unknown) == (0, {})
    shortest, longest = seconds(plan)
    assert shortest == pytest.approx(20)  # of a million at 50,000 a second
    assert 60 < longest < 240
    assert isinstance(plan.log, LogSize)
    assert plan.log.copy == 3 * 600_000_000  # three replicas of 60 %
    assert plan.log.day == 86_400 * 500_000 * 3 * 0.6  # half of the oplog's 1 MB/s
    assert plan.log.free == 150 * GB
    assert [levels(plan, f"plan {part}") for part in ("oplog", "log", "destination")] == [["ok"]] * 3
    assert [command.line.split()[1] for command in plan.commands] == [
        *("deploy", "deploy", "run", "status", "prepare", "wait", "verify", "cutover")
    ]


def test_connect_is_the_slower_one(facts: Facts) -> None:
    quick = replace(SAMPLE, documents=3_000_000, bytes=3 * GB)
    assert seconds(decide(replace(facts, sample=quick), FILE))[0] == pytest.approx(1e6 * 13.7e-6, rel=0.2)


def test_large_documents_take_longer(facts: Facts) -> None:
    large = replace(ORDERS, documents=10_000)
    sample = replace(SAMPLE, documents=1_500)
    assert seconds(decide(replace(facts, collections=(large,), sample=sample), FILE))[0] == pytest.approx(20)
    assert seconds(decide(replace(facts, collections=(large,), sample=sample), FILE))[1] > 30


def test_the_limits_of_the_copy_hold(facts: Facts, pipeline: Pipeline) -> None:
    limited = pipeline.changed(capture={"documents_per_second": 1_000})
    plan = decide(replace(facts, pipeline=limited), FILE)
    assert seconds(plan) == (1_000, 1_000)
    assert isinstance(plan.copy, CopyTime)
    assert "the limits in [capture] alone take 17 min" in plan.copy.basis


def test_no_copy_takes_no_time_and_no_log(facts: Facts, pipeline: Pipeline) -> None:
    none = pipeline.changed(capture={"copy_method": "none"})
    plan = decide(replace(facts, pipeline=none, sample=Unknown("--sample 0")), FILE)
    assert seconds(plan) == (0, 0)
    assert levels(plan, "plan oplog") == []


def test_empty_collections_take_no_time(facts: Facts) -> None:
    empty = replace(ORDERS, documents=0, bytes=0)
    plan = decide(replace(facts, collections=(empty,), sample=Unknown("the collections hold no documents")), FILE)
    assert seconds(plan) == (0, 0)
    assert isinstance(plan.log, LogSize)
    assert plan.log.copy == 0
    assert plan.unknown.keys() == {"sample"}


@pytest.mark.parametrize(
    ("hours", "level"), [(1 / 3600, "error"), (15 / 3600, "error"), (30 / 3600, "warning"), (0.1, "warning"), (1, "ok")]
)
def test_the_oplog_holds_the_copy(facts: Facts, hours: float, level: str) -> None:
    full = Oplog(span=round(hours * 3600), size=1000, limit=1000)
    plan = decide(replace(facts, oplog=full), FILE)
    assert levels(plan, "plan oplog") == [level]
    stops = [finding for finding in plan.findings if finding.subject == "plan oplog" and finding.level != "ok"]
    assert all("replSetResizeOplog" in finding.advice for finding in stops)
    assert plan.errors == (level == "error")


def test_a_new_oplog_stops_nothing_and_the_newest_changes_stand_for_the_day(facts: Facts) -> None:
    plan = decide(replace(facts, oplog=Oplog(span=10, size=10, limit=1000)), FILE)
    assert isinstance(plan.log, LogSize)
    assert plan.log.day == 24 * 36_000_000 * 3 * 0.6
    assert levels(plan, "plan oplog") == ["ok"]
    assert isinstance(plan.oplog, OplogNeed)
    assert plan.oplog.young


@pytest.mark.parametrize(("free", "level"), [(1, "error"), (700_000_000, "warning"), (2 * GB, "ok")])
def test_disks_hold_what_comes(facts: Facts, free: int, level: str) -> None:
    plan = decide(replace(facts, destination_disk=replace(DISK, free=free)), FILE)
    assert levels(plan, "plan destination") == [level]
    broker = Disk("broker 1: /kafka", 3 * free, 4 * free)
    assert levels(decide(replace(facts, kafka_disks=(broker,)), FILE), "plan log") == [level]


def test_a_disk_of_an_old_broker_is_not_judged(facts: Facts) -> None:
    plan = decide(replace(facts, kafka_disks=(Disk("broker 1: /kafka", None, None),)), FILE)
    assert levels(plan, "plan log") == []
    assert "broker 1: /kafka: free space unknown" in text(plan)


def test_sizes_come_from_the_sample_where_the_server_reports_none(facts: Facts) -> None:
    blind = replace(ORDERS, bytes=None, storage=None, index_bytes=None)
    plan = decide(replace(facts, collections=(blind,)), FILE)
    assert seconds(plan)[0] == pytest.approx(20)
    assert plan.unknown.keys() == {"destination"}
    assert " ? " in text(plan)


def test_errors_of_check_stop_it_and_the_plan_comes_first_again(facts: Facts) -> None:
    bad = (ok("a", "fine"), warning("b", "hm", "x"), error("c", "bad", "mend it"))
    plan = decide(replace(facts, findings=bad), Path("my shop.toml"))
    assert [finding.level for finding in plan.findings[:2]] == ["error", "warning"]
    assert plan.commands[0].line == "towpath plan 'my shop.toml'"
    shown = text(plan)
    assert shown.startswith("plan of shop: 1 error to settle first\n")
    assert "error    c: bad\n         → mend it" in shown


def test_what_is_deployed_is_not_deployed_again(facts: Facts) -> None:
    plan = decide(replace(facts, deployed=True, destination_disk=replace(DISK, free=1)), FILE)
    assert not [command for command in plan.commands if "deploy" in command.line]
    assert text(plan).startswith("plan of shop: deployed already\n")
    assert plan.errors == 0  # what the disk holds may be the copy


def test_an_operator_creates_the_connectors(facts: Facts, pipeline: Pipeline) -> None:
    plan = decide(replace(facts, pipeline=pipeline.changed(connect={"owner": "strimzi"})), FILE)
    lines = [command.line for command in plan.commands]
    assert lines[1:4] == [
        "towpath deploy shop.toml",
        "towpath manifests shop.toml > shop.yaml",
        "kubectl apply -f shop.yaml",
    ]
    assert not [line for line in lines if line.startswith("towpath run")]


def nothing_known(facts: Facts) -> Facts:
    why = Unknown("no answer")
    return replace(
        facts,
        unreachable={"source": "cannot reach it", "kafka": "nor that"},
        deployed=why,
        collections=why,
        sample=why,
        oplog=why,
        writes=why,
        replicas=why,
        kafka_disks=why,
        destination_disk=why,
    )


def test_a_plan_of_nothing_says_why(facts: Facts) -> None:
    plan = decide(nothing_known(facts), FILE)
    shown = text(plan)
    assert shown.startswith("plan of shop: incomplete: cannot read kafka, source\n")
    assert shown.count("unknown: no answer") >= 6
    assert json_fields(plan)["copy"] is None
    assert set(plan.unknown.values()) == {"no answer"}


@pytest.mark.parametrize("known", [True, False])
def test_json_is_as_described(facts: Facts, known: bool) -> None:
    plan = decide(facts if known else nothing_known(facts), FILE)
    line: dict[str, Any] = json.loads(json.dumps({"v": VERSION, **json_fields(plan)}))
    assert list(complaints("plan", line)) == []


def test_text_fits_a_terminal(facts: Facts) -> None:
    many = tuple(replace(ORDERS, namespace=f"shop.{'long-' * 12}{number}") for number in range(30))
    shown = text(decide(replace(facts, collections=many), FILE))
    assert max(map(len, shown.splitlines())) <= 80
    assert "and 10 more" in shown
    assert "30,000,000" in shown


def test_the_page_holds_what_the_text_holds(facts: Facts, tmp_path: Path) -> None:
    plan = decide(replace(facts, findings=(error("c", "<b>bad</b>", "mend it"),)), FILE)
    write_report(tmp_path / "plan.html", plan)
    page = (tmp_path / "plan.html").read_text()
    for words in (
        "1 error to settle first",
        "shop.orders",
        "1,000,000",
        "mend it",
        "towpath plan shop.toml",
        "20 s to",
    ):
        assert words in page
    assert "<b>bad</b>" not in page


def test_estimates_in_words() -> None:
    assert between((0, 0)) == "no time"
    assert between((0, 0.4)) == "less than 1 s"
    assert between((5, 5)) == "5 s"
    assert between((20, 900)) == "20 s to 15 min"


def test_costs_are_those_of_the_committed_benchmark() -> None:
    """Within a factor of 1.5: they are figures of one machine."""
    found = json.loads((Path(__file__).parents[2] / "docs" / "benchmarks" / "load.json").read_text())
    mixed, large = (part["medians"]["towpath"] for part in found["parts"][:2])
    for cost, name in (
        (estimates.CONNECT, "connect-0"),
        (estimates.KAFKA, "kafka"),
        (estimates.DESTINATION, "destination-0"),
    ):
        assert cost.warm * 1e6 == pytest.approx(large[f"{name}: CPU µs/document"], rel=0.5)
        assert cost.cold >= mixed[f"{name}: CPU µs/document"] * 1e-6 / 1.5


def test_documents_of_a_batch() -> None:
    documents = [bson.encode({"_id": number, "s": "x" * number}) for number in range(5)]
    assert list(documents_in(b"".join(documents))) == documents
    assert list(documents_in(b"")) == []


def test_record_ids_that_rise_or_fall_are_not_scattered() -> None:
    assert not scattered(range(100))
    assert not scattered(range(100, 0, -1))
    assert not scattered([])
    assert not scattered([5])
    assert scattered([number * 7_919 % 1_000 for number in range(100)])


def test_the_log_is_compressed_in_blocks() -> None:
    alike = [bson.encode({"_id": number, "text": "the same text again and again " * 20}) for number in range(1_000)]
    size = sum(map(len, alike))
    assert compressed_size([alike]) < size / 5
    noise = [bson.encode({"_id": number, "noise": Random(number).randbytes(1_000)}) for number in range(100)]
    assert 0.95 < compressed_size([noise]) / sum(map(len, noise)) < 1.2
