"""The marker of a rebuild on a real server: a command that was overtaken removes nothing any more."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from bson import Binary, Code, Int64, ObjectId, Timestamp
from pymongo import MongoClient

from tests.checks.test_check_judgements import PIPELINE
from tests.support import mongod
from tests.support.sessions import FakeCluster
from towpath.errors import Overtaken, Refused
from towpath.history import emptying, rebuild
from towpath.history.emptying import Marker
from towpath.history.plan import Plan
from towpath.store import positions, schema_changes

pytestmark = pytest.mark.servers
Client = MongoClient[dict[str, Any]]
PLACE = ("move.shop.orders", 0)
PLAN = Plan(only=(), forced=False, began=1.5, letters=0, log={PLACE: (0, 4)}, phase="emptying")
#: Of all kinds.
IDS = ["a", 2.5, Int64(7), {"a": {"b": 1}}, ObjectId(), Binary(b"x", 4), Timestamp(1, 2), Code("f"), None, True]


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    with (
        mongod.start_replica_set(tmp_path_factory.mktemp("emptying")) as running,
        MongoClient[dict[str, Any]](running.uri, tz_aware=True) as client,
    ):
        yield client


def test_only_who_has_the_token_removes_anything(client: Client) -> None:
    cluster, documents, now = FakeCluster(client, side="destination"), client["shop"]["orders"], datetime.now(UTC)
    mine, other = Marker(cluster, PIPELINE.name), Marker(cluster, PIPELINE.name)
    mine.insert(PLAN.as_json())
    with pytest.raises(Refused, match="another command has begun a rebuild"):
        other.insert(PLAN.as_json())
    assert rebuild.running(client, PIPELINE) == PLAN
    documents.insert_many([{"_id": id} for id in (*IDS, *range(100, 2_600))])
    emptying._delete_all(mine, "shop.orders")
    assert documents.count_documents({}) == 0

    positions.skip_to(client, PIPELINE, {PLACE: 4}, now)
    mine.change(lambda client, transaction: rebuild._forget(PIPELINE, PLAN, client, transaction))
    assert positions.positions(client, PIPELINE) == {}

    documents.insert_one({"_id": 1})
    assert Plan.from_json(other.take(1.5)) == PLAN
    for removes in (
        mine.require,
        lambda: emptying._delete_all(mine, "shop.orders"),
        lambda: emptying._drop(mine, "shop.orders"),
        lambda: mine.change(lambda *_: None, {"phase": "applying"}),
    ):
        with pytest.raises(Overtaken, match="another `towpath replay` has taken over move"):
            removes()
    mine.delete()
    assert documents.count_documents({}) == 1 and rebuild.running(client, PIPELINE) == PLAN

    late = {PLACE: 3}
    other.change(
        lambda client, transaction: positions.skip_to(client, PIPELINE, late, now, transaction), {"phase": "applying"}
    )
    stored = rebuild.running(client, PIPELINE)
    assert stored is not None and stored.phase == "applying"
    assert positions.positions(client, PIPELINE)[PLACE].offset == 3
    other.delete()
    assert rebuild.running(client, PIPELINE) is None
    with pytest.raises(Refused, match="has ended the rebuild of move"):
        mine.take(1.5)


def test_what_fails_in_a_removal_changes_nothing(client: Client) -> None:
    mine = Marker(FakeCluster(client, side="destination"), "move-replay-x")
    mine.put()
    sink = PIPELINE.changed(name="move-replay-x")
    positions.skip_to(client, sink, {PLACE: 4}, datetime.now(UTC))

    def fail(client: Client, transaction: Any) -> None:
        positions.forget_earlier(client, sink, transaction)
        schema_changes.forget(client, sink, [PLACE[0]], transaction)
        raise Refused("that is enough")

    with pytest.raises(Refused, match="that is enough"):
        mine.change(fail)
    assert positions.positions(client, sink)[PLACE].offset == 4
    mine.change(lambda client, transaction: positions.forget_earlier(client, sink, transaction))
    assert positions.positions(client, sink) == {}
    mine.require()
