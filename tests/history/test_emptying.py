"""Two commands, the sink and a zombie task in every order: what is filled again is never emptied, and holds all once.

Commands are threads that take turns: each call to a server is one step. The sink, and a zombie task, act in between.
The functions of Towpath are the real ones, but for those that only ask a server.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from copy import deepcopy
from dataclasses import dataclass, field, replace
from itertools import product
from types import SimpleNamespace
from typing import Any

import pytest
from pymongo.errors import DuplicateKeyError

from tests.checks.test_check_judgements import PIPELINE
from tests.support.sessions import session_of
from towpath.clients.kafka.topics import Topic
from towpath.clients.mongo.replica_set import Collection, ReplicaSet
from towpath.errors import NotYet, Overtaken, Refused, TowpathError
from towpath.history import emptying, rebuild, replay
from towpath.history.plan import Options, Plan, Replay
from towpath.history.sink_run import missing
from towpath.log import bounds
from towpath.log.integrity import LogCheck
from towpath.session import Session

OWN = PIPELINE.changed(mode="exactly-once")
NAMES = ("shop.one", "shop.two")
LOG = {(f"move.{name}", 0): (0, 2) for name in NAMES}
PLAN = Plan(only=(), forced=False, began=1.0, letters=0, log=LOG, phase="emptying")
STEPS, MOST = 21, 60  # more than a command has, and than one that has to empty again


class Killed(BaseException):
    """A command ends without doing anything more."""


class Store:
    """A collection. Each call is one step, but within a transaction, which is one step as a whole."""

    def __init__(self, world: World, documents: dict[Any, dict[str, Any]]) -> None:
        self._world, self._documents = world, documents

    def _found(self, query: dict[str, Any]) -> list[dict[str, Any]]:
        self._world.step()
        return [document for document in self._documents.values() if _matches(document, query)]

    def find(self, query: dict[str, Any], *_: Any, **__: Any) -> Any:
        found = deepcopy(self._found(query))
        return SimpleNamespace(sort=lambda *_: found) if "_id" in query else iter(found)

    def find_one(self, query: dict[str, Any], *_: Any) -> Any:
        return deepcopy(next(iter(self._found(query)), None))

    def insert_one(self, document: dict[str, Any]) -> None:
        if self._found({"_id": document["_id"]}):
            raise DuplicateKeyError("there is one")
        self._documents[document["_id"]] = dict(document)

    def replace_one(self, query: dict[str, Any], document: dict[str, Any], *, upsert: bool) -> None:
        self._found(query)
        assert upsert
        self._documents[query["_id"]] = query | document

    def update_one(self, query: dict[str, Any], change: dict[str, Any], session: object = None) -> Any:
        for document in (found := self._found(query)):
            document.update(change.get("$set", {}))
            document.update({name: document.get(name, 0) + 1 for name in change.get("$inc", {})})
        return SimpleNamespace(matched_count=len(found))

    def find_one_and_update(self, query: dict[str, Any], change: dict[str, Any], **_: Any) -> Any:
        for document in (found := self._found(query)):
            document.update(change["$set"])
        return deepcopy(next(iter(found), None))

    def delete_many(self, query: dict[str, Any], session: object = None) -> Any:
        found = self._found(query)
        for document in found:
            del self._documents[_key(document["_id"])]
        return SimpleNamespace(deleted_count=len(found))

    delete_one = delete_many

    def bulk_write(self, ids: list[dict[str, Any]], **_: Any) -> None:
        self._world.step()
        for document in ids:
            self._documents.pop(document["_id"], None)


def _key(id: Any) -> Any:
    return (id["pipeline"], id["topic"]) if isinstance(id, dict) else id


def _matches(document: dict[str, Any], query: dict[str, Any]) -> bool:
    for name, wanted in query.items():
        if name == "_id.topic":
            found = document["_id"]["topic"] in wanted["$in"]
        elif isinstance(wanted, dict):
            found = isinstance(document["_id"], dict) and document["_id"]["pipeline"] == wanted["$gte"]["pipeline"]
        else:
            found = document.get(name) == wanted
        if not found:
            return False
    return True


class Task:
    """A task of a sink: it opens a partition, and applies its record in a transaction that moves the position."""

    def __init__(self, world: World, name: str) -> None:
        self._world, self._name, self.epochs = world, name, dict[str, int]()

    def turn(self) -> bool:
        """Act once in each partition; return whether it did anything."""
        acted = [self._act(topic) for topic, _ in LOG]
        return any(acted)

    def _act(self, topic: str) -> bool:
        stored, key = self._world.offsets, (self._name, topic)
        if topic not in self.epochs:
            fresh = {"_id": {"pipeline": self._name, "topic": topic, "partition": 0}, "offset": 0, "epoch": 0}
            position = stored.setdefault(key, fresh)
            position["epoch"] += 1
            self.epochs[topic] = position["epoch"]
            return True
        if key not in stored or stored[key]["epoch"] != self.epochs[topic]:
            del self.epochs[topic]  # its transaction aborts, and it opens the partition again
            return True
        if stored[key]["offset"] == 2:
            return False
        stored[key]["offset"] = 2
        documents = self._world.documents[topic.removeprefix("move.")]
        documents["a"] = {"_id": "a", "applied": documents.get("a", {"applied": 0})["applied"] + 1}
        return True


@dataclass
class World:
    """The destination, Connect and the tasks."""

    name: str = OWN.name
    """Of the sink in the positions."""
    rebuilds: dict[Any, dict[str, Any]] = field(default_factory=dict)
    sink_config: dict[str, str] = field(default_factory=dict)
    """Of the pipeline."""
    offsets: dict[Any, dict[str, Any]] = field(default_factory=dict)
    documents: dict[str, dict[Any, dict[str, Any]]] = field(default_factory=lambda: {name: {} for name in NAMES})
    runs: bool = True
    """The sink of the pipeline, or of the replay."""
    plan: Plan | None = None
    """In the configuration of the replay's connector."""
    zombie_at: int = -1
    """The step after which a zombie task acts."""
    log: dict[Any, tuple[int, int]] = field(default_factory=lambda: dict(LOG))
    """As Kafka has it."""
    steps: int = 0
    _in_transaction: bool = False
    _turns: dict[int, threading.Semaphore] = field(default_factory=dict)
    _back: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    _killed: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.sink, self.zombie = Task(self, self.name), Task(self, self.name)

    def filled(self) -> None:
        """All is applied, and someone else has damaged it."""
        while self.sink.turn():
            pass
        self.zombie.epochs = dict(self.sink.epochs)
        self.documents["shop.one"]["damage"] = {"_id": "damage"}

    def session(self) -> Session:
        connect = SimpleNamespace(resume=self._resume, config=lambda name: self.sink_config, put=self._put)
        cluster = SimpleNamespace(connected=lambda **_: nullcontext(Client(self)), address="there")
        names = [*(topic for topic, _ in self.log), "move-replay-x.dead-letters"]
        topics = SimpleNamespace(all=lambda: {name: Topic(name, 1) for name in names}, ends=lambda topics: self.log)
        return session_of(OWN, connect, topics, destination=cluster)

    def transaction(self, act: Callable[[object], None], *_: object) -> None:
        self.step()
        before = deepcopy((self.rebuilds, self.offsets, self.documents))
        self._in_transaction = True
        try:
            act("a transaction")
        except BaseException:
            assert (self.rebuilds, self.offsets, self.documents) == before, "it changed something first"
            raise
        finally:
            self._in_transaction = False

    def _resume(self, name: str) -> None:
        self.step()
        self.runs = True

    def _put(self, name: str, config: dict[str, str]) -> None:
        self.step()
        self.sink_config = config

    def stop(self, *_: object) -> None:
        self.step()
        self.runs, self.sink = False, Task(self, self.name)

    # whose turn it is

    def step(self) -> None:
        """Wait for the turn of the command that calls."""
        me = self._me()
        if self._in_transaction or me is None:
            return
        self._back.release()
        assert self._turns[me].acquire(timeout=60)
        if me in self._killed:
            raise Killed

    def _me(self) -> int | None:
        name = threading.current_thread().name
        return int(name.removeprefix("command ")) if name.startswith("command ") else None

    def play(self, commands: list[Callable[[], object]], turns: list[tuple[int, int]], eager: bool) -> list[object]:
        """Run commands: in each turn, one does so many steps. Those that are not at their end then are killed."""
        ended: list[object] = [None] * len(commands)
        threads = list[threading.Thread]()
        self._killed.clear()
        for number, command in enumerate(commands):
            self._turns[number] = threading.Semaphore(0)

            def work(number: int = number, command: Callable[[], object] = command) -> None:
                try:
                    assert self._turns[number].acquire(timeout=60)
                    ended[number] = "killed" if number in self._killed else command()
                except Killed:
                    ended[number] = "killed"
                except TowpathError as error:
                    ended[number] = error
                except BaseException as error:  # noqa: BLE001
                    ended[number] = error
                self._back.release()

            threads.append(threading.Thread(target=work, name=f"command {number}", daemon=True))
            threads[-1].start()
        for number, count in [*turns, *((number, 0) for number in range(len(commands)))]:
            if count == 0:
                self._killed.add(number)
            for _ in range(count or STEPS):
                if ended[number] is not None:
                    break
                self._turns[number].release()
                assert self._back.acquire(timeout=60)
                self._between(eager)
        for thread in threads:
            thread.join(timeout=60)
        return ended

    def _between(self, eager: bool) -> None:
        self.steps += 1
        if eager and self.runs:
            self.sink.turn()
        if self.steps == self.zombie_at:
            for _ in range(3):
                self.zombie.turn()

    def wait_until_applied(self, report: object) -> None:
        self.step()
        if not self.runs:
            raise NotYet("it has applied nothing")
        while self.sink.turn():
            pass

    def assert_whole(self, where: object) -> None:
        for _ in range(3 if self.zombie_at >= 0 else 0):
            self.zombie.turn()
        while self.runs and self.sink.turn():
            pass
        assert self.documents == {name: {"a": {"_id": "a", "applied": 1}} for name in NAMES}, where


@dataclass
class Client:
    """Of the destination: a database is a function that returns a collection."""

    world: World

    def get_database(self, name: str, **_: object) -> dict[str, Store]:
        assert name == "towpath"
        return {"rebuilds": Store(self.world, self.world.rebuilds), "offsets": Store(self.world, self.world.offsets)}

    def __getitem__(self, name: str) -> Any:
        world = self.world

        class Database(dict[str, Store]):
            def get_collection(self, collection: str, *_: object) -> Store:
                return self[collection]

        return Database({each.split(".")[1]: Store(world, found) for each, found in world.documents.items()})

    def start_session(self) -> Any:
        return nullcontext(SimpleNamespace(with_transaction=self.world.transaction))


@pytest.fixture(autouse=True)
def _replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    """What only asks a server."""
    monkeypatch.setattr(emptying, "DeleteOne", lambda found: found)
    monkeypatch.setattr(emptying, "_made_by_log", lambda session, log: set())
    monkeypatch.setattr(emptying, "document_counts", lambda client, targets: {})
    found = [Collection(name, "collection", {}, "") for name in NAMES]
    monkeypatch.setattr(emptying, "collections", lambda client, databases: found)
    monkeypatch.setattr(rebuild.verdict, "begin_history", lambda *_: None)
    monkeypatch.setattr(rebuild.schema_changes, "exist", lambda *_: False)
    monkeypatch.setattr(rebuild.schema_changes, "forget", lambda *_: None)
    monkeypatch.setattr(rebuild.cutover, "refuse", lambda session: None)
    monkeypatch.setattr(rebuild.cutover, "known", lambda session: None)
    monkeypatch.setattr(rebuild, "statuses", lambda *_: [])
    monkeypatch.setattr(bounds, "noted_breaks", lambda *_: {})
    monkeypatch.setattr(rebuild, "check_again", lambda run, report, **how: None)
    began = iter(range(10**9))
    monkeypatch.setattr(rebuild, "begin", lambda *_: (replace(PLAN, began=float(next(began))), None))


def rebuilding(world: World, patch: pytest.MonkeyPatch, *, force: bool = False) -> Callable[[], object]:
    """A command `replay --rebuild`."""

    def require_able(facts: Any) -> Plan | None:
        with facts.session.destination.connected() as client:
            return rebuild.running(client, OWN)

    patch.setattr(rebuild, "require_able", require_able)
    patch.setattr(rebuild, "stop", world.stop)
    run = SimpleNamespace(check=None, wait_until_applied=world.wait_until_applied, verdict=lambda: "rebuilt")
    patch.setattr(rebuild, "SinkRun", lambda *_: run)
    session, options = world.session(), Options(only=(), force=force, timeout=1)
    return lambda: rebuild.rebuild(session, options, lambda *_: None, lambda question: None)


def schedules(most: int, steps: int = STEPS) -> Iterator[list[tuple[int, int]]]:
    """With up to so many changes from one command to the other. Those that have no last turn are killed."""
    for counts in product(range(1, steps), repeat=most):
        turns = [(number % 2, count) for number, count in enumerate(counts)]
        for ends in ([], [0], [0, 1], [1, 0]):
            yield turns + [(number, MOST) for number in ends]


def rebuilt(turns: list[tuple[int, int]], eager: bool, zombie_at: int, patch: pytest.MonkeyPatch) -> None:
    world = World(zombie_at=zombie_at)
    world.filled()
    ended = world.play([rebuilding(world, patch), rebuilding(world, patch)], turns, eager)
    where = turns, eager, zombie_at, ended
    assert all(isinstance(end, Refused | NotYet | str) for end in ended), where
    if world.rebuilds or "rebuilt" not in ended:  # someone has to continue it
        assert world.play([rebuilding(world, patch)], [(0, MOST)], eager) == ["rebuilt"], where
    assert not world.rebuilds, where
    world.assert_whole(where)


NIGHTLY = pytest.mark.nightly


@pytest.mark.parametrize(
    ("most", "eager"),
    [(2, True), pytest.param(2, False, marks=NIGHTLY), *(pytest.param(3, is_, marks=NIGHTLY) for is_ in (True, False))],
)
def test_of_two_rebuilds_one_empties_and_all_is_there_once(
    most: int, eager: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for turns in schedules(most):
        rebuilt(turns, eager, -1, monkeypatch)


@pytest.mark.parametrize("eager", [True, pytest.param(False, marks=NIGHTLY)])
def test_what_a_zombie_task_writes_during_a_rebuild_is_removed_again(
    eager: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for turns, zombie_at in product(schedules(1), range(STEPS)):
        rebuilt(turns, eager, zombie_at, monkeypatch)


def test_an_overtaken_rebuild_starts_no_sink_after_a_cutover(monkeypatch: pytest.MonkeyPatch) -> None:
    """The later command ends the rebuild, and a cutover follows, while the earlier one is suspended."""
    for steps in range(1, STEPS):
        world, done = World(), list[Any]()
        world.filled()

        def refuse(session: object, done: list[Any] = done) -> None:
            if done:
                raise Refused("it is cut over")

        def cut_over(world: World = world, done: list[Any] = done) -> str:
            world.step()
            if world.rebuilds:
                raise Refused("it is being rebuilt")
            world.runs = False
            done.append(SimpleNamespace(state="destination primary"))
            return "cut over"

        monkeypatch.setattr(rebuild.cutover, "refuse", refuse)
        monkeypatch.setattr(rebuild.cutover, "known", lambda session, done=done: next(iter(done), None))
        commands = [rebuilding(world, monkeypatch), rebuilding(world, monkeypatch), cut_over]
        ended = world.play(commands, [(0, steps), (1, MOST), (2, MOST), (0, MOST)], eager=True)
        assert not (done and world.runs), (steps, ended)
        assert ended[2] == "cut over" or isinstance(ended[0], Overtaken | str), (steps, ended)


def test_a_rebuild_that_is_over_leaves_no_setting_of_the_sink(monkeypatch: pytest.MonkeyPatch) -> None:
    """With it, a drop is not held: whichever command has ended the rebuild, and wherever another was suspended."""
    monkeypatch.setattr(rebuild.schema_changes, "exist", lambda *_: True)
    for first, second in product(range(1, STEPS + 3), repeat=2):  # with the setting, it has more steps
        world, turns = World(), [(0, first), (1, second), (0, MOST), (1, MOST)]
        world.filled()
        ended = world.play([rebuilding(world, monkeypatch) for _ in range(2)], turns, eager=True)
        if not world.rebuilds:
            assert not world.sink_config, (turns, ended)


FIRST, SECOND = LOG
CHANGES = [{FIRST: (1, 2)}, {FIRST: (0, 1)}, {("move.shop.three", 0): (0, 1)}]


@pytest.mark.parametrize("change", CHANGES)
def test_a_rebuild_of_a_log_that_has_changed_removes_nothing(
    change: dict[Any, tuple[int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """While it asked, or since it was interrupted. One that has removed something continues with --force."""
    begins = list[Any]()
    monkeypatch.setattr(rebuild, "check_log", lambda *_, **__: "what the log lacks")
    monkeypatch.setattr(rebuild.positions, "skip_to", lambda client, pipeline, late, *_: begins.append(late))
    monkeypatch.setattr(rebuild.positions, "note_breaks", lambda *_: None)
    for steps in range(STEPS):
        world = World()
        world.filled()
        before = deepcopy((world.documents, world.offsets))
        if steps:
            world.play([rebuilding(world, monkeypatch)], [(0, steps)], eager=False)
        is_emptying = bool(world.rebuilds) and world.rebuilds[OWN.name]["phase"] == "emptying"
        if steps and not is_emptying:  # it is not stored yet, or applies the log
            continue
        has_removed = (world.documents, world.offsets) != before
        world.log |= change
        (ended,) = world.play([rebuilding(world, monkeypatch)], [(0, MOST)], eager=False)
        assert isinstance(ended, Refused) and "the log has changed since" in str(ended), (steps, ended)
        assert has_removed == bool(world.rebuilds) == ("--force" in str(ended)), (steps, ended)
        if not has_removed:
            assert (world.documents, world.offsets) == before and not world.sink_config, steps
            continue
        (ended,) = world.play([rebuilding(world, monkeypatch, force=True)], [(0, MOST)], eager=False)
        assert ended == "rebuilt" and not world.rebuilds, (steps, ended)
        assert begins[-1] == {place: first for place, (first, _) in change.items() if first}, (steps, ended)


@pytest.mark.parametrize("begins", [True, False], ids=["while it asked", "while it emptied"])
def test_a_forced_rebuild_goes_on_where_retention_deletes_more_of_a_beginning_that_was_gone(
    begins: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else it would never begin with a large log, whose check takes longer than retention lets it be."""
    starts, world = list[Any](), World()
    world.filled()
    log = LOG | {FIRST: (1, 2)}
    plan = replace(PLAN, forced=True, log=log)
    monkeypatch.setattr(rebuild.positions, "skip_to", lambda client, pipeline, late, *_: starts.append(late))
    monkeypatch.setattr(rebuild, "begin", lambda *_: (plan, None))
    removes = emptying.empty

    def empty(*of: Any) -> None:
        removes(*of)
        world.log[FIRST] = (2, 2)

    if not begins:
        monkeypatch.setattr(rebuild, "empty", empty)
    world.log = log | ({FIRST: (2, 2)} if begins else {})
    assert rebuilding(world, monkeypatch, force=True)() == "rebuilt"
    assert starts == [{FIRST: 2}], "the sink would stop at a position that is gone"


@pytest.mark.parametrize(("now", "code"), [(None, "TWP-LOG-TOPIC"), ((0, 1), "TWP-LOG-END")])
def test_what_a_rebuild_has_lost_of_its_log_stays_known(
    now: tuple[int, int] | None, code: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rest is whole, and its positions, which would tell, are removed. Also if it is interrupted once more."""
    noted, checked, world = dict[Any, str](), list[Any](), World()
    monkeypatch.setattr(rebuild, "check_log", lambda facts, log, *_, **__: checked.append(dict(log)))
    monkeypatch.setattr(rebuild.positions, "note_breaks", lambda client, pipeline, codes, at: noted.update(codes))
    world.filled()
    world.play([rebuilding(world, monkeypatch)], [(0, 9)], eager=False)
    assert world.rebuilds[OWN.name]["changes"], "it has removed something"
    world.log = {place: found for place in LOG if (found := now if place == FIRST else LOG[place])}
    for _ in range(2):
        world.play([rebuilding(world, monkeypatch, force=True)], [(0, 5)], eager=False)
    assert noted == {FIRST: code}
    assert checked[-1] == LOG | {FIRST: now or (0, 0)}, "`cut_short` tells of what is in the log that is checked"
    assert world.play([rebuilding(world, monkeypatch, force=True)], [(0, MOST)], eager=False) == ["rebuilt"]
    assert checked[-1] == LOG | {FIRST: now or (0, 0)}


@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize(("now", "waits_for"), [(None, (0, 0)), ((0, 1), (0, 1)), ((1, 2), (0, 2))])
def test_a_rebuild_whose_log_was_cut_while_it_was_applied_ends_with_force(
    now: tuple[int, int] | None, waits_for: tuple[int, int], force: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else it would wait forever for what is gone. What retention deletes was applied; new topics are no part of it."""
    noted, world, place = dict[Any, str](), World(), ("move.shop.new", 0)
    monkeypatch.setattr(rebuild, "check_log", lambda *_, **__: "what the log lacks")
    monkeypatch.setattr(rebuild.positions, "note_breaks", lambda client, pipeline, codes, at: noted.update(codes))
    world.rebuilds[OWN.name] = PLAN.as_json() | {"_id": OWN.name, "phase": "applying", "token": "", "changes": 2}
    world.log = {one: found for one in LOG if (found := now if one == FIRST else LOG[one])} | {place: (0, 5)}
    facts: Any = SimpleNamespace(session=world.session(), options=Options(only=(), force=force, timeout=1))
    marker = emptying.Marker(facts.session.destination, OWN.name)
    plan, check = rebuild._resume(facts, replace(PLAN, phase="applying"), marker, lambda *_: None)
    assert plan.log == LOG | {FIRST: waits_for if force else (0, 2)} and plan.phase == "applying"
    is_cut = force and now != (1, 2)
    assert (plan.forced, bool(check), bool(noted)) == (is_cut, is_cut, is_cut)
    assert Plan.from_json(world.rebuilds[OWN.name]) == plan


@pytest.mark.parametrize("check", [None, LogCheck(4, (), (), None, cut_short={SECOND: "cut"})])
def test_a_rebuild_is_not_whole_if_a_break_of_its_log_was_accepted_while_it_was_applied(
    check: LogCheck | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A topic that was created again may have as many offsets as the one before."""
    noted, world = {FIRST: "TWP-LOG-TOPIC", ("move.shop.other", 0): "TWP-LOG-END"}, World()
    world.rebuilds[OWN.name] = PLAN.as_json() | {"_id": OWN.name, "phase": "applying", "token": "", "changes": 2}
    rebuild_now = rebuilding(world, monkeypatch)
    run = SimpleNamespace(check=check, wait_until_applied=world.wait_until_applied)
    run.verdict = lambda: missing(run.check)
    monkeypatch.setattr(rebuild, "SinkRun", lambda *_: run)
    monkeypatch.setattr(bounds, "noted_breaks", lambda client, pipeline: noted)
    told = [{"topic": FIRST[0], "partition": 0, "reason": "TWP-LOG-TOPIC: the sink continued in spite of it"}]
    told += [{"topic": SECOND[0], "partition": 0, "reason": "cut"}] if check else []
    assert rebuild_now() == told


def test_a_rebuild_checks_the_log_again_once_it_is_applied(monkeypatch: pytest.MonkeyPatch) -> None:
    world, did = World(), list[Any]()
    monkeypatch.setattr(world, "wait_until_applied", lambda report: did.append("the log is applied"))
    monkeypatch.setattr(rebuild, "check_again", lambda run, report, **how: did.append(how))
    assert rebuilding(world, monkeypatch)() == "rebuilt"
    assert did == ["the log is applied", {"applied": {}}]


def test_a_verdict_that_was_made_while_the_log_was_applied_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    world, did = World(), list[str]()
    monkeypatch.setattr(rebuild.verdict, "begin_history", lambda client, pipeline, why: did.append(why))
    monkeypatch.setattr(world, "wait_until_applied", lambda report: did.append("the log is applied"))
    assert rebuilding(world, monkeypatch)() == "rebuilt"
    assert did[-2:] == ["the log is applied", "a rebuild ended"] and not world.rebuilds


def replaying(world: World, patch: pytest.MonkeyPatch, *, empties: bool) -> Callable[[], object]:
    """A command `replay` to this destination, with and without `--empty`."""
    session = world.session()

    def find(*_: object) -> Replay | None:
        world.step()
        return None if world.plan is None else Replay(OWN, "x", ReplicaSet("rs", ()), "uri", world.plan)

    def put(*_: object) -> None:
        world.step()
        world.plan, world.runs = PLAN, True

    def removed(*_: object, **__: object) -> None:
        world.step()
        world.plan, world.runs = None, False
        world.offsets.clear()
        world.rebuilds.clear()

    def counts(*_: object, **__: object) -> dict[str, int]:
        world.step()
        return {name: len(found) for name, found in world.documents.items() if found}

    for name, value in {
        "find": find,
        "put": put,
        "remove": removed,
        "document_counts": counts,
        "begin": lambda *_: (PLAN, None),
        "definition": lambda of: {},
        "registration": lambda facts: SimpleNamespace(name="ours"),
        "others": lambda *_: (),
        "_write_secrets": lambda of: True,
        "_run_again": lambda *_: None,
        "other_options": lambda *_: (),
    }.items():
        patch.setattr(replay, name, value)
    for name in ("read_all", "register", "forget"):
        patch.setattr(replay.writers, name, lambda *_: None)
    patch.setattr(replay.positions, "forget_earlier", lambda *_: world.offsets.clear())
    patch.setattr(replay.bounds, "breaks_within", lambda *_: ())

    def run() -> str:
        facts: Any = SimpleNamespace(
            session=session,
            label="x",
            cluster=session.destination,
            target=SimpleNamespace(replica_set=ReplicaSet("rs", ())),
            options=Options(only=(), force=False, timeout=1, uri="mongodb://there", empty=empties),
            pipeline=OWN,
            targets=NAMES,
        )
        if (existing := find()) is not None:
            replay._resume(facts, existing, lambda *_: None)
        elif empties or not counts():
            replay._create(facts, PLAN)
        else:
            raise Refused("the destination holds documents already")
        world.wait_until_applied(None)
        return "replayed"

    return run


@pytest.mark.parametrize("eager", [True, pytest.param(False, marks=NIGHTLY)])
@pytest.mark.parametrize("empties", [True, False])
def test_of_two_equal_replays_one_begins_and_all_is_there_once(
    empties: bool, eager: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for turns in schedules(2, 16):
        world = World("move-replay-x", runs=False)
        if empties:
            world.documents["shop.one"]["before"] = {"_id": "before"}
        ended = world.play([replaying(world, monkeypatch, empties=empties)] * 2, turns, eager)
        where = turns, empties, eager, ended
        assert all(isinstance(end, Refused | NotYet | str) for end in ended), where
        if world.plan is None:
            again = world.play([replaying(world, monkeypatch, empties=True)], [(0, MOST)], eager)
            assert again == ["replayed"], (*where, again)
        world.assert_whole(where)


def test_a_replay_does_not_begin_where_something_has_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as a sink that was created by another command, whose positions this one has removed."""
    world = World("move-replay-x", runs=False)
    world.documents["shop.two"]["other"] = {"_id": "other"}
    run = replaying(world, monkeypatch, empties=False)
    monkeypatch.setattr(replay, "_register", lambda *_: None)
    session = world.session()
    facts: Any = SimpleNamespace(session=session, cluster=session.destination, targets=NAMES)
    unwritten = Replay(OWN, "x", ReplicaSet("rs", ()), "uri", PLAN)
    marker = emptying.Marker(session.destination, unwritten.name)
    marker.put()
    with pytest.raises(Refused, match=r"shop\.two"):
        replay._require_unwritten(unwritten, facts, marker)
    assert world.play([run], [(0, MOST)], eager=False) and world.plan is None
    world.documents["shop.two"].clear()
    Task(world, unwritten.name).turn()
    marker.put()
    with pytest.raises(Refused, match="positions"):
        replay._require_unwritten(unwritten, facts, marker)


def test_an_overtaken_replay_leaves_the_one_of_the_later_command(monkeypatch: pytest.MonkeyPatch) -> None:
    for steps in range(1, 16):
        world = World("move-replay-x", runs=False)
        commands = [replaying(world, monkeypatch, empties=False)] * 2
        ended = world.play(commands, [(0, steps), (1, MOST), (0, MOST)], eager=True)
        assert ended[1] != "replayed" or world.plan is not None, (steps, ended)
        world.assert_whole((steps, ended))


@pytest.mark.parametrize(("overtaken_at", "dropped"), [(1, []), (2, ["orders"]), (3, ["orders"])])
def test_a_drop_follows_its_check_and_one_that_may_be_too_late_is_named(overtaken_at: int, dropped: list[str]) -> None:
    """No transaction can hold it."""
    checks, did = iter(range(1, 9)), list[str]()

    def require() -> None:
        if next(checks) == overtaken_at:
            raise Overtaken("another command has it", "look")

    database = SimpleNamespace(drop_collection=did.append)
    client = SimpleNamespace(get_database=lambda name, write_concern: database)
    marker: Any = SimpleNamespace(require=require, cluster=SimpleNamespace(connected=lambda: nullcontext(client)))
    with pytest.raises(Overtaken) if overtaken_at < 3 else nullcontext() as caught:
        emptying._drop(marker, "shop.orders")
    assert did == dropped
    assert ("shop.orders was dropped in the meantime" in str(caught and caught.value)) is (overtaken_at == 2)


def test_views_stay_and_what_the_log_makes_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    did = list[str]()
    kinds = {"shop.one": "collection", "shop.two": "view", "shop.other": "collection"}
    monkeypatch.setattr(emptying, "collections", lambda *_: [Collection(*each, {}, "") for each in kinds.items()])
    for name in ("_drop", "_delete_all"):
        monkeypatch.setattr(emptying, name, lambda marker, namespace, name=name: did.append(f"{name} {namespace}"))
    marker: Any = SimpleNamespace(cluster=SimpleNamespace(connected=lambda: nullcontext("a client")))
    emptying.empty(session_of(OWN), marker, LOG)
    assert did == ["_delete_all shop.one"]
    monkeypatch.setattr(emptying, "_made_by_log", lambda session, log: {"shop.two"})
    emptying.empty(session_of(OWN), marker, LOG)
    assert did[1:] == ["_delete_all shop.one", "_drop shop.two"]
