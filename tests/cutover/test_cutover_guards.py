"""What other commands do to a pipeline during a cutover, and after it, without servers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext, suppress
from dataclasses import replace
from itertools import chain, combinations_with_replacement, product
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_args

import click
import pytest

from tests.support.cutover_world import pipeline_of
from tests.support.sessions import FakeCluster, session_of
from towpath.checks import change
from towpath.checks.facts import OwnTopics
from towpath.checks.rule import run
from towpath.cli import control
from towpath.clients.connect.rest import Connector, Task
from towpath.clients.mongo.client import ClusterTime
from towpath.cutover import gate, old_source
from towpath.cutover.gate import PRECONDITIONS, Readiness
from towpath.cutover.steps import CutoverOptions
from towpath.deploy import deployment, schema
from towpath.deploy.schema import Step, as_text
from towpath.errors import NoSuchConnector, Refused
from towpath.store import cutover as cutovers
from towpath.store import positions, source_schema
from towpath.store.cutover import Conversion, Cutover, State
from towpath_verifier import Command, Described

#: The states in which only the marker says what is left to do.
CUT_OVER = Cutover("destination primary", (), 0.0)
OPEN: tuple[State, ...] = tuple(state for state in get_args(State) if state != "destination primary")


class Place:
    """A pipeline, and the marker at its destination."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.marker: Cutover | None = None
        self.removed = False
        self.on_question: Callable[[], object] = lambda: None
        self.topics = {"shop.shop.orders": "1"}
        self.session = session_of(pipeline_of(folder), topics=SimpleNamespace(brokers=lambda: [1]))
        patch.setattr(cutovers, "read", lambda client, pipeline: self.marker)
        patch.setattr(control, "opened", lambda file: nullcontext(self.session))
        patch.setattr(control, "Facts", lambda session: self._facts())
        patch.setattr(control.target, "gather", lambda *_, **__: None)
        patch.setattr(control, "require", lambda rules, facts: [])
        patch.setattr(control, "find_all", lambda *_: ())
        patch.setattr(control.deployment, "remove", self._remove)
        patch.setattr(click, "confirm", lambda *_, **__: self.on_question())

    def _facts(self) -> Any:
        topics, pipeline = OwnTopics(self.topics), self.session.pipeline
        return SimpleNamespace(session=self.session, pipeline=pipeline, own_topics=topics, deployed={})

    def _remove(self, *_: Any, **__: Any) -> None:
        self.removed = True

    def does(self, command: click.Command, *options: str) -> None:
        command.main(["shop.toml", *options], standalone_mode=False)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    return Place(tmp_path, monkeypatch)


@pytest.mark.parametrize("options", [(), ("--topics",), ("--topics", "--yes"), ("--dry-run",)], ids=" ".join)
@pytest.mark.parametrize("state", OPEN)
def test_a_pipeline_is_not_removed_before_its_cutover_is_complete_or_undone(
    place: Place, state: State, options: tuple[str, ...]
) -> None:
    """Its marker is the only record of what was stopped and changed."""
    place.marker = Cutover(state, (), 0.0)
    with pytest.raises(Refused, match=r"`towpath (cutover|takeover) --(undo|back)`"):
        place.does(control.remove, *options)
    assert not place.removed


def test_a_cutover_that_begins_while_the_removal_asks_ends_the_removal(place: Place) -> None:
    place.on_question = lambda: setattr(place, "marker", Cutover("cutting over", (), 0.0))
    with pytest.raises(Refused, match="a cutover of shop is under way"):
        place.does(control.remove, "--topics")
    assert not place.removed


@pytest.mark.parametrize("marker", [None, CUT_OVER])
def test_a_pipeline_is_removed_without_a_cutover_or_after_it(place: Place, marker: Cutover | None) -> None:
    place.marker = marker
    place.does(control.remove, "--topics")
    assert place.removed


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (None, CUT_OVER),
        (None, replace(CUT_OVER, is_takeover=True)),
        (CUT_OVER, replace(CUT_OVER, switched_at=60.0)),
        (CUT_OVER, replace(CUT_OVER, blocked=True)),
    ],
    ids=["a cutover", "a takeover", "another cutover", "a cutover that blocks"],
)
def test_what_completes_while_the_removal_asks_is_not_forgotten(
    place: Place, before: Cutover | None, after: Cutover
) -> None:
    """Whoever confirms has not read that the way back, and the mark that the destination is primary, would go."""
    place.marker = before
    place.on_question = lambda: setattr(place, "marker", after)
    with pytest.raises(Refused, match="has changed what would be lost"):
        place.does(control.remove, "--topics")
    assert not place.removed
    place.on_question = lambda: None
    place.does(control.remove, "--topics")
    assert place.removed, "what it shows by now is confirmed"


TTL = Conversion(
    "shop.users",
    ("n",),
    enforced=False,
    commands=as_text([Step("shop.users", Command("shop", {"collMod": "users", "index": {"name": "n"}}))]),
    expires=True,
)


def test_a_log_is_not_removed_while_only_the_marker_says_how_to_restore_a_ttl(place: Place) -> None:
    place.marker = replace(CUT_OVER, conversions=(TTL,))
    for options in (("--topics", "--yes"), ("--topics", "--dry-run")):
        with pytest.raises(Refused, match=r"left to restore the TTL of n of shop.users, .*`towpath prepare shop.toml`"):
            place.does(control.remove, *options)
    assert not place.removed
    place.does(control.remove)
    assert place.removed, "the marker stays"


def test_what_the_server_refuses_to_convert_does_not_keep_the_log_and_is_told(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    """It may never succeed, as with duplicates; nothing else has its commands."""
    place.marker = replace(CUT_OVER, conversions=(replace(TTL, problem="refused"),))
    place.does(control.remove, "--topics", "--yes")
    assert place.removed
    told = "not done: restore the TTL of n of shop.users; by hand: db.getSiblingDB"
    assert told in capsys.readouterr().err


TAKEN_OVER = replace(CUT_OVER, is_takeover=True, has_reverse_pipeline=False, cluster_time="1795870931:4")


@pytest.mark.parametrize("topics", [{"shop.shop.orders": "1"}, {}], ids=["topics", "no topic"])
def test_a_takeover_is_not_forgotten_without_a_question(
    place: Place, capsys: pytest.CaptureFixture[str], topics: dict[str, str]
) -> None:
    """Then nothing shows that the destination is primary, and nothing refuses to copy the old source over it."""
    place.marker, place.topics = TAKEN_OVER, topics

    def no() -> None:
        raise click.Abort

    place.on_question = no
    told = "would copy the old source over the new primary: put the file away"
    with pytest.raises(click.Abort):
        place.does(control.remove, "--topics")
    assert not place.removed and told in capsys.readouterr().err
    place.does(control.remove, "--topics", "--dry-run")
    assert "every change before the source's cluster time 1795870931:4; what is removed" in capsys.readouterr().err
    place.does(control.remove, "--topics", "--yes")
    assert place.removed and told in capsys.readouterr().err
    place.does(control.remove)
    assert told not in capsys.readouterr().err, "the marker stays"


def test_a_cutover_is_not_forgotten_silently(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    """As after a takeover, nothing refuses then to copy the old source over the new primary."""
    place.marker = CUT_OVER
    place.does(control.remove, "--topics", "--dry-run")
    told = capsys.readouterr().err
    assert "`towpath cutover --back` is no longer possible" in told and "put the file away" in told
    place.does(control.remove, "--topics", "--yes")
    assert place.removed and capsys.readouterr().err.startswith(told.splitlines()[0])


def test_that_the_source_is_blocked_is_told_before_the_marker_goes(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    place.marker = replace(CUT_OVER, blocked=True)
    place.does(control.remove, "--topics", "--yes")
    assert place.removed and "setUserWriteBlockMode: 1, global: false" in capsys.readouterr().err


UNTRIED: list[Any] = [{"problem": ""}, {"problem": "refused"}]


@pytest.mark.parametrize("left", [[], UNTRIED, UNTRIED[1:]], ids=["nothing", "a conversion", "one that is refused"])
@pytest.mark.parametrize("state", get_args(State))
def test_only_the_marker_of_a_cutover_that_is_complete_is_forgotten(
    place: Place, state: State, left: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if a cutover begins while a removal is under way."""
    kept = {positions.CUTOVERS: [{"_id": "shop", "state": state, "conversions": left}]}

    def collection_of(client: object, name: str) -> Any:
        documents = kept.setdefault(name, [])

        def delete(wanted: dict[str, Any], session: object = None) -> Any:
            untried = wanted.pop("conversions", {}).get("$not", {}).get("$elemMatch")
            documents[:] = [
                one for one in documents if not wanted.items() <= one.items() or untried in one["conversions"]
            ]
            return SimpleNamespace(deleted_count=0)

        return SimpleNamespace(delete_one=delete, delete_many=lambda *_, **__: SimpleNamespace(deleted_count=0))

    monkeypatch.setattr(positions, "collection_of", collection_of)
    positions.forget(place.session.destination.client(), place.session.pipeline)
    assert bool(kept[positions.CUTOVERS]) is (state in OPEN or left == UNTRIED)


class Connected(Place):
    """After a cutover: Connect has the pipeline's connectors, or not."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        super().__init__(folder, patch)
        self.marker = CUT_OVER
        pipeline = self.session.pipeline
        self.sink, (self.source,) = pipeline.sink_connector, pipeline.source_connectors
        self.states = {self.sink: "STOPPED", self.source: "RUNNING"}
        self.sent = list[str]()
        connect = SimpleNamespace(
            url="http://connect",
            status=self._status,
            config=lambda name: {} if name in self.states else None,
            errors=lambda name, config: {},
            **{name: self._puts(name, state) for name, state in PUTS.items()},
        )
        self.session = replace(self.session, connect=connect)
        patch.setattr(gate.reverse_pipeline.rebuild, "running", lambda *_: None)
        for module, name in (
            (control, "refuse_loop_on_resuming"),
            (control.rebuild, "refuse_emptying"),
            (control.target, "require_same"),
        ):
            patch.setattr(module, name, lambda session: None)

    def _facts(self) -> Any:
        facts = super()._facts()
        facts.connect, facts.state = self.session.connect, lambda name: self.states.get(name, "MISSING")
        facts.written = frozenset([f"{self.session.pipeline.name}.shop.a"])
        return facts

    def _status(self, name: str) -> Connector:
        state = self.states.get(name, "MISSING")
        tasks = (Task(0, state, "w", ""),) if state in ("RUNNING", "PAUSED") else ()
        return Connector(name, state, "w", tasks)

    def _puts(self, name: str, state: str) -> Callable[..., None]:
        def put(connector: str, *_: object, **__: object) -> None:
            self.sent.append(f"{name} {connector}")
            if connector in self.states or name in ("put", "create_stopped"):
                self.states[connector] = state

        return put

    def deploy(self) -> None:
        """What decides whether a connector is created, and started."""
        names = (self.sink, self.source)
        facts: Any = SimpleNamespace(
            session=self.session,
            pipeline=self.session.pipeline,
            connect=self.session.connect,
            is_deployed=self.sink in self.states,
            desired={name: {} for name in names},
            deployed={name: {} if name in self.states else None for name in names},
            create_stopped=deployment.stopped_by_cutover(self.session),
            written=frozenset([f"{self.session.pipeline.name}.shop.a"]),
        )
        assert not list(change.no_cutover(facts))
        for one in deployment._connector_changes(facts):
            one.apply()

    def runs(self, name: str) -> None:
        """A command of Towpath."""
        with suppress(NoSuchConnector):
            self.deploy() if name == "deploy" else self.does(getattr(control, name))

    def red(self) -> dict[str, str]:
        """The lines of the gate of a fail back about connectors that are red, and the commands that they advise."""
        readiness = Readiness(self.session, self.session, CutoverOptions(), returns=True)
        lines = run([rule for rule in PRECONDITIONS if rule.name in ("capture", "sink")], readiness)
        advised = {line.subject: line.advice.split()[1] for line in lines if line.level == "error"}
        assert len(lines) == 2
        return advised


PUTS = {"pause": "PAUSED", "resume": "RUNNING", "stop": "STOPPED", "put": "RUNNING", "create_stopped": "STOPPED"}
PUTS["restart"] = "RUNNING"
STATES = ("RUNNING", "PAUSED", "STOPPED", "MISSING")


@pytest.fixture
def connected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Connected:
    return Connected(tmp_path, monkeypatch)


@pytest.mark.parametrize("source", STATES)
@pytest.mark.parametrize("sink", STATES)
def test_no_command_starts_the_sink_after_a_cutover_and_the_gate_of_a_fail_back_says_what_stops_it(
    connected: Connected, sink: str, source: str
) -> None:
    """From every state that `pause`, `remove` or someone in Connect can make, and after every two commands."""
    both = {connected.sink: sink, connected.source: source}
    for commands in product(("pause", "resume", "deploy"), repeat=2):
        connected.states, connected.sent = {name: state for name, state in both.items() if state != "MISSING"}, []
        for command in commands:
            connected.runs(command)
        assert not {f"resume {connected.sink}", f"put {connected.sink}"} & set(connected.sent), commands
        assert sink != "STOPPED" or connected.states[connected.sink] == "STOPPED", commands
        steps = 0
        while advised := connected.red():
            for command in advised.values():
                connected.runs(command)
            steps += 1
            assert steps <= 2, (commands, advised)
        assert connected.states == {connected.sink: "STOPPED", connected.source: "RUNNING"}


@pytest.mark.parametrize("is_cut_over", [True, False])
def test_a_capture_that_has_failed_is_restarted_and_no_one_waits_for_the_sink_of_a_cutover(
    connected: Connected, monkeypatch: pytest.MonkeyPatch, is_cut_over: bool
) -> None:
    waited = list[str]()
    monkeypatch.setattr(control, "_end_transactions", lambda session: None)
    monkeypatch.setattr(control, "wait_running", lambda connect, names, timeout: waited.extend(names))
    connected.marker = CUT_OVER if is_cut_over else None
    connected.states[connected.source] = "FAILED"
    if is_cut_over:
        assert connected.red() == {"capture": "restart"}
    connected.runs("restart")
    both = [connected.sink, connected.source]
    assert sorted(waited) == ([connected.source] if is_cut_over else both)
    assert sorted(connected.sent) == [f"restart {name}" for name in sorted(waited)]


def test_a_pipeline_without_a_cutover_is_paused_and_resumed_as_a_whole(connected: Connected) -> None:
    connected.marker = None
    connected.states = dict.fromkeys(connected.states, "RUNNING")
    connected.runs("pause")
    assert set(connected.states.values()) == {"PAUSED"}
    connected.runs("resume")
    assert set(connected.states.values()) == {"RUNNING"}
    connected.states = {}
    connected.deploy()
    assert set(connected.states.values()) == {"RUNNING"}


@pytest.mark.parametrize("marker", [*(Cutover(state, (), 0.0) for state in OPEN), replace(CUT_OVER, is_takeover=True)])
def test_during_a_cutover_and_after_a_takeover_no_connector_is_started(connected: Connected, marker: Cutover) -> None:
    connected.marker = marker
    with pytest.raises(Refused):
        connected.runs("resume")
    del connected.states[connected.sink]
    with pytest.raises(Refused):
        connected.deploy()
    assert connected.sent == []
    connected.states = dict.fromkeys((connected.sink, connected.source), "STOPPED")
    connected.runs("pause")
    assert connected.sent == [], "a paused connector would be in the way of the return of the old source"


def test_what_is_in_the_way_of_the_return_of_an_old_source_is_named(connected: Connected) -> None:
    returned = SimpleNamespace(forward=connected.session)
    connected.states = {connected.sink: "PAUSED", connected.source: "STOPPED"}
    [found] = old_source._connectors(returned)  # type: ignore[arg-type]
    assert (found.level, found.advice) == ("error", "curl -X PUT http://connect/connectors/shop-sink/stop")
    connected.states[connected.sink] = "STOPPED"
    [found] = old_source._connectors(returned)  # type: ignore[arg-type]
    assert found.level == "ok"


class Schemas:
    """The source's schema, which a cutover relaxes, and what is stored of it."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.stored, self.clock, self.is_relaxed = dict[str, str](), 1, False
        self.marker: Cutover | None = None
        self.on_call: Callable[[], object] = lambda: None
        admin = SimpleNamespace(command=lambda name: {"setName": "rs"})
        self.session = session_of(pipeline_of(folder), source=FakeCluster(SimpleNamespace(admin=admin)))
        patch.setattr(schema, "operation_time", lambda client: self._does(lambda: ClusterTime(self.clock, 0)))
        patch.setattr(schema.cutovers, "read", lambda *_: self._does(lambda: self.marker))
        patch.setattr(source_schema, "collection_of", lambda *_: SimpleNamespace(bulk_write=self._write))
        patch.setattr(source_schema, "_descriptions", lambda *_: self._does(lambda: dict(self.stored)))

    def _does(self, effect: Callable[[], Any]) -> Any:
        """One request of the command."""
        self.on_call()
        return effect()

    def _write(self, writes: list[Any]) -> None:
        found = {one._filter["_id"]["namespace"]: one._doc["description"] for one in writes}
        self._does(lambda: self.stored.update(found))

    @property
    def now(self) -> dict[str, Described]:
        return {"shop.users": Described("collection", {}, {"n": {"expires": not self.is_relaxed}})}

    def command(self) -> None:
        """As `deploy` and `verify`."""
        now = schema.time_to_remember(self.session)
        read = self._does(lambda: self.now)
        if now:
            schema.remember(self.session, read, now)

    def cutover(self) -> Iterator[None]:
        """One that is undone, one change after another."""
        self.marker = Cutover("cutting over", (), 0.0)
        yield
        on_call, self.on_call = self.on_call, lambda: None
        schema.remember_for_cutover(self.session, self.now, ClusterTime(self.clock, 0))
        self.on_call = on_call
        yield
        for self.is_relaxed in (True, False):
            self.clock += 1
            yield
        self.marker = None


@pytest.mark.parametrize("again", [False, pytest.param(True, marks=pytest.mark.nightly)])
def test_no_command_remembers_the_schema_that_a_cutover_has_relaxed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, again: bool
) -> None:
    """A command, and one or two cutovers that are undone, in every order; then a takeover would restore that schema."""
    changes, calls = 5 * (1 + again), 6
    remembered = 0
    for order in combinations_with_replacement(range(changes + 1), calls):
        place, due = Schemas(tmp_path, monkeypatch), iter(order)
        cutovers = chain.from_iterable(place.cutover() for _ in range(1 + again))
        made = 0

        def until_due(due: Iterator[int] = due, cutovers: Iterator[None] = cutovers) -> None:
            nonlocal made
            for _ in range(next(due) - made):
                next(cutovers, None)
                made += 1

        place.on_call = until_due
        place.command()
        place.on_call = lambda: None
        for _ in cutovers:
            pass
        kept = source_schema.read(None, place.session.pipeline)  # type: ignore[arg-type]
        assert kept is None or kept.collections == place.now, order
        remembered += order[0] == changes and kept is not None
    assert remembered == 1
