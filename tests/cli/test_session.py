"""A session opens one client for each cluster, at its first use, and closes all at its end."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pymongo.errors import InvalidOperation

from tests.support import mongod
from tests.support.mongod import MongodSizes, Servers
from tests.support.pipeline import pipeline_text
from towpath import session
from towpath.clients.mongo.client import Cluster

pytestmark = pytest.mark.servers


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    with mongod.start_standalone(tmp_path_factory.mktemp("one"), sizes=MongodSizes(0.25, 64)) as started:
        yield started


def test_a_session_asks_with_one_client_and_closes_it_at_its_end(servers: Servers, tmp_path: Path) -> None:
    there = pipeline_text(servers.uri, f"{servers.uri}?appname=other")
    back = pipeline_text(f"{servers.uri}?appname=other", servers.uri)
    with session.opened(tmp_path / "shop.toml", there) as it:
        with it.source.connected() as first:
            first.admin.command("ping")
        with it.source.connected() as second:
            assert second is first
        with it.source.connected(timeout=5) as impatient:
            assert impatient is not first
        with it.replay_destination(servers.uri).connected() as of_replay:
            assert of_replay is not first
        shared = it.source, it.destination
        with session.opened(tmp_path / "back.toml", back, shared=shared) as reverse:
            assert (reverse.source, reverse.destination) == (it.destination, it.source)
        first.admin.command("ping")
    for client in (first, impatient, of_replay):
        with pytest.raises(InvalidOperation, match="after close"):
            client.admin.command("ping")


def test_threads_share_the_client_that_one_of_them_opens(servers: Servers) -> None:
    cluster = Cluster(servers.uri, "source")
    with ThreadPoolExecutor(8) as pool:
        opened = [*pool.map(lambda _: cluster.client(), range(64))]
    assert all(client is opened[0] for client in opened)
    cluster.close()
