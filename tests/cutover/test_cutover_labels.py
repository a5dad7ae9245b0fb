"""What people read of the gate and of the steps, and what programs read, whose names stay."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from towpath.cli import towpath
from towpath.cli.cutover import _print_event
from towpath.config.events import Check, Gate, Step, TimedEvent, label
from towpath.cutover.events import Reporter
from towpath.cutover.gate import GATE, PRECONDITIONS


def test_the_gate_says_re_read_requests_and_dead_letters(capsys: pytest.CaptureFixture[str]) -> None:
    names = [rule.name for rule in (*GATE, *PRECONDITIONS)]
    gate = Gate(checks=[Check(name, True, "found") for name in names])
    assert [check["name"] for check in json.loads(gate.line)["checks"]] == names
    assert {"reading again", "set aside", "collections", "way back", "forms"} <= set(names)
    _print_event(gate)
    lines = [line.removeprefix("ok   ").removesuffix("found").strip() for line in capsys.readouterr().out.splitlines()]
    assert {"re-read requests", "dead letters", "schema changes", "reverse pipeline", "schema privileges"} <= set(lines)
    assert not {"reading again", "set aside", "way back", "forms"} & set(lines)


def test_the_guide_explains_every_line() -> None:
    page = (Path(__file__).parents[2] / "docs" / "how-to" / "cutover.md").read_text()
    cells = re.findall(r"^\| ([\w ,-]+) \|", page, re.MULTILINE)
    explained = {name for cell in cells for name in cell.split(", ")}
    assert {label(rule.name) for rule in (*GATE, *PRECONDITIONS)} <= explained


def test_a_step_is_named_for_people_and_for_programs() -> None:
    events, lines = list[TimedEvent](), list[str]()
    with Reporter(events.append, lines.append).step("beginning the way back"):
        pass
    (event,) = events
    assert isinstance(event, Step)
    assert (event.step, event.words) == ("beginning the way back", "starting the reverse pipeline: 0.0 s")
    assert lines == ["starting the reverse pipeline …"]


@pytest.mark.parametrize("option", ["--no-reverse-pipeline", "--no-way-back"])
def test_both_names_of_the_option_are_known(option: str, tmp_path: Path) -> None:
    done = CliRunner().invoke(towpath, ["cutover", str(tmp_path / "shop.toml"), "--back", option])
    assert "belongs to the cutover" in done.output
