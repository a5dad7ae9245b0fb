"""The pure parts of the benchmarks: workloads, numbers, and the report that is made from results. One runs, small."""

from __future__ import annotations

import json
from collections import Counter
from itertools import islice
from pathlib import Path
from random import Random

import bson
import pytest
from pymongo import DeleteOne, UpdateOne

from benchmarks.bench import __main__ as command
from benchmarks.bench import arrays, hops, load, page, report
from benchmarks.bench.loading import DataSet
from benchmarks.bench.measured import Run, Sample, steady
from benchmarks.bench.pairs import in_turn, pairs
from benchmarks.bench.streaming import hundredths, percentiles

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


@pytest.mark.parametrize("index", range(8))
def test_a_document_joined_from_bytes_is_the_same_as_an_encoded_one(index: int) -> None:
    whole = load.document(Random(3), index)
    fields = {name: value for name, value in whole.items() if name != "_id"}
    assert load.joined(whole["_id"], bson.encode(fields)) == bson.encode(whole)
    assert 800 < len(bson.encode(whole)) < 1000


def test_ids_rise_with_the_index() -> None:
    made = [load.rising(index).binary for index in range(100_000)]
    assert made == sorted(set(made))


def test_the_middle_of_a_run_is_from_a_third_to_nine_tenths() -> None:
    # half a second of processor time an item up to a third, a tenth of a second from there on
    samples = [
        Sample(float(at), done, {"p": cpu})
        for at, done, cpu in ((0, 0, 0.0), (5, 20, 10.0), (8, 40, 12.0), (9, 60, 14.0))
    ]
    middle = steady("towpath", 120, samples)
    assert (middle.items, middle.seconds) == (68, pytest.approx(8.7 - 5))
    assert middle.cpu == {"p": pytest.approx(13.4 - 10)}
    with pytest.raises(ValueError, match="before the first sample"):
        steady("towpath", 120, samples[1:])


def test_a_side_has_the_processor_time_of_all_processes_and_of_its_middle() -> None:
    middle = Run("towpath", 10, 1.0, {"a": 0.001, "b": 0.002})
    run = Run("towpath", 20, 4.0, {"a": 0.01, "b": 0.01}, {"lag": 7.0}, middle)
    assert report.Part("copies", "copy", [run]).medians()["towpath"] == {
        "copys/s": 5.0,
        "a: CPU µs/copy": pytest.approx(500),
        "b: CPU µs/copy": pytest.approx(500),
        "in all: CPU µs/copy": pytest.approx(1000),
        "lag": 7.0,
        "steady: copys/s": 10.0,
        "steady: a: CPU µs/copy": pytest.approx(100),
        "steady: b: CPU µs/copy": pytest.approx(200),
        "steady: in all: CPU µs/copy": pytest.approx(300),
    }


def test_a_set_counts_the_documents_of_all_its_collections() -> None:
    assert DataSet("mixed", "", 300, 100).count == 700 and len(DataSet("mixed", "", 300, 100).collections) == 5
    assert DataSet("large", "", 300).collections == ["documents"] and not DataSet("none", "").count


def test_every_side_is_first_in_turn() -> None:
    assert [in_turn(["a", "b", "c"], turn)[0] for turn in range(4)] == ["a", "b", "c", "a"]


def test_every_side_warms_up_once_and_no_two_runs_have_one_name() -> None:
    names: list[tuple[str, bool]] = []

    def one(name: str, side: str, warming: bool) -> Run:
        names.append((name, warming))
        return Run(side, 1, 1.0, _CPU)

    assert len(pairs("load", ["towpath", "towpath of v1"], 3, one)) == 6
    assert len({name for name, _ in names}) == 8 and names[:2] == [
        ("load-towpath-0", True),
        ("load-towpath-of-v1-0", True),
    ]


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
    runs = [Run(run.side, run.items, run.seconds, run.cpu, {**run.numbers, **bytes_of}) for run in runs]
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


def test_a_side_that_a_part_lacks_has_no_bar_there(tmp_path: Path) -> None:
    from benchmarks.bench.plots import plots  # matplotlib takes a second to load

    sides = (("towpath", "stock"), ("towpath", "mongodump to mongorestore"))
    parts = [report.Part("load", "document", [Run(side, 9, 1.0, _CPU) for side in those]) for those in sides]
    told = report.as_json("load", "scripts/bench load", {}, report.Found(parts), 12)
    assert [file.name for file in plots(told, tmp_path)] == ["load.svg"]


def test_the_same_results_make_the_same_pictures(tmp_path: Path) -> None:
    from benchmarks.bench.plots import plots  # matplotlib takes a second to load

    told = report.as_json("arrays", "scripts/bench arrays", {"seed": 1}, _found(), 12)
    first = [file.read_bytes() for file in plots(told, tmp_path)]
    assert len(first) == 2 and all(b"<svg" in picture for picture in first)
    assert [file.read_bytes() for file in plots(told, tmp_path)] == first


def test_the_report_is_what_the_results_say() -> None:
    folder = Path(__file__).parents[2] / "docs" / "benchmarks"
    found = [json.loads((folder / f"{name}.json").read_text()) for name in command.BENCHES]
    pictures = {name: [file.name for file in sorted(folder.glob(f"{name}*.svg"))] for name in command.BENCHES}
    assert "\n".join(page.page(found, pictures)) + "\n" == (folder / "report.md").read_text()


@pytest.mark.nightly
@pytest.mark.servers
def test_the_pause_of_a_cutover_is_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["bench", "cutover", "--small", "--results", str(tmp_path)])
    assert command.main() == 0
    (part,) = json.loads((tmp_path / "cutover.json").read_text())["parts"]
    assert len(part["medians"]) == 2
    for numbers in part["medians"].values():
        there = {name: seconds for name, seconds in numbers.items() if not name.startswith("back, ")}
        after = ("restoring the TTL of the new primary s", "converting indexes to unique s")
        outside = ("pause s", "writers waited s", *after)
        steps = sum(seconds for name, seconds in there.items() if name not in outside)
        assert 0 < steps < numbers["pause s"] < numbers["writers waited s"] + 0.5
        assert numbers["back, pause s"] > 0
