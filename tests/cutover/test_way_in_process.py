"""What `cutover` and `cutover --back` begin with, and in which states they begin nothing, without servers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support import cutover_world
from tests.support.cutover_world import World
from towpath.checks.rule import Finding
from towpath.config.events import CutoverNote
from towpath.cutover import machine
from towpath.cutover.gate import GATE, PRECONDITIONS, Readiness
from towpath.cutover.machine import Machine
from towpath.errors import NoSuchConnector, Refused, TowpathError
from towpath.session import Session
from towpath.signals import Interrupts
from towpath.store.cutover import Cutover

RED = Finding("error", "lag", "10.5 s", "wait")


class Gate:
    """The rules, which are green but for those that a test makes red, and what they were asked about."""

    def __init__(self, world: World, patch: pytest.MonkeyPatch) -> None:
        self.world = world
        self.red: tuple[Any, ...] = ()
        """Tables of rules."""
        self.asked: list[tuple[tuple[Any, ...], bool, bool]] = []
        """The rules, whether they are of a fail back, and whether someone can answer."""
        self.owned: list[str] = []
        self.deployed = True
        patch.setattr(machine, "run", self._run)
        patch.setattr(machine.target, "require_own", lambda session: self.owned.append(session.pipeline.name))
        patch.setattr(Session, "require_deployed", self._require)
        patch.setattr(machine, "write_reverse_file", lambda file: world.calls.append(f"write beside {file.name}"))

    def _run(self, rules: Any, readiness: Readiness) -> list[Finding]:
        assert readiness.forward.pipeline.name == "shop" and readiness.options is cutover_world.OPTIONS
        assert readiness.reverse is not None and readiness.reverse.pipeline.name == "shop-back"
        self.asked.append((tuple(rules), readiness.returns, readiness.answers))
        return [RED if any(rule in table for table in self.red for rule in rules) else replace(RED, level="ok")]

    def _require(self, *_: Any) -> None:
        if not self.deployed:
            raise NoSuchConnector("there is no connector shop-sink")


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    return cutover_world.world(tmp_path, monkeypatch)


@pytest.fixture
def gate(world: World, monkeypatch: pytest.MonkeyPatch) -> Gate:
    return Gate(world, monkeypatch)


def command(world: World, **fields: Any) -> Machine:
    it = world.command(Interrupts(once=True))
    for name, value in fields.items():
        setattr(it, name, value)
    return it


def ends(world: World) -> list[str]:
    return [str(event.words) for event in world.events if getattr(event, "event", "") == "end"]


def cut_over(world: World) -> None:
    assert command(world).run()
    world.calls.clear()
    world.events.clear()


MARKERS: dict[str, Callable[[], Cutover]] = {
    "failing back": lambda: Cutover("failing back", (), 0.0),
    "source primary": lambda: Cutover("source primary", (), 0.0),
}


def test_a_cutover_checks_everything_and_then_switches(world: World, gate: Gate) -> None:
    assert command(world).run()
    assert gate.asked == [((*GATE, *PRECONDITIONS), False, True)] and gate.owned == ["shop"]
    assert world.calls[0] == "write beside shop.toml", "the file of the reverse pipeline is there before it is needed"
    assert world.marker is not None and world.marker.state == "destination primary"
    assert ends(world)[-1].startswith("done: the destination is primary")
    world.calls.clear()
    assert command(world).run()
    assert ends(world)[-1].startswith("already cut over") and world.marker.state == "destination primary"
    assert not {"stop shop", "block", "insert"} & set(world.calls)
    assert "write beside shop.toml" in world.calls, "it may have run on another machine"


@pytest.mark.parametrize("table", [GATE, PRECONDITIONS])
def test_nothing_begins_while_a_rule_is_red(world: World, gate: Gate, table: Any) -> None:
    gate.red = (table,)
    assert not command(world).run()
    assert ends(world) == ["not started, nothing is changed: lag is red"]
    assert world.calls == [] and world.marker is None


def test_a_dry_run_checks_everything_and_changes_nothing(world: World, gate: Gate) -> None:
    assert command(world, dry_run=True).run()
    assert gate.asked == [((*GATE, *PRECONDITIONS), False, False)], "no one is asked to stop the writers"
    assert ends(world) == ["everything is ready; nothing was started"]
    assert world.calls == [] and world.marker is None
    world.marker = Cutover("cutting over", ("blocking writes",), 0.0)
    assert not command(world, dry_run=True).run(), "another command may run"
    assert world.calls == [] and world.marker.steps == ("blocking writes",)


def test_a_dry_run_converts_nothing_and_a_later_command_does(world: World, gate: Gate) -> None:
    world.problem = "duplicates"
    with pytest.raises(TowpathError, match="duplicates"):
        command(world).run()
    assert world.marker is not None and world.marker.conversions
    world.calls.clear()
    assert command(world, dry_run=True).run()
    assert not {"convert", "write beside shop.toml"} & set(world.calls)
    assert ends(world)[-1].startswith("already cut over")
    world.problem = ""
    assert command(world).run()
    assert "convert" in world.calls and "not unique" not in ends(world)[-1] and not world.marker.conversions


def test_a_pipeline_that_is_not_deployed_is_not_cut_over(world: World, gate: Gate) -> None:
    gate.deployed = False
    with pytest.raises(NoSuchConnector):
        command(world).run()
    assert gate.asked == [] and world.calls == []


@pytest.mark.parametrize("state", MARKERS)
def test_an_unfinished_fail_back_is_finished_first(world: World, gate: Gate, state: str) -> None:
    world.marker = MARKERS[state]()
    with pytest.raises(Refused, match=r"an earlier fail back was not finished; to continue it: .* --back"):
        command(world).run()
    assert world.calls == [] and gate.asked == []


def test_an_interrupted_cutover_is_undone_before_another_begins(world: World, gate: Gate) -> None:
    world.marker, world.state.blocked = Cutover("cutting over", ("blocking writes",), 0.0), {"source"}
    gate.red = (GATE,)
    assert not command(world, has_reverse=False).run(), "the file of the reverse pipeline was of the earlier one"
    assert ends(world) == ["the earlier cutover is undone; run the same command again"]
    assert world.marker is None and not world.state.blocked and gate.asked == []
    assert not command(world).run()
    assert len(gate.asked) == 1


@pytest.mark.parametrize(
    ("marker", "words"),
    [
        (None, "the source is primary"),
        (Cutover("cutting over", (), 0.0), "the source is primary"),
        (Cutover("destination primary", (), 0.0, has_reverse_pipeline=False), "with --no-reverse-pipeline"),
    ],
)
def test_where_there_is_nothing_to_fail_back_nothing_begins(
    world: World, gate: Gate, marker: Cutover | None, words: str
) -> None:
    world.marker = marker
    with pytest.raises(Refused, match=f"cannot fail back: .*{words}"):
        command(world).back()
    assert world.calls == [] and world.marker == marker


def test_a_fail_back_checks_everything_switches_and_the_pipeline_continues(world: World, gate: Gate) -> None:
    cut_over(world)
    gate.asked.clear()
    gate.owned.clear()
    assert command(world).back()
    assert gate.asked == [(PRECONDITIONS, True, True), (GATE, True, True)] and gate.owned == ["shop-back"]
    assert world.marker is None and not world.state.blocked
    assert world.state.sinks == {"shop": "RUNNING"} and not world.state.captures_back
    assert ends(world)[-1].startswith("done: the source is primary")


@pytest.mark.parametrize("table", [GATE, PRECONDITIONS])
def test_no_fail_back_begins_while_a_rule_is_red_or_in_a_dry_run(world: World, gate: Gate, table: Any) -> None:
    cut_over(world)
    before = world.marker
    assert command(world, dry_run=True).back()
    assert world.marker == before and world.calls == [], "it does not even take the cutover over"
    gate.red = (table,)
    assert not command(world).back()
    assert world.marker is not None and before is not None
    assert replace(world.marker, token=before.token) == before
    assert "block" not in world.calls


@pytest.fixture
def shut(world: World, gate: Gate, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """The source blocks the writes of the reverse pipeline, too."""
    cut_over(world)
    monkeypatch.setattr(machine, "writes_through", lambda cluster: cluster.side != "source")
    gate.asked.clear()
    yield world


def test_a_source_that_blocks_all_writes_is_opened_before_the_gate_of_a_fail_back(
    shut: World, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[tuple[int, bool]] = []
    original = gate._run

    def run(rules: Any, readiness: Readiness) -> list[Finding]:
        done.append((len(gate.asked), bool(shut.state.blocked)))
        return original(rules, readiness)

    monkeypatch.setattr(machine, "run", run)
    assert command(shut).back()
    assert done == [(0, True), (1, False)], "the backlog is applied before the gate, and after the preconditions"
    assert shut.marker is None


def test_a_source_that_was_opened_for_the_backlog_counts_as_open(shut: World, gate: Gate) -> None:
    gate.red = (GATE,)
    assert not command(shut).back()
    assert shut.marker is not None and not shut.marker.blocked and not shut.state.blocked


def test_a_source_that_blocks_all_writes_stays_shut_while_a_precondition_is_red(shut: World, gate: Gate) -> None:
    gate.red = (PRECONDITIONS,)
    assert not command(shut).back()
    assert shut.state.blocked == {"source"} and [rules for rules, *_ in gate.asked] == [PRECONDITIONS]
    gate.red, gate.asked = (), []
    assert command(shut, dry_run=True).back()
    assert shut.state.blocked == {"source"}, "nor does a dry run open it"


@pytest.mark.parametrize("state", ["failing back", "source primary"])
def test_a_fail_back_that_was_interrupted_is_undone_or_finished(world: World, gate: Gate, state: Any) -> None:
    cut_over(world)
    assert world.marker is not None
    steps = () if state == "failing back" else world.marker.steps
    world.marker = replace(world.marker, state=state, steps=steps)
    gate.asked.clear()
    assert command(world).back()
    assert world.marker is None and world.state.sinks == {"shop": "RUNNING"}
    assert bool(gate.asked) is (state == "failing back"), "what has switched is only finished"


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemError])
def test_a_signal_during_the_checks_is_no_failure(
    world: World, gate: Gate, error: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kafka's client makes the one of the other. Without a signal it is an error."""

    def interrupted(*_: Any) -> Any:
        raise error

    monkeypatch.setattr(machine, "run", interrupted)
    it = command(world)
    with pytest.raises(error):
        it.run()
    it.signals.came = True
    assert not it.run()
    assert ends(world) == ["not started: interrupted"] and world.marker is None


def test_what_is_undone_is_reported(world: World) -> None:
    def on_call(name: str, is_done: bool) -> None:
        if name == "late writes":
            raise Refused("someone writes")

    assert command(world).undo()
    assert ends(world) == ["nothing to undo: no cutover is under way, and the source is primary"]
    world.on_call = on_call
    assert not world.cut_over(command(world))
    undone = [str(event.words) for event in world.events if getattr(event, "event", "") == "undone"]
    assert undone[0] == "undone: blocking writes" and undone[-1] == "everything is as before: the source is primary"
    assert {f"undone: {step}" for step in ("preparing the reverse pipeline", "stopping the sink")} <= set(undone)
    end = world.events[-1]
    assert isinstance(end, CutoverNote) and end.error and end.error["what"] == "someone writes"


def test_an_undo_says_that_it_starts_no_writers(world: World) -> None:
    def on_call(name: str, is_done: bool) -> None:
        if name == "late writes":
            raise Refused("someone writes")

    world.on_call = on_call
    it = command(world, options=replace(cutover_world.OPTIONS, stop_with="true"))
    assert not world.cut_over(it)
    words = [str(event.words) for event in world.events if getattr(event, "event", "") == "undone"]
    assert words[-1] == (
        "everything is as before: the source is primary; start the writers again if --stop-with has stopped them"
    )
