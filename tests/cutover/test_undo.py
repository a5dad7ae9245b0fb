"""Whatever ends a cutover before its switch, all is as before: each call × failure × second signal × output."""

from __future__ import annotations

import io
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from copy import deepcopy
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import IO, cast

import pytest

from tests.support import cutover_world
from tests.support.cutover_world import SWITCH, State, World
from tests.support.sessions import FakeCluster
from towpath.cli import standard_streams
from towpath.cli.cutover import print_event, with_words
from towpath.cli.options import say
from towpath.clients.mongo.replica_set import ReplicaSet
from towpath.config.events import TimedEvent
from towpath.cutover import sides as sides_module
from towpath.cutover import steps, takeover
from towpath.cutover.machine import Machine, NotUndone
from towpath.cutover.sides import CUTOVER, SwitchUnknown, read_sides
from towpath.deploy.schema import Plan, Step
from towpath.errors import MongoUnreachable, NoSuchConnector, NotYet, Overtaken, Refused
from towpath.signals import ENDING, Interrupts, handle
from towpath.store.cutover import Cutover
from towpath_verifier import Command, MetadataDifference, Pair

Act = Callable[[], object]


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    return cutover_world.world(tmp_path, monkeypatch)


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    numbers = (*ENDING, signal.SIGALRM)
    before = [signal.getsignal(number) for number in numbers]
    yield
    for number, handler in zip(numbers, before, strict=True):
        signal.signal(number, handler)


def fail() -> None:
    raise NotYet("it did not come about")


def swallowed() -> None:
    """As Kafka's client makes it of an interrupt."""
    with suppress(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
    raise SystemError("returned NULL without setting an exception")


FAILURES: dict[str, Act] = {
    "failure": fail,
    "Kafka": swallowed,
    **{number.name: lambda number=number: signal.raise_signal(number) for number in ENDING},  # type: ignore[misc]
}


def signals() -> Interrupts:
    handle(handler := Interrupts(once=True))
    return handler


def print_shown(event: TimedEvent) -> None:
    print_event(with_words(event))


@contextmanager
def output(kind: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Standard output and standard error."""
    with _file(kind, folder) as file, monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", file)
        patch.setattr(sys, "stderr", file)
        with standard_streams():
            yield


def _file(kind: str, folder: Path) -> IO[str]:
    if kind == "closed":
        reads, writes = os.pipe()
        os.close(reads)
        return io.TextIOWrapper(io.FileIO(writes, "w"), encoding="ascii")  # type: ignore[arg-type]
    return (Path("/dev/full") if kind == "full" else folder / "out").open("a", encoding="ascii")


WAYS: dict[str, Callable[[World, Machine], bool]] = {"there": World.cut_over, "back": World.go_back}
LOST = {"lost": World.take_over, "returned": World.return_source}


def begin(world: World, way: str) -> State:
    """Put everything as it is before this way; return that."""
    world.on_call = lambda name, is_done: None
    world.marker, world.state.blocked, world.state.sinks = None, set(), {"shop": "RUNNING"}
    world.state.relaxed, world.state.captures_back, world.state.capture = {"destination"}, False, "RUNNING"
    world.state.enforced, world.state.unique, world.problem = set(), set(), ""
    world.state.warning = {"destination"}
    if way == "back":
        command = world.command(signals())
        assert world.cut_over(command) and command._convert()
        world.state.blocked.clear()
    if way == "returned":
        assert world.take_over(world.command(signals()))
    world.calls.clear()
    return deepcopy(world.state)


def calls_of(world: World, way: str) -> list[str]:
    """All calls of a cutover to which nothing happens."""
    begin(world, way)
    assert (WAYS | LOST)[way](world, world.command(signals()))
    assert world.calls[-1] in SWITCH and len(world.calls) > 15, world.calls
    return list(world.calls)


def at(world: World, index: int, act: Act, *, done: bool, later: Act = lambda: None) -> None:
    """Do something at the call of this number, before or after it is done, and `later` at every call after that."""

    def on_call(name: str, is_done: bool) -> None:
        if len(world.calls) == index + 1 and is_done == done:
            act()
        elif len(world.calls) > index + 1:
            later()

    world.on_call = on_call


def assert_as_before(world: World, way: str, before: State, where: object) -> None:
    if way == "returned":
        assert world.marker and world.marker.is_takeover, where
    assert world.state == before, where
    state = "destination primary" if way in ("back", "returned") else None
    assert (world.marker.state if world.marker else None) == state, where


@pytest.mark.parametrize(
    "kind", ["fine", *(pytest.param(kind, marks=pytest.mark.nightly) for kind in ("closed", "full"))]
)
@pytest.mark.parametrize("failure", FAILURES)
@pytest.mark.parametrize("way", WAYS | LOST)
def test_whatever_ends_it_all_is_as_before(
    world: World, way: str, failure: str, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = calls_of(world, way)
    first = names.index("take") + 1 if way in ("back", "returned") else 0
    with output(kind, tmp_path, monkeypatch):
        world.say = say
        for index, name in list(enumerate(names))[first:]:
            for done in (False, True):
                for again in (lambda: None, lambda: signal.raise_signal(signal.SIGTERM)):
                    before, where = begin(world, way), (name, index, done, again)
                    at(world, index, FAILURES[failure], done=done, later=again)
                    is_done = (WAYS | LOST)[way](world, world.command(signals(), print_shown))
                    if name in SWITCH and (done or failure.startswith("SIG")):  # the reply was lost, or held
                        assert is_done and world.marker and world.marker.state == name.removeprefix("mark "), where
                    else:
                        assert not is_done, where
                        assert_as_before(world, way, before, where)


def test_a_signal_before_signals_are_held_does_not_skip_the_undo(world: World) -> None:
    class Late(Interrupts):
        def hold(self) -> None:
            signal.raise_signal(signal.SIGINT)
            super().hold()

    names, before = calls_of(world, "there"), begin(world, "there")
    at(world, names.index("begin"), fail, done=True)
    handle(handler := Late(once=True))
    assert not world.cut_over(world.command(handler))
    assert_as_before(world, "there", before, "begin")


def test_the_undo_does_not_wait_for_a_lock_that_a_signal_has_left_taken(world: World) -> None:
    names, before = calls_of(world, "there"), begin(world, "there")
    command = world.command(signals())

    def interrupt() -> None:
        for session in filter(None, (command.sides.forward, command.sides.reverse)):
            for cluster in (session.source, session.destination):
                cast(FakeCluster, cluster).is_stuck = True
        signal.raise_signal(signal.SIGINT)

    at(world, names.index("begin"), interrupt, done=True)
    assert not world.cut_over(command)
    assert_as_before(world, "there", before, "begin")


def test_the_undo_is_done_before_anything_is_printed(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reader of a pipe sleeps, and the pipe is full."""
    before = begin(world, "there")
    reads, writes = os.pipe()
    os.set_blocking(writes, False)
    with suppress(BlockingIOError):
        while True:
            os.write(writes, b"x" * 4096)
    os.set_blocking(writes, True)
    undone, in_time = threading.Event(), list[bool]()

    def wake() -> None:
        in_time.append(undone.wait(10))
        while os.read(reads, 65536):
            pass

    reader = threading.Thread(target=wake, daemon=True)
    with io.TextIOWrapper(io.FileIO(writes, "w"), encoding="ascii") as file:  # type: ignore[arg-type]
        monkeypatch.setattr(sys, "stdout", file)
        monkeypatch.setattr(sys, "stderr", file)
        with standard_streams():
            command = world.command(signals())

            def on_call(name: str, is_done: bool) -> None:
                if name == "begin" and is_done:  # from here on all that is printed waits
                    world.say = say
                    command.report = print_shown
                    command.sides.forward = replace(command.sides.forward, say=say)
                    reader.start()
                    fail()
                if name == "delete" and is_done:
                    undone.set()

            world.on_call = on_call
            assert not world.cut_over(command)
    reader.join(30)
    assert in_time == [True]
    assert_as_before(world, "there", before, "begin")


#: After a fail back, which has made the source's index unique.
RETURNED = State(unique={"source"})
UNDOS = {
    "there": (
        *("allow", "restore TTL source", "refuse source", "warn destination", "release destination", "remove"),
        *("resume shop", "delete"),
    ),
    "back": (
        *("allow", "restore TTL destination", "refuse destination", "warn source", "release source"),
        *("resume shop-back", "mark destination primary"),
    ),
}


@pytest.mark.parametrize("error", [MongoUnreachable("away"), RuntimeError("a bug")], ids=["away", "a bug"])
@pytest.mark.parametrize(("way", "step"), [(way, step) for way, undos in UNDOS.items() for step in undos])
def test_what_cannot_be_undone_is_told_and_a_later_undo_does_it(
    world: World, way: str, step: str, error: Exception
) -> None:
    names = calls_of(world, way)
    before, is_begun = begin(world, way), False

    def on_call(name: str, is_done: bool) -> None:
        nonlocal is_begun
        if name == "late writes":
            is_begun = True
            fail()
        if is_begun and name == step and not is_done:
            raise error

    assert "late writes" in names
    world.on_call = on_call
    with pytest.raises(NotUndone, match=r"towpath cutover .*shop.toml --undo"):
        WAYS[way](world, world.command(signals()))
    assert world.marker is not None and world.marker.state in ("cutting over", "failing back")
    assert step == "allow" or not world.state.blocked, "writes are allowed first, whatever else fails"
    left = [event.words for event in world.events if getattr(event, "event", "") == "not undone"]
    assert len(left) == 1 and str(error) in str(left[0])
    assert not (world.state.sinks["shop"] == "RUNNING" and world.state.captures_back), "changes would circulate"
    world.on_call = lambda name, is_done: None
    assert world.command(signals()).undo()
    assert_as_before(world, way, before, step)


@pytest.mark.parametrize("way", WAYS)
def test_who_is_overtaken_touches_nothing_any_more(world: World, way: str) -> None:
    """Another command, on another machine, takes the cutover over at each call; then this one fails, or continues."""
    names = calls_of(world, way)
    entered = 1 if way == "there" else names.index("mark a step") + 1
    for act in (fail, lambda: None):
        for index in range(entered, len(names)):
            begin(world, way)
            others = list[str]()

            def overtaken(act: Act = act, others: list[str] = others) -> None:
                on_call, world.on_call = world.on_call, lambda name, is_done: None
                other = world.command(Interrupts(once=True))
                others.append(other.sides.take().token)
                world.on_call = on_call
                act()

            at(world, index, overtaken, done=False)
            with pytest.raises(Overtaken):
                WAYS[way](world, world.command(signals()))
            assert world.marker and [world.marker.token] == others, (names[index], index)
            after = world.calls[index + 2 :]
            undone = {"allow", "remove", "release destination", "resume shop", "delete", "resume shop-back"}
            undone |= {"warn destination"} if way == "there" else {"restore TTL destination", "release source"}
            assert not undone & set(after), (names[index], after)


def test_of_two_that_begin_at_once_one_does(world: World) -> None:
    begin(world, "there")
    first, second = world.command(signals()), world.command(signals())
    first.sides.enter("cutting over")
    with pytest.raises(Overtaken):
        world.cut_over(second)
    assert world.marker == first.sides.marker
    assert "block" not in world.calls and "allow" not in world.calls


@pytest.mark.parametrize("is_stored", [True, False])
@pytest.mark.parametrize("way", WAYS)
def test_nothing_is_undone_while_it_is_unknown_who_is_primary(world: World, way: str, is_stored: bool) -> None:
    names, before = calls_of(world, way), begin(world, way)

    def away() -> None:
        world.is_reachable = False
        raise MongoUnreachable("no reply")

    at(world, len(names) - 1, away, done=is_stored)
    with pytest.raises(SwitchUnknown, match=r"it is unknown whether .* Nothing is undone.*--undo"):
        WAYS[way](world, world.command(signals()))
    assert world.state.blocked == {"source" if way == "there" else "destination"}
    world.is_reachable, world.on_call = True, lambda name, is_done: None
    if is_stored and way == "there":
        with pytest.raises(Refused, match="is complete and cannot be undone"):
            world.command(signals()).undo()
        assert world.state.blocked == {"source"}
    else:
        assert world.command(signals()).undo()
        assert not world.state.blocked
        assert_as_before(world, "there" if is_stored else way, RETURNED if is_stored else before, way)


@pytest.mark.parametrize("way", WAYS)
def test_a_switch_that_arrives_after_the_undo_has_no_effect(world: World, way: str) -> None:
    names, before = calls_of(world, way), begin(world, way)
    sent: list[str] = []

    def delayed() -> None:
        assert world.marker is not None
        sent.append(world.marker.token)
        raise MongoUnreachable("no reply")

    at(world, len(names) - 1, delayed, done=False)
    assert not WAYS[way](world, world.command(signals()))
    assert_as_before(world, way, before, "the switch")
    assert sent and (world.marker is None or world.marker.token not in sent)


def test_a_destination_that_is_away_does_not_keep_writes_stopped(world: World) -> None:
    """Before the switch is sent: then the destination is not primary."""
    names, before = calls_of(world, "there"), begin(world, "there")

    def away() -> None:
        world.is_reachable = False
        fail()

    at(world, names.index("begin"), away, done=True)
    with pytest.raises(NotUndone):
        world.cut_over(world.command(signals()))
    assert not world.state.blocked
    world.is_reachable, world.on_call = True, lambda name, is_done: None
    assert world.command(signals()).undo()
    assert_as_before(world, "there", before, "away")


def test_an_undo_opens_no_side_without_the_marker(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    begin(world, "there")
    world.state.blocked = {"source"}

    def away(*_: object) -> None:
        raise MongoUnreachable("cannot reach the destination")

    monkeypatch.setattr(sides_module.cutovers, "read", away)
    session = world.command(signals()).sides.forward
    with pytest.raises(MongoUnreachable, match=r"nothing was undone: .*setUserWriteBlockMode"):
        read_sides(session, None, goes_forward=False, undoes=True, has_reverse_pipeline=True)  # type: ignore[arg-type]
    assert world.state.blocked == {"source"}


def test_an_undo_of_what_was_switched_in_the_meantime_is_refused(world: World) -> None:
    names = calls_of(world, "there")
    begin(world, "there")
    late: list[Machine] = []
    at(world, names.index("begin"), lambda: late.append(world.command(Interrupts(once=True))), done=True)
    assert world.cut_over(world.command(signals()))
    with pytest.raises(Refused, match="is complete and cannot be undone"):
        late[0].undo()
    assert world.state.blocked == {"source"} and world.state.sinks["shop"] == "STOPPED"


def test_a_reverse_pipeline_that_was_there_stays(world: World) -> None:
    names = calls_of(world, "there")
    begin(world, "there")
    world.state.sinks["shop-back"] = "RUNNING"
    before = deepcopy(world.state)
    at(world, names.index("look for a reverse pipeline"), fail, done=False)
    assert not world.cut_over(world.command(signals()))
    assert "remove" not in world.calls
    assert_as_before(world, "there", before, "there")


@pytest.mark.parametrize("number", ENDING)
@pytest.mark.parametrize("moment", ["allow", "late writes"])
def test_a_signal_counts_also_after_an_earlier_attempt_was_undone(
    world: World, number: signal.Signals, moment: str
) -> None:
    """During the undo it is held until that is done; after it, it ends the new attempt."""
    before = begin(world, "there")
    world.marker, world.state.blocked = Cutover("cutting over", ("blocking writes",), 0.0), {"source"}

    def on_call(name: str, is_done: bool) -> None:
        if name == moment and not is_done and not said:
            said.append(name)
            signal.raise_signal(number)

    said: list[str] = []
    world.on_call = on_call
    command = world.command(signals())

    def again() -> None:
        command.undo_earlier("an earlier cutover was interrupted; undoing it first")
        command.switch(CUTOVER)

    assert not command.ended(again) and said == [moment]
    assert_as_before(world, "there", before, moment)


@pytest.mark.parametrize("way", WAYS)
def test_an_undo_waits_behind_a_command_that_is_under_way(world: World, way: str) -> None:
    """A command that waits for a lock has no effect yet that one could see; it gets the lock before the undo does."""
    before, waits = begin(world, way), False
    new = "destination" if way == "there" else "source"

    def on_call(name: str, is_done: bool) -> None:
        nonlocal waits
        if name == f"enforce {new}" and not is_done:
            waits = True
            fail()
        if waits and (name.startswith(("release", "resume"))) and not is_done:
            waits = False
            world.state.enforced.add(new)

    world.on_call = on_call
    assert not WAYS[way](world, world.command(signals()))
    assert_as_before(world, way, before, "enforce")


CAP = Step("shop.ring", Command("shop", {"convertToCapped": "ring", "size": 4096}))
MORE = MetadataDifference(Pair("shop.a", "shop.a"), "index", "n", "the index n is missing", {}, None, ())


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("changed", "words"),
    [
        (Plan(unexplained=(MORE,)), "since they were checked: shop.a: the index n is missing; begin again"),
        (Plan(collections=(CAP,)), "since they were checked: shop.ring became capped; begin again"),
    ],
    ids=["an index", "capped"],
)
def test_what_a_pause_cannot_restore_ends_it_before_the_pause(
    world: World, way: str, changed: Plan, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as an index that was made between the gate and the read of the schemas."""
    before, planned = begin(world, way), steps.plan
    monkeypatch.setattr(steps, "plan", lambda session, **form: changed if "final" in form else planned(session, **form))
    assert not WAYS[way](world, world.command(signals()))
    assert_as_before(world, way, before, words)
    assert words in str(world.events[-1].words) and "block" not in world.calls  # type: ignore[union-attr]


def test_a_fail_back_stops_ttl_at_the_destination_before_it_switches(world: World) -> None:
    """From the switch on, changes are replicated there again, and it must not delete by its own clock."""
    begin(world, "back")
    seen = list[set[str]]()

    def on_call(name: str, is_done: bool) -> None:
        if name == "mark source primary" and not is_done:
            seen.append(set(world.state.relaxed))

    world.on_call = on_call
    assert world.go_back(world.command(signals()))
    assert seen == [{"source", "destination"}], "no TTL is active, until the source is primary"
    command = world.command(signals())
    command.take()
    command._finish_return()
    assert world.state.relaxed == {"destination"}


def lose_its_source(world: World) -> Machine:
    """A cutover loses its source when it had restored the schema of the destination, and a takeover begins."""

    def on_call(name: str, is_done: bool) -> None:
        if name == "late writes" or (name == "allow" and not is_done):
            raise MongoUnreachable("the source is lost")

    world.on_call = on_call
    with pytest.raises(NotUndone):
        world.cut_over(world.command(signals()))
    assert world.state.sinks["shop"] == "STOPPED" and world.state.captures_back
    assert world.state.enforced == {"destination"}
    world.on_call = lambda name, is_done: None
    later = world.command(signals())
    later._leave_cutover()
    assert world.state.sinks["shop"] == "RUNNING" and not world.state.captures_back, "changes would circulate"
    world.calls.clear()
    return later


def test_a_takeover_ends_a_cutover_that_lost_its_source(world: World) -> None:
    before = begin(world, "there")
    later = lose_its_source(world)
    assert "destination" not in world.state.enforced and world.state.relaxed >= before.relaxed
    assert world.take_over(later)
    assert world.marker is not None and world.marker.is_takeover


def test_what_a_cutover_has_relaxed_is_restored_after_a_takeover_that_failed_at_any_call(world: World) -> None:
    """The source is back, and no server says how its TTL was: only the marker does."""
    before = begin(world, "there")
    assert world.take_over(lose_its_source(world))
    names = list(world.calls)
    for index, name in enumerate(names[:-1]):
        for done in (False, True):
            begin(world, "there")
            later = lose_its_source(world)
            at(world, index, fail, done=done)
            with suppress(NotUndone):  # before the first call is done, the marker is that of the cutover
                assert not world.take_over(later)
            world.on_call = lambda name, is_done: None
            assert world.marker is not None and world.marker.state == "cutting over"
            assert world.command(signals()).undo()
            assert_as_before(world, "there", before, (name, index, done))


def test_the_marker_undoes_a_cutover_and_a_takeover_that_were_killed_at_any_call(world: World) -> None:
    """The cutover at each call after which it leaves something else, and then the takeover at each of its calls."""
    first, before, seen = calls_of(world, "there"), begin(world, "there"), list[object]()

    def take_over() -> None:
        command = world.command(signals())
        command._leave_cutover()
        world.take_over(command)

    for index, name in enumerate(first[:-1]):
        begin(world, "there")
        world.killed_after(index, lambda: world.cut_over(world.command(signals())))
        marker, state = world.marker, deepcopy(world.state)
        if marker is None or (left := (marker.steps, state)) in seen:
            continue
        seen.append(left)
        for number in count(1):
            world.marker = marker
            for each in State.__slots__:  # type: ignore[attr-defined]
                setattr(world.state, each, deepcopy(getattr(state, each)))
            world.killed_after(number, take_over)
            if world.marker and world.marker.state == "destination primary":
                break
            while world.marker is not None:
                assert world.command(signals()).undo()
            assert_as_before(world, "there", before, (name, index, number))
    assert len(seen) > 8


def test_a_takeover_that_knows_no_schema_is_undone_like_any_other(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(takeover, "remembered", lambda session: None)
    for index, name in enumerate(calls_of(world, "lost")[:-1]):
        before = begin(world, "lost")
        at(world, index, fail, done=True)
        assert not world.take_over(world.command(signals()))
        assert_as_before(world, "lost", before, name)


def test_a_step_whose_undo_is_not_stored_counts_as_not_undone(world: World) -> None:
    begin(world, "there")
    world.marker = Cutover("cutting over", (steps.RELAX,), 0.0)
    with pytest.raises(NotUndone):
        world.command(signals()).undo()
    assert world.marker is not None and world.marker.steps == (steps.RELAX,)
    assert "does not say how to undo 'relaxing the schema of the old primary'" in str(world.events[-1].words)  # type: ignore[union-attr]


def test_an_undo_removes_only_what_the_deployed_reverse_pipeline_writes(world: World) -> None:
    """Its file may name another cluster by now. Writes are allowed again nevertheless."""
    index, before = calls_of(world, "there").index("late writes"), begin(world, "there")
    world.deployed = ReplicaSet("other", ("elsewhere:27017",))
    at(world, index, fail, done=True)
    with pytest.raises(NotUndone):
        world.cut_over(world.command(signals()))
    assert "remove" not in world.calls and not world.state.blocked
    assert world.state.sinks == {"shop": "STOPPED", "shop-back": "RUNNING"}
    assert any("shop-back-sink writes to other/" in str(getattr(event, "words", "")) for event in world.events)
    world.deployed = None
    assert world.command(signals()).undo()
    assert_as_before(world, "there", before, "late writes")


@pytest.mark.parametrize(
    ("way", "last", "names"),
    [
        ("there", "stop shop", ["shop-sink"]),
        ("back", "stop shop-back", ["shop-back-sink"]),
        ("lost", "fence sink", ["shop-sink", "shop-source"]),
    ],
)
def test_a_connector_that_was_removed_since_does_not_keep_the_undo_from_its_end(
    world: World, way: str, last: str, names: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`remove` does not ask a destination that is away for the marker."""
    index, told = calls_of(world, way).index(last), list[str]()
    begin(world, way)
    assert not world.killed_after(index, lambda: (WAYS | LOST)[way](world, world.command(signals())))

    def resume(connector: str) -> None:
        raise NoSuchConnector(f"there is no {connector}")

    monkeypatch.setattr(steps, "announce", lambda say, words: told.append(words))
    command = world.command(signals())
    session = command.sides.session
    monkeypatch.setattr(session.connect, "resume", resume)
    assert command.undo()
    file = session.file
    assert told == [f"there is no {name} to resume: `towpath deploy {file}` creates it" for name in names]
    assert (world.marker.state if world.marker else None) == ("destination primary" if way == "back" else None)
