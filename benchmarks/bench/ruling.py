"""`rules`: what rules cost the source connector, in the first copy and in a stream of updates, against none."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from benchmarks.bench import load
from benchmarks.bench.copying import copy
from benchmarks.bench.measured import (
    BROKER,
    SOURCE,
    WORKER,
    Client,
    Run,
    await_fact,
    logged,
    processor,
    used_since,
)
from benchmarks.bench.pairs import pairs
from benchmarks.bench.report import BASE, Found, Goal, Part, at_most, told
from benchmarks.bench.sides import COLLECTION, DATABASE, NAMESPACE, Settings, is_streaming, way
from towpath import stack as embedded
from towpath.clients.mongo.replica_set import operation_time

_FIELDS = f"{BASE}, three rules"
_FILTER, _CHANGING = f"{BASE}, a filter", f"{BASE}, a filter on the field that changes"
#: What is one rule in the pipeline file, as inline tables. The filters match every document.
_RULES = {
    BASE: "",
    _FIELDS: 'drop = ["address.street"], hash = {owner = "hmac"}, set = {picture = "redacted"}',
    _FILTER: """only = '{"number": {"$gte": 0}}'""",
    _CHANGING: """only = '{"weight": {"$gte": 0}}'""",
}


def bench(stack: embedded.Stack, *, documents: int, threads: int, repetitions: int, seed: int) -> Found:
    key = stack.directory.resolve() / "hash.key"
    key.write_text("0123456789abcdef" * 4)
    key.chmod(0o600)

    def settings(side: str) -> Settings:
        rules = {"rules": f'[{{collections = "{NAMESPACE}", {_RULES[side]}}}]'} if _RULES[side] else {}
        keys = {"hash_key_file": f'"{key}"'} if side == _FIELDS else {}
        return Settings(threads=threads, collections=rules | keys)

    def copied(name: str, side: str, warming: bool) -> Run:
        return replace(copy(stack, name, BASE, documents, settings(side)), side=side)

    def streamed(name: str, side: str, warming: bool) -> Run:
        return replace(_streamed(stack, name, documents, replace(settings(side), copy=False)), side=side)

    with Client(stack.source) as client:
        load.fill(client[DATABASE][COLLECTION], seed, documents)
    copies = pairs("rules", [BASE, _FIELDS, _FILTER], repetitions, copied)
    streams = pairs("rules-stream", [*_RULES], repetitions, streamed)
    parts = [
        Part(f"first copy of {documents:,} documents of 0.9 KB into the log", "document", copies),
        Part(f"{documents:,} updates of one field from a backlog into the log", "change", streams),
    ]
    return Found(parts, list(_goals(parts[0].medians(), parts[1].medians())))


def _streamed(stack: embedded.Stack, name: str, documents: int, settings: Settings) -> Run:
    """Updates that wait in the oplog, only the source connector running; as `copying.copy`."""
    with way(stack, name, BASE, settings) as it, Client(stack.source) as source:
        it.start(it.source)
        await_fact("the stream", lambda: is_streaming(it.connect, it.source))
        it.stop_source()
        source[DATABASE][COLLECTION].update_many({}, {"$inc": {"weight": 1}})
        before, begun = processor(stack, SOURCE, WORKER, BROKER), {place: end for place, (_, end) in it.ends().items()}
        it.connect.resume(it.source)
        it.await_captured(operation_time(source))
        cpu = used_since(stack, before)
        it.stop_source()
        found = logged(it.topics, begun)
    if found.records != documents:
        raise ValueError(f"{found.records:,} records in the log for {documents:,} updates")
    return Run(BASE, documents, found.seconds, cpu)


def _goals(copied: Mapping[str, Mapping[str, float]], streamed: Mapping[str, Mapping[str, float]]) -> Iterator[Goal]:
    number = f"{WORKER}: CPU µs/document"
    more = copied[_FIELDS][number] - copied[BASE][number]
    yield at_most("Connect's CPU for three rules in the copy, per document of 0.9 KB", more, 4, "µs")
    number = f"{WORKER}: CPU µs/change"
    for side in (_FIELDS, _FILTER, _CHANGING):
        more = streamed[side][number] - streamed[BASE][number]
        yield told(f"Connect's CPU in the stream, {side.partition(', ')[2]}", f"{more:+.1f} µs a change")
