"""A nightly run without a program that tests need fails."""

from __future__ import annotations

import pytest

from tests.support.skips import refuse


def skipped(*markers: str) -> pytest.TestReport:
    keywords, reason = dict.fromkeys(markers, 1), ("test_it.py", 1, "Skipped: no zsh here")
    return pytest.TestReport("test_it.py::test_it", ("test_it.py", 1, "test_it"), keywords, "skipped", reason, "setup")


def test_a_skip_becomes_a_failure_with_its_reason() -> None:
    refuse(report := skipped("servers"))
    assert (report.outcome, report.longrepr) == ("failed", "Skipped: no zsh here; --nightly skips nothing")


def test_expected_failures_and_tests_of_images_stay_as_they_are() -> None:
    refuse(image := skipped("containers"))
    (expected := skipped()).wasxfail = "reason"
    refuse(expected)
    assert image.outcome == expected.outcome == "skipped"
