"""Out of the log into the destination: `updates`, `bulking`, `write-concern`.

The log is filled once, by MongoSource, while no sink runs. Then one sink connector after the other reads all of it,
each under a separate name, into a destination that holds what it held before the first change.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from confluent_kafka import ConsumerGroupState
from confluent_kafka.admin import AdminClient

from benchmarks.bench import load
from benchmarks.bench.measured import (
    BROKER,
    DESTINATION,
    WORKER,
    Client,
    Run,
    await_fact,
    last_write,
    logged,
    newest,
    processor,
    used_since,
)
from benchmarks.bench.pairs import in_turn, say
from benchmarks.bench.report import Found, Part, ratios_of, told
from benchmarks.bench.sides import COLLECTION, DATABASE, NAMESPACE, PARTITIONS, Settings, Side, Way, is_streaming, way
from tests.support import oracle, raw
from towpath import stack as embedded
from towpath.clients.mongo.replica_set import operation_time

_COMMANDS = ("insert", "update", "delete", "commitTransaction")


@dataclass(frozen=True, slots=True)
class Sink:
    """One way to read the log: mode, and what differs from the defaults."""

    label: str
    side: Side
    settings: Settings


@dataclass(frozen=True, slots=True)
class Log:
    """A full log: the pipeline that filled it, its records, and how many documents there were before the first."""

    name: str
    way: Way
    records: int
    existing: int
    seed: int


@contextmanager
def full_log(
    stack: embedded.Stack, name: str, seed: int, existing: int, change: Callable[[raw.Documents], None]
) -> Iterator[Log]:
    """Changes of `existing` documents in the log, the source connector stopped."""
    with ExitStack() as open_things:
        client = open_things.enter_context(Client(stack.source))
        documents = client[DATABASE][COLLECTION]
        load.fill(documents, seed, existing)
        it = open_things.enter_context(way(stack, name, "towpath", Settings(copy=False)))
        it.start(it.source)
        await_fact("the beginning of the stream", lambda: is_streaming(it.connect, it.source))
        starts = {place: first for place, (first, _) in it.ends().items()}
        say(f"{name}: filling the log")
        change(documents)
        it.await_captured(operation_time(client))
        it.stop_source()
        yield Log(name, it, logged(it.topics, starts).records, existing, seed)


def drains(stack: embedded.Stack, log: Log, sinks: Sequence[Sink], repetitions: int) -> list[Run]:
    """One sink of each mode to warm up, then all in turn, so many times."""
    runs = []
    turns = [list({sink.side: sink for sink in sinks}.values())]
    turns += [in_turn(sinks, turn) for turn in range(repetitions)]
    for turn, those in enumerate(turns):
        for number, sink in enumerate(those):
            run = drain(stack, log, sink, f"{log.name}-{turn}-{number}")
            say(f"{log.name}: {f'run {turn}' if turn else 'warm-up'} of {sink.label}: {run.per_second:,.0f} a second")
            runs += [run] if turn else []
    return runs


def drain(stack: embedded.Stack, log: Log, sink: Sink, name: str) -> Run:
    """Read the whole log with one sink.

    Time and processor time count from the moment when all of its tasks have their partitions; the time ends with the
    last write that the destination's oplog tells of.
    """
    with Client(stack.destination) as client:
        client.drop_database(DATABASE)
        load.fill(client[DATABASE][COLLECTION], log.seed, log.existing)
        with _sink_of(stack, log, sink, name) as it:
            after = newest(client)
            it.connect.put(it.sink, it.definitions[it.sink])
            _await_assigned(stack.bootstrap, it.sink, sink.settings.tasks)
            before, written, start = processor(stack, WORKER, BROKER, DESTINATION), _written(client), time.time()
            it.await_applied()
            cpu, done = used_since(stack, before), _written(client)
            seconds = last_write(client, DATABASE, after) - start
            it.connect.delete(it.sink)
        oracle.assert_same(stack.source, stack.destination, [NAMESPACE], at_least=1)
    per_record = {key: (done[key] - written[key]) / log.records for key in done}
    return Run(sink.label, log.records, seconds, cpu, per_record)


@contextmanager
def _sink_of(stack: embedded.Stack, log: Log, sink: Sink, name: str) -> Iterator[Way]:
    """A sink like that of a separate pipeline, but for the topics, which are the log's."""
    with way(stack, name, sink.side, sink.settings) as own:
        theirs = log.way.definitions[log.way.sink]
        config = own.definitions[own.sink]
        config["topics.regex"] = theirs["topics.regex"]
        yield Way(own.side, own.connect, own.topics, own.source, own.sink, log.way.names, own.definitions, own.applied)


def _await_assigned(bootstrap: str, sink: str, tasks: int) -> None:
    """Return once the sink's group has as many members as there are tasks, and every partition has one."""
    admin, group = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0}), f"connect-{sink}"

    def assigned() -> bool:
        found = admin.describe_consumer_groups([group])[group].result()
        places = sum(len(member.assignment.topic_partitions) for member in found.members)
        return found.state == ConsumerGroupState.STABLE and len(found.members) == tasks and places == PARTITIONS

    await_fact(f"the partitions of {sink}", assigned, pause=0.02)


def _written(client: Client) -> dict[str, float]:
    """What the server has counted: single writes, and the commands that brought them."""
    status = client.admin.command("serverStatus")
    writes = sum(status["opcounters"][kind] for kind in ("insert", "update", "delete"))
    commands = sum(int(status["metrics"]["commands"][kind]["total"]) for kind in _COMMANDS)
    return {"writes/record": float(writes), "commands/record": float(commands)}


def updates(stack: embedded.Stack, *, documents: int, changes: int, repetitions: int, seed: int) -> Found:
    """`$set` of one field, now and then two."""

    def change(at: raw.Documents) -> None:
        load.update(at, seed, "updates", documents, changes)

    with full_log(stack, "updates", seed, documents, change) as log:
        runs = drains(stack, log, [_TOWPATH, _PLAIN], repetitions)
    return Found([Part(f"{log.records:,} updates of {documents:,} documents", "record", runs)])


def bulking(stack: embedded.Stack, *, documents: int, changes: int, repetitions: int, seed: int) -> Found:
    """Interleaved inserts, updates, pushes, replaces and deletes."""

    def change(at: raw.Documents) -> None:
        load.write(at, load.changes(seed, documents), changes)

    sinks = [_TOWPATH, _UNFOLDED, _PLAIN]
    with full_log(stack, "bulking", seed, documents, change) as log:
        runs = drains(stack, log, sinks, repetitions)
    part = Part(f"{log.records:,} interleaved changes onto {documents:,} documents, from a full log", "record", runs)
    fewer = ratios_of(part.medians())["plain"]["commands/record"]
    return Found([part], [told("commands at the destination, plain mode against Towpath", f"{fewer:,.0f} times")])


def write_concern(stack: embedded.Stack, *, documents: int, changes: int, repetitions: int, seed: int) -> Found:
    """Interleaved changes, by write concern and by number of tasks."""

    def change(at: raw.Documents) -> None:
        load.write_fast(at, load.changes(seed, documents), changes)

    with full_log(stack, "concern", seed, documents, change) as log:
        runs = drains(stack, log, list(_variants()), repetitions)
    part = Part(f"{log.records:,} changes out of the log, by write concern and number of tasks", "record", runs)
    return Found([part], series={"variants": {sink.label: _facts(sink) for sink in _variants()}})


def _variants() -> Iterator[Sink]:
    for side in ("towpath", "plain"):
        for concern in ("1", "majority", "majority+journal"):
            yield _variant(side, concern, 2)
        for tasks in (1, 4):
            yield _variant(side, "majority", tasks)


def _variant(side: Side, concern: str, tasks: int) -> Sink:
    label = f"{side}, {concern}, {tasks} task{'s' if tasks > 1 else ''}"
    return Sink(label, side, Settings(copy=False, concern=concern, tasks=tasks))


def _facts(sink: Sink) -> Mapping[str, str | int]:
    return {"side": sink.side, "concern": sink.settings.concern, "tasks": sink.settings.tasks}


_TOWPATH = Sink("towpath", "towpath", Settings(copy=False))
_UNFOLDED = Sink("towpath without folding", "towpath", Settings(copy=False, sink={"towpath.fold": "false"}))
_PLAIN = Sink("plain", "plain", Settings(copy=False))
