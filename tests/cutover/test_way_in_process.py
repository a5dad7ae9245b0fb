"""What `cutover` and `cutover --back` begin with, and in which states they begin nothing, without servers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from tests.cutover.test_undo import begin
from tests.support import cutover_world
from tests.support.cutover_world import Killed, World
from towpath.checks.rule import Finding
from towpath.checks.target import Target
from towpath.clients.connect.rest import Connector, Task
from towpath.clients.mongo.replica_set import ReplicaSet
from towpath.config.events import CutoverNote
from towpath.cutover import machine, old_source
from towpath.cutover.gate import GATE, PRECONDITIONS, Readiness
from towpath.cutover.machine import Machine
from towpath.errors import ConnectUnreachable, MongoUnreachable, NoSuchConnector, Refused, TowpathError
from towpath.log.definitions import definitions
from towpath.session import Session
from towpath.signals import Interrupts
from towpath.store.cutover import Cutover
from towpath.store.writers import Registration

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
        self.outdated = ""
        patch.setattr(machine, "refuse_outdated", self._refuse_outdated)

    def _refuse_outdated(self, reverse: Session, file: Path) -> None:
        assert (reverse.pipeline.name, file.name) == ("shop-back", "shop.toml")
        if self.outdated:
            raise TowpathError(self.outdated, "move it away")

    def _run(self, rules: Any, readiness: Readiness) -> list[Finding]:
        assert readiness.forward.pipeline.name == "shop" and readiness.options is cutover_world.OPTIONS
        assert readiness.reverse is not None and readiness.reverse.pipeline.name == "shop-back"
        self.asked.append((tuple(rules), readiness.returns, readiness.answers))
        self.captured_since = readiness.captured_since
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
    assert world.marker.captured_since == str(cutover_world.CAPTURED)
    assert ends(world)[-1].startswith("done: the destination is primary")
    world.calls.clear()
    assert command(world).run()
    assert ends(world)[-1].startswith("already cut over") and world.marker.state == "destination primary"
    assert not {"stop shop", "block", "insert"} & set(world.calls)
    assert "write beside shop.toml" in world.calls, "it may have run on another machine"
    assert "`towpath cutover --back` fails back" in ends(world)[-1]
    again = command(world)
    again.sides.forward.connect.config = lambda name: None  # type: ignore[method-assign]
    assert again.run()
    assert "run towpath deploy " in ends(world)[-1] and "--back" not in ends(world)[-1]


def test_what_is_left_after_a_switch_is_told_also_while_connect_is_away(world: World, gate: Gate) -> None:
    cut_over(world)
    it = command(world)

    def config(name: str) -> Any:
        raise ConnectUnreachable("Connect does not answer")

    it.sides.forward.connect.config = config  # type: ignore[method-assign]
    it._left.append("redirect the writers to the destination by other means")
    with pytest.raises(TowpathError, match="redirect the writers"):
        it.run()
    assert ends(world)[-1].startswith("already cut over")


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


def test_no_other_begins_with_a_reverse_pipeline_that_is_not_that_of_the_file_any_more(
    world: World, gate: Gate
) -> None:
    """What the file includes now would not come back."""
    world.marker, world.state.blocked = Cutover("cutting over", ("blocking writes",), 0.0), {"source"}
    gate.outdated = "shop-back.toml is another one"
    assert not command(world).run()
    (words,) = ends(world)
    assert words.startswith(
        "the earlier attempt is undone, and nothing else was started: shop-back.toml is another one"
    )
    assert world.marker is None and not world.state.blocked and gate.asked == []
    world.marker = Cutover("returning the old source", (), 0.0, is_takeover=True, has_reverse_pipeline=False)
    assert not command(world).return_source()
    assert world.marker.state == "destination primary" and ends(world)[-1] == words


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
    assert gate.asked == [(PRECONDITIONS, True, True), (GATE, True, True)] and gate.owned == ["shop-back", "shop"]
    assert gate.captured_since == cutover_world.CAPTURED
    assert world.marker is None and not world.state.blocked
    assert world.state.sinks == {"shop": "RUNNING"} and not world.state.captures_back
    assert ends(world)[-1].startswith("done: the source is primary")


@pytest.mark.parametrize("dry_run", [False, True])
def test_no_fail_back_begins_with_files_of_different_collections(world: World, gate: Gate, dry_run: bool) -> None:
    cut_over(world)
    before, it = world.marker, command(world, dry_run=dry_run)
    pipeline = it.sides.forward.pipeline
    more = pipeline.changed(collections={"include": (*pipeline.collections.include, "shop.later")})
    it.sides.forward = replace(it.sides.forward, pipeline=more)
    gate.asked.clear()
    with pytest.raises(Refused, match=r"cannot fail back: .*shop-back.toml does not name .*include lacks shop.later"):
        it.back()
    assert gate.asked == [] and world.marker is not None and before is not None
    assert replace(world.marker, token=before.token) == before and not {"block", "stop shop-back"} & set(world.calls)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda it: it, ""),
        (lambda it: replace(it, pipeline=it.pipeline.changed(collections={"include": ("shop.a",)})), "include or excl"),
        (lambda it: replace(it, destination=ReplicaSet("other", ("d:1",))), "not the destination of the deployed"),
        (lambda it: replace(it, source=ReplicaSet("other", ("s:1",))), "that is another source"),
    ],
)
def test_no_old_source_returns_unless_the_file_names_what_was_taken_over(
    world: World, monkeypatch: pytest.MonkeyPatch, change: Callable[[Target], Target], words: str
) -> None:
    """What only the deployed pipeline names would neither return nor be in the file of what is overwritten."""
    begin(world, "returned")
    it, (source, there) = command(world), (ReplicaSet(f"rs{one}", (f"{one}:1",)) for one in "sd")
    pipeline = it.sides.forward.pipeline
    own, sink = Registration.of(pipeline, "k", source), definitions(pipeline)[pipeline.sink_connector]
    known = Target(pipeline, there, (source,), there, (), {"shop": own}, sink, "k", source)
    monkeypatch.setattr(machine.target, "gather", lambda *_, **__: change(known))
    monkeypatch.setattr(old_source, "run", lambda *_: [replace(RED, level="ok")])
    monkeypatch.setattr(machine, "write_reverse_file", lambda file: None)
    if not words:
        assert it.return_source() and not ends(world)[-1].startswith("not")
        return
    with pytest.raises(Refused, match=words):
        it.return_source()
    assert world.marker is not None and world.marker.state == "destination primary"
    assert not {"resume shop", "mark a step"} & set(world.calls)


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
    assert undone[0] == "undone: blocking writes"
    assert undone[-1].startswith("everything is as before: the source is primary")
    assert {f"undone: {step}" for step in ("preparing the reverse pipeline", "stopping the sink")} <= set(undone)
    end = world.events[-1]
    assert isinstance(end, CutoverNote) and end.error and end.error["what"] == "someone writes"


AGAIN = "everything is as before: the source is primary; start the writers again if they were stopped"


def undone(world: World) -> str:
    """The last words of an undo."""
    return [str(event.words) for event in world.events if getattr(event, "event", "") == "undone"][-1]


def fails(at: str, error: Exception) -> Callable[[str, bool], None]:
    def on_call(name: str, is_done: bool) -> None:
        if name == at and not is_done:
            raise error

    return on_call


def test_an_undo_says_that_it_starts_no_writers(world: World) -> None:
    world.on_call = fails("late writes", Refused("someone writes"))
    assert not world.cut_over(command(world))
    assert undone(world) == AGAIN


def killed(world: World) -> None:
    """A cutover that is killed once the sink is stopped."""

    def on_call(name: str, is_done: bool) -> None:
        if "wait stopped" in world.calls:
            raise Killed

    world.on_call = on_call
    with pytest.raises(Killed):
        world.cut_over(command(world))
    world.on_call = lambda name, is_done: None
    world.events.clear()
    world.calls.clear()


def test_an_undo_of_a_killed_cutover_says_it_also(world: World) -> None:
    killed(world)
    assert command(world).undo()
    assert undone(world) == AGAIN


def test_the_reason_of_an_undo_is_told_once(world: World) -> None:
    said = list[str]()
    world.say = said.append
    world.on_call = fails("late writes", Refused("someone writes"))
    assert not world.cut_over(command(world))
    told = [*said, *(str(event.words) for event in world.events if getattr(event, "words", None))]
    assert [words for words in told if "someone writes" in words] == ["not done: someone writes"]


def test_the_reason_is_told_also_if_not_all_could_be_undone(world: World) -> None:
    def on_call(name: str, is_done: bool) -> None:
        fails("late writes", Refused("someone writes"))(name, is_done)
        fails("remove", MongoUnreachable("no answer"))(name, is_done)

    world.on_call = on_call
    with pytest.raises(TowpathError, match=r"^someone writes; not all could be undone; once that answers again"):
        world.cut_over(command(world))


@pytest.mark.parametrize("error", [None, TowpathError("not running after 9 s")])
def test_the_sink_that_an_undo_has_started_runs_before_the_gate_looks(
    world: World, gate: Gate, error: TowpathError | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the gate would be red once. If it does not run in time, the gate says why."""
    said, at_gate = list[str](), list[str]()
    killed(world)
    world.say = said.append

    def look(*about: Any) -> list[Finding]:
        at_gate.extend(world.calls)
        return gate._run(*about)

    monkeypatch.setattr(machine, "run", look)
    if error:
        world.on_call = fails("wait running", error)
    assert command(world).run()
    assert at_gate[-1] == "wait running" and "resume shop" in at_gate
    assert "waiting until shop-sink is running, up to 10 s" in said


@pytest.mark.parametrize(("state", "waits"), [("UNASSIGNED", True), ("FAILED", False)])
def test_a_red_gate_looks_once_more_when_what_was_unassigned_runs(
    world: World, gate: Gate, state: str, waits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after the restart of a broker."""
    said, looks = list[str](), [[RED], [replace(RED, level="ok")]]
    world.say = said.append
    monkeypatch.setattr(machine, "run", lambda *_: looks.pop(0))
    shown = [Connector("shop-sink", "RUNNING", "w", (Task(0, state, "w", ""),))]
    monkeypatch.setattr(machine, "statuses", lambda connect, names: shown if "shop-sink" in names else [])
    assert command(world).run() is waits
    assert ("waiting until shop-source, shop-sink is running, up to 10 s" in said) is waits


def test_a_wait_for_the_sink_can_be_interrupted(world: World, gate: Gate) -> None:
    killed(world)
    it = command(world)

    def on_call(name: str, is_done: bool) -> None:
        if name == "wait running":
            it.signals.came = True
            raise KeyboardInterrupt

    world.on_call = on_call
    assert not it.run()
    assert ends(world) == ["not started: interrupted"] and gate.asked == [] and world.marker is None


class Writers:
    """What --switch-with has done."""

    def __init__(self, world: World, patch: pytest.MonkeyPatch) -> None:
        self.redirected, self.error = 0, ""
        patch.setattr(machine, "hook", world.does("hook", self._redirect))
        patch.setattr(machine, "run", lambda *_: [])
        patch.setattr(machine.target, "require_own", lambda *_, **__: None)

    def _redirect(self, command: str) -> None:
        assert command == REDIRECTS.switch_with
        if self.error:
            raise TowpathError(self.error)
        self.redirected += 1


REDIRECTS = replace(cutover_world.OPTIONS, switch_with="redirect")
WAYS: dict[str, Callable[[Machine], bool]] = {"there": Machine.run, "back": Machine.back, "lost": Machine.take_over}


@pytest.fixture
def writers(world: World, gate: Gate, monkeypatch: pytest.MonkeyPatch) -> Writers:
    return Writers(world, monkeypatch)


def before(world: World, writers: Writers, way: str) -> Callable[..., bool]:
    """All as it is before this way; return what runs it."""
    begin(world, "back" if way == "back" else "there")
    writers.redirected, writers.error = 0, ""

    def run(by: Callable[[Machine], bool] = WAYS[way], **fields: Any) -> bool:
        it = command(world, **fields)
        if way == "lost":
            it.sides.reverse, it.has_reverse = None, False
        return by(it)

    return run


@pytest.mark.parametrize("dry_run", [False, True])
@pytest.mark.parametrize(
    ("way", "names"),
    [("there", "shop-source, shop-sink"), ("back", "shop-back-source, shop-back-sink"), ("lost", "shop-sink")],
)
def test_each_way_waits_for_what_is_unassigned_but_for_a_dry_run(
    world: World, writers: Writers, way: str, names: str, dry_run: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, said = before(world, writers, way), list[str]()
    world.say = said.append
    shown = Connector(names.split(", ")[-1], "UNASSIGNED", "w", ())

    def look(rules: Any, *_: Any) -> list[Finding]:
        return [] if rules is PRECONDITIONS or "wait running" in world.calls else [RED]

    monkeypatch.setattr(machine, "run", look)
    monkeypatch.setattr(machine, "statuses", lambda connect, asked: [shown] if shown.name in asked else [])
    assert run(dry_run=dry_run) is not dry_run
    assert (f"waiting until {names} is running, up to 10 s" in said) is not dry_run


LATER = [(way, again) for way in WAYS for again in ("with it", "without it")] + [("back", "--undo")]


@pytest.mark.parametrize(("way", "again"), LATER)
def test_a_command_that_was_killed_before_the_writers_were_redirected_is_not_completed_silently(
    world: World, writers: Writers, way: str, again: str
) -> None:
    """Killed after each of its calls. Then --switch-with runs again, or the exit code is not 0."""
    done, told = 0, 0
    for index in count():
        run = before(world, writers, way)
        if world.killed_after(index, partial(run, options=REDIRECTS)):
            break
        switched = "source primary" if way == "back" else "destination primary"
        if world.marker is None or world.marker.state != switched:
            assert not writers.redirected or (way == "back" and world.marker is None), index
            continue
        was_redirected = writers.redirected
        options = REDIRECTS if again == "with it" else cutover_world.OPTIONS
        try:
            assert run(Machine.undo if again == "--undo" else WAYS[way], options=options)
        except TowpathError as error:
            assert again != "with it" and "--switch-with true" in str(error), (index, error)
            told += 1
        else:
            assert writers.redirected >= 1, index
            assert again == "with it" or writers.redirected == was_redirected, index
            done += 1
        assert ("source" if way == "back" else "destination") not in world.state.relaxed, index
    assert writers.redirected == 1 and done > 1 and bool(told) is (again != "with it")


@pytest.mark.parametrize("way", WAYS)
def test_a_command_that_could_not_redirect_the_writers_says_so_once(world: World, writers: Writers, way: str) -> None:
    run = before(world, writers, way)
    writers.error = "'redirect' ended with exit code 1"
    with pytest.raises(TowpathError, match=r"exit code 1; redirect the writers to the \w+ by other means"):
        run(options=REDIRECTS)
    if way == "back":
        assert world.marker is None, "the pipeline continues nevertheless"
        return
    assert world.marker is not None and world.marker.redirect == ""
    assert run() and not writers.redirected
    writers.error = ""
    assert run(options=REDIRECTS) and writers.redirected == 1
    assert run(options=REDIRECTS) and writers.redirected == 1, "it is not run twice"
    assert run() and run(options=REDIRECTS, dry_run=True)


def test_a_dry_run_redirects_no_writers_and_tells_what_is_not_known(world: World, writers: Writers) -> None:
    run = before(world, writers, "there")
    run(options=REDIRECTS)
    index = world.calls.index("hook")
    run = before(world, writers, "there")
    world.killed_after(index - 1, partial(run, options=REDIRECTS))
    assert run(options=REDIRECTS, dry_run=True) and not writers.redirected
    assert "--switch-with has not ended, or was interrupted" in ends(world)[-1]


def test_a_destination_that_does_not_store_the_end_of_the_redirection_is_told(world: World, writers: Writers) -> None:
    run = before(world, writers, "there")

    def away(name: str, is_done: bool) -> None:
        if name == "redirected" and not is_done:
            raise MongoUnreachable("no answer")

    world.on_call = away
    with pytest.raises(TowpathError, match="did not store that --switch-with has ended: no answer"):
        run(options=REDIRECTS)
    assert writers.redirected == 1 and "convert" in world.calls
