"""Each fault that is planted in the plugin has its place in today's sources, and a soak that has to notice it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.evidence.planted import PLANTED, ROOT, Planted
from benchmarks.soak.faults import FAULTS
from benchmarks.soak.states import STATES

SOURCES = ROOT / "transforms" / "src" / "main" / "java" / "io" / "towpath"


@pytest.mark.parametrize("planted", PLANTED, ids=[planted.name for planted in PLANTED])
def test_each_fault_changes_one_place_of_today_s_sources(planted: Planted) -> None:
    text = (SOURCES / planted.file).read_text()
    assert planted.applied_to(text) != text
    fault, state = planted.pair
    assert FAULTS[fault].hits not in STATES[state].never


def test_a_fault_whose_place_is_gone_or_not_the_only_one_is_refused() -> None:
    planted = PLANTED[0]
    with pytest.raises(ValueError, match="has this 0 times, not once"):
        planted.applied_to("class A {}")
    with pytest.raises(ValueError, match="has this 2 times, not once"):
        planted.applied_to(planted.right * 2)


def test_no_two_faults_are_the_same() -> None:
    assert len({planted.name for planted in PLANTED}) == len(PLANTED) >= 12
    assert len({(planted.file, planted.right) for planted in PLANTED}) == len(PLANTED)


def test_a_fault_without_its_place_is_not_built(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="nowhere"):
        replace(PLANTED[0], name="nowhere", right="no such text").build(tmp_path)
