"""A session opens one client for each cluster, at its first use, and closes all at its end."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pymongo.errors import InvalidOperation

from tests.support import mongod
from tests.support.mongod import MongodSizes, Servers
from towpath import session
from towpath.clients.mongo.client import connected

pytestmark = pytest.mark.servers

FILE = """
name = "shop"
[source]
uri = "{uri}"
[destination]
uri = "{uri}"
[collections]
include = ["shop.*"]
[kafka]
bootstrap = "127.0.0.1:1"
[connect]
url = "http://127.0.0.1:1"
"""


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    with mongod.start_standalone(tmp_path_factory.mktemp("one"), sizes=MongodSizes(0.25, 64)) as started:
        yield started


def test_a_session_asks_with_one_client_and_closes_it_at_its_end(servers: Servers, tmp_path: Path) -> None:
    text = FILE.format(uri=servers.uri)
    with session.opened(tmp_path / "shop.toml", text) as it:
        with connected(it.pipeline.source.uri, "source") as first:
            first.admin.command("ping")
        with (
            session.opened(tmp_path / "other.toml", text),
            connected(it.pipeline.source.uri, "source") as second,
        ):
            assert second is first
        first.admin.command("ping")
        with connected(it.pipeline.source.uri, "source", timeout=5) as impatient:
            assert impatient is not first
    for client in (first, impatient):
        with pytest.raises(InvalidOperation, match="after close"):
            client.admin.command("ping")


def test_without_a_session_each_client_is_closed_at_once(servers: Servers) -> None:
    with connected(servers.uri, "source") as first:
        first.admin.command("ping")
    with pytest.raises(InvalidOperation, match="after close"):
        first.admin.command("ping")
    with connected(servers.uri, "source") as second:
        assert second is not first
