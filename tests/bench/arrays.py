"""`arrays`: what it costs when devices push readings of 100 bytes into documents that grow; by hop and by process.

Documents that hold 1,800 readings already, the pushes as a backlog and at a pace; arrays that are capped at 1,000,
where the server itself logs the whole array; and a document that grows from nothing to 3,600.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from random import Random
from typing import Any

import bson
from pymongo import UpdateOne

from tests.bench import hops, load
from tests.bench.measured import PROCESSES, Client, Run, await_fact, last_write, logged, newest, processor, used_since
from tests.bench.pairs import in_turn, say
from tests.bench.report import Found, Goal, Part, at_least, at_most, told
from tests.bench.sides import COLLECTION, DATABASE, NAMESPACE, Settings, Side, Way, is_streaming, way
from tests.support import oracle, raw
from towpath import stack as embedded
from towpath.kafka.topics import Place
from towpath.mongo.client import operation_time

READING = len(bson.encode(load.reading(Random(0), 0)))
SERIALIZED = "serialized record"
_SIDES: tuple[Side, ...] = ("towpath", "stock")
_FULL = 3600
_TICK = 0.5  # seconds
_Medians = Mapping[str, Mapping[str, float]]


@dataclass(frozen=True, slots=True)
class Case:
    """Devices whose documents hold `length` readings push `pushes` more each; `options` go beside `$each`.

    With a `tick` (seconds) they push at that pace while capture runs, without one before it goes on.
    """

    name: str
    length: int
    devices: int
    pushes: int
    options: Mapping[str, Any] = field(default_factory=dict)
    tick: float = 0


def bench(
    stack: embedded.Stack, *, devices: int, pushes: int, length: int, cap: int, steps: int, schemas: int, seed: int
) -> Found:
    cases = {
        f"a backlog of pushes of {READING} bytes into documents of {length:,} readings": Case(
            "long", length, devices, pushes
        ),
        f"a backlog of pushes of {READING} bytes into arrays capped at {cap:,} readings": Case(
            "capped", cap, devices, pushes, {"$slice": -cap}
        ),
        f"pushes of {READING} bytes into documents of {length:,} readings, {devices} every {_TICK} s": Case(
            "live", length, devices, pushes // 4 + 1, tick=_TICK
        ),
    }
    for side in _SIDES:
        _case(stack, Case("warm-up", 100, 4, 25), side, seed, schemas)
    parts = []
    for turn, (title, case) in enumerate(cases.items()):
        runs = [_case(stack, case, side, seed, schemas) for side in in_turn(_SIDES, turn)]
        parts.append(Part(title, "push", runs, rated=False))
    growth = {side: _growing(stack, side, steps, seed, schemas) for side in in_turn(_SIDES, 1)}
    array = len(bson.encode({"readings": [load.reading(Random(0), n) for n in range(cap)]}))
    goals = _goals(*(part.medians() for part in parts), array=array)
    return Found(parts, goals, _notes(length + pushes, schemas), {"growth": growth, "reading": READING})


def _notes(length: int, schemas: int) -> list[str]:
    return [
        "All that moved, divided by the pushes. Serialized record: key, value and headers, before compression. The"
        " producers of both sides compress with lz4; Kafka's default is no compression.",
        "A backlog was in the source's oplog when capture went on, so that the sink had the pushes in batches."
        " A transaction's own bytes are shared by its batch, and pushes into one document are folded: with fewer pushes"
        " in a batch the destination's oplog holds more bytes for each.",
        "Stock looks an updated document up when it reads the change; in a backlog that is the document after its last"
        f" push ({length:,} readings, or the cap). So most of its replaces change nothing, its destination oplog"
        " tells of those few that do, and no rate can be told. CPU includes the start of the source's task. The third"
        " table has neither.",
        "Stock was given max.request.size and max.queue.size.in.bytes as Towpath has them; with the defaults its"
        f" records of long documents are refused. JsonConverter with schemas.enable={'true' if schemas else 'false'}.",
    ]


def _case(stack: embedded.Stack, case: Case, side: Side, seed: int, schemas: int) -> Run:
    with ExitStack() as opened:
        source, destination = (opened.enter_context(Client(uri)) for uri in (stack.source, stack.destination))
        for client in (source, destination):
            client.drop_database(DATABASE)
        documents, random = source[DATABASE][COLLECTION], Random(seed)
        for number in range(case.devices):
            documents.insert_one(load.device(random, number, case.length))
        it = opened.enter_context(way(stack, f"arrays-{case.name}-{side}", side, Settings(schemas=bool(schemas))))
        _copied(it, destination[DATABASE][COLLECTION], case.devices)
        run = _pushed(stack, it, case, source, destination, random)
        _same(stack, it.side, case)
    say(f"arrays: {case.name}: {side}: {run.items:,} pushes")
    return run


def _copied(it: Way, documents: raw.Documents, count: int) -> None:
    it.start(it.source, it.sink)
    await_fact("the end of the copy", lambda: is_streaming(it.connect, it.source))
    await_fact(f"{count} documents at the destination", lambda: documents.count_documents({}) == count)


def _pushed(stack: embedded.Stack, it: Way, case: Case, source: Client, destination: Client, random: Random) -> Run:
    """A backlog is there before anything is counted; else the devices push while it is.

    The time is that to the last write, from the first append to the log, or from the first push at a pace.
    """
    documents = source[DATABASE][COLLECTION]
    if not case.tick:
        it.stop_source()
        it.await_applied()
        _push(documents, case, random)
    starts = {place: end for place, (_, end) in it.ends().items()}
    begun = time.time()
    after, counted, cpu = newest(destination), hops.count(stack, it, source, destination), processor(stack, *PROCESSES)
    if case.tick:
        _push(documents, case, random)
    else:
        it.connect.resume(it.source)
    it.await_captured(operation_time(source))
    it.await_applied()
    used = used_since(stack, cpu)
    moved = hops.since(counted, stack, it, source, destination)
    log, pushes = logged(it.topics, starts), case.devices * case.pushes
    if log.records != pushes:
        raise ValueError(f"{it.side}: {log.records:,} records in the log for {pushes:,} pushes")
    figures = {f"{SERIALIZED} B/push": log.weight / pushes} | {f"{hop} B/push": n / pushes for hop, n in moved.items()}
    seconds = last_write(destination, DATABASE, after) - (begun if case.tick else log.began)
    return Run(it.side, pushes, seconds, used, figures)


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


def _growing(stack: embedded.Stack, side: Side, steps: int, seed: int, schemas: int) -> list[tuple[int, float]]:
    """(length, bytes of the record of one push) while a document grows: at each step many readings at once, then one.

    Every step waits until it is in the log, so that what stock looks up is the document as it was at that length.
    """
    with ExitStack() as opened:
        source, destination = (opened.enter_context(Client(uri)) for uri in (stack.source, stack.destination))
        for client in (source, destination):
            client.drop_database(DATABASE)
        documents, random = source[DATABASE][COLLECTION], Random(seed)
        documents.insert_one(load.device(random, 0, 1))
        it = opened.enter_context(way(stack, f"arrays-growing-{side}", side, Settings(schemas=bool(schemas))))
        _copied(it, destination[DATABASE][COLLECTION], 1)
        starts, lengths, length = {place: end for place, (_, end) in it.ends().items()}, [], 1
        for step in range(1, steps + 1):
            many = [load.reading(random, n) for n in range(length, _FULL * step // steps - 1)]
            length += len(many)
            for change in ({"$push": {"readings": {"$each": many}}}, load.push(random, length, {})):
                before = it.ends()
                documents.update_one({}, change)
                _await_more(it, before)
            lengths.append(length)
            length += 1
        found = [size for records in logged(it.topics, starts).sizes.values() for _, size in records]
        it.await_applied()
    return list(zip(lengths, map(float, found[1::2]), strict=True))


def _await_more(it: Way, before: dict[Place, tuple[int, int]]) -> None:
    """Return once one more record than `before` is in the log."""
    await_fact("the push in the log", lambda: it.ends() != before)


def _goals(long: _Medians, capped: _Medians, live: _Medians, *, array: int) -> list[Goal]:
    serialized, stored, oplog = f"{SERIALIZED} B/push", f"{hops.STORED} B/push", f"{hops.OPLOG} B/push"
    towpath, stock, mine = long["towpath"], long["stock"], capped["towpath"]
    return [
        at_least("serialized bytes of a push, stock against Towpath", stock[serialized] / towpath[serialized], 500),
        at_most("destination oplog of a push against the reading", towpath[oplog] / READING, 5),
        told(
            "the same at a pace",
            f"{live['towpath'][oplog] / READING:.3g} times; stock {live['stock'][oplog] / READING:,.0f}",
        ),
        at_most("serialized bytes of a capped push against the array's BSON", mine[serialized] / array, 1.1),
        told("on disk, lz4: a push into a long document", f"{towpath[stored]:,.0f} bytes; stock {stock[stored]:,.0f}"),
        told(
            "on disk, lz4: a push into a capped array",
            f"{mine[stored]:,.0f} bytes; stock {capped['stock'][stored]:,.0f}; the array has {array:,}",
        ),
    ]
