"""The generated report of the benchmarks is what their results say."""

from __future__ import annotations

import json
from pathlib import Path

from tests.bench.__main__ import BENCHES
from tests.bench.page import page as report


def test_the_report_is_what_the_results_say() -> None:
    folder = Path(__file__).parents[2] / "docs" / "benchmarks"
    found = [json.loads((folder / f"{name}.json").read_text()) for name in BENCHES]
    pictures = {name: [file.name for file in sorted(folder.glob(f"{name}*.svg"))] for name in BENCHES}
    assert "\n".join(report(found, pictures)) + "\n" == (folder / "report.md").read_text()
