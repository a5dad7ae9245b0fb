"""A workload depends on its seed alone."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from pymongo import MongoClient

from tests.support import raw
from tests.support.workload import KINDS, Workload
from tests.support.workload.pipelines import MOVES, ODD_NAMES


def drawn(seed: int, operations: int = 800, **options: Any) -> list[str]:
    """Operations drawn, not applied: the client never connects."""
    with MongoClient[dict[str, Any]]("mongodb://127.0.0.1:1", connect=False) as client:
        workload = Workload(seed, [raw.collection(client, "a.b"), raw.collection(client, "a.c")], **options)
        return [repr(workload.draw()) for _ in range(operations)]


def kinds_drawn(**options: Any) -> Counter[str]:
    with MongoClient[dict[str, Any]]("mongodb://127.0.0.1:1", connect=False) as client:
        workload = Workload(1, [raw.collection(client, "a.b")], **options)
        return Counter(write.kind for _ in range(3000) for write in workload.draw().writes)


def test_one_seed_gives_one_list_of_operations() -> None:
    assert drawn(7) == drawn(7)


def test_another_seed_gives_another_list() -> None:
    assert drawn(7) != drawn(8)


def test_every_kind_is_drawn_often() -> None:
    found = kinds_drawn()
    ways = {"bulk", "unordered bulk", "findAndModify", "transaction"}
    assert [kind for kind in KINDS if kind not in ways and found[kind] < 10] == []


@pytest.mark.parametrize(("option", "kinds"), [("moves", MOVES), ("odd_names", ODD_NAMES)])
def test_what_a_change_stream_cannot_tell_is_drawn_on_request_only(option: str, kinds: dict[str, object]) -> None:
    assert not kinds.keys() & kinds_drawn().keys()
    assert kinds.keys() <= kinds_drawn(**{option: True}).keys()
