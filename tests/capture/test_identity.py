"""What MongoDB takes for one `_id` is one document, whatever the type of the number in it."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from bson import Decimal128, Int64

from tests.support import bsonbytes as b
from tests.support import log
from tests.support.pipeline import Pipeline

pytestmark = pytest.mark.servers

IDS = 40


def identities(number: int) -> list[Any]:
    """One `_id` to the server, in all its types."""
    forms: list[Any] = [number, float(number), Int64(number), Decimal128(str(number)), Decimal128(f"{number}.00")]
    return [{"n": form, "inner": {"m": [form]}} for form in forms] if number % 2 else forms


def change(pipeline: Pipeline, random: Random, number: int, step: int) -> None:
    """Delete and insert again under another type, replace under another type, or update."""
    documents, identity = pipeline.source("docs"), random.choice(identities(number))
    match random.randrange(4):
        case 0 | 1:
            documents.delete_one({"_id": random.choice(identities(number))})
            documents.insert_one({"_id": identity, "number": number, "step": step})
        case 2:
            documents.replace_one({"_id": identity}, {"_id": identity, "step": step, "number": number})
        case _:
            documents.update_one({"_id": identity}, {"$set": {"step": step, f"new{step}": step}})


@pytest.mark.nightly
def test_a_document_that_returns_under_another_type_of_its_id_keeps_its_order(pipeline: Pipeline, seed: int) -> None:
    random = Random(seed)
    pipeline.source("docs").insert_many([{"_id": identities(n)[0], "number": n} for n in range(IDS)])
    pipeline.deploy()
    pipeline.wait()
    for step in range(20):
        for number in range(IDS):
            change(pipeline, random, number, step)
    pipeline.wait()
    pipeline.assert_same("docs", at_least=IDS)
    assert_one_key_each(pipeline)


def assert_one_key_each(pipeline: Pipeline) -> None:
    """All records of a document have one key and lie on one partition; documents spread over the partitions."""
    keys: dict[int, set[tuple[bytes | None, int]]] = {}
    for record in log.records(pipeline.addresses.bootstrap, pipeline.topic("docs")):
        if record.value is not None and record.contract["op"] in (b"r", b"c"):
            number = int.from_bytes(b.field(record.value, "number").payload, "little")
            keys.setdefault(number, set()).add((record.key, record.partition))
    assert len(keys) == IDS
    assert {number: found for number, found in keys.items() if len(found) != 1} == {}
    assert len({partition for found in keys.values() for _, partition in found}) > 1
