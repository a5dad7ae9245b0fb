"""Collections that no copy can read, of which schema changes in the log may have brought one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tests.deploy.test_changes_in_log import LOGGED
from tests.support.sessions import session_of
from towpath.checks import source as rules
from towpath.checks.facts import Facts
from towpath.clients.connect.rest import Connect
from towpath.clients.kafka.topics import Topics
from towpath.clients.mongo.replica_set import Collection
from towpath.errors import ConnectUnreachable
from towpath.log.definitions import definitions

PIPELINE = LOGGED.changed(capture={"copy_method": "towpath"})
CAPPED = Collection("shop.capped", "collection", {"capped": True, "size": 4096}, "1")
COLLATED = Collection("shop.collated", "collection", {"collation": {"locale": "en", "strength": 2}}, "2")
SERIES = Collection("shop.series", "timeseries", {}, "3")
BEFORE, WITH_DDL = definitions(PIPELINE.changed(ddl={"apply": False})), definitions(PIPELINE)


def levels(source: Collection, deployed: Mapping[str, dict[str, str]], *, unreachable: bool = False) -> list[str]:
    with Connect("http://127.0.0.1:1") as connect, Topics("127.0.0.1:1") as topics:
        facts = Facts(session_of(PIPELINE, connect, topics))
        facts.__dict__.update(collections=(source,), deployed=deployed)
        if unreachable:
            facts.unreachable = {"connect": ConnectUnreachable("no answer")}
        return [finding.level for finding in rules.kinds(facts)]


def test_a_first_deployment_is_refused_and_a_later_one_warns_of_what_came_through_the_log() -> None:
    for collection in (CAPPED, COLLATED):
        assert levels(collection, {}) == ["error"]
        assert levels(collection, BEFORE) == ["error"], "nothing was in the log"
        assert levels(collection, WITH_DDL) == ["warning"]
        assert levels(collection, WITH_DDL, unreachable=True) == ["error"]
        assert levels(replace(collection, namespace="crm.new"), WITH_DDL) == ["error"], "it is to be copied"
    assert levels(SERIES, WITH_DDL) == ["error"], "it is not captured"
