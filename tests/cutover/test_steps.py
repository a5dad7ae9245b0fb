"""What single steps of a cutover do, without servers; their order and their undo are in `test_undo.py`."""

from __future__ import annotations

import io
import itertools
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support import cutover_world
from tests.support.cutover_world import OPTIONS, RESTORE_TTL, STOP_TTL, TIMES, World
from towpath.clients.kafka.topics import Place
from towpath.config import events
from towpath.config.events import CutoverNote
from towpath.config.pipeline import Pipeline
from towpath.cutover import machine, steps
from towpath.cutover.pause import Pause
from towpath.cutover.sides import CUTOVER, FAIL_BACK, Sides
from towpath.cutover.steps import CutoverOptions, Work
from towpath.cutover.writes import ANSWER
from towpath.deploy.schema import Plan, Step
from towpath.errors import TowpathError
from towpath.log import changed_keys
from towpath.session import Session
from towpath.signals import Interrupts
from towpath.verify.recent import DocumentsDiffer
from towpath_verifier import Command


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    return cutover_world.world(tmp_path, monkeypatch)


def work_of(world: World, contexts: ExitStack, direction: Any = CUTOVER, **changed: Any) -> Work:
    """What the steps of a cutover share, before the first."""
    options: CutoverOptions = replace(OPTIONS, **changed)
    forward, reverse = world._session("shop", "source"), world._session("shop-back", "destination")
    world.state.relaxed, world.state.warning = {direction.new}, {direction.new}
    sides = Sides(forward, reverse, None)
    sides.enter(direction.under_way)
    changes: Any = SimpleNamespace(duration_s=0.0, verify_new=lambda: 1)
    return Work(sides, options, world.events.append, contexts, Pause(options.max_pause), changes)


def notes(world: World) -> list[tuple[str, str]]:
    return [(one.event, one.words) for one in world.events if isinstance(one, CutoverNote)]


def test_the_source_s_time_after_its_last_write_is_reported(world: World) -> None:
    assert world.cut_over(world.command(Interrupts(once=True)))
    assert world.marker is not None and world.marker.cluster_time == str(TIMES["source"])


def test_writes_that_are_blocked_are_reported(world: World) -> None:
    with ExitStack() as contexts:
        steps._block_writes(work_of(world, contexts))
    assert world.state.blocked == {"source"}
    assert notes(world) == [("stop writes", "writes to the source (mongodb://source) are blocked from now on")]


def test_writers_that_a_command_has_stopped_are_only_blocked(world: World) -> None:
    with ExitStack() as contexts:
        work = work_of(world, contexts, stop_with="true")
        work.pause.begin()
        began = work.pause.seconds
        steps._block_writes(work)
        assert work.pause.seconds >= began, "the pause began before"
    assert world.state.blocked == {"source"} and notes(world) == []


@pytest.mark.parametrize(("line", "is_stopped"), [("\n", True), ("", False)])
def test_a_person_confirms_that_the_writes_have_stopped(
    world: World, monkeypatch: pytest.MonkeyPatch, line: str, is_stopped: bool
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(line))
    with ExitStack() as contexts:
        work = work_of(world, contexts, blocks=False)
        contexts.enter_context(work.pause.enforced())
        if is_stopped:
            steps._stop_writers(work)
        else:
            with pytest.raises(TowpathError) as raised:
                steps._stop_writers(work)
            assert ANSWER in str(raised.value)
        assert 0 < work.pause.remaining(9) < 9, "the pause begins when the writers are asked"
    ((event, words),) = notes(world)
    assert event == "stop writes" and "Stop all writes to the source (mongodb://source) now" in words and "9 s" in words


@pytest.mark.parametrize(("is_watched", "plans"), [(True, 1), (False, 2)])
def test_schemas_that_nothing_watched_are_read_again(world: World, is_watched: bool, plans: int) -> None:
    world.is_watched = is_watched
    assert world.cut_over(world.command(Interrupts(once=True)))
    assert world.calls.count("plan") == plans


def test_what_comes_after_the_switch() -> None:
    """Conversions, TTL, and what takes time if that was asked for."""
    kinds = itertools.product((False, True), repeat=4)
    later = {
        (converts, expires, is_quick, rebuilds_later)
        for converts, expires, is_quick, rebuilds_later in kinds
        if steps._is_later(
            SimpleNamespace(options=SimpleNamespace(rebuilds_later=rebuilds_later)),  # type: ignore[arg-type]
            SimpleNamespace(converts=converts, expires=expires, is_quick=is_quick),  # type: ignore[arg-type]
        )
    }
    always = {kind for kind in itertools.product((False, True), repeat=4) if kind[0] or kind[1]}
    assert later == always | {(False, False, False, True)}


@pytest.mark.parametrize(
    ("body", "expires"),
    [
        ({"index": {"name": "n", "expireAfterSeconds": 60}}, True),
        ({"index": {"name": "n", "expireAfterSeconds": 0, "hidden": True}}, True),
        ({"expireAfterSeconds": 60}, True),
        ({"expireAfterSeconds": "off"}, False),
        ({"index": {"name": "n", "unique": True}}, False),
        ({"validationAction": "error"}, False),
    ],
)
def test_which_step_makes_a_server_delete(body: dict[str, Any], expires: bool) -> None:
    assert Step("shop.users", Command("shop", {"collMod": "users", **body})).expires is expires
    assert not Step("shop.users", Command("shop", {"create": "users", **body})).expires


@pytest.mark.parametrize(
    ("returns", "has_reverse", "blocks", "writes_through", "relaxes"),
    [
        (True, True, True, False, True),
        (False, True, True, True, True),
        (False, True, True, False, False),
        (False, True, False, False, True),
        (False, False, False, True, False),
        (False, False, True, True, False),
    ],
)
def test_the_old_primary_is_relaxed_where_a_pipeline_writes_to_it_and_can(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
    returns: bool,
    has_reverse: bool,
    blocks: bool,
    writes_through: bool,
    relaxes: bool,
) -> None:
    def can_write(cluster: Any) -> bool:
        assert cluster.side == "source"
        return writes_through

    monkeypatch.setattr(steps, "writes_through", can_write)
    with ExitStack() as contexts:
        work = work_of(world, contexts, FAIL_BACK if returns else CUTOVER, blocks=blocks)
        if not has_reverse:
            work.sides.reverse = None
        assert steps._relaxes_old(work) is relaxes


@pytest.mark.parametrize("direction", [CUTOVER, FAIL_BACK])
def test_a_sink_that_has_stopped_writes_nothing_any_more(world: World, direction: Any) -> None:
    """A worker that Connect has lost, which counts as stopped, may continue after the switch."""
    assert world.cut_over(world.command(Interrupts(once=True)))
    if direction is FAIL_BACK:
        world.calls.clear()
        assert world.go_back(world.command(Interrupts(once=True)))
    after = [name for name in world.calls if name in ("wait stopped", "fence sink", "begin", "skip")]
    assert after == ["wait stopped", "fence sink", "begin" if direction is CUTOVER else "skip"]


@pytest.mark.parametrize(("seconds", "compared"), [([1.9], 1), ([2.0, 1.9], 3), ([2.0] * 9, 15)])
def test_newer_records_are_verified_until_that_takes_less_than_two_seconds(
    world: World, seconds: list[float], compared: int
) -> None:
    durations = iter(seconds)

    class Changes:
        duration_s, calls = 0.0, 0

        def verify_new(self, log: Any) -> int:
            assert log is cutover_world.BEFORE and world.calls[-1] == "wait", "what is not applied may only seem equal"
            self.duration_s, self.calls = next(durations), self.calls + 1
            return self.calls

    with ExitStack() as contexts:
        work = work_of(world, contexts)
        work.changes = Changes()  # type: ignore[assignment]
        assert steps._verify_until_short(work) == compared
    assert world.calls.count("wait") == len(seconds[:5]) + 1, "the rest of it may not be applied when the pause begins"


def test_changes_that_nothing_replicated_to_the_source_are_explained(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def differ() -> int:
        raise DocumentsDiffer("2 documents differ", "run towpath repair shop.toml")

    with ExitStack() as contexts:
        work = work_of(world, contexts, FAIL_BACK)
        work.echoes = SimpleNamespace(verify_new=differ)  # type: ignore[assignment]
        with pytest.raises(DocumentsDiffer) as raised:
            steps._verify_echoes(work)
    assert raised.value.what == (
        "the source has changes that did not come from the reverse pipeline, and would be lost: 2 documents differ"
    )
    assert raised.value.advice == (
        "end what writes to the source, and save what it wrote (docs/how-to/fail-back.md says how); only then"
        " run towpath repair shop.toml,"
        " which gives the source the destination's documents"
    )


def test_a_fail_back_compares_what_has_changed_since_all_was_proven_to_be_the_same(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An hour more, as clocks may differ; of the forward log at most what its sink has not applied."""
    asked, made = list[tuple[str, float]](), list[tuple[str, str, Mapping[Place, int]]]()

    def positions_at(pipeline: Pipeline, topics: object, seconds: float) -> dict[Place, int]:
        asked.append((pipeline.name, seconds))
        return {("t", 0): 7, ("t", 1): 3}

    def verification(session: Session, logged: Session, start: Mapping[Place, int]) -> Any:
        made.append((session.pipeline.name, logged.pipeline.name, start))
        return SimpleNamespace(verify_new=lambda: 4)

    monkeypatch.setattr(changed_keys, "positions_at", positions_at)
    monkeypatch.setattr(steps, "IncrementalVerification", verification)
    applied = {("t", number): SimpleNamespace(offset=offset) for number, offset in enumerate((5, 9, 2, 8))}
    monkeypatch.setattr(steps.bounds, "suspected", lambda session: [SimpleNamespace(place=("t", 3))])
    monkeypatch.setattr(steps, "positions", lambda client, pipeline: applied)
    with ExitStack() as contexts:
        work = work_of(world, contexts, FAIL_BACK)
        assert steps.proven(work.session, None) == {} and not asked
        work.proven_since = 10_000.0
        assert steps.proven(work.session, work.proven_since) == {("t", 0): 7, ("t", 1): 3}
        assert steps._verify_echoes(work) == 4
    assert asked == [("shop-back", 6_400.0), ("shop", 6_400.0)]
    assert made == [("shop-back", "shop", {("t", 0): 7, ("t", 1): 9, ("t", 2): 2, ("t", 3): 0})]


@pytest.mark.parametrize("since", [None, 10_000.0])
def test_the_verdict_of_the_gate_says_where_a_fail_back_begins_to_compare(
    world: World, monkeypatch: pytest.MonkeyPatch, since: float | None
) -> None:
    assert world.cut_over(world.command(Interrupts(once=True)))
    monkeypatch.setattr(machine.Readiness, "verdict", SimpleNamespace(proven_since=since))
    monkeypatch.setattr(machine, "run", lambda *_: [])
    monkeypatch.setattr(machine.target, "require_own", lambda *_: None)
    monkeypatch.setattr(Session, "require_deployed", lambda *_: None)
    command, asked = world.command(Interrupts(once=True)), list[float | None]()
    assert command._is_ready_to_return()
    for module in (machine, steps):
        monkeypatch.setattr(module, "proven", lambda logged, known: asked.append(known) or {})
    assert world.go_back(command)
    assert asked == [since, since]


def test_drops_come_first_when_a_schema_is_relaxed(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """While an index is built, other changes are refused."""
    drop = Step("shop.users", Command("shop", {"dropIndexes": "users", "index": "half"}))
    assert drop.drops and not STOP_TTL.drops
    monkeypatch.setattr(steps, "plan", lambda session, overwrite: Plan(indexes=(STOP_TTL, drop, RESTORE_TTL)))
    ran: list[Step] = []
    monkeypatch.setattr(steps, "change_schema", lambda session, changes: ran.extend(changes) or len(ran))
    assert steps.relax_schema(world._session("shop", "source")) == 3
    assert ran == [drop, STOP_TTL, RESTORE_TTL]


def test_the_backlog_s_commands_are_counted(world: World) -> None:
    assert world.cut_over(world.command(Interrupts(once=True)))
    world.state.relaxed.clear()
    world.events.clear()
    world.command(Interrupts(once=True))._perform([steps.APPLY_BACKLOG])
    (step,) = (one for one in world.events if isinstance(one, events.Step))
    assert (step.step, step.commands, step.documents) == (steps.APPLY_BACKLOG.name, 1, None)


def test_schemas_that_changed_since_the_gate_are_named(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    changed = [
        SimpleNamespace(pair=SimpleNamespace(source=f"shop.{name}"), what="validator") for name in ("users", "orders")
    ]
    monkeypatch.setattr(steps, "plan", lambda session, final: SimpleNamespace(unexplained=changed, capped=[]))
    with (
        ExitStack() as contexts,
        pytest.raises(TowpathError, match=r"shop\.users: validator; shop\.orders: validator;"),
    ):
        steps._plan_schemas(work_of(world, contexts))


@pytest.mark.parametrize("direction", [CUTOVER, FAIL_BACK])
def test_a_cutover_stores_the_schema_of_the_source_before_it_changes_it(
    world: World, monkeypatch: pytest.MonkeyPatch, direction: Any
) -> None:
    """With a time before the read. After it, only the marker knows that schema."""
    both: Any = SimpleNamespace(source={"shop.users": "as it is"})
    stored: list[Any] = []
    plan = world.does("plan", lambda *_, **__: Plan(both=both))
    monkeypatch.setattr(steps, "plan", plan)
    monkeypatch.setattr(steps.schema, "remember_for_cutover", lambda *of: stored.append(of))
    with ExitStack() as contexts:
        work = work_of(world, contexts, direction)
        steps._read_schemas(work)
    assert world.calls.index("time") < world.calls.index("plan")
    assert stored == ([(work.session, both.source, TIMES["source"])] if direction is CUTOVER else [])
    names = [step.name for step in steps.STEPS]
    assert names.index("reading the schemas of both sides") < names.index(steps.RELAX)
