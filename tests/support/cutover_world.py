"""A cutover without servers: what its steps change is kept here, and each call to a server may go wrong.

Only functions of Towpath that ask a server are replaced: the steps, their order and the undo are the real ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.support.pipeline import pipeline_text
from tests.support.sessions import FakeCluster, session_of
from towpath.checks.facts import Facts
from towpath.checks.target import Target
from towpath.clients.kafka import hanging_transactions
from towpath.clients.kafka.consume import Window
from towpath.clients.kafka.topics import Place
from towpath.clients.mongo.client import ClusterTime
from towpath.clients.mongo.replica_set import ReplicaSet
from towpath.config import loading
from towpath.config.events import TimedEvent
from towpath.config.pipeline import Pipeline
from towpath.cutover import machine, old_source, reverse_pipeline, sides, steps, takeover, writes
from towpath.cutover.machine import Machine
from towpath.cutover.sides import CUTOVER, FAIL_BACK, RETURN, TAKEOVER, Sides
from towpath.cutover.steps import CutoverOptions
from towpath.deploy import conversions
from towpath.deploy.conversions import Attempt
from towpath.deploy.schema import Plan, Step, of_text
from towpath.errors import MongoUnreachable, Overtaken
from towpath.history.plan import Plan as Rebuild
from towpath.session import Session, unsaid
from towpath.signals import Interrupts
from towpath.store.cutover import SWITCHED, Conversion, Cutover, Redirect
from towpath.verify.verdict import Verification
from towpath_verifier import Command, Verdict
from towpath_verifier.metadata import NEVER

OPTIONS = CutoverOptions(max_age=10, newest=1, blocks=True, timeout=10, max_pause=9)
SWITCH = "mark destination primary", "mark source primary"
#: The states in which a task of the pipeline's sink refuses to write: those of `CutoverMarker.java`.
STOPPED = "destination primary", "failing back", "returning the old source"


class Killed(BaseException):
    """The process is gone: it does nothing more."""


@dataclass(slots=True)
class State:
    """What a cutover changes."""

    blocked: set[str] = field(default_factory=set)
    sinks: dict[str, str] = field(default_factory=lambda: {"shop": "RUNNING"})
    capture: str = "RUNNING"
    """The source connector of the pipeline."""
    captures_back: bool = False
    relaxed: set[str] = field(default_factory=lambda: {"destination"})
    """The sides whose TTL is stopped, and `warning`: those whose validator only warns."""
    warning: set[str] = field(default_factory=lambda: {"destination"})
    enforced: set[str] = field(default_factory=set)
    """The sides whose index refuses new duplicates, and `unique`: those where it is converted."""
    unique: set[str] = field(default_factory=set)


@dataclass(slots=True)
class World:
    folder: Path
    state: State = field(default_factory=State)
    marker: Cutover | None = None
    """As the destination has it."""
    calls: list[str] = field(default_factory=list)
    on_call: Callable[[str, bool], object] = lambda name, is_done: None
    """Called with the name of each call, before and after it is done; may raise."""
    events: list[TimedEvent] = field(default_factory=list)
    is_reachable: bool = True
    """The destination, as far as the marker is concerned."""
    say: Callable[[str], None] = unsaid
    problem: str = ""
    """Of a conversion."""
    rebuild: Rebuild | None = None
    """One that is not finished, of the pipeline."""
    deployed: ReplicaSet | None = None
    """To where the sink of the reverse pipeline writes, as far as it exists."""
    is_watched: bool = True
    """Whether it is known that no schema has changed since it was read."""

    def command(self, signals: Interrupts, show: Callable[[TimedEvent], None] | None = None) -> Machine:
        """A command, which has read the marker."""
        forward, reverse = self._session("shop", "source"), self._session("shop-back", "destination")
        both = Sides(forward, reverse, self.marker)
        return Machine(both, OPTIONS, show or self.events.append, signals)

    def cut_over(self, command: Machine) -> bool:
        """As `Machine.run` when all is ready, up to the switch."""
        return command.ended(lambda: command.switch(CUTOVER))

    def killed_after(self, index: int, act: Callable[[], object]) -> bool:
        """Kill what `act` runs after the call of this number; return whether it ended before."""

        def on_call(name: str, is_done: bool) -> None:
            if len(self.calls) > index + 1 or (len(self.calls) == index + 1 and is_done):
                raise Killed

        self.on_call = on_call
        self.calls.clear()
        try:
            act()
        except Killed:
            return False
        finally:
            self.on_call = lambda name, is_done: None
        return True

    def take_over(self, command: Machine) -> bool:
        """As `Machine.take_over` when the source is lost, up to the switch."""
        command.sides.reverse = None
        return command.ended(lambda: command.switch(TAKEOVER))

    def return_source(self, command: Machine) -> bool:
        """As `Machine.return_source` when all is ready, up to the switch."""
        command.take()
        return command.ended(lambda: command.switch(RETURN))

    def go_back(self, command: Machine) -> bool:
        """As `Machine.back` when all is ready, up to the switch."""
        command.take()
        return command.ended(lambda: command.switch(FAIL_BACK))

    def _session(self, name: str, source: str) -> Session:
        other = "destination" if source == "source" else "source"
        pipeline, file = pipeline_of(self.folder, name, source, other), self.folder / f"{name}.toml"
        connect = SimpleNamespace(
            stop=self.does(f"stop {name}", lambda connector: self._put(name, connector, "STOPPED")),
            resume=self.does(f"resume {name}", lambda connector: self._put(name, connector, "RUNNING")),
            renew=lambda: None,
            config=lambda connector: {},
        )
        clusters = FakeCluster(source, side=source), FakeCluster(other, side=other)
        topics = SimpleNamespace(open_transactions=dict)
        return session_of(pipeline, connect, topics, file, self.say, source=clusters[0], destination=clusters[1])

    def _put(self, name: str, connector: str, state: str) -> None:
        if connector == "shop-source":
            self.state.capture = state
            return
        assert connector == f"{name}-sink"
        if name == "shop" and state == "RUNNING" and self.marker is not None:
            assert self.marker.state not in STOPPED, "the sink would refuse to write"
        self.state.sinks[name] = state

    def does(self, name: str, effect: Callable[..., Any]) -> Callable[..., Any]:
        def do(*arguments: Any, **named: Any) -> Any:
            self.calls.append(name)
            self._assert_undoable()
            self.on_call(name, False)
            result = effect(*arguments, **named)
            self._assert_undoable()
            self.on_call(name, True)
            return result

        return do

    def _assert_undoable(self) -> None:
        """The new primary deletes nothing by itself before the switch: no undo would bring it back."""
        new = {"cutting over": "destination", "taking over": "destination", "failing back": "source"}
        if self.marker is not None and (side := new.get(self.marker.state)):
            assert side in self.state.relaxed, f"the {side} deletes expired documents before the switch"

    # the marker, with the rules of `towpath.store.cutover`, which test_marker.py tests

    def insert(self, client: object, pipeline: object, marker: Cutover) -> None:
        def effect() -> None:
            if self.marker is not None:
                raise Overtaken("there is one")
            self.marker = marker

        self._stored("insert", effect)

    def replace_own(self, client: object, pipeline: object, tokens: list[str], marker: Cutover) -> None:
        def effect() -> None:
            self._own(tokens)
            self.marker = marker

        self._stored(
            f"mark {marker.state}" if marker.state in ("destination primary", "source primary") else "mark a step",
            effect,
        )

    def take(self, client: object, pipeline: object, tokens: list[str], token: str) -> Cutover:
        def effect() -> Cutover:
            self.marker = replace(self._own(tokens), token=token)
            return self.marker

        return cast(Cutover, self._stored("take", effect))

    def redirected(self, client: object, pipeline: object, tokens: list[str], redirect: Redirect) -> None:
        def effect() -> None:
            self.marker = replace(self._own(tokens), redirect=redirect)

        self._stored("redirected", effect)

    def delete_own(self, client: object, pipeline: object, tokens: list[str]) -> None:
        def effect() -> None:
            if self.marker is not None:
                self._own(tokens)
            self.marker = None

        self._stored("delete", effect)

    def read(self, client: object, pipeline: object) -> Cutover | None:
        return self.marker

    def require_own(self, client: object, pipeline: object, tokens: list[str]) -> None:
        self._stored("look at the marker", lambda: self._own(tokens))

    def require_switched(self, client: object, pipeline: object, state: str) -> None:
        if state not in SWITCHED or self.marker is None or self.marker.state != state:
            raise Overtaken("another command has it")

    def converted(self, client: object, pipeline: object, conversion: Conversion, problem: str) -> None:
        def effect() -> None:
            assert self.marker is not None
            left = [one for one in self.marker.conversions if one.commands != conversion.commands]
            left += [replace(conversion, problem=problem)] if problem else []
            self.marker = replace(self.marker, conversions=tuple(left))

        self._stored("converted", effect)

    def _own(self, tokens: list[str]) -> Cutover:
        if self.marker is None or self.marker.token not in tokens:
            raise Overtaken("another command has it")
        return self.marker

    def _stored(self, name: str, effect: Callable[[], Any]) -> Any:
        if not self.is_reachable:
            raise MongoUnreachable("the destination does not answer")
        return self.does(name, effect)()


def pipeline_of(
    folder: Path, name: str = "shop", source: str = "source", destination: str = "destination", more: str = ""
) -> Pipeline:
    """A pipeline of servers that are not there."""
    uris = (f"mongodb://{host}/?replicaSet=rs0" for host in (source, destination))
    return loading.parse(pipeline_text(*uris, name=name, more=more), folder / f"{name}.toml")


#: The sink's positions, and the ends of the log, of the pipeline.
APPLIED, ENDS = {("shop.users", 0): SimpleNamespace(offset=7)}, {("shop.users", 0): 9}
BEFORE, LOG = {("shop.users", 0): (0, 7)}, {("shop.users", 0): (0, 9)}

#: The present time of each side, when the capture of the reverse pipeline is started, and when it has begun.
TIMES, BEGUN = {"source": ClusterTime(7, 1), "destination": ClusterTime(8, 1)}, ClusterTime(9, 1)
CAPTURED = ClusterTime(9, 3)

#: Steps of a schema, as `State` keeps them.
WARN, REFUSE = (
    Step("shop.users", Command("shop", {"collMod": "users", "validationAction": action}))
    for action in ("warn", "error")
)
STOP_TTL, RESTORE_TTL, ENFORCE, CONVERT, RELEASE = (
    Step("shop.users", Command("shop", {"collMod": "users", "index": {"name": "n", **change}}))
    for change in (
        {"expireAfterSeconds": NEVER},
        {"expireAfterSeconds": 60},
        {"prepareUnique": True},
        {"unique": True},
        {"prepareUnique": False},
    )
)


class _SchemaWatches:
    def __init__(self, it: World, session: Session, end: Callable[[str], None]) -> None:
        assert session.pipeline.name in ("shop", "shop-back") and callable(end)
        self.begin = it.does("read schemas", lambda contexts: contexts.callback(unsaid, ""))
        self._compare = it.does("compare schemas", lambda: it.is_watched)

    @property
    def unchanged(self) -> bool:
        return bool(self._compare())


class _Verification:
    """Of `session`; the changes are read where `capturing` captures them, from `applied` on."""

    duration_s = 0.0

    def __init__(self, verify: Callable[[], int], session: Session, capturing: Session, applied: Any = None) -> None:
        if session is not capturing:  # a fail back compares the sides of the reverse pipeline
            assert (session.pipeline.name, capturing.pipeline.name) == ("shop-back", "shop")
            assert applied == {place: position.offset for place, position in APPLIED.items()}
        self._verify = verify

    def verify_new(self, log: Any = None) -> int:
        assert log is LOG or log is BEFORE or log is None
        return self._verify()

    def verify_newest(self, records: int, log: Any) -> int:
        assert log is BEFORE
        return self._verify()


class _LateWrites:
    def __init__(self, catch_up: Callable[[], None]) -> None:
        self.catch_up = catch_up


def world(folder: Path, patch: pytest.MonkeyPatch) -> World:
    """Replace what asks a server."""
    it = World(folder)
    state = it.state

    def everywhere(name: str, value: Any) -> None:
        for module in (sides, steps, machine, takeover, old_source, writes):
            if hasattr(module, name):
                patch.setattr(module, name, value)

    def plan(session: Session, *, final: bool = False, overwrite: bool = False) -> Plan:
        assert final is not overwrite
        side = session.destination.side
        steps = (
            (REFUSE, final and side in state.warning),
            (WARN, overwrite and side not in state.warning),
            (RESTORE_TTL, final and side in state.relaxed),
            (STOP_TTL, overwrite and side not in state.relaxed),
            (ENFORCE, final and side not in state.enforced | state.unique),
            (CONVERT, final and side not in state.unique),
            (RELEASE, overwrite and side in state.enforced | state.unique),
        )
        return Plan(indexes=tuple(step for step, is_needed in steps if is_needed))

    def plan_in_place(session: Session) -> Plan:
        side = session.destination.side
        steps = ((STOP_TTL, RESTORE_TTL, state.relaxed), (WARN, REFUSE, state.warning))
        needed = [(step, undo) for step, undo, relaxed in steps if side not in relaxed]
        return Plan(collections=tuple(step for step, _ in needed), undo=tuple(undo for _, undo in needed))

    def change_schema(session: Session, changes: Sequence[Step], **_: Any) -> int:
        side = session.destination.side
        effects: list[tuple[Step, str, Callable[[], object]]] = [
            (WARN, "warn", lambda: state.warning.add(side)),
            (REFUSE, "refuse", lambda: state.warning.discard(side)),
            (STOP_TTL, "stop TTL", lambda: state.relaxed.add(side)),
            (RESTORE_TTL, "restore TTL", lambda: state.relaxed.discard(side)),
            (ENFORCE, "enforce", lambda: state.enforced.add(side)),
            (RELEASE, "release", lambda: (state.enforced.discard(side), state.unique.discard(side))),
        ]
        for change in changes:
            (did,) = (it.does(f"{name} {side}", effect) for step, name, effect in effects if step == change)
            did()
        return len(changes)

    def convert(primary: Any, conversion: Conversion, *_: Any) -> Attempt:
        if conversion.expires:
            assert of_text(conversion.commands) == (RESTORE_TTL,)
            state.relaxed.discard(primary.side)
            return Attempt(conversion.done, is_done=True)
        assert of_text(conversion.commands) == (CONVERT,) and primary.side not in state.relaxed, "TTL comes first"
        assert primary.side in state.enforced | state.unique, "duplicates came since the switch"
        if not it.problem:
            state.enforced.discard(primary.side)
            state.unique.add(primary.side)
        return Attempt(it.problem, not it.problem)

    def gathered(facts: Facts, *, with_source: bool) -> Target:
        assert facts.pipeline.name == "shop-back" and not with_source
        there = ReplicaSet("rs0", ("source:27017",))
        return Target(facts.pipeline, there, (), it.deployed, (), {})

    def removed(session: Session, *, log: bool, say: Callable[[str], None], facts: Facts) -> None:
        assert session.pipeline.name == "shop-back" and facts.session is session
        assert log, "a later reverse pipeline would read the old one's log"
        say("removed")
        state.sinks.pop("shop-back", None)
        state.captures_back = False

    def begun(reverse: Session, pipeline: Pipeline) -> ClusterTime:
        assert (reverse.pipeline.name, pipeline.name) == ("shop-back", "shop")
        assert state.sinks["shop"] == "STOPPED", "both sinks would run"
        state.captures_back = True
        return BEGUN

    def await_begun(reverse: Session, begun: ClusterTime, timeout: float) -> ClusterTime:
        assert reverse.pipeline.name == "shop-back" and begun is BEGUN and 0 < timeout <= OPTIONS.timeout
        return CAPTURED

    def block(client: str, *, patience: float) -> None:
        assert 0 < patience <= OPTIONS.max_pause - 3, "the undo has no time to find out whose transactions are open"
        state.blocked.add(client)

    def late_writes(cluster: FakeCluster, pipeline: Pipeline, side: str, end: Callable[[str], None]) -> Any:
        assert cluster.side == side and pipeline.name == {"source": "shop", "destination": "shop-back"}[side]
        assert callable(end)
        return nullcontext(_LateWrites(it.does("late writes", nothing)))

    def nothing(*_: Any, **__: Any) -> int:
        return 1

    def awaited(session: Session, timeout: float, say: Callable[[str], None]) -> Window:
        assert session.pipeline.name in ("shop", "shop-back") and 0 < timeout <= OPTIONS.timeout
        say("awaited")
        return BEFORE

    def applied(session: Session, timeout: float, say: Callable[[str], None], *, before: Window) -> Window:
        assert awaited(session, timeout, say) is before
        return LOG

    def complete(session: Session, log: Window, before: Window = BEFORE) -> None:
        assert session.pipeline.name in ("shop", "shop-back") and log == LOG and before is BEFORE
        assert state.sinks[session.pipeline.name] == "STOPPED", "it may yet apply what the log has lost"

    def running(connect: Any, connectors: Sequence[str], timeout: float) -> None:
        assert connect.resume and len(connectors) in (1, 2) and timeout == OPTIONS.timeout

    def written_ends(session: Session, timeout: float) -> dict[Place, int]:
        assert session.pipeline.name == "shop" and 0 < timeout <= OPTIONS.timeout
        return ENDS

    def compared(session: Session, only: object, *_: object) -> Verdict:
        assert session.pipeline.name == "shop-back" and not only
        if state.captures_back:
            assert state.sinks == {"shop": "STOPPED", "shop-back": "RUNNING"}
            assert state.capture == "RUNNING" and "source" in state.relaxed
        return Verdict([])

    def skip(session: Session, ends: Any) -> None:
        assert session.pipeline.name == "shop" and ends is ENDS
        assert it.calls.index("ends") < len(it.calls) - it.calls[::-1].index("verify"), "what came since is unverified"

    def known(session: Session) -> tuple[Session, ClusterTime]:
        """In the place of the schemas, the session that `plan` needs."""
        assert session.pipeline.name == "shop"
        return session, TIMES["source"]

    def fence_capture(topics: object, connectors: Sequence[str], timeout: float) -> None:
        assert connectors == ("shop-source",) and state.capture == "STOPPED" and timeout == OPTIONS.timeout

    def fence_sink(client: str, pipeline: Pipeline) -> None:
        assert (client, pipeline.name) in (("destination", "shop"), ("source", "shop-back"))
        assert state.sinks[pipeline.name] == "STOPPED", "it would have to take its partitions over again"
        assert pipeline.name == "shop-back" or not state.captures_back, "a zombie may have written already"

    def drained(session: Session, timeout: float, say: Callable[[str], None]) -> Window:
        assert session.pipeline.name == "shop" and state.capture == "STOPPED" and timeout == OPTIONS.timeout
        return LOG

    patch.setattr(takeover, "remembered", it.does("remembered", known))

    def relaxing(known: Session, restored: set[str] | None) -> Sequence[Step]:
        assert restored in (None, {"shop.users"})
        return plan(known, overwrite=True).steps

    def stop_reverse(reverse: Session) -> None:
        assert reverse.pipeline.name == "shop-back"
        state.captures_back = False
        if "shop-back" in state.sinks:
            state.sinks["shop-back"] = "STOPPED"

    def unfinished(client: str, pipeline: Pipeline) -> Rebuild | None:
        assert (client, pipeline.name) in (("destination", "shop"), ("source", "shop-back"))
        return it.rebuild if client == "destination" else None

    patch.setattr(machine.rebuild, "running", it.does("look for a rebuild", unfinished))
    patch.setattr(old_source, "pipeline_ends", lambda *_: LOG)
    patch.setattr(old_source, "ids_after", it.does("read the log", lambda *_: iter(())))
    patch.setattr(old_source.state_files, "folder", lambda name: folder)
    patch.setattr(old_source.resnapshot, "compare", it.does("compare", compared))
    patch.setattr(old_source.barrier, "asking", lambda session: nullcontext())
    patch.setattr(takeover, "restoring", lambda known: plan(known, final=True).steps)
    patch.setattr(takeover, "relaxing", relaxing)
    patch.setattr(machine.Readiness, "verdict", Verification())
    patch.setattr(takeover, "stop_reverse", it.does("stop reverse", stop_reverse))
    patch.setattr(takeover, "not_applied", it.does("look for refusals", lambda *_: []))
    patch.setattr(takeover, "source_states", it.does("offsets", lambda session: {}))
    patch.setattr(takeover, "point", lambda states: TIMES["source"])
    patch.setattr(takeover, "end_transactions", it.does("end transactions", lambda *_: []))
    patch.setattr(hanging_transactions, "fence", it.does("fence capture", fence_capture))
    everywhere("fence", it.does("fence sink", fence_sink))
    patch.setattr(steps.barrier, "wait_drained", it.does("drain", drained))
    marker = ("insert", "replace_own", "take", "delete_own", "read", "require_own")
    for name in (*marker, "redirected", "require_switched", "converted"):
        patch.setattr(sides.cutovers, name, getattr(it, name))
    for name, value in {
        "SchemaWatches": lambda *about: _SchemaWatches(it, *about),
        "plan": it.does("plan", plan),
        "plan_in_place": plan_in_place,
        "change_schema": change_schema,
        "undo_schema": change_schema,
    }.items():
        everywhere(name, value)
    patch.setattr(conversions, "_convert", it.does("convert", convert))
    everywhere("operation_time", it.does("time", TIMES.__getitem__))
    everywhere("writes_through", lambda cluster: True)
    everywhere("allow", it.does("allow", lambda cluster: state.blocked.discard(cluster.side)))
    patch.setattr(writes.write_block, "block", it.does("block", block))
    everywhere("IncrementalVerification", lambda *about: _Verification(it.does("verify", nothing), *about))
    everywhere("positions", lambda client, pipeline: {("destination", "shop"): APPLIED}[client, pipeline.name])
    everywhere("LateWrites", late_writes)
    everywhere("wait_stopped", it.does("wait stopped", nothing))
    everywhere("statuses", lambda connect, names: [])
    everywhere("wait_running", it.does("wait running", running))
    patch.setattr(steps.barrier, "wait", it.does("wait", awaited))
    patch.setattr(steps.barrier, "wait_applied", it.does("wait", applied))
    patch.setattr(steps.bounds, "refuse", it.does("look for gaps", complete))
    patch.setattr(steps.bounds, "suspected", lambda session: ())
    patch.setattr(steps.barrier, "wait_captured", it.does("wait captured", awaited))
    patch.setattr(steps.target, "gather", gathered)
    patch.setattr(steps.deployment, "remove", it.does("remove", removed))
    ready = it.does("make ready", lambda *_: state.sinks.update({"shop-back": "RUNNING"}))
    for name, value in {
        "refuse_existing": it.does("look for a reverse pipeline", nothing),
        "make_ready": ready,
        "begin": it.does("begin", begun),
        "wait_begun": it.does("wait begun", await_begun),
        "written_ends": it.does("ends", written_ends),
        "skip_to_end": it.does("skip", skip),
    }.items():
        patch.setattr(reverse_pipeline, name, value)
    return it
