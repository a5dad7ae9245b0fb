"""After the switch, indexes become unique. Whatever ends that, they refuse duplicates; a later command completes it."""

from __future__ import annotations

import pytest

from tests.cutover.test_undo import RETURNED, TROUBLES, WAYS, at, begin, handlers, signals, world
from tests.support.cutover_world import World
from towpath.config.events import CutoverNote, TimedEvent
from towpath.cutover.machine import Machine
from towpath.errors import MongoUnreachable, TowpathError
from towpath.signals import Interrupts
from towpath.store.cutover import SWITCHED

__all__ = ["handlers", "world"]  # fixtures


def switched(world: World, way: str) -> Machine:
    """A command that has just switched, with the conversion left."""
    begin(world, way)
    command = world.command(signals())
    assert WAYS[way](world, command)
    assert world.marker is not None and world.marker.state in SWITCHED
    assert [one.enforced for one in world.marker.conversions] == [True]
    assert primary(world) in world.state.enforced
    world.calls.clear()
    return command


def primary(world: World) -> str:
    assert world.marker is not None
    return "destination" if world.marker.state == "destination primary" else "source"


def finish(command: Machine) -> object:
    """As after the switch."""
    if command.state == "source primary":
        command.take()
        return command._finish_return()
    return command._convert()


@pytest.mark.parametrize("trouble", TROUBLES)
@pytest.mark.parametrize("way", WAYS)
def test_whatever_ends_it_a_later_command_completes_it(world: World, way: str, trouble: str) -> None:
    finish(switched(world, way))
    names = list(world.calls)
    assert {"convert", "converted"} <= set(names), names
    first = names.index("convert")
    for index in range(first, first + 2):
        for done in (False, True):
            command = switched(world, way)
            side = primary(world)
            at(world, index, TROUBLES[trouble], done=done)
            finish(command)
            assert side in world.state.enforced | world.state.unique, (names[index], done)
            world.trouble = lambda name, is_done: None
            if "converted" not in world.calls or index == first or not done:  # what is not stored is repeated
                assert command._left and "towpath cutover " in command._left[0], (names[index], done)
                assert world.marker is not None and world.marker.conversions, (names[index], done)
            again = world.command(signals())
            finish(again) if world.marker else None
            assert side in world.state.unique and not again._left, (names[index], done)
            assert (world.marker.conversions if world.marker else ()) == (), (names[index], done)
            if way == "back":
                assert world.marker is None and world.state == RETURNED


def test_a_signal_during_the_switch_ends_the_command_before_the_conversion(world: World) -> None:
    command = switched(world, "there")
    command.signals.came = True
    assert not command._convert()
    assert "convert" not in world.calls and world.marker is not None and world.marker.conversions
    with pytest.raises(TowpathError, match=r"not all indexes are converted to unique \(interrupted\)"):
        command._require_nothing_left()


@pytest.mark.parametrize("way", WAYS)
def test_duplicates_are_told_and_stored_and_the_index_stays_enforced(world: World, way: str) -> None:
    command = switched(world, way)
    side, world.problem = primary(world), "the index n has duplicates: 1, 2"
    finish(command)
    assert [one.words for one in world.events if is_note(one, "not converted")] == [world.problem]
    assert side in world.state.enforced
    with pytest.raises(TowpathError, match="the index n has duplicates: 1, 2"):
        command._require_nothing_left()
    if way == "there":
        assert world.marker is not None and world.problem in world.marker.description
        assert not world.marker.to_convert, "`run` would read the index again and again"
        world.problem = ""
        again = world.command(signals())
        assert again._convert() and not again._left
        assert world.marker.conversions == () and side in world.state.unique


def is_note(event: TimedEvent, kind: str) -> bool:
    return isinstance(event, CutoverNote) and event.event == kind


def test_a_fail_back_begins_with_a_conversion_left_and_its_undo_keeps_it(world: World) -> None:
    switched(world, "there")
    world.state.blocked.clear()
    assert world.marker is not None
    left = world.marker.conversions

    def fail() -> None:
        raise MongoUnreachable("away")

    def trouble(name: str, is_done: bool) -> None:
        if name == "late writes":
            fail()

    world.trouble = trouble
    assert not world.go_back(world.command(Interrupts(once=True)))
    assert world.marker.state == "destination primary" and world.marker.conversions == left
    assert world.state.enforced == {"destination"}
