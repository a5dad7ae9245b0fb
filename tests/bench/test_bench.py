"""The pure parts of the benchmarks: workloads, figures, and the report that is made from results."""

from __future__ import annotations

import json
from collections import Counter
from itertools import islice
from pathlib import Path
from random import Random

import bson
import pytest
from pymongo import DeleteOne, UpdateOne

from tests.bench import arrays, hops, load, page, report
from tests.bench.measured import Run
from tests.bench.pairs import in_turn
from tests.bench.streaming import hundredths, percentiles

_CPU = {"connect-0": 2.0}


def test_a_reading_has_100_bytes() -> None:
    assert {len(bson.encode(load.reading(Random(seed), 3600))) for seed in range(5)} == {100} == {arrays.READING}


def test_no_document_that_was_updated_is_deleted() -> None:
    made = list(islice(load.changes(1, existing=100), 20_000))
    deleted = {str(one._filter) for one in made if isinstance(one, DeleteOne)}
    updated = {str(one._filter) for one in made if isinstance(one, UpdateOne)}
    assert len(deleted) > 500 and len(updated) == 100
    assert not deleted & updated


def test_the_changes_of_one_seed_are_the_same_and_in_the_parts_of_their_mix() -> None:
    first, second = (list(islice(load.changes(7, existing=50), 5000)) for _ in range(2))
    assert [repr(one) for one in first] == [repr(one) for one in second]
    kinds = Counter(type(one).__name__ for one in first)
    assert 0.5 < kinds["UpdateOne"] / 5000 < 0.6 and 0.08 < kinds["ReplaceOne"] / 5000 < 0.12


def test_percentiles_are_those_of_all_lags() -> None:
    lags = [float(n) for n in range(201)]
    Random(1).shuffle(lags)
    assert percentiles(hundredths(lags)) == {"p50": 100, "p95": 190, "p99": 198, "max": 200}


def test_every_side_is_first_in_turn() -> None:
    assert [in_turn(["a", "b", "c"], turn)[0] for turn in range(4)] == ["a", "b", "c", "a"]


def test_the_bytes_of_a_client_are_those_of_all_its_tasks_and_of_no_other_client() -> None:
    metrics = """# TYPE sent untyped
sent{client_id="connector-producer-a-source-0"} 5.0
sent{client_id="connector-producer-a-source-1",node="x"} 1.5E1
sent{client_id="connector-producer-ab-source-0"} 100.0
other{client_id="connector-producer-a-source-0"} 1000.0
"""
    assert hops.client_bytes(metrics, "sent", "connector-producer-a-source-") == 20
    assert hops.client_bytes(metrics, "sent", "connector-producer-c-source-") == 0


def _found() -> report.Found:
    runs = [Run("towpath", 100, seconds, _CPU, {"B/push": 200.0}) for seconds in (1.0, 2.0, 4.0)]
    runs += [Run("stock", 100, 8.0, _CPU, {"B/push": 300_000.0})]
    goals = [report.at_least("bytes", 1500, 500), report.at_most("lag", 2, 1, "s")]
    bytes_of = {f"{hop} B/push": 1.0 for hop in hops.HOPS}
    runs = [Run(run.side, run.items, run.seconds, run.cpu, {**run.figures, **bytes_of}) for run in runs]
    series = {"growth": {"towpath": [(10, 190.0), (20, 190.0)], "stock": [(10, 3e3), (20, 6e3)]}, "reading": 100}
    return report.Found([report.Part("pushes", "push", runs)], goals, ["a | note"], series)


def test_medians_and_ratios_are_of_the_runs_of_a_side() -> None:
    medians = _found().parts[0].medians()
    assert medians["towpath"]["pushes/s"] == 50 and medians["stock"]["pushes/s"] == 12.5
    assert medians["towpath"]["connect-0: CPU µs/push"] == 20_000
    assert report.ratios_of(medians)["stock"]["B/push"] == 1500


def test_the_page_tells_what_was_demanded_and_what_was_missed() -> None:
    told = report.as_json("arrays", "scripts/bench arrays", {"seed": 1}, _found(), 12)
    lines = list(page.page([json.loads(json.dumps(told))], {"arrays": ["growth.svg"]}))
    assert "| arrays | bytes | at least 500 times | 1,500 times |  |" in lines
    assert "| arrays | lag | at most 1 s | 2 s | **missed** |" in lines
    assert "| B/push | 200 | 300,000 | 1,500 |" in lines
    assert "![growth](growth.svg)" in lines


def test_the_same_results_make_the_same_pictures(tmp_path: Path) -> None:
    plots = pytest.importorskip("tests.bench.plots", reason="matplotlib comes with the extra `bench`")
    told = report.as_json("arrays", "scripts/bench arrays", {"seed": 1}, _found(), 12)
    first = [file.read_bytes() for file in plots.plots(told, tmp_path)]
    assert len(first) == 2 and all(b"<svg" in picture for picture in first)
    assert [file.read_bytes() for file in plots.plots(told, tmp_path)] == first
