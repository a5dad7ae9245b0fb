"""After the switch, indexes become unique. Whatever ends that, they refuse duplicates; a later command completes it."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import replace
from threading import Event, Timer
from typing import Any

import pytest
from click.testing import CliRunner, Result
from pymongo.errors import AutoReconnect, OperationFailure

from tests.cutover.test_undo import FAILURES, RETURNED, WAYS, at, begin, handlers, signals, world
from tests.support.cutover_world import World
from towpath.cli import deploy
from towpath.config.events import CutoverNote, TimedEvent
from towpath.cutover import machine
from towpath.cutover.machine import Machine
from towpath.deploy import conversions
from towpath.deploy.schema import Plan, Step, as_text, of_text
from towpath.errors import MongoUnreachable, Overtaken, Refused, TowpathError
from towpath.session import Session
from towpath.signals import Interrupts
from towpath.store import cutover as cutovers
from towpath.store.cutover import SWITCHED, Conversion, Cutover
from towpath.store.state_files import lock, locked
from towpath_verifier import Command, Described

__all__ = ["handlers", "world"]  # fixtures
CONVERT = conversions._convert
"""Not that of `world`."""


def switched(world: World, way: str) -> Machine:
    """A command that has just switched, with the conversion left."""
    begin(world, way)
    command = world.command(signals())
    assert WAYS[way](world, command)
    assert world.marker is not None and world.marker.state in SWITCHED
    assert [(one.expires, one.enforced) for one in world.marker.conversions] == [(True, False), (False, True)]
    assert primary(world) in world.state.enforced & world.state.relaxed
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


@pytest.mark.parametrize("failure", FAILURES)
@pytest.mark.parametrize("way", WAYS)
def test_whatever_ends_it_a_later_command_completes_it(world: World, way: str, failure: str) -> None:
    finish(switched(world, way))
    names = list(world.calls)
    assert {"convert", "converted"} <= set(names), names
    first = names.index("convert")
    assert names[first : first + 4] == ["convert", "converted"] * 2
    for index in range(first, first + 4):
        for done in (False, True):
            command = switched(world, way)
            side = primary(world)
            at(world, index, FAILURES[failure], done=done)
            finish(command)
            assert side in world.state.enforced | world.state.unique, (names[index], done)
            world.on_call = lambda name, is_done: None
            if index < first + 3 or not done:  # what is not stored is repeated
                assert command._left and "towpath cutover " in command._left[0], (names[index], done)
                assert world.marker is not None and world.marker.conversions, (names[index], done)
            again = world.command(signals())
            finish(again) if world.marker else None
            assert side in world.state.unique - world.state.relaxed and not again._left, (names[index], done)
            assert (world.marker.conversions if world.marker else ()) == (), (names[index], done)
            if way == "back":
                assert world.marker is None and world.state == RETURNED


def test_a_signal_during_the_switch_ends_the_command_before_the_conversion(world: World) -> None:
    command = switched(world, "there")
    command.signals.came = True
    assert not command._convert()
    assert "convert" not in world.calls and world.marker is not None and world.marker.conversions
    with pytest.raises(TowpathError, match=r"not all indexes are converted, or have .* \(interrupted\)"):
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

    def on_call(name: str, is_done: bool) -> None:
        if name == "late writes":
            fail()

    world.on_call = on_call
    assert not world.go_back(world.command(Interrupts(once=True)))
    assert world.marker.state == "destination primary" and world.marker.conversions == left
    assert world.state.enforced == {"destination"}


def test_a_fail_back_restores_a_ttl_that_is_left_before_its_gate(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else neither side would have one, and the source would get none."""
    command = switched(world, "there")
    seen = list[tuple[bool, bool]]()

    def run(*_: Any) -> list[Any]:
        seen.append(("destination" in world.state.relaxed, "destination" in world.state.unique))
        return []

    monkeypatch.setattr(machine, "run", run)
    monkeypatch.setattr(machine.target, "require_own", lambda *_: None)
    monkeypatch.setattr(Session, "require_deployed", lambda *_: None)
    command.dry_run = True
    command._is_ready_to_return()
    assert seen == [(True, False)] * 2, "a dry run changes nothing"
    command.dry_run = False
    assert command._is_ready_to_return() and seen[2:] == [(False, False)] * 2, "it waits for no conversion"
    assert command.sides.marker is not None and [one.expires for one in command.sides.marker.conversions] == [False]


@pytest.mark.parametrize("way", WAYS)
def test_the_marker_names_the_conversions_before_the_pause(world: World, way: str) -> None:
    """A marker that is too large must not be found so at the switch."""
    begin(world, way)
    command, before = world.command(signals()), world.marker.conversions if world.marker else ()
    stored = list[Cutover]()

    def at_block(name: str, is_done: bool) -> None:
        if name == "block" and not is_done and world.marker:
            stored.append(world.marker)

    world.on_call = at_block
    assert WAYS[way](world, command)
    (paused,) = stored
    assert world.marker is not None and world.marker.conversions == paused.later != ()
    assert paused.conversions == before and world.marker.later == ()


class Server:
    """What answers the commands of conversions: `answers` may raise; `ran` are the commands that it was sent."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.ran = list[Step]()
        self.answers: Callable[[Step], None] = lambda step: None
        self.indexes: dict[str, Any] = {}
        patch.setattr(conversions, "_convert", CONVERT)
        patch.setattr(conversions, "run", self._run)
        patch.setattr(conversions, "described", lambda *_: {"shop.users": Described("collection", {}, self.indexes)})

    def _run(self, client: object, step: Step, *_: Any) -> None:
        self.ran.append(step)
        self.answers(step)


@pytest.fixture
def server(world: World, monkeypatch: pytest.MonkeyPatch) -> Server:
    return Server(monkeypatch)


def unique(name: str) -> Conversion:
    body = {"collMod": "users", "index": {"name": name, "unique": True}}
    return Conversion("shop.users", (name,), True, commands=as_text([Step("shop.users", Command("shop", body))]))


def ttl(name: str = "") -> Conversion:
    """Of an index; without a name, of a clustered collection."""
    change = {"expireAfterSeconds": 60}
    body = {"collMod": "users", **({"index": {"name": name, **change}} if name else change)}
    (one,) = conversions.conversions([Step("shop.users", Command("shop", body))])
    return one


def test_ttl_comes_first_and_apart(world: World, server: Server) -> None:
    """An index may have both a TTL and uniqueness, and the conversion of one may take minutes."""
    steps = [step for one in (unique("a"), unique("b"), ttl("b"), ttl()) for step in of_text(one.commands)]
    found = conversions.conversions(steps)
    assert [(one.expires, one.indexes, one.enforced) for one in found] == [
        (True, ("b",), False),
        (True, (), False),
        (False, ("a",), True),
        (False, ("b",), True),
    ]
    assert found[0].description == "the index b of shop.users does not delete expired documents yet"
    assert found[1].description == "the collection shop.users does not delete expired documents yet"
    shop = left(world, "destination primary", *found)
    words = ["restored the TTL of b of shop.users", "restored the TTL of shop.users"]
    assert [one.words for one in conversions.complete(shop, only_ttl=True)] == words
    assert world.marker is not None and world.marker.conversions == found[2:]
    assert [one.words for one in conversions.complete(shop)] == [
        "converted a of shop.users to unique",
        "converted b of shop.users to unique",
    ]


def test_a_ttl_that_the_server_refuses_to_restore_is_told_and_stops_no_other(world: World, server: Server) -> None:
    shop = left(world, "destination primary", ttl("first"), unique("second"))
    server.answers = refusing(13)
    first, second = conversions.complete(shop)
    assert first.words.startswith("the destination refuses to restore the TTL of first of shop.users: cannot; once it")
    assert not first.is_done and second.is_done and f"run towpath prepare {shop.file}" in first.words
    assert world.marker is not None and [one.problem for one in world.marker.conversions] == [first.words]
    assert world.marker.conversions[0].description == first.words
    command = world.command(signals())
    assert command._convert() and command._left == [first.words]


def refusing(code: int) -> Callable[[Step], None]:
    """The index `first` cannot be converted."""

    def answer(step: Step) -> None:
        if step.change["name"] == "first":
            cause = OperationFailure("cannot", code, {"errmsg": "cannot"})
            raise TowpathError("the destination refuses it") from cause

    return answer


def left(world: World, state: Any, *conversions: Conversion) -> Session:
    world.marker = Cutover(state, (), 1.0, conversions=conversions)
    return world.command(signals()).sides.forward


@pytest.mark.parametrize("code", [13, 67, 72, 85])
def test_an_index_that_cannot_be_converted_stops_no_other(world: World, server: Server, code: int) -> None:
    shop = left(world, "destination primary", unique("first"), unique("second"))
    server.answers = refusing(code)
    first, second = conversions.complete(shop)
    assert first.words.startswith("the destination refuses to convert first of shop.users: cannot; once it does not")
    assert not first.is_done
    assert f"run towpath prepare {shop.file}" in first.words
    assert second.is_done and second.words == "converted second of shop.users to unique"
    assert world.marker is not None and not world.marker.to_convert
    (stored,) = world.marker.conversions
    assert stored.problem == first.words


@pytest.mark.parametrize("code", [26, 27, 166])
def test_an_index_that_is_gone_needs_no_conversion(world: World, server: Server, code: int) -> None:
    shop = left(world, "destination primary", unique("first"), unique("second"))
    server.answers = refusing(code)
    first, second = conversions.complete(shop)
    assert first.is_done and "does not exist any more" in first.words and second.is_done
    assert world.marker is not None and world.marker.conversions == ()


def test_a_dropped_collection_does_not_come_back_empty(world: World, server: Server) -> None:
    steps = rebuild()
    rebuilt = Conversion("shop.users", ("first",), False, commands=as_text(steps))

    def answer(step: Step) -> None:
        if step.drops:
            raise TowpathError("refused") from OperationFailure("ns not found", 26)

    server.answers = answer
    (done,) = conversions.complete(left(world, "destination primary", rebuilt))
    assert done.is_done and "does not exist any more" in done.words and server.ran == [steps[0]]


def test_a_fail_back_ends_also_if_the_source_refuses_a_conversion(world: World, server: Server) -> None:
    left(world, "source primary", unique("first"))
    server.answers = refusing(72)
    command = world.command(signals())
    finish(command)
    assert world.marker is None
    with pytest.raises(TowpathError, match=r"the source refuses to convert .*: cannot; once it does not, run at the"):
        command._require_nothing_left()


@pytest.mark.parametrize("error", [TowpathError("refused"), AutoReconnect("away")])
def test_what_passes_without_a_change_is_not_stored_as_a_problem(
    world: World, server: Server, error: Exception
) -> None:
    """A server that is away, or builds another index of the collection: `run` tries again."""
    error.__cause__ = OperationFailure("an index build is running", 12587) if isinstance(error, TowpathError) else None

    def answer(step: Step) -> None:
        raise error

    server.answers = answer
    with pytest.raises(type(error)):
        list(conversions.complete(left(world, "destination primary", unique("first"))))
    assert world.marker is not None and world.marker.to_convert


def test_a_command_waits_for_another_that_converts_and_then_has_nothing_to_do(world: World, server: Server) -> None:
    left(world, "destination primary", unique("first"))
    said, locks, ends = Event(), Event(), Event()
    world.say = lambda words: said.set() if "waiting" in words else None
    command = world.command(signals())

    def run() -> None:
        with locked(lock("shop", "conversion")):
            locks.set()
            assert said.wait(10)
            assert world.marker is not None
            world.marker = Cutover("destination primary", (), 1.0)
        ends.set()

    with ThreadPoolExecutor() as threads:
        other = threads.submit(run)
        assert locks.wait(10) and command._convert()
        other.result(10)
    assert ends.is_set() and server.ran == [] and not command._left


def test_a_signal_ends_the_wait_for_another_command(world: World, server: Server) -> None:
    left(world, "destination primary", unique("first"))
    world.say = lambda words: interrupt.start() if "waiting" in words else None
    interrupt = Timer(0.2, lambda: signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT))
    command = world.command(signals())
    with locked(lock("shop", "conversion")):
        assert not command._convert()
    assert command._left and "(interrupted)" in command._left[0] and server.ran == []


def test_a_fail_back_that_begins_ends_the_conversion(world: World, server: Server) -> None:
    left(world, "destination primary", unique("first"), unique("second"))
    command = world.command(signals())

    def answer(step: Step) -> None:
        assert world.marker is not None
        world.state.relaxed.add("source")
        world.marker = Cutover("failing back", (), 1.0, conversions=world.marker.conversions)

    server.answers = answer
    with pytest.raises(Overtaken):
        command._convert()
    assert len(server.ran) == 1


def test_a_fail_back_does_not_bring_back_what_run_has_converted(world: World, server: Server) -> None:
    left(world, "source primary", unique("first"))
    command = world.command(signals())
    assert world.marker is not None
    world.marker = replace(world.marker, conversions=())
    command._finish_return()
    assert world.marker is None and server.ran == []


def rebuild() -> list[Step]:
    """As before MongoDB 6.0."""
    spec = {"key": {"n": 1}, "unique": True, "name": "first"}
    bodies: list[dict[str, Any]] = [
        {"dropIndexes": "users", "index": "first"},
        {"createIndexes": "users", "indexes": [spec]},
    ]
    return [Step("shop.users", Command("shop", body)) for body in bodies]


@pytest.mark.parametrize("is_unique", [True, False])
def test_an_index_that_another_command_has_built_or_builds_is_not_dropped(
    world: World, server: Server, is_unique: bool
) -> None:
    steps = rebuild()
    shop = left(world, "destination primary", Conversion("shop.users", ("first",), False, commands=as_text(steps)))
    server.indexes = {"first": {"key": {"n": 1}} | ({"unique": True} if is_unique else {})}
    (done,) = conversions.complete(shop)
    assert done.words == "rebuilt first of shop.users"
    assert server.ran == (steps[1:] if is_unique else steps)


@pytest.fixture
def prepare(world: World, server: Server, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    def run(*options: str) -> Result:
        monkeypatch.setattr(deploy, "opened", lambda file: nullcontext(world.command(signals()).sides.forward))
        monkeypatch.setattr(deploy, "plan", lambda *_, **__: Plan())
        (file := world.folder / "shop.toml").write_text("")
        return CliRunner().invoke(deploy.prepare, [str(file), *options])

    return run


@pytest.mark.parametrize("options", [["--overwrite"], ["--final"], ["--in-place"], ["--indexes", "now"]])
@pytest.mark.parametrize("is_left", [True, False])
def test_prepare_never_changes_a_primary_but_for_what_is_left_to_convert(
    world: World, server: Server, prepare: Callable[..., Result], options: list[str], is_left: bool
) -> None:
    left(world, "destination primary", *([unique("first")] if is_left else []))
    refused = prepare(*options)
    assert isinstance(refused.exception, Refused) and "its schema must stay as it is" in str(refused.exception)
    assert server.ran == []


def test_prepare_after_a_cutover_only_converts(world: World, server: Server, prepare: Callable[..., Result]) -> None:
    left(world, "destination primary", unique("first"))
    done = prepare()
    assert done.exit_code == 0 and "converted first of shop.users to unique" in done.output and len(server.ran) == 1
    again = prepare()
    assert again.exit_code == 0 and "nothing to create" in again.output and len(server.ran) == 1


@pytest.mark.parametrize("state", ["cutting over", "failing back"])
def test_prepare_does_nothing_while_a_cutover_is_under_way(
    world: World, server: Server, prepare: Callable[..., Result], state: str
) -> None:
    left(world, state)
    refused = prepare()
    assert isinstance(refused.exception, Refused) and "is under way" in str(refused.exception) and server.ran == []


def test_what_is_in_the_way_of_a_finished_fail_back_is_named_right(world: World) -> None:
    with pytest.raises(Refused, match=r"has made the source primary, and is not complete; .* --back` completes it"):
        cutovers.refuse(left(world, "source primary", unique("first")))
