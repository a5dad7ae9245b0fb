"""The names of the gate's lines and of the steps."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

from click.testing import CliRunner

from tests.support.cutover_world import STOPPED
from towpath.cli import towpath
from towpath.cli.cutover import with_words
from towpath.config.events import Step
from towpath.cutover.gate import GATE, PRECONDITIONS
from towpath.cutover.steps import RESTORE, STEPS, UNDO_ORDER
from towpath.store import positions
from towpath.store.cutover import Cutover, State


def test_the_guide_explains_every_line() -> None:
    page = (Path(__file__).parents[2] / "docs" / "how-to" / "cutover.md").read_text()
    cells = re.findall(r"^\| ([\w ,-]+) \|", page, re.MULTILINE)
    explained = {name for cell in cells for name in cell.split(", ")}
    assert {rule.name for rule in (*GATE, *PRECONDITIONS)} <= explained


def test_steps_have_distinct_names_and_those_with_an_undo_have_a_place_in_its_order() -> None:
    assert len({step.name for step in STEPS}) == len(STEPS)
    assert {step.name for step in STEPS if step.undo is not None} == {step.name for step in UNDO_ORDER}
    words = with_words(Step(step=RESTORE, seconds=1.25, commands=1234)).words
    assert words == "restoring the schema of the new primary: 1.2 s, 1,234 commands"


def test_the_sink_refuses_to_write_in_states_that_a_marker_has() -> None:
    """In which nothing resumes it, as every test with `cutover_world` asserts."""
    java = Path(__file__).parents[2] / "transforms/src/main/java/io/towpath/sink/CutoverMarker.java"
    [listed] = re.findall(r"STOPPED = Set\.of\((.*?)\);", java.read_text(encoding="utf-8"), re.DOTALL)
    assert set(re.findall(r'"(.*?)"', listed)) == set(STOPPED) <= set(get_args(State))
    assert positions.CUTOVERS == "cutovers" and "state" in Cutover.__dataclass_fields__


def test_a_fail_back_has_no_choice_of_a_reverse_pipeline(tmp_path: Path) -> None:
    options = ["--back", "--no-reverse-pipeline"]
    done = CliRunner().invoke(towpath, ["cutover", str(tmp_path / "shop.toml"), *options])
    assert "belongs to the cutover" in done.output
