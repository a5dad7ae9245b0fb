"""A URI with directConnection may name any member; only the primary has all that was acknowledged."""

from __future__ import annotations

import threading
from contextlib import closing
from typing import Any, cast

import pytest
from pymongo.errors import NotPrimaryError

from tests.support import bsonbytes as b
from tests.support.member import HIDDEN, PRIMARY, SECONDARY, STANDALONE, STARTING, UNINITIATED, member
from towpath.clients.mongo.client import Cluster
from towpath.errors import MongoError, MongoUnreachable
from towpath_verifier import Pair, Schemas, ServerLost, by_ids
from towpath_verifier.plan import list_pairs
from towpath_verifier.raw_batches import in_id_order
from towpath_verifier.reads import aggregated, collection
from towpath_verifier.workers import Job

PAIRS = [Pair("shop.orders", "shop.orders")]
ID = b.document(("_id", b.int32(1)))


def uri_of(address: str) -> str:
    return f"mongodb://{address}/?directConnection=true&heartbeatFrequencyMS=500"


@pytest.mark.parametrize("state", [SECONDARY, HIDDEN, STARTING])
def test_a_member_that_is_not_the_primary_is_refused_before_it_is_read(state: dict[str, Any]) -> None:
    with member(state) as made, closing(Cluster(uri_of(made.address), "source")) as cluster:
        with pytest.raises(MongoError) as raised, cluster.connected() as client:
            client.admin.command("ping")
        assert not made.asked
    assert not isinstance(raised.value, MongoUnreachable), "it may not be taken for a cluster that is lost"
    assert raised.value.what == (
        f"the source at mongodb://{made.address} is not the primary of its replica set: what it has may be old"
    )
    assert raised.value.advice == "remove directConnection from the URI, or name the primary ([source] uri)"


@pytest.mark.parametrize("state", [PRIMARY, STANDALONE, UNINITIATED])
def test_a_primary_and_what_is_no_member_are_not(state: dict[str, Any]) -> None:
    with member(state) as made, closing(Cluster(uri_of(made.address), "source")) as cluster:
        with cluster.connected() as client:
            client.admin.command("buildInfo")
        assert made.asked == ["buildInfo"]


def test_the_verifier_reads_no_such_member_and_waits_until_it_is_the_primary() -> None:
    with member(SECONDARY) as made:
        uri = uri_of(made.address)
        job = Job(uri, uri, ignore_field_order=False, screen=False, lost_for=30)
        with job.clients()[0] as client, closing(job.clients()[1]) as destination:
            with pytest.raises(ServerLost, match=f"{made.address} is not the primary .* remove directConnection"):
                list_pairs(client, destination, PAIRS, 0)
            documents = collection(client, "shop.orders")
            reads = by_ids(documents, [ID]), aggregated(documents, []), in_id_order(documents, None, None, 1)
            for read in cast(Any, reads):
                with pytest.raises(NotPrimaryError):
                    next(read)
            with pytest.raises(NotPrimaryError):
                Schemas.read(client, destination, PAIRS)
            assert not made.asked
            threading.Timer(0.3, lambda: setattr(made, "state", PRIMARY)).start()
            (listed,) = list_pairs(client, destination, PAIRS, 30)
    assert (listed.source, listed.destination) == (None, None)
    assert set(made.asked) == {"listCollections"}
