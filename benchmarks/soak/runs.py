"""One run: a pipeline, a writer that continues whatever happens, faults at their states, both sides compared."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random

from pymongo import WriteConcern

from benchmarks.history.check import Seen
from benchmarks.history.clients import FILL, LISTS
from benchmarks.history.lists import Lists
from benchmarks.soak.ends import Ending
from benchmarks.soak.faults import FAULTS, Fault
from benchmarks.soak.hits import Hits, Pair
from benchmarks.soak.offsets import SourceOffsets
from benchmarks.soak.states import COPY, HAND_OVER, STATES, Missed, Scene, State
from tests.support import definitions, log
from tests.support.awaited import promised, until
from tests.support.large import Large
from tests.support.order import END, Order
from tests.support.pipeline import Pipeline, Settings
from tests.support.shapes import ShapeName
from tests.support.site import Site
from tests.support.workload import Workload
from tests.support.workload.versions import VERSION
from tests.support.writer import Writer
from towpath.stack.record import DESTINATION, SOURCE

COLLECTIONS = ("one", "two")
LARGE = "large"
#: Seconds from there being a new primary until records are applied, by fault.
_MOST_S = dict.fromkeys([f"{DESTINATION}-{how}" for how in ("primary-kill", "primary-stop", "step-down")], 15.0)
_SLEEPS = f"{SOURCE}-primary-stop"
_MOST_S[_SLEEPS] = 15.0
_NATURAL_S = 45.0  # more, as a copy in natural order waits for its member for about as long as it has read there
_LARGE_PER_SECOND = 0.2  # of 15 MB each, which every member, the broker and the workers write or read
_LONG_COPY = 40  # documents per second, where what breaks in the copy is to be whole again before its end
_OTHERS_ANSWER = ("broker-of-three-kill", "leader-move")  # beside one that sleeps they do so too late
_FLOWS = 20  # records that the sink applies after a fault before the next one


@dataclass(frozen=True, slots=True)
class Strike:
    """A fault and the state that it is to hit."""

    fault: Fault
    state: State

    @property
    def pair(self) -> Pair:
        return self.fault.name, self.state.name

    def __str__(self) -> str:
        return f"{self.fault.name} at {self.state.name}"


@dataclass(frozen=True, slots=True)
class Plan:
    """What a run is: everything that is random in it comes from the seed."""

    seed: int
    strikes: tuple[Strike, ...]
    """In this order, which is that of their turns."""
    documents: int = 400
    per_second: int = 25
    large_bytes: int = 2_000_000
    only: str = ""
    """A filter that all documents match: of its fields depends how their changes travel. Empty for none."""

    def __str__(self) -> str:
        rule = f", only {self.filter}" if self.filter else ""
        return f"seed {self.seed}: {', '.join(map(str, self.strikes))}{rule}"

    @property
    def filter(self) -> str:
        """`only`, if all states take it."""
        return self.only if all(strike.state.may_filter for strike in self.strikes) else ""

    @property
    def settings(self) -> Settings:
        """What any of the states wants; of a first copy the one that is met first."""
        wanted = [strike.state.settings for strike in self.strikes]
        is_both = {COPY, HAND_OVER} <= {strike.state.turn for strike in self.strikes}
        longer = {"documents_per_second": _LONG_COPY} if is_both else {}
        write = {key: value for one in wanted for key, value in one.write.items()}
        rule = f"[[collections.rules]]\ncollections = '*.*'\nonly = '{self.filter}'" if self.filter else ""
        return Settings(
            kafka={"max_record": "1MiB"},  # the largest documents are in chunks
            capture={**wanted[0].capture, **longer},
            write=write,
            extra="\n".join(dict.fromkeys(filter(None, (*(one.extra for one in wanted), rule)))),
        )


@dataclass(frozen=True, slots=True)
class Struck:
    """What came of a strike."""

    hit: bool
    recovered_s: float
    """Until the sink moved again: from there being a new primary, or from what was broken being back."""


@dataclass(frozen=True, slots=True)
class Result:
    struck: tuple[Struck, ...]
    operations: int
    events: int
    ends: int
    """Transactions whose end Kafka had lost."""
    lists: Seen
    """What the history check has seen."""

    @property
    def hit(self) -> bool:
        """Whether every fault met its state."""
        return all(one.hit for one in self.struck)

    @property
    def recovered_s(self) -> float:
        """The longest of them."""
        return max(one.recovered_s for one in self.struck)

    def as_json(self) -> dict[str, object]:
        return asdict(self)


def strikes(shape: ShapeName) -> list[Strike]:
    """Every fault that this stack can have, at each state that it can meet."""
    return [
        Strike(fault, state)
        for fault in FAULTS.values()
        for state in STATES.values()
        if shape == fault.shape and fault.hits not in state.never
    ]


def run(site: Site, plan: Plan, hits: Hits, folder: Path) -> Result:
    """Fails when a task failed for good, or a document or an append to a list was lost, repeated, resurrected or older,
    or a transaction was half there, or a record became a dead letter."""
    folder.mkdir(parents=True, exist_ok=True)
    with _pipeline(site, plan, folder) as pipeline:
        sources = [pipeline.source(name) for name in COLLECTIONS]
        workload = Workload(plan.seed, sources, documents=plan.documents, versions=True, may_lose=True)
        large = Large(plan.seed, pipeline.source(LARGE), plan.large_bytes)
        workload.fill()
        large.fill()
        lists = Lists(plan.seed, pipeline, site.source, site.destination)
        writers = (Writer(workload, per_second=plan.per_second), Writer(large, per_second=_LARGE_PER_SECOND))
        with Order(site.destination, pipeline.name) as order, lists.watched:
            pipeline.deploy()
            with Ending(pipeline.file) as ending:
                with closing(SourceOffsets(site, pipeline)) as offsets:
                    scene = Scene(site, pipeline, (*COLLECTIONS, *LISTS), LARGE, offsets, pipeline.file.parent)
                    struck = tuple(_written(scene, plan, writers, lists))
                pipeline.wait(240)
            _assert_tasks_run(site, pipeline)
        letters = log.records(pipeline.addresses.bootstrap, f"{pipeline.name}.dead-letters")
        assert not letters, f"{len(letters)} records became dead letters: {letters[0]}"
        seen = lists.seen(is_compacted="compact = true" in plan.settings.extra, at_least=FILL + 20)
        pipeline.assert_same(*COLLECTIONS, *LISTS, LARGE, at_least=plan.documents // 4)
        for check in scene.checks:
            check()
        if "[ddl]" in plan.settings.extra:
            site.destination[pipeline.name].drop_collection(END)
            definitions.assert_same(site.source, site.destination, [pipeline.name])
        events = order.seen(at_least=100)
    for strike, one in zip(plan.strikes, struck, strict=True):
        (hits.hit if one.hit else hits.missed)[strike.pair] += 1
    return Result(struck, writers[0].applied, events, ending.ended, seen)


def _written(scene: Scene, plan: Plan, writers: tuple[Writer, Writer], lists: Lists) -> Iterator[Struck]:
    """The faults, while the source is written to, or, where the state wants no writes, after it.

    After each one the destination is the source as of one time, for a moment, if it can be.
    """
    random, (small, large) = Random(plan.seed), writers
    while_written = [strike for strike in plan.strikes if strike.state.writes]
    with ExitStack() as writing:
        writing.enter_context(small)
        writing.enter_context(lists.clients.appending())
        if while_written:
            writing.enter_context(large)
        else:
            small.wait_for(300)
        for number, strike in enumerate(while_written):
            scene.moment_s = random.uniform(0, 5 if number else 15)
            struck = _strike(scene, strike, random)
            scene.site.wait_whole()
            if lists.point():
                _await_flow(scene)
            yield struck
    for strike in plan.strikes[len(while_written) :]:
        yield _strike(scene, strike, random)


def _strike(scene: Scene, strike: Strike, random: Random) -> Struck:
    fault, state = strike.fault, strike.state
    scene.blind = fault.hits == DESTINATION
    scene.site.wait_whole()
    at_broker = fault.hits == "broker" and state.at_broker and fault.name not in _OTHERS_ANSWER
    try:
        with state.reached(scene) as holds:
            if not holds():
                raise Missed(f"{state.name} was over")
            with fault.broken(scene.site, random, scene.pipeline.name) as wait:
                hit = at_broker or not state.after or holds()
                wait()
                recovered = _flows(scene, strike) if _others_go_on(scene, strike) else None
            if at_broker and state.after:
                hit = holds()
            if recovered is None:
                recovered = _await_flow(scene) if state.writes else 0.0
    except Missed as missed:
        print(f"{strike}: missed: {missed}")
        return Struck(False, 0.0)
    most = _MOST_S.get(fault.name, math.inf)
    if state.settings.capture.get("copy_order") == "natural":
        most += _NATURAL_S
    print(f"{strike}: {'hit' if hit else 'missed'}, flowing again after {recovered:.1f} s")
    assert recovered < most, f"{recovered:.1f} s from a new primary until records were applied again"
    return Struck(hit, recovered)


def _others_go_on(scene: Scene, strike: Strike) -> bool:
    """Whether there are more of what is broken, so that nothing has to be repaired first.

    A broker that sleeps is woken first: until their requests to it time out, one after another, clients wait for 30 to
    90 s (Kafka's `request.timeout.ms`).
    """
    if not strike.state.writes or scene.site.shape.proxied or strike.fault.name == "broker-of-three-stop":
        return False
    return scene.site.shape.others > 1 or strike.fault.hits in (SOURCE, DESTINATION)


def _flows(scene: Scene, strike: Strike) -> float:
    """Seconds until records are applied again. Beside a source that sleeps in part the writer is slow itself."""
    if strike.fault.name != _SLEEPS or scene.offsets.state() in ("none", "copy"):
        return _await_flow(scene)
    site, name, mark = scene.site, COLLECTIONS[0], f"after the fault {time.monotonic_ns()}"
    with site.direct(site.primary(SOURCE)) as client:
        one = client[scene.pipeline.name].get_collection(name, write_concern=WriteConcern(1))
        one.insert_one({"_id": mark, VERSION: 1})
    begun = time.monotonic()
    there = scene.pipeline.destination(name)
    promised("change after the fault", lambda: there.count_documents({"_id": mark}), 150, 0.1)
    return time.monotonic() - begun


def _await_flow(scene: Scene) -> float:
    """Wait until records are applied again; for how many seconds that was."""
    before, begun = scene.total(), time.monotonic()
    promised("records applied after the fault", lambda: scene.total() >= before + _FLOWS, 150, 0.1)
    return time.monotonic() - begun


def _assert_tasks_run(site: Site, pipeline: Pipeline) -> None:
    def states() -> list[str]:
        tasks = [site.tasks(f"{pipeline.name}-{kind}") for kind in ("source", "sink")]
        found = [it["state"] for of in tasks for it in of]
        failed = [it.get("trace", "")[:2000] for of in tasks for it in of if it["state"] == "FAILED"]
        assert not failed, f"tasks failed: {failed}"
        return found if all(tasks) and set(found) == {"RUNNING"} else []

    until("running tasks", states, 60, 0.2)


@contextmanager
def _pipeline(site: Site, plan: Plan, folder: Path) -> Iterator[Pipeline]:
    name = f"f{plan.seed:x}"
    file = folder / f"{name}.toml"
    pipeline = Pipeline(name, file, site.addresses, site.source, site.destination, plan.settings)
    yield pipeline
    pipeline.remove()
    for client in (site.source, site.destination):
        client.drop_database(name)


def describe(plan: Plan) -> dict[str, object]:
    """What a run was to be, for the JSON."""
    return {"seed": plan.seed, "strikes": [strike.pair for strike in plan.strikes]}
