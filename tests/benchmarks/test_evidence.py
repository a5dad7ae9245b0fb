"""What the evidence command makes of its soaks: verdicts, exit code, page. No soak runs here."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from benchmarks.evidence import page, runs
from benchmarks.evidence.__main__ import exit_code
from benchmarks.evidence.planted import PLANTED, Planted
from benchmarks.evidence.runs import Soak, Tried, judged
from tests.support.awaited import until
from towpath.errors import StackError

FAULT, OTHER, SAME_PAIR = PLANTED[0], PLANTED[1], next(one for one in PLANTED[2:] if one.pair == PLANTED[4].pair)
LISTS = {"appends": 2000, "transactions": 300, "records": 2500, "states": 1700, "points": 2}
STRIKES = [["worker-kill", "copy"], ["worker-kill", "streaming"]]
HELD: dict[str, Any] = {
    "shape": "one",
    "seed": 5,
    "strikes": STRIKES,
    "struck": [{"hit": True}, {"hit": False}],
    "lists": LISTS,
}
FAILED: dict[str, Any] = {
    "shape": "three",
    "seed": 6,
    "strikes": STRIKES,
    "failed": "AssertionError: 2 violations;\n the first: log: lost",
}


def soaked(ended: int | None, *rounds: dict[str, Any]) -> Soak:
    return Soak("scripts/soak --seed 1", ended, 60, rounds)


@pytest.mark.parametrize(
    ("run", "verdict", "by"),
    [
        (soaked(1, HELD, FAILED), "noticed", "AssertionError: 2 violations; the first: log: lost"),
        (soaked(0, HELD, HELD), "survived", ""),
        (soaked(0), "could not run", "the soak ended with 0, after 0 rounds"),
        (soaked(1, HELD), "could not run", "the soak ended with 1, after 1 rounds"),
        (soaked(None, HELD), "could not run", "the soak ended with None, after 1 rounds"),
    ],
)
def test_only_a_round_that_failed_notices_a_fault(run: Soak, verdict: str, by: str) -> None:
    tried = judged(FAULT, run)
    assert (tried.verdict, tried.by, tried.rounds) == (verdict, by, len(run.rounds))


def named(verdict: runs.Verdict) -> Tried:
    return Tried(FAULT.name, FAULT.file, FAULT.pair, verdict)


@pytest.mark.parametrize(
    ("suite", "verdicts", "code"),
    [
        (soaked(0, HELD), ["noticed", "noticed"], 0),
        (soaked(1, HELD, FAILED), ["noticed"], 1),
        (soaked(0, HELD), ["noticed", "survived"], 1),
        (soaked(0, HELD), ["noticed", "not run"], 1),
        (soaked(0, HELD), [], 1),
        (soaked(0, HELD), ["noticed", "could not run"], 2),
        (soaked(0), ["noticed"], 2),
        (soaked(None, HELD), ["noticed"], 2),
    ],
)
def test_all_is_well_only_if_every_round_held_and_every_fault_was_noticed(
    suite: Soak, verdicts: Sequence[runs.Verdict], code: int
) -> None:
    assert exit_code(suite, [named(verdict) for verdict in verdicts]) == code


Answer = Callable[[list[str]], Soak]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[Answer], list[list[str]]]:
    """Has soaks answer so; returns the options of each."""

    def answering(answer: Answer) -> list[list[str]]:
        found: list[list[str]] = []

        def soak(folder: Path, seed: int, words: Sequence[str], minutes: float) -> Soak:
            found.append([*words])
            return answer(found[-1])

        def build(planted: Planted, folder: Path) -> Path:
            folder.mkdir(parents=True)
            return folder / "plugins"

        monkeypatch.setattr(runs, "soak", soak)
        monkeypatch.setattr(Planted, "build", build)
        return found

    return answering


def test_each_pair_is_first_soaked_without_a_fault(asked: Callable[[Answer], list[list[str]]], tmp_path: Path) -> None:
    found = asked(lambda words: soaked(1, FAILED) if "--plugins" in words else soaked(0, HELD))
    tried = list(runs.tried([PLANTED[4], SAME_PAIR, OTHER], tmp_path, 1, 7, float("inf")))
    assert [one.verdict for one in tried] == ["noticed"] * 3
    assert ["--plugins" in words for words in found] == [False, True, True, False, True]
    assert all(words[words.index("--rounds") + 1] == ("7" if "--plugins" in words else "1") for words in found)
    assert not [*tmp_path.glob("*/built")]


def test_a_pair_that_fails_without_a_fault_proves_nothing(
    asked: Callable[[Answer], list[list[str]]], tmp_path: Path
) -> None:
    found = asked(lambda words: soaked(1, FAILED))
    (tried,) = runs.tried([FAULT], tmp_path, 1, 7, float("inf"))
    assert tried.verdict == "could not run" and tried.by.startswith("without the fault as well: AssertionError")
    assert len(found) == 1


def test_a_fault_whose_turn_does_not_come_is_not_run(
    asked: Callable[[Answer], list[list[str]]], tmp_path: Path
) -> None:
    found = asked(lambda words: soaked(0, HELD))
    assert [one.verdict for one in runs.tried(PLANTED, tmp_path, 1, 7, 0)] == ["not run"] * len(PLANTED)
    assert not found


def test_a_plugin_that_cannot_be_built_is_told(
    asked: Callable[[Answer], list[list[str]]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked(lambda words: soaked(0, HELD))

    def build(planted: Planted, folder: Path) -> Path:
        raise StackError("cannot build a plugin")

    monkeypatch.setattr(Planted, "build", build)
    (tried,) = runs.tried([FAULT], tmp_path, 1, 7, float("inf"))
    assert (tried.verdict, tried.by) == ("could not run", "cannot build a plugin")


def test_what_was_started_is_stopped_on_failure(tmp_path: Path) -> None:
    """With the signal of Ctrl-C, which lets it stop its own servers."""
    code = (
        "import pathlib, sys, time\n"
        "try:\n    print('ready', flush=True); time.sleep(600)\n"
        "finally:\n    pathlib.Path(sys.argv[1]).write_text('stopped')"
    )
    told, log = tmp_path / "told", tmp_path / "log"
    with (
        pytest.raises(RuntimeError, match="something else"),
        log.open("wb") as output,
        runs._ending([sys.executable, "-c", code, str(told)], output, tmp_path) as process,
    ):
        until("a process that is ready", lambda: "ready" in log.read_text())
        raise RuntimeError("something else")
    assert process.poll() is not None and told.read_text() == "stopped"


def test_the_page_says_what_the_results_say(tmp_path: Path) -> None:
    results = tmp_path / "evidence.json"
    noticed, survivor = judged(FAULT, soaked(1, FAILED)), judged(OTHER, soaked(0, HELD))
    found = {
        "command": "scripts/evidence --seed 5",
        "when": "2026-01-01T00:00:00+00:00",
        "commit": "abc",
        "seed": 5,
        "seconds": 7200,
        "machine": {"processor": "a processor", "cores": 2, "memory_gb": 24.0},
        "versions": {f"{name}.version": "1" for name in ("mongod", "kafka", "debezium", "mongo-kafka")},
        "pairs": [*STRIKES, ["leader-move", "copy"]],
        "suite": asdict(soaked(1, HELD, HELD, FAILED)),
        "planted": [asdict(noticed), asdict(survivor)],
    }
    results.write_text(json.dumps(found))
    lines = page.write(results).read_text().splitlines()
    assert "| one | 2 | 0 | 2 | 2 |" in lines and "| three | 1 | 1 | 0 | 0 |" in lines
    assert "1 of 3 pairs of a fault and a state were hit." in lines
    assert "- worker-kill at streaming" in lines and "- leader-move at copy" in lines
    assert "| appends | 4,000 |" in lines
    assert "- **Failed**: three, seed 6: AssertionError: 2 violations; the first: log: lost" in lines
    assert "2 faults were planted, each in its own plugin: 1 noticed, 1 survived." in lines
    fault, state = FAULT.pair
    assert f"| {FAULT.name} | `{FAULT.file}` | {fault} at {state} | noticed | 1 | {noticed.by} |" in lines
    assert any(f"| {OTHER.name} | " in line and "| **survived** | 1 |  |" in line for line in lines)
