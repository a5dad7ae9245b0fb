"""More names than the source can filter its change stream by are refused before anything is deployed."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from pymongo import MongoClient

from tests.checks.test_check_judgements import PIPELINE
from tests.support import mongod
from towpath.checks.rule import Finding
from towpath.checks.source import filterable
from towpath.clients.mongo.replica_set import regex_refusal
from towpath.config.namespaces import Selection

Client = MongoClient[dict[str, Any]]


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    with (
        mongod.start_replica_set(tmp_path_factory.mktemp("filters")) as running,
        MongoClient[dict[str, Any]](running.uri) as client,
    ):
        yield client


def found(selection: Selection, ask: Any) -> list[Finding]:
    pipeline = PIPELINE.changed(collections={"include": selection.include, "exclude": selection.exclude})
    inventory: Any = SimpleNamespace(pipeline=pipeline, source=SimpleNamespace(ask=ask))
    return list(filterable(inventory))


def test_what_the_source_refuses_is_said_once_without_the_expression() -> None:
    (finding,) = found(Selection(("shop.*",)), lambda query: "it is too large")
    assert finding.level == "error" and "it is too large" in finding.finding and "shop" not in finding.finding
    assert "two pipelines" in finding.advice
    assert found(Selection(("shop.*",)), lambda query: "") == []


@pytest.mark.servers
def test_names_that_the_source_can_filter_by_are_accepted_and_more_are_not(client: Client) -> None:
    names = [f"shop.orders_of_{number:05}" for number in range(2_000)]

    def ask(query: Any) -> str:
        return str(query(client))

    assert found(Selection(tuple(names[:1_000])), ask) == []
    assert "too large" in found(Selection(tuple(names)), ask)[0].finding
    assert "too large" in found(Selection(("shop.*",), tuple(names)), ask)[0].finding
    assert regex_refusal(client, "(") and not regex_refusal(client, "a")
