"""What privileges, as MongoDB 6.0.5 lists them, are enough for."""

from typing import Any

import pytest

from tests.deploy.test_changes_in_log import LOGGED
from tests.support.sessions import session_of
from towpath.checks import destination, source
from towpath.checks.facts import Facts
from towpath.clients.connect.rest import Connect
from towpath.clients.kafka.topics import Topics
from towpath.clients.mongo.privileges import (
    DDL_DESTINATION_ACTIONS,
    DESTINATION_ACTIONS,
    SOURCE_ACTIONS,
    Privileges,
    privileges,
)
from towpath.config.pipeline import Pipeline

READ = ["changeStream", "collStats", "find", "listCollections", "listIndexes"]
WRITE = [*READ, "insert", "remove", "update"]


def grant(actions: list[str], **resource: Any) -> dict[str, Any]:
    return {"resource": resource, "actions": actions}


@pytest.mark.parametrize(
    ("granted", "missing"),
    [
        ([grant(READ, db="", collection="")], []),
        ([grant(READ, anyResource=True)], []),
        ([grant(READ, db="shop", collection="")], list(SOURCE_ACTIONS)),
        ([grant(["find"], db="", collection=""), grant(READ, db="shop", collection="")], list(SOURCE_ACTIONS[1:])),
        ([grant(["find"], db="", collection=""), grant(list(SOURCE_ACTIONS[1:]), db="", collection="")], []),
        ([grant(READ, db="", collection="orders")], list(SOURCE_ACTIONS)),
        ([grant(READ, cluster=True)], list(SOURCE_ACTIONS)),
        ([grant(READ, system_buckets="")], list(SOURCE_ACTIONS)),
        ([], list(SOURCE_ACTIONS)),
    ],
)
def test_the_source_has_to_be_readable_everywhere(granted: list[dict[str, Any]], missing: list[str]) -> None:
    assert Privileges("u@admin", tuple(granted)).missing(SOURCE_ACTIONS, "") == missing


@pytest.mark.parametrize(
    ("resource", "allowed"),
    [
        ({"db": "", "collection": ""}, True),
        ({"db": "shop", "collection": ""}, True),
        ({"db": "shop", "collection": "orders.2026"}, True),
        ({"db": "", "collection": "orders.2026"}, True),
        ({"db": "shop", "collection": "orders"}, False),
        ({"db": "bar", "collection": ""}, False),
    ],
)
def test_a_grant_covers_a_namespace(resource: dict[str, str], allowed: bool) -> None:
    mine = Privileges("u@admin", (grant(WRITE, **resource),))
    assert mine.missing(DESTINATION_ACTIONS, "shop.orders.2026") == ([] if allowed else list(DESTINATION_ACTIONS))


@pytest.mark.parametrize(
    ("resource", "satisfied"),
    [
        ({"db": "shop", "collection": ""}, False),
        ({"db": "move", "collection": ""}, True),
        ({"db": "users", "collection": ""}, True),
        ({"db": "", "collection": ""}, True),
        ({"cluster": True}, True),
        ({"db": "move", "collection": "orders"}, False),
        ({"anyResource": True}, False),
    ],
)
def test_mongo_kafka_looks_elsewhere(resource: dict[str, Any], satisfied: bool) -> None:
    mine = Privileges("u@users", (grant(WRITE, **resource),))
    assert mine.missing_for_mongo_kafka("move", "users") == ([] if satisfied else list(DESTINATION_ACTIONS))


def test_what_schema_changes_need_beyond_documents_is_named_for_each_database() -> None:
    missing = [action for action in DDL_DESTINATION_ACTIONS if action not in WRITE]
    writer = Privileges("u@admin", (grant(WRITE, db="shop", collection=""), grant(WRITE, db="crm", collection="")))
    [found] = destination.schema_changes(writer, ["shop.orders", "shop.parcels", "crm.people"])
    assert found.level == "error"
    assert f"may not {', '.join(missing)} in all of the database crm and 1 more" in found.finding
    assert '{role: "dbAdmin", db: "crm"}' in found.advice
    enough = Privileges("u@admin", (grant([*WRITE, *missing], db="shop", collection=""),))
    assert list(destination.schema_changes(enough, ["shop.orders"])) == []
    one = Privileges("u@admin", (grant([*WRITE, *missing], db="shop", collection="orders"),))
    assert len(list(destination.schema_changes(one, ["shop.orders"]))) == 1


def test_what_schema_changes_need_at_the_source_is_named() -> None:
    reader = Privileges(
        "u@admin", (grant([action for action in READ if action != "listIndexes"], db="", collection=""),)
    )

    def found(pipeline: Pipeline) -> list[tuple[str, str, str]]:
        with Connect("http://127.0.0.1:1") as connect, Topics("127.0.0.1:1") as topics:
            facts = Facts(session_of(pipeline, connect, topics))
            facts._answers["source", privileges] = reader
            return [(finding.level, finding.finding, finding.advice) for finding in source.privileged(facts)]

    [(level, finding, advice)] = found(LOGGED)
    assert (level, advice) == ("error", reader.grant([("readAnyDatabase", "admin")]))
    assert "u@admin may not listIndexes in every database" in finding
    assert [level for level, *_ in found(LOGGED.changed(ddl={"apply": False}))] == ["ok"]
