"""A rebuild and a cutover at once, without servers: a destination that is primary, or becomes it, is never emptied."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cutover.test_undo import LOST, WAYS, at, begin, calls_of, signals
from tests.support import cutover_world
from tests.support.cutover_world import World
from towpath.errors import Refused
from towpath.history import rebuild
from towpath.history.plan import Options, Plan

PLAN = Plan(only=(), forced=False, began=1.0, letters=0, log={}, phase="emptying")


class Emptied(Exception):
    """That is enough."""


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    return cutover_world.world(tmp_path, monkeypatch)


def rebuilds(world: World, patch: pytest.MonkeyPatch, asked: Callable[[], object] = lambda: None) -> bool:
    """Whether a `replay --rebuild` gets as far as to empty the destination. `asked`: what happens as it asks."""

    class Marker:
        def __init__(self, *_: object) -> None:
            pass

        def insert(self, values: object) -> None:
            world.rebuild = PLAN

        def delete(self) -> None:
            world.rebuild = None

    def able(facts: Any) -> None:
        rebuild.cutover.refuse(facts.session)

    def begun(*_: object) -> tuple[Plan, None]:
        asked()
        return PLAN, None

    def empty(*_: object) -> None:
        raise Emptied

    for name, value in {"Marker": Marker, "require_able": able, "begin": begun, "_empty": empty}.items():
        patch.setattr(rebuild, name, value)
    patch.setattr(rebuild, "_log_now", lambda session, plan: plan.log)
    try:
        rebuild.rebuild(
            world._session("shop", "source"),
            Options(only=(), force=False, timeout=1),
            lambda *_: None,
            lambda question: None,
        )
    except Emptied:
        return True
    except Refused:
        assert world.rebuild is None, "it would keep every cutover from beginning"
    return False


@pytest.mark.parametrize("way", ["there", "lost"])
def test_a_rebuild_that_begins_during_a_cutover_empties_nothing_that_becomes_primary(
    world: World, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcomes = set[tuple[bool, bool]]()
    for index in range(len(calls_of(world, way))):
        for done in (False, True):
            begin(world, way)
            world.rebuild, emptied = None, list[bool]()

            def act(emptied: list[bool] = emptied) -> None:
                world.on_call = lambda name, is_done: None
                emptied.append(rebuilds(world, monkeypatch))

            at(world, index, act, done=done)
            switched = (WAYS | LOST)[way](world, world.command(signals()))
            assert not (switched and any(emptied)), (index, done)
            assert world.marker is None or switched, "it is withdrawn"
            outcomes.add((switched, any(emptied)))
    assert outcomes == {(True, False), (False, True)}


@pytest.mark.parametrize("way", ["there", "lost"])
def test_a_rebuild_empties_nothing_that_has_become_primary_while_it_asked(
    world: World, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin(world, way)
    switched = list[bool]()
    assert not rebuilds(
        world, monkeypatch, lambda: switched.append((WAYS | LOST)[way](world, world.command(signals())))
    )
    assert switched == [True] and world.marker is not None and world.marker.state == "destination primary"


def test_a_fail_back_does_not_begin_while_the_source_is_rebuilt(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the log of the reverse pipeline."""
    begin(world, "back")
    monkeypatch.setattr(rebuild, "running", lambda client, pipeline: PLAN if client == "source" else None)
    assert not world.go_back(world.command(signals()))
    assert world.marker is not None and world.marker.state == "destination primary"
