"""Which chunks of a compacted log no value needs: without them, and with the cleaner, no document is another one."""

from __future__ import annotations

import re
import struct
from collections.abc import Generator, Sequence
from typing import Any, NamedTuple

import bson
import pytest
from bson import Binary, Int64
from hypothesis import given
from hypothesis import strategies as st

from tests.support.memory_topics import MemoryTopics
from towpath.config.pipeline import Log
from towpath.history.chunks import DECIDED_MS, Chunked, is_due, sweep
from towpath.history.unprotected import Part, summary
from towpath.log.records import Chunks, contract_headers, in_short, is_chunk, is_key, is_update

A, B = (bson.encode({"_id": Int64(number)}) for number in (1, 2))
DROP = bson.encode({"ddl": "1:1/0/d.c"})
HOUR = 3_600_000


class Record(NamedTuple):
    key: bytes
    value: bytes | None


def named(number: int, count: int = 2, *, document: bool = True) -> Chunks:
    return Chunks(number.to_bytes(16, "big"), count, 90, document)


def value(chunks: Chunks) -> bytes:
    """As `Chunks.java` writes it."""
    fields = {"of": Binary(chunks.id), "count": chunks.count, "size": chunks.size, "document": chunks.is_document}
    return bson.encode({"$chunks": fields})


def chunk_key(document: bytes, chunks: Chunks, number: int) -> bytes:
    """The document's key with two fields before it; the driver would write the `_id` first."""
    fields = bson.encode({"chunk": number, "of": Binary(chunks.id)})[4:-1] + document[4:]
    return struct.pack("<i", len(fields) + 4) + fields


def cut(document: bytes, chunks: Chunks) -> list[Record]:
    parts = [Record(chunk_key(document, chunks, n), bson.encode({"$chunk": b"x"})) for n in range(chunks.count)]
    return [*parts, Record(document, value(chunks))]


def whole(document: bytes, number: int) -> Record:
    return Record(document, bson.encode({**bson.decode(document), "n": number}))


def taken(records: Sequence[Record]) -> Chunked:
    found = Chunked()
    for time_ms, record in enumerate(records):
        found.take(time_ms, record.key, record.value)
    return found


def test_a_value_in_chunks_is_a_document_or_an_update_as_it_says() -> None:
    document, update = value(named(1)), value(named(2, document=False))
    assert (is_update(document), is_update(update)) == (False, True)
    assert Chunks.named_in(document) == named(1)
    assert in_short(document, canonical=False) == "90 bytes in 2 chunks"
    fields = {"of": named(1).id, "count": 2, "size": 90, "document": True}
    assert Chunks.named_in(bson.encode({"$chunks": fields})) == named(1)
    wrong = [{"of": -1}, {"of": 2**62}, {"of": [300]}, {"of": b"x"}, {"count": 0}, {"count": 91}, {"size": "b"}]
    wrong += [{"size": -5}, {"document": 1}, {"count": True}]
    others = [bson.encode({"$chunks": fields | each}) for each in wrong]
    for other in (*others, None, b"", A, bson.encode({"$chunks": 1}), bson.encode({"$chunks": {}}), document[:30]):
        assert Chunks.named_in(other) is None
        assert other is None or in_short(other, canonical=False) is None
    key = chunk_key(A, named(1), 1)
    assert is_chunk(key) and not is_key(key) and Chunks.id_in(key) == named(1).id
    assert not any(map(is_chunk, (A, DROP, b"", None)))


def test_chunks_of_the_last_document_and_of_updates_behind_it_are_needed() -> None:
    old, new, update = named(1), named(2), named(3, document=False)
    records = [*cut(A, old), *cut(B, named(4)), *cut(A, new), *cut(A, update)]
    assert taken(records).unneeded(0) == [chunk_key(A, old, n) for n in (0, 1)]
    gone = [*records, Record(A, None)]
    assert taken(gone).unneeded(0) == [chunk_key(A, each, n) for each in (old, new, update) for n in (0, 1)]
    assert len(taken([*records, Record(DROP, bson.encode({"ddl": "drop"}))]).unneeded(0)) == 8


def test_what_a_transaction_may_still_need_is_not_judged() -> None:
    """The record that names these chunks may be committed, and behind what can be read."""
    records = cut(A, named(1))[:-1]
    assert taken(records).unneeded(10) == []
    assert len(taken([*records, *[whole(B, 1)] * 9]).unneeded(10)) == 1


def test_what_only_looks_like_a_chunk_is_left_alone() -> None:
    foreign = [
        chunk_key(A, named(1), 0)[:11],
        *(bson.encode({"chunk": 1} | each) for each in ({}, {"of": None}, {"of": -1})),
    ]
    assert all(map(is_chunk, foreign))
    assert taken([Record(key, b"x") for key in foreign]).unneeded(0) == []


def test_a_chunk_with_a_tombstone_is_gone() -> None:
    records = [*cut(A, named(1)), whole(A, 1)]
    records += [Record(key, None) for key in taken(records).unneeded(0)]
    assert taken(records).chunks == {}


class Held(NamedTuple):
    """A document that a log adds up to."""

    base: bytes
    updates: tuple[bytes, ...] = ()


def fold(log: Sequence[Record]) -> dict[bytes, Held | None]:
    """What a reader makes of a log: None where the chunks of the last value are missing."""
    chunks: set[bytes] = set()
    held: dict[bytes, Held | None] = {}
    for key, record in log:
        if is_chunk(key):
            chunks.add(key) if record is not None else chunks.discard(key)
            continue
        found = Chunks.named_in(record)
        is_there = found is None or all(chunk_key(key, found, n) in chunks for n in range(found.count))
        before = held.get(key)
        if record is None:
            held.pop(key, None)
        elif not is_update(record):
            held[key] = Held(record) if is_there else None
        elif before is not None:
            held[key] = Held(before.base, (*before.updates, record)) if is_there else None
    return held


def cleaned(log: Sequence[Record], border: int) -> list[Record]:
    """Kafka's cleaner keeps the last record of each key in what it cleans; the rest it does not touch."""
    last = {record.key: offset for offset, record in enumerate(log[:border])}
    return [record for offset, record in enumerate(log) if offset >= border or last[record.key] == offset]


@given(st.lists(st.tuples(st.sampled_from("wdcus"), st.sampled_from((A, B)), st.integers(0, 100)), max_size=25))
def test_the_log_without_unneeded_chunks_has_the_same_documents_wherever_the_cleaner_stops(
    steps: list[tuple[str, bytes, int]],
) -> None:
    log: list[Record] = []
    for number, (step, document, border) in enumerate(steps):
        match step:
            case "w":
                log.append(whole(document, number))
            case "d":
                log.append(Record(document, None))
            case "c":
                log += cut(document, named(number))
            case "u":  # and the document that compaction has read again
                log += cut(document, named(number, document=False)) + cut(document, named(100 + number, 3))
            case "s":
                log += [Record(key, None) for key in taken(log).unneeded(0)]
        before = fold(log)
        assert None not in before.values()
        log = cleaned(log, border * len(log) // 100)
        assert fold(log) == before
    log += [Record(key, None) for key in taken(log).unneeded(0)]
    log = cleaned(log, len(log))
    needed = {
        chunk_key(key, found, n)
        for key, record in log
        if (found := Chunks.named_in(record))
        for n in range(found.count)
    }
    assert {key for key, record in log if is_chunk(key) and record is not None} == needed


@pytest.mark.parametrize(
    ("has_chunks", "swept", "due"), [(False, None, False), (True, None, True), (True, 97, False), (True, 95, True)]
)
def test_a_partition_with_chunks_is_read_from_its_beginning_every_two_lags(
    has_chunks: bool, swept: int | None, due: bool
) -> None:
    part = Part(has_chunks=has_chunks, swept=None if swept is None else swept * HOUR)
    log = Log(compact=True, compaction_lag="2h")  # type: ignore[arg-type]  # as the file has it
    assert is_due(part, log, 100 * HOUR) is due


def test_that_a_partition_has_chunks_is_known_after_a_restart() -> None:
    part = Part()
    for offset, (key, record) in enumerate(cut(A, named(1))):
        part.take(offset, offset, key, record)
    assert part.has_chunks and part.dirty == {}
    part.swept = 7
    known = summary(part.summary(1).written())
    assert known is not None and (known.has_chunks, known.swept) == (True, 7)
    fresh = Part(quiet=True)
    fresh.take(0, 0, chunk_key(A, named(1), 0), None)
    assert not fresh.has_chunks, "a tombstone"
    assert not fresh.quiet, "its segment has to be closed"


@pytest.mark.parametrize(("left", "meanwhile", "then"), [(0, False, False), (3, False, True), (0, True, True)])
def test_chunks_that_come_during_a_sweep_are_not_forgotten(left: int, meanwhile: bool, then: bool) -> None:
    part = Part(has_chunks=True)
    if meanwhile:
        part.take(0, 0, chunk_key(A, named(1), 0), b"x")
    part.swept_at(7, left)
    assert (part.has_chunks, part.swept) == (then, 7)


def test_a_tombstone_has_the_header_that_readers_of_the_log_know(monkeypatch: pytest.MonkeyPatch) -> None:
    """The version and the cluster time are those of the partition's last record."""
    topics, sent = MemoryTopics(**{"shop.d.c": 1}), list[Any]()
    monkeypatch.setattr(topics, "send", lambda topic, records: sent.extend((topic, record) for record in records))
    topics.write("shop.d.c", *((*record, 5) for record in cut(A, named(1))))
    topics.write("shop.d.c", (*whole(A, 2), 7), at_ms=1_000 + DECIDED_MS)
    assert run_to_end(sweep(topics, ("shop.d.c", 0))) == 0
    assert [(topic, record["key"], record.get("value")) for topic, record in sent] == [
        ("shop.d.c", chunk_key(A, named(1), number), None) for number in range(2)
    ]
    for _, record in sent:
        header = record["headers"]["v"]
        assert re.fullmatch(r"1 d 7:1 \d{13}", header)
        found = contract_headers(topics.message("shop.d.c", 0, 9, record["key"], None, [("v", header.encode())]))
        assert list(found.values()) == header.split(" ")
        assert (found["op"], found["t"]) == ("d", "7:1")


def run_to_end(steps: Generator[None, None, int]) -> int:
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return int(end.value)
