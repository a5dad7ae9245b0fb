"""The moments at which faults strike: how each is reached, and the facts that prove that it was hit.

`holds` is asked right before the fault and right after it, by what no fault takes away: the source's offsets as
Kafka has them, the destination's open transactions, a process that is alive.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import bson
from pymongo import MongoClient
from pymongo.errors import PyMongoError

from benchmarks.soak.offsets import SourceOffsets
from tests.support import mongod, oracle, progress, raw, rest
from tests.support.awaited import until
from tests.support.command import Command
from tests.support.mongod import MongodSizes
from tests.support.pipeline import Pipeline, Settings
from tests.support.progress import State as Stage
from tests.support.site import Site
from tests.support.workload.versions import VERSION
from towpath.log import reread_requests
from towpath.session import opened

COPY, HAND_OVER, MIDDLE, END = range(4)
"""The turns of a round: it copies once, hands over once, and what wants no writes comes last."""
_ROUND_MS = "1500"
_ROUNDS = {"catch-up": 1, "copy": 2}
"""From which round on a phase shows that a copy has more than one."""
_HELD_S = 6  # for so long the destination keeps a commit waiting that a fault is to meet


class Missed(Exception):
    """The state was over before the fault came, or did not come: the round does not count."""


@dataclass(slots=True)
class Scene:
    """What a state is made of: a pipeline on a site, with its documents."""

    site: Site
    pipeline: Pipeline
    collections: tuple[str, ...]
    large: str
    """The collection of large documents."""
    offsets: SourceOffsets
    folder: Path
    moment_s: float = 0.0
    """After which a fault comes that waits for no state."""
    blind: bool = False
    """The fault to come takes the destination away: nothing there can be asked right after it."""
    checks: list[Callable[[], None]] = field(default_factory=list)
    """What has to be true once all is applied."""

    def total(self) -> int:
        return progress.total(self.pipeline)


def _copying(**how: Any) -> Settings:
    """A copy that takes a while."""
    return Settings(capture={"documents_per_second": 150} | how)


_SETTINGS = _copying()
Holds = Callable[[], bool]
Reached = AbstractContextManager[Holds]


@dataclass(frozen=True, slots=True)
class State:
    name: str
    reached: Callable[[Scene], Reached]
    after: bool = True
    """Whether it is asked right after the fault as well: a sink that was hit does not move."""
    at_broker: bool = True
    """Whether it is known by what the broker has: where no other answers it is asked once that is back."""
    never: frozenset[str] = frozenset()
    """Parts whose faults cannot meet this state."""
    settings: Settings = _SETTINGS
    writes: bool = True
    """Whether the source is written to during this."""
    may_filter: bool = True
    """Whether collections may have a filter: such ones are not read in natural order, nor may compaction have to ask
    for any document of them."""
    turn: int = MIDDLE
    """Its place in a round, where each turn comes once, `MIDDLE` as often as one likes."""


def _stage(wanted: Stage) -> Callable[[Scene], Reached]:
    @contextmanager
    def reached(scene: Scene) -> Iterator[Holds]:
        stages = progress.STATES
        end = time.monotonic() + 90
        while (now := scene.offsets.state()) != wanted:
            if stages.index(now) > stages.index(wanted) or time.monotonic() > end:
                raise Missed(f"{wanted}: it is {now}")
            time.sleep(0.01)
        yield lambda: scene.offsets.state() == wanted

    return reached


def _in_round(wanted: str) -> Callable[[Scene], Reached]:
    """This phase of a copy in rounds: what follows the first round, or a later one."""

    @contextmanager
    def reached(scene: Scene) -> Iterator[Holds]:
        _shorten_rounds(scene)
        _await_phase(scene, wanted)
        yield lambda: _is_in_phase(scene, wanted)

    return reached


def _shorten_rounds(scene: Scene) -> None:
    connector = f"{scene.pipeline.addresses.connect}/connectors/{scene.pipeline.name}-source/config"
    rest.patch(connector, {"towpath.copy.round.ms": _ROUND_MS}).raise_for_status()


def _await_phase(scene: Scene, wanted: str) -> None:
    end = time.monotonic() + 90
    while not _is_in_phase(scene, wanted):
        if scene.offsets.phase()[0] == "stream" or time.monotonic() > end:
            raise Missed(f"{wanted}: it is {scene.offsets.phase()}")
        time.sleep(0.01)


def _is_in_phase(scene: Scene, wanted: str) -> bool:
    phase, number = scene.offsets.phase()
    return phase == wanted and number >= _ROUNDS[wanted]


@contextmanager
def _pending(scene: Scene) -> Iterator[Holds]:
    """Documents that changed while they were read in natural order are read again between two rounds of the copy. The
    source holds that read up."""
    name = scene.collections[0]
    wanted = {"active": True, "command.find": name, "command.filter._id": {"$exists": True}}
    stages: list[dict[str, Any]] = [{"$currentOp": {"allUsers": True}}, {"$match": wanted}]

    def is_held(client: raw.Client) -> bool:
        return bool(list(client.admin.aggregate(stages)))

    _shorten_rounds(scene)
    primary = scene.site.primary("source")
    with scene.site.direct(primary) as client:
        try:
            found = False
            while not found:
                _await_phase(scene, "catch-up")
                _held_up(client, "find", namespace=scene.pipeline.namespace(name))
                while not (found := is_held(client)) and _is_in_phase(scene, "catch-up"):
                    time.sleep(0.01)
                if not found:
                    client.admin.command("configureFailPoint", "failCommand", mode="off")
            yield lambda: is_held(client)
        finally:
            _release(scene.site, primary)


@contextmanager
def _any_moment(scene: Scene) -> Iterator[Holds]:
    time.sleep(scene.moment_s)
    print(f"{scene.pipeline.name}: after {scene.moment_s:.1f} s, in {scene.offsets.state()}")
    yield lambda: True


@contextmanager
def _streaming(scene: Scene) -> Iterator[Holds]:
    until("stream", lambda: scene.offsets.state() == "stream", 120, 0.1)

    before = scene.total()
    until("sink that moves", lambda: scene.total() > before, 60, 0.02)
    moved = time.monotonic()
    yield lambda: time.monotonic() < moved + 1


def read_again(scene: Scene, times: int) -> None:
    """Ask for the documents of the collections, so often that it takes a while; for the large ones once."""
    with opened(scene.pipeline.file) as it:
        for name, often in (*((name, times) for name in scene.collections), (scene.large, 1)):
            found = scene.pipeline.source(name).find({}, {"_id": 1})
            ids = [bson.encode({"_id": one["_id"]}) for one in found]
            reread_requests.write(it.pipeline, it.topics, scene.pipeline.namespace(name), ids * often)


@contextmanager
def _reading_again(scene: Scene) -> Iterator[Holds]:
    until("stream", lambda: scene.offsets.state() == "stream", 120, 0.1)
    read_again(scene, 50)
    yield lambda: scene.offsets.requests_left() > 0


@contextmanager
def _in_transaction(scene: Scene) -> Iterator[Holds]:
    """The destination holds a commit up: the sink's transaction is open, all its writes done."""
    site = scene.site
    until("stream", lambda: scene.offsets.state() == "stream", 120, 0.1)
    primary = site.primary("destination")
    with site.direct(primary, 70_000) as client:
        try:
            _hold_commit(client)
            end = time.monotonic() + _HELD_S - 0.5
            yield lambda: time.monotonic() < end and (scene.blind or _is_open(site, primary))
        finally:
            with suppress(PyMongoError), site.direct(primary, 1000) as again:
                again.admin.command("configureFailPoint", "failCommand", mode="off")


def _hold_commit(client: raw.Client) -> None:
    """The next commit waits from now on, and no other."""
    data = {"failCommands": ["commitTransaction"], "blockConnection": True, "blockTimeMS": _HELD_S * 1000}
    point = client.admin.command("configureFailPoint", "failCommand", mode={"times": 1}, data=data)
    entered = int(point["count"]) + 1
    client.admin.command("waitForFailPoint", "failCommand", timesEntered=entered, maxTimeMS=60_000)


def _is_open(site: Site, primary: str) -> bool:
    stages: list[dict[str, Any]] = [
        {"$currentOp": {"allUsers": True, "idleSessions": True}},
        {"$match": {"transaction.timeOpenMicros": {"$gt": 0}, "lsid": {"$exists": True}}},
    ]
    with site.direct(primary, 2000) as client:
        return bool(list(client.admin.aggregate(stages)))


@contextmanager
def _compacting(scene: Scene) -> Iterator[Holds]:
    """`towpath compact` has asked for documents, behind others that take a while, and the answer is not there yet."""
    until("stream", lambda: scene.offsets.state() == "stream", 120, 0.1)
    with Command(scene.folder, scene.pipeline.file, "compact", "--every", "1s") as service:
        until("round of compaction", lambda: not service.alive or "; requested " in service.said, 120, 0.1)
        read_again(scene, 50)
        end = scene.offsets.requests_end()
        until("request of compaction", lambda: not service.alive or scene.offsets.requests_end() > end, 180, 0.01)
        yield lambda: service.alive and scene.offsets.requests_left() > 0
        if service.alive:
            service.process.send_signal(signal.SIGTERM)
        service.ended(0, 2)


@contextmanager
def _verifying(scene: Scene) -> Iterator[Holds]:
    """`towpath verify` is connected to both sides; it may end without a verdict, but not with a wrong one."""
    until("stream", lambda: scene.offsets.state() == "stream", 120, 0.1)
    with Command(scene.folder, scene.pipeline.file, "verify", "--processes", "1") as verify:
        sides = (scene.site.source, scene.site.destination)
        until("verification", lambda: not verify.alive or all(map(_is_verified, sides)), 60, 0.01)
        yield lambda: verify.alive
        verify.ended(0, 2)


def _is_verified(client: raw.Client) -> bool:
    stages: list[dict[str, Any]] = [
        {"$currentOp": {"allUsers": True, "idleConnections": True}},
        {"$match": {"appName": "towpath verify"}},
    ]
    return bool(list(client.admin.aggregate(stages)))


@contextmanager
def _replaying(scene: Scene) -> Iterator[Holds]:
    """A replay is under way. It continues when it is asked for again, and ends with the source's documents."""
    pipeline, place = scene.pipeline, scene.folder / f"third-{time.monotonic_ns()}"
    read_again(scene, 20)
    pipeline.wait(400)
    with mongod.start_replica_set(place, name="third", sizes=MongodSizes(0.25, 128)) as third:
        words = ("replay", "--destination", third.uri, "--name", f"r{time.monotonic_ns()}")
        with (
            Command(scene.folder, scene.pipeline.file, *words) as replay,
            MongoClient[dict[str, Any]](third.uri) as client,
        ):
            positions, ends = client["towpath"]["offsets"], _ends(pipeline)

            def under_way() -> bool:
                return replay.alive and 0 < sum(max(0, it["offset"]) for it in positions.find()) < ends

            until("replay that moves", lambda: not replay.alive or under_way(), 90, 0.01)
            yield under_way
            again = replay.ended(0, 2)
        while again:
            with Command(scene.folder, scene.pipeline.file, *words) as replay:
                again = replay.ended(0)
        names = {pipeline.namespace(name): pipeline.namespace(name) for name in (*scene.collections, scene.large)}
        oracle.assert_same(pipeline.addresses.source, third.uri, names, at_least=100)


def _ends(pipeline: Pipeline) -> int:
    """Where the pipeline's own sink is, that has applied all: as far as a replay has to come."""
    return progress.total(pipeline)


_DDL = Settings(extra='[ddl]\ndrop = "apply"')
_OTHER_SIDE = frozenset(("source",))
_BUILD = "hangAfterStartingIndexBuild"
_FILL = 40  # documents of a collection that is renamed or dropped


class _Change:
    """A schema change, made again for each strike, of an index or a collection with a separate name."""

    kind = ""
    command = ""
    """What makes it at the destination. The build of an index is held up in its midst instead."""

    def __init__(self, scene: Scene) -> None:
        self.scene, self.name = scene, f"i{time.monotonic_ns()}"

    def prepare(self) -> None:
        """What has to be there before, at both sides."""

    def make(self) -> None:
        """Make it at the source."""
        raise NotImplementedError

    def is_made(self) -> bool:
        """Whether the destination has it."""
        raise NotImplementedError

    @property
    def about(self) -> dict[str, Any]:
        return {"change.ns": self.scene.pipeline.namespace(self.name)}

    def stored(self) -> dict[str, Any]:
        """What the destination has stored of it."""
        of_kind = {"_id.pipeline": self.scene.pipeline.name, "change.ddl": self.kind}
        return self.scene.site.destination["towpath"]["schema_changes"].find_one(of_kind | self.about) or {}

    def is_in(self, state: str) -> bool:
        return bool(self.stored().get("state") == state)

    def waits(self) -> bool:
        """Whether a partition is still at it."""
        positions, change = self.scene.site.destination["towpath"]["offsets"], self.stored()["_id"]["id"]
        return positions.count_documents({"_id.pipeline": self.scene.pipeline.name, "barrier": change}) > 0

    def begin(self) -> None:
        """Make it at the source; all partitions then wait at it, and the destination is at it."""
        self.make()
        until("change that is being made", lambda: self.stored().get("state") in ("running", "done"), 60, 0.02)
        if not self.is_in("running"):
            raise Missed(f"the change is {self.stored()}")

    def hold(self, client: raw.Client) -> None:
        """It is begun. It continues after `_HELD_S`, or when a build is let go."""
        if self.command:
            _held_up(client, self.command)
        else:
            client.admin.command("configureFailPoint", _BUILD, mode="alwaysOn")
        self.begin()

    def hold_note(self, client: raw.Client, where: str) -> None:
        """It is made, and what is written of that to a collection is held up."""
        with self.waiting(client):
            _held_up(client, "update", "findAndModify", namespace=f"towpath.{where}")

    @contextmanager
    def waiting(self, client: raw.Client) -> Iterator[None]:
        """It is begun, and waits until the end. (To change a fail point waits for what it holds up.)"""
        self.hold(client)
        yield
        client.admin.command("configureFailPoint", _BUILD, mode="off")


class _Build(_Change):
    kind = "createIndexes"

    @property
    def about(self) -> dict[str, Any]:
        return {"change.indexes.name": self.name}

    def make(self) -> None:
        built = self.scene.pipeline.source(self.scene.collections[0])
        built.create_index("n", name=self.name, partialFilterExpression={"n": self.name})

    def is_made(self) -> bool:
        return self.name in self.scene.pipeline.destination(self.scene.collections[0]).index_information()


class _OfCollection(_Change):
    """Of a new collection. Its uuid at the destination shows whether it was made once."""

    before: object

    @contextmanager
    def waiting(self, client: raw.Client) -> Iterator[None]:
        """For the lock of its collection."""
        with client.start_session() as session, session.start_transaction():
            client[self.scene.pipeline.name][self.name].insert_one({"_id": "of nobody"}, session=session)
            self.begin()
            yield
            session.abort_transaction()

    def prepare(self) -> None:
        self.fill(self.name, 1)
        there = self.scene.pipeline.destination(self.name)
        until("documents of the new collection", lambda: there.count_documents({}) == _FILL, 60, 0.05)
        self.before = self.uuid(self.name)

    def fill(self, name: str, version: int) -> None:
        self.scene.pipeline.source(name).insert_many([{"_id": number, VERSION: version} for number in range(_FILL)])

    def uuid(self, name: str) -> object:
        """None where there is no such collection."""
        found = self.scene.site.destination[self.scene.pipeline.name].list_collections(filter={"name": name})
        return next((it["info"]["uuid"] for it in found), None)

    def is_made(self) -> bool:
        return self.uuid(self.name) != self.before


class _Rename(_OfCollection):
    kind, command = "rename", "renameCollection"

    def make(self) -> None:
        new = f"{self.name}-new"
        self.scene.pipeline.source(self.name).rename(new)
        self.scene.pipeline.source(new).insert_one({"_id": "after", VERSION: 1})

        def is_the_same() -> None:
            assert self.uuid(new) == self.before
            self.scene.pipeline.assert_same(new, at_least=_FILL + 1)

        self.scene.checks.append(is_the_same)


class _Drop(_OfCollection):
    kind, command = "drop", "drop"

    def make(self) -> None:
        dropped = self.scene.pipeline.source(self.name)
        dropped.insert_many([{"_id": f"before {number}", VERSION: 1} for number in range(_FILL)])
        dropped.drop()
        self.fill(self.name, 2)

        def is_another() -> None:
            assert self.stored()["uuid"] == self.before != self.uuid(self.name)
            self.scene.pipeline.assert_same(self.name, at_least=_FILL)

        self.scene.checks.append(is_another)


def _changing(kind: type[_Change], reach: Callable[[_Change, raw.Client], Holds]) -> Callable[[Scene], Reached]:
    """A schema change of this kind is made, and `reach` comes to a state of it at the destination's primary."""

    @contextmanager
    def reached(scene: Scene) -> Iterator[Holds]:
        site, change = scene.site, kind(scene)
        until("stream", lambda: scene.offsets.state() == "stream", 120, 0.1)
        change.prepare()
        # what holds up this one would hold up earlier ones
        until("end of earlier changes", lambda: not _is_changing(scene), 120, 0.1)
        primary = site.primary("destination")
        with site.direct(primary, 70_000) as client:
            try:
                holds = reach(change, client)
                end = time.monotonic() + _HELD_S - 0.5
                releasing = threading.Timer(_HELD_S, _release, (site, primary))
                releasing.start()
                yield lambda: time.monotonic() < end and (scene.blind or holds())
                releasing.join()
            finally:
                _release(site, primary)

    return reached


def _is_changing(scene: Scene) -> bool:
    """Whether a schema change is not over, or the destination does not say."""
    opened = {"_id.pipeline": scene.pipeline.name, "state": {"$in": ["waiting", "running"]}}
    try:
        return scene.site.destination["towpath"]["schema_changes"].count_documents(opened) > 0
    except PyMongoError:
        return True


def _release(site: Site, node: str) -> None:
    with suppress(PyMongoError), site.direct(node, 1000) as client:
        for point in ("failCommand", _BUILD):
            client.admin.command("configureFailPoint", point, mode="off")


def _held_up(client: raw.Client, *commands: str, namespace: str | None = None) -> None:
    """The server keeps these commands waiting for so long."""
    data = {"failCommands": list(commands), "blockConnection": True, "blockTimeMS": _HELD_S * 1000}
    within = {} if namespace is None else {"namespace": namespace}
    client.admin.command("configureFailPoint", "failCommand", mode="alwaysOn", data=data | within)


def _first_arrived(change: _Change, client: raw.Client) -> Holds:
    """One task's partitions are at the change; the other one's commit is held up."""
    _hold_commit(client)
    change.make()

    def holds() -> bool:
        stored = change.stored()
        return stored.get("state") == "waiting" and 0 < stored["arrived"] < stored["expected"]

    end = time.monotonic() + _HELD_S - 1
    while not holds():
        if time.monotonic() > end:
            raise Missed("the commit of all tasks was held up, or of none")
        time.sleep(0.01)
    return holds


def _all_arrived(change: _Change, client: raw.Client) -> Holds:
    """The change is being made."""
    change.hold(client)
    return lambda: change.is_in("running")


def _done_not_noted(change: _Change, client: raw.Client) -> Holds:
    """The destination has the change, and the note of it is held up."""
    change.hold_note(client, "schema_changes")
    until("effect", change.is_made, 30, 0.01)
    return lambda: change.is_in("running")


def _noted(change: _Change, client: raw.Client) -> Holds:
    """The change is done, and the partitions are held up at it."""
    change.hold_note(client, "offsets")
    until("change that is done", lambda: change.is_in("done"), 30, 0.01)
    return change.waits


def _ddl_states() -> Iterator[State]:
    """The states of a barrier, at changes that build, move and remove."""
    for prefix, kind in (("ddl", _Build), ("rename", _Rename), ("drop", _Drop)):
        for words, reach in _REACHED.items():
            reached = _changing(kind, reach)
            yield State(f"{prefix} {words}", reached, at_broker=False, never=_OTHER_SIDE, settings=_DDL)


_REACHED = {
    "first arrived": _first_arrived,
    "all arrived": _all_arrived,
    "done not noted": _done_not_noted,
    "noted": _noted,
}
_COMPACTED = '[log]\ncompact = true\ncompaction_lag = "120s"\ndelete_retention = "3600s"'

STATES: dict[str, State] = {
    state.name: state
    for state in (
        State("any", _any_moment, after=False),
        State("copy", _stage("copy"), turn=COPY),
        State(
            "copy in natural order",
            _stage("copy"),
            settings=_copying(copy_order="natural"),
            may_filter=False,
            turn=COPY,
        ),
        State("copy by three tasks", _stage("copy"), settings=_copying(copy_tasks=3), turn=COPY),
        State("copy after a round", _in_round("copy"), settings=_copying(documents_per_second=40), turn=COPY),
        State("catch-up after a round", _in_round("catch-up"), settings=_copying(documents_per_second=40), turn=COPY),
        State(
            "pending in natural order",
            _pending,
            after=False,
            settings=_copying(documents_per_second=40, copy_order="natural"),
            may_filter=False,
            turn=COPY,
        ),
        State(
            "hand-over", _stage("hand-over"), settings=Settings(capture={"documents_per_second": 400}), turn=HAND_OVER
        ),
        State("streaming", _streaming, after=False),
        State("reading again", _reading_again),
        State("transaction", _in_transaction, at_broker=False),
        State("compaction", _compacting, settings=Settings(extra=_COMPACTED), may_filter=False),
        *_ddl_states(),
        State("verify", _verifying, at_broker=False),
        State(
            "replay",
            _replaying,
            at_broker=False,
            never=frozenset(("source", "destination")),  # it has its own destination, and reads the log only
            settings=Settings(write={"batch_records": 10}),
            writes=False,
            turn=END,
        ),
    )
}
