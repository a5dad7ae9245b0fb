"""Reports: pages of HTML that escape what they show, and say what was found."""

from __future__ import annotations

import re
from collections import Counter
from datetime import UTC, datetime
from importlib import resources
from pathlib import Path

import pytest

from tests.checks.test_check_judgements import PIPELINE
from towpath.cli import report
from towpath.cli.cutover import _steps
from towpath.cli.verdict import write_report
from towpath.config.events import CutoverNote, TimedEvent
from towpath.config.events import Step as StepDone
from towpath.config.pipeline import Pipeline
from towpath.config.text import utc
from towpath.errors import TowpathError
from towpath.verify.result import Example, VerificationResult
from towpath_verifier import Pair, Tally, Verdict

HOSTILE = "<script>alert('x')</script>"


def step(name: str, at: float, seconds: float, documents: int | None = None) -> StepDone:
    time = datetime.fromtimestamp(at, UTC)
    return StepDone(at=time, words=name, step=name, seconds=seconds, documents=documents)


def verdict_page(place: Path, pipeline: Pipeline) -> str:
    tally = Tally(Pair("shop.orders", "archive.orders"), expected=10, documents=8, notes=[HOSTILE])
    tally.kinds = Counter({"missing": 1, "different": 2})
    example = Example("shop.orders", HOSTILE, "missing", [("a.b", "1", None)], '{"a": 1}', None)
    write_report(place, pipeline, VerificationResult(Verdict([tally], seconds=2.0), [example]))
    return place.read_text(encoding="utf-8")


def test_a_verdict_shows_each_namespace_and_the_differences(tmp_path: Path) -> None:
    page = verdict_page(tmp_path / "verdict.html", PIPELINE.changed(source={"uri": "mongodb://u:secret@a/"}))
    assert "<title>move: not the same</title>" in page
    assert "shop.orders → archive.orders" in page
    assert re.findall(r'title="(\d+) (\w+)"', page) == [("5", "same"), ("1", "missing"), ("2", "different")]
    assert "<td>a.b</td><td>1</td><td>nothing</td>" in page
    assert "The first 1; 2 more." in page


def test_a_report_has_the_style_of_the_page_in_itself(tmp_path: Path) -> None:
    style = (resources.files("towpath.monitor") / "static" / "style.css").read_text()
    assert style.strip() in verdict_page(tmp_path / "verdict.html", PIPELINE)


def test_a_report_escapes_values_and_holds_no_password(tmp_path: Path) -> None:
    page = verdict_page(tmp_path / "verdict.html", PIPELINE.changed(source={"uri": "mongodb://u:secret@a/"}))
    assert HOSTILE not in page
    assert page.count("&lt;script&gt;") == 2
    assert "secret" not in page


def test_a_report_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(TowpathError, match=f"cannot write the report {tmp_path}: .*; choose another path"):
        report.write(tmp_path, "base", name="shop", headline="same", mark="same", facts={})


def test_the_steps_of_a_cutover_fill_its_time_line() -> None:
    events: list[TimedEvent] = [
        step("verifying", 110.0, 10.0, documents=2000),
        CutoverNote(event="stop writes", words="writes have ended", at=datetime.fromtimestamp(112.0, UTC)),
        step("waiting", 120.0, 8.0),
    ]
    first, second = _steps(events)
    assert first == (events[0], 0, 50, False)
    assert second == (events[-1], 60, 40, True)
    findings = [{"subject": "lag", "level": "error", "finding": "9 records"}]
    page = report.page(
        "cutover",
        name="shop",
        headline="not done",
        mark="bad",
        facts={"begun": utc(0)},
        gates=[findings],
        steps=[first, second],
        events=events,
    )
    assert '<td class="red">red</td><td>lag</td><td>9 records</td>' in page
    assert "<td>2,000 documents</td>" in page
    assert 'style="left:60.00%;width:40.00%"' in page
    assert "<dd>1970-01-01 00:00:00 UTC</dd>" in page
    assert page.count("00:01:52.000") == 1
