"""Collections that no copy can read, of which schema changes in the log may have brought one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from connectors.configs import definitions
from connectors.rest import Connect
from tests.schema.test_changes_in_log import LOGGED
from towpath.deploy import preconditions
from towpath.deploy.inventory import Inventory
from towpath.errors import ConnectUnreachable
from towpath.kafka.topics import Topics
from towpath.mongo.client import Collection
from towpath.mongo.privileges import privileges
from towpath.pipeline import Copy
from towpath.preflight import destination

PIPELINE = replace(LOGGED, copy=Copy("towpath", 4, "primary", 0, 0))
CAPPED = Collection("shop.capped", "collection", {"capped": True, "size": 4096}, "1")
COLLATED = Collection("shop.collated", "collection", {"collation": {"locale": "en", "strength": 2}}, "2")
SERIES = Collection("shop.series", "timeseries", {}, "3")
BEFORE, WITH_DDL = definitions(replace(PIPELINE, ddl=None)), definitions(PIPELINE)


def levels(
    source: Collection, deployed: Mapping[str, dict[str, str]], *targets: Collection, unreachable: bool = False
) -> list[str]:
    """Of what is found at the source, then at the destination."""
    with Connect("http://127.0.0.1:1") as connect, Topics("127.0.0.1:1") as topics:
        inventory = Inventory(PIPELINE, connect, topics)
        inventory.__dict__.update(collections=(source,), deployed=deployed, target_collections=targets)
        for cluster in (inventory.source, inventory.destination):
            cluster._answers[privileges] = None
        if unreachable:
            inventory.unreachable = {"connect": ConnectUnreachable("no answer")}
        return [finding.level for rule in (preconditions.kinds, destination.kinds) for finding in rule(inventory)]


def test_a_first_deployment_is_refused_and_a_later_one_warns_of_what_came_through_the_log() -> None:
    for collection in (CAPPED, COLLATED):
        assert levels(collection, {}) == ["error"]
        assert levels(collection, BEFORE) == ["error"], "nothing was in the log"
        assert levels(collection, WITH_DDL) == ["warning"]
        assert levels(collection, WITH_DDL, unreachable=True) == ["error"]
        assert levels(replace(collection, namespace="crm.new"), WITH_DDL) == ["error"], "it is to be copied"
    assert levels(SERIES, WITH_DDL) == ["error"], "it is not captured"


def test_a_collation_at_the_destination_is_known_from_the_source() -> None:
    plain, view = replace(COLLATED, options={}), replace(COLLATED, kind="view")
    assert levels(COLLATED, WITH_DDL, COLLATED) == ["warning"]
    assert levels(COLLATED, BEFORE, COLLATED) == ["error", "error"]
    assert levels(plain, WITH_DDL, COLLATED) == ["error"]
    assert levels(COLLATED, WITH_DDL, view) == ["warning", "error"]
