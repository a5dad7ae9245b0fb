"""The code in `docs/design/record.md` does with an update what a server does, and with a splice what the page says."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import bson
import pytest
from bson import Decimal128

from tests.support import oracle, raw
from tests.support.fuzz import cases
from tests.support.pipeline import Pipeline
from tests.support.reference import page_s_apply, value_of
from tests.support.workload import Workload

Document = dict[str, Any]
OPERATIONS = 1500

apply = page_s_apply()


def identity(value: Any) -> Any:
    """What is equal for two `_id`s that the server holds equal."""
    if isinstance(value, dict):
        return tuple((name, identity(inner)) for name, inner in value.items())
    return value.to_decimal() if isinstance(value, Decimal128) else value


@pytest.mark.servers
def test_an_update_gives_the_document_that_the_server_has(pipeline: Pipeline, seed: int) -> None:
    documents, kinds = pipeline.source("docs"), Counter[str]()
    held: dict[Any, Document] = {}
    changes = Workload(seed, [documents])
    with documents.watch(batch_size=1000) as stream:
        changes.fill()
        changes.run(OPERATIONS)
        documents.insert_one({"_id": "end"})
        for event in stream:
            key, kind = identity(event["documentKey"]["_id"]), event["operationType"]
            kinds[kind] += 1
            match kind:
                case "insert" | "replace":
                    held[key] = event["fullDocument"]
                case "update":
                    apply(held[key], value_of(event["updateDescription"]))
                case "delete":
                    del held[key]
            if event["documentKey"]["_id"] == "end":
                break
    print(changes.statistics, kinds)
    assert kinds["update"] > OPERATIONS / 3
    stored = {identity(bson.decode(one)["_id"]): one for one in raw.read(documents)}
    assert held.keys() == stored.keys()
    for key, document in held.items():
        assert bson.encode(document) == stored[key], oracle.first_difference(stored[key], bson.encode(document))


def spliced(array: list[int], edits: list[Any]) -> list[int]:
    """What stays and what is inserted, from the beginning to the end."""
    found, end = [], 0
    for at, deleted, inserted in edits:
        found += array[end:at] + inserted
        end = at + deleted
    return found + array[end:]


def some_edits(random: Random, length: int) -> list[Any]:
    edits, end = [], 0
    while end <= length and (not edits or random.random() < 0.6):
        at = random.randint(end, length)
        deleted = random.randint(0, min(3, length - at))
        inserted = [random.randrange(1000, 2000) for _ in range(random.randint(0 if deleted else 1, 3))]
        edits.append([at, deleted, inserted])
        end = at + deleted
    return edits


def test_a_splice_replaces_stretches_of_the_array_before() -> None:
    for case, random in cases("splices", 2000):
        array = list(range(random.randint(0, 12)))
        edits = some_edits(random, len(array))
        document = {"_id": 1, "a": {"b": list(array)}, "z": 1}
        apply(document, {"$set": {"z": 2, "new": 3}, "$splice": {"a.b": [len(array), *edits]}})
        assert document == {"_id": 1, "a": {"b": spliced(array, edits)}, "z": 2, "new": 3}, case


@pytest.mark.parametrize("damaged", [[1, 2], [1, 2, 3, 4], {"0": 1, "1": 2, "2": 3}, 5, None])
def test_a_splice_of_another_array_is_refused(damaged: object) -> None:
    with pytest.raises(ValueError, match="a is not an array of 3 elements"):
        apply({"_id": 1, "a": damaged}, {"$splice": {"a": [3, [0, 1, []]]}})
    with pytest.raises(ValueError, match="a is not an array of 3 elements"):
        apply({"_id": 1}, {"$splice": {"a": [3, [0, 1, []]]}})
