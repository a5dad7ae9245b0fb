"""`arrays`: what it costs when devices push readings of 100 bytes into documents that grow; by hop and by process.

Documents that hold 1,800 readings already, the pushes as a backlog and at a pace; arrays that are capped at 1,000,
where the server itself logs the whole array, with splices and without; a document that grows from nothing to 3,600.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

import bson
from pymongo import UpdateOne

from benchmarks.bench import hops, load
from benchmarks.bench.measured import (
    PROCESSES,
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
from benchmarks.bench.report import Found, Goal, Part, at_least, at_most, told
from benchmarks.bench.sides import COLLECTION, DATABASE, NAMESPACE, Settings, Side, Way, is_streaming, way
from tests.support import oracle, raw
from towpath import stack as embedded
from towpath.clients.kafka.topics import Place
from towpath.clients.mongo.replica_set import operation_time

READING = len(bson.encode(load.reading(Random(0), 0)))
SERIALIZED, WRITES = "serialized record", "writes/document"
_WHOLE = "towpath without splices"
_SIDES: Mapping[str, tuple[Side, Mapping[str, Any]]] = {
    "towpath": ("towpath", {}),
    _WHOLE: ("towpath", {"splice_cache": 0}),
    "stock": ("stock", {}),
}
_TWO, _OURS = ("towpath", "stock"), ("towpath", _WHOLE)
_FULL = 3600
_CONNECT_US = 504  # a quarter of what whole arrays cost before splices, on a worker that was not warm
_TICK = 0.5  # seconds
_Medians = Mapping[str, Mapping[str, float]]


@dataclass(frozen=True, slots=True)
class Case:
    """Devices whose documents hold `length` readings push `pushes` more each; `options` go beside `$each`.

    With a `tick` (seconds) they push at that pace while capture runs, without one before it continues. Where the sink
    is `paused`, capture runs while they push as fast as they can, and the sink continues when all is in the log.
    `known`: one push of each comes before all that is counted, so that the source remembers the arrays.
    """

    name: str
    length: int
    devices: int
    pushes: int
    options: Mapping[str, Any] = field(default_factory=dict)
    tick: float = 0
    known: bool = False
    paused: bool = False
    sides: tuple[str, ...] = _TWO

    @property
    def is_backlog(self) -> bool:
        """Whether all pushes are in the source's oplog when capture continues."""
        return not self.tick and not self.paused


def bench(
    stack: embedded.Stack,
    *,
    devices: int,
    pushes: int,
    length: int,
    cap: int,
    capped: int,
    steps: int,
    schemas: int,
    seed: int,
) -> Found:
    into_capped, options = f"pushes of {READING} bytes into arrays capped at {cap:,} readings", {"$slice": -cap}
    cases = {
        f"a backlog of pushes of {READING} bytes into documents of {length:,} readings": Case(
            "long", length, devices, pushes
        ),
        f"a backlog of {into_capped}": Case("capped", cap, devices, pushes, options, sides=tuple(_SIDES)),
        f"{into_capped}, as fast as they can be pushed; the sink continues when all are in the log": Case(
            "capped-paused", cap, devices, capped, options, known=True, paused=True, sides=_OURS
        ),
        f"{into_capped}, {devices} every {_TICK} s": Case(
            "capped-live", cap, devices, pushes // 4 + 1, options, _TICK, known=True, sides=_OURS
        ),
        f"pushes of {READING} bytes into documents of {length:,} readings, {devices} every {_TICK} s": Case(
            "live", length, devices, pushes // 4 + 1, tick=_TICK
        ),
    }
    for side in _SIDES:
        _case(stack, Case("warm-up", 100, 4, 25), side, seed, schemas)
    parts = []
    for turn, (title, case) in enumerate(cases.items()):
        if case.paused:  # by far the most events: a worker that is not warm compiles for a third of its CPU then
            for side in case.sides:
                _case(stack, replace(case, name="warm-up"), side, seed, schemas)
        runs = [_case(stack, case, side, seed, schemas) for side in in_turn(case.sides, turn)]
        parts.append(Part(title, "push", runs, rated=False))
    growth = {side: _growing(stack, side, steps, seed, schemas) for side in _TWO}
    growth |= {f"{side}, capped": _growing(stack, side, steps, seed, schemas, capped=True) for side in _OURS}
    array = len(bson.encode({"readings": [load.reading(Random(0), n) for n in range(cap)]}))
    goals = _goals(*(part.medians() for part in parts), array=array)
    return Found(parts, goals, _notes(length + pushes, schemas), {"growth": growth, "reading": READING})


def _notes(length: int, schemas: int) -> list[str]:
    return [
        "All that moved, divided by the pushes. Serialized record: key, value and headers, before compression. The"
        " producers of both sides compress with lz4; Kafka's default is no compression.",
        "A backlog was in the source's oplog when capture continued, so that the sink had the pushes in batches."
        " A transaction's own bytes are shared by its batch, and pushes into one document are folded: with fewer pushes"
        " in a batch the destination's oplog holds more bytes for each.",
        "Stock looks an updated document up when it reads the change; in a backlog that is the document after its last"
        f" push ({length:,} readings, or the cap). So most of its replaces change nothing, its destination oplog"
        " tells of those few that do, and no rate can be told. CPU includes the start of the source's task. The last"
        " table has neither.",
        "Towpath's source sends the first change of a capped array as the whole array, and splices after it, until its"
        " task ends. In the backlog the first push of each device is such a one; in the two tables after it, none is.",
        "Stock was given max.request.size and max.queue.size.in.bytes as Towpath has them; with the defaults its"
        f" records of long documents are refused. JsonConverter with schemas.enable={'true' if schemas else 'false'}.",
    ]


def _case(stack: embedded.Stack, case: Case, side: str, seed: int, schemas: int) -> Run:
    with ExitStack() as opened:
        source, destination = (opened.enter_context(Client(uri)) for uri in (stack.source, stack.destination))
        for client in (source, destination):
            client.drop_database(DATABASE)
        documents, random = source[DATABASE][COLLECTION], Random(seed)
        for number in range(case.devices):
            documents.insert_one(load.device(random, number, case.length))
        it = opened.enter_context(_way(stack, f"arrays-{case.name}", side, schemas))
        _copied(it, destination[DATABASE][COLLECTION], case.devices)
        run = replace(_pushed(stack, it, case, source, destination, random), side=side)
        _same(stack, it.side, case)
    say(f"arrays: {case.name}: {side}: {run.items:,} pushes")
    return run


def _way(stack: embedded.Stack, name: str, side: str, schemas: int) -> AbstractContextManager[Way]:
    engine, capture = _SIDES[side]
    settings = Settings(schemas=bool(schemas), capture=capture)
    return way(stack, f"{name}-{side}".replace(" ", "-"), engine, settings)


def _copied(it: Way, documents: raw.Documents, count: int) -> None:
    it.start(it.source, it.sink)
    await_fact("the end of the copy", lambda: is_streaming(it.connect, it.source))
    await_fact(f"{count} documents at the destination", lambda: documents.count_documents({}) == count)


def _pushed(stack: embedded.Stack, it: Way, case: Case, source: Client, destination: Client, random: Random) -> Run:
    """A backlog is there before anything is counted; else the devices push while it is.

    The time is that to the last write, from the first append to the log, or else from the first push.
    """
    documents = source[DATABASE][COLLECTION]
    if case.known:
        _push(documents, replace(case, pushes=1), random)
        it.await_captured(operation_time(source))
        it.await_applied()
    if case.is_backlog:
        it.stop_source()
        it.await_applied()
        _push(documents, case, random)
    if case.paused:
        it.pause_sink()
    starts = {place: end for place, (_, end) in it.ends().items()}
    begun = time.time()
    after, counted, cpu = newest(destination), hops.count(stack, it, source, destination), processor(stack, *PROCESSES)
    if case.is_backlog:
        it.connect.resume(it.source)
    else:
        _push(documents, case, random)
    it.await_captured(operation_time(source))
    if case.paused:
        it.connect.resume(it.sink)
    it.await_applied()
    used = used_since(stack, cpu)
    moved = hops.since(counted, stack, it, source, destination)
    log, pushes = logged(it.topics, starts), case.devices * case.pushes
    if log.records != pushes:
        raise ValueError(f"{it.side}: {log.records:,} records in the log for {pushes:,} pushes")
    numbers = {f"{SERIALIZED} B/push": log.weight / pushes} | {f"{hop} B/push": n / pushes for hop, n in moved.items()}
    numbers[WRITES] = hops.writes(destination, after, NAMESPACE) / case.devices
    seconds = last_write(destination, DATABASE, after) - (log.began if case.is_backlog else begun)
    return Run(it.side, pushes, seconds, used, numbers)


def _push(documents: raw.Documents, case: Case, random: Random) -> None:
    """Every device pushes a reading, tick by tick."""
    start = time.monotonic()
    for tick in range(case.pushes):
        time.sleep(max(0.0, start + tick * case.tick - time.monotonic()))
        some = [(load.device_id(n), load.push(random, case.length + tick, case.options)) for n in range(case.devices)]
        documents.bulk_write([UpdateOne({"_id": device}, change) for device, change in some], ordered=False)


def _same(stack: embedded.Stack, side: Side, case: Case) -> None:
    """Towpath promises equal bytes; of stock, which changes types, only the lengths are compared."""
    if side != "stock":
        oracle.assert_same(stack.source, stack.destination, [NAMESPACE], at_least=case.devices)
        return
    length = {"$project": {"length": {"$size": "$readings"}}}
    found = []
    for uri in (stack.source, stack.destination):
        with Client(uri) as client:
            found.append({one["_id"]: one["length"] for one in client[DATABASE][COLLECTION].aggregate([length])})
    if found[0] != found[1]:
        raise ValueError(f"stock: the arrays of {COLLECTION} are not as long at the destination as at the source")


def _growing(
    stack: embedded.Stack, side: str, steps: int, seed: int, schemas: int, *, capped: bool = False
) -> list[tuple[int, float]]:
    """(length, bytes of the record of one push) while a document grows: at each step many readings at once, then one.

    Of a capped array, it is the second of two that leave the length as it is. Every step waits until it is in the log,
    so that what stock looks up is the document as it was at that length.
    """
    with ExitStack() as opened:
        source, destination = (opened.enter_context(Client(uri)) for uri in (stack.source, stack.destination))
        for client in (source, destination):
            client.drop_database(DATABASE)
        documents, random = source[DATABASE][COLLECTION], Random(seed)
        documents.insert_one(load.device(random, 0, 1))
        it = opened.enter_context(_way(stack, "arrays-capped-growing" if capped else "arrays-growing", side, schemas))
        _copied(it, destination[DATABASE][COLLECTION], 1)
        starts, lengths, length = {place: end for place, (_, end) in it.ends().items()}, [], 1
        for step in range(1, steps + 1):
            many = [load.reading(random, n) for n in range(length, _FULL * step // steps - 1)]
            length += len(many)
            one = load.push(random, length, {"$slice": -length} if capped else {})
            for change in ({"$push": {"readings": {"$each": many}}}, *[one] * (2 if capped else 1)):
                before = it.ends()
                documents.update_one({}, change)
                _await_more(it, before)
            lengths.append(length)
            length += not capped
        found = [size for records in logged(it.topics, starts).sizes.values() for _, size in records]
        it.await_applied()
    every = len(found) // steps
    return list(zip(lengths, map(float, found[every - 1 :: every]), strict=True))


def _await_more(it: Way, before: dict[Place, tuple[int, int]]) -> None:
    """Return once one more record than `before` is in the log."""
    await_fact("the push in the log", lambda: it.ends() != before)


def _goals(
    long: _Medians, capped: _Medians, paused: _Medians, paced: _Medians, live: _Medians, *, array: int
) -> list[Goal]:
    serialized, stored, oplog = f"{SERIALIZED} B/push", f"{hops.STORED} B/push", f"{hops.OPLOG} B/push"
    written, connect = f"{hops.WRITTEN} B/push", f"{WORKER}: CPU µs/push"
    towpath, stock, splices, whole = long["towpath"], long["stock"], paused["towpath"], paused[_WHOLE]
    return [
        at_least("serialized bytes of a push, stock against Towpath", stock[serialized] / towpath[serialized], 500),
        at_most("destination oplog of a push against the reading", towpath[oplog] / READING, 5),
        told(
            "the same at a pace",
            f"{live['towpath'][oplog] / READING:.3g} times; stock {live['stock'][oplog] / READING:,.0f}",
        ),
        at_most("serialized bytes of a push into a capped array", splices[serialized], 500, "bytes"),
        at_most("Connect's CPU for it, on a warm worker", splices[connect], _CONNECT_US, "µs"),
        told("the same against whole arrays", f"{splices[connect] / whole[connect]:.2g} times"),
        at_most("bytes from the sink to the destination for it, at a pace", paced["towpath"][written], 1024, "bytes"),
        at_most("writes of a document for a backlog of them in the log", splices[WRITES], 1, "writes"),
        told("on disk, lz4: a push into a long document", f"{towpath[stored]:,.0f} bytes; stock {stock[stored]:,.0f}"),
        told(
            "on disk, lz4: a push into a capped array",
            f"{splices[stored]:,.0f} bytes; whole arrays {whole[stored]:,.0f}, stock {capped['stock'][stored]:,.0f};"
            f" the array has {array:,}",
        ),
    ]
